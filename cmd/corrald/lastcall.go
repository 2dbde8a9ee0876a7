package main

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/corrald/corral/internal/deadline"
	"github.com/corrald/corral/internal/logind"
	"github.com/corrald/corral/supervisor"
)

// lastCall gives agents time before the machine is shut down: for as long as one lives it holds the
// login manager's delay lock, and when it hears that the machine goes down it has them all
// suspended before it lets go; if it then does not, they are resumed. What else is said is heard
// while they end, which may take as long as agents are given. Where there is no login manager, or
// it refuses, the agents still have the time that systemd gives at the end of the user's manager. A
// system bus that goes away is waited for.
//
// Agents sleep with the machine and go on when it wakes, so nothing is done to them then. But a
// machine may sleep until its battery is empty: the lock is held until everything that has happened
// is saved. And what has become due meanwhile is due at once when it wakes.
type lastCall struct {
	log     *slog.Logger
	suspend func(context.Context) ([]string, error)
	resume  func(context.Context) ([]string, error)
	settle  func(context.Context) error
	woke    func()
	busy    chan bool     // the newest only
	again   chan struct{} // it is time to look for the bus once more

	// What follows is run's.
	manager  *logind.Manager // nil while there is none
	lock     *logind.Lock    // nil while it is not held
	some     bool            // some agent lives
	goesDown bool            // as it was heard last
	ended    <-chan struct{} // closed once the sessions that are being suspended are; nil while none are
	asleep   bool            // so does it, or is about to
	pause    time.Duration   // before the bus is looked for once more
}

const lockTimeout = 5 * time.Second

// A bus that was lost is looked for after the shortest pause, then after longer ones.
const (
	shortestPause = time.Second
	longestPause  = time.Minute
)

func newLastCall(log *slog.Logger) *lastCall {
	return &lastCall{log: log, busy: make(chan bool, 1), again: make(chan struct{}, 1)}
}

// live is told whether agents do. It does not wait; the supervisor's loop alone calls it.
func (l *lastCall) live(some bool) {
	select {
	case <-l.busy:
	default:
	}
	l.busy <- some
}

// run does it, until ctx is done. It wakes when the first agent begins to live, when the last one
// is gone, when the machine goes down or does not, when it sleeps or wakes, and while the bus that
// it had is away.
func (l *lastCall) run(ctx context.Context) {
	l.manager = l.connect(ctx)
	defer func() {
		l.letGo()
		if l.manager != nil {
			_ = l.manager.Close()
		}
	}()
	l.serve(ctx)
}

func (l *lastCall) serve(ctx context.Context) {
	for {
		var goingDown, sleeping <-chan bool
		if l.manager != nil {
			goingDown, sleeping = l.manager.PreparingForShutdown(), l.manager.PreparingForSleep()
		}
		select {
		case <-ctx.Done():
			return
		case l.some = <-l.busy:
			if !l.some && l.ended == nil {
				l.letGo()
			}
			if !l.asleep {
				l.hold(ctx)
			}
		case l.asleep = <-sleeping:
			l.catchUp(ctx, goingDown)
			if l.asleep {
				l.settled(ctx)
				l.letGo()
			} else {
				l.woke()
				l.hold(ctx)
			}
		case down, connected := <-goingDown:
			l.told(ctx, down, connected)
		case <-l.ended:
			l.suspended(ctx)
		case <-l.again:
			l.lookAgain(ctx)
		}
	}
}

// catchUp takes what was said of a shutdown before the machine was about to sleep: taken after it,
// that would have a lock held again, which keeps it awake.
func (l *lastCall) catchUp(ctx context.Context, goingDown <-chan bool) {
	asleep := l.asleep
	select {
	case down, connected := <-goingDown:
		l.told(ctx, down, connected)
	default:
	}
	l.asleep = asleep
}

func (l *lastCall) told(ctx context.Context, down, connected bool) {
	l.asleep = false // a login manager or a bus that has begun anew does not say when the machine wakes
	if connected {
		l.heard(ctx, down)
	} else {
		l.lost()
	}
}

// hold takes the lock where there is an agent to take it for.
func (l *lastCall) hold(ctx context.Context) {
	if l.some && l.lock == nil {
		if l.manager == nil {
			l.manager = l.connect(ctx)
		}
		l.lock = l.take(ctx)
	}
}

func (l *lastCall) letGo() {
	l.lock.Release()
	l.lock = nil
}

// heard is told whether the machine goes down.
func (l *lastCall) heard(ctx context.Context, down bool) {
	changed := down != l.goesDown
	l.goesDown = down
	switch {
	case down && changed:
		l.ended = meanwhile(ctx, l.suspendAll)
	case changed:
		meanwhile(ctx, l.resumeAll) // it takes as long as agents take to start, and may be called off itself
	case !down: // there may be one to give a lock now
		l.hold(ctx)
	}
}

// suspended gives up the lock once all sessions are suspended. If that was called off meanwhile,
// those that were still ending then are resumed, too.
func (l *lastCall) suspended(ctx context.Context) {
	l.ended = nil
	if l.goesDown || !l.some || l.manager == nil {
		l.letGo()
	}
	if !l.goesDown {
		meanwhile(ctx, l.resumeAll)
	}
}

// meanwhile runs f on a goroutine of its own and returns once the supervisor has accepted what f
// asks of it: what is asked of it from now on comes after that. The channel is closed when f
// returns.
func meanwhile(ctx context.Context, f func(context.Context)) <-chan struct{} {
	accepted, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		accept := sync.OnceFunc(func() { close(accepted) })
		defer accept() // it may have failed before
		f(supervisor.WhenAccepted(ctx, accept))
	}()
	<-accepted
	return ended
}

// lost gives up the lock with the connection: one that nobody would hear when to give up only holds
// people up. While sessions are being suspended that is known.
func (l *lastCall) lost() {
	_ = l.manager.Close()
	l.manager = nil
	if l.ended == nil {
		l.letGo()
	}
	l.lookLater(shortestPause)
}

func (l *lastCall) lookLater(pause time.Duration) {
	l.pause = pause
	deadline.AfterFunc(pause, func() {
		select {
		case l.again <- struct{}{}:
		default: // it will be done
		}
	})
}

// lookAgain looks whether the bus is back, unless that is known.
func (l *lastCall) lookAgain(ctx context.Context) {
	if l.manager != nil {
		return
	}
	if l.manager = l.connect(ctx); l.manager == nil {
		l.lookLater(min(2*l.pause, longestPause))
		return
	}
	l.hold(ctx)
}

func (l *lastCall) connect(ctx context.Context) *logind.Manager {
	ctx, cancel := deadline.Context(ctx, lockTimeout)
	defer cancel()
	manager, err := logind.Connect(ctx, logind.Address())
	if err != nil {
		l.log.Debug("no login manager is running: a shutdown or sleep is not delayed", "err", err)
		return nil
	}
	return manager
}

func (l *lastCall) take(ctx context.Context) *logind.Lock {
	if l.manager == nil {
		return nil
	}
	ctx, cancel := deadline.Context(ctx, lockTimeout)
	defer cancel()
	lock, err := l.manager.Inhibit(ctx, "corrald", "Agents save their work")
	if err != nil {
		l.log.Debug("the login manager does not delay a shutdown or sleep", "err", err)
	}
	return lock
}

func (l *lastCall) settled(ctx context.Context) {
	ctx, cancel := deadline.Context(ctx, lockTimeout) // as long as the login manager waits, where it was not told otherwise
	defer cancel()
	if err := l.settle(ctx); err != nil && ctx.Err() == nil {
		l.log.Warn("cannot save all changes before the machine sleeps", "err", err)
	}
}

func (l *lastCall) suspendAll(ctx context.Context) {
	ids, err := l.suspend(ctx)
	if err != nil && ctx.Err() == nil {
		l.log.Warn("cannot suspend every session before the machine goes down", "err", err)
	}
	if len(ids) > 0 {
		l.log.Info("suspended sessions before the machine goes down", "sessions", ids)
	}
}

func (l *lastCall) resumeAll(ctx context.Context) {
	ids, err := l.resume(ctx)
	if err != nil && ctx.Err() == nil {
		l.log.Warn("cannot resume every session after the shutdown was canceled", "err", err)
	}
	if len(ids) > 0 {
		l.log.Info("resumed sessions after the shutdown was canceled", "sessions", ids)
	}
}
