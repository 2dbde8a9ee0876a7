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

// shutdownInhibitor delays a shutdown or sleep of the machine until agents and records are safe.
// While at least one agent runs it holds a delay lock of the login manager (logind). When a
// shutdown is announced, it suspends all sessions and then releases the lock; if the shutdown is
// cancelled, it resumes them. It keeps handling signals while agents exit, which may take as long
// as their stop time-out. Without a login manager, or if that refuses the lock, agents still have
// the time that systemd grants at the end of the user manager. After the connection to the system
// bus is lost, it reconnects.
//
// Agents sleep with the machine and continue when it wakes, so a sleep does not affect them. But a
// machine may sleep until its battery is empty: the lock is held until every change is saved. When
// the machine wakes, timers that expired during the sleep fire at once.
type shutdownInhibitor struct {
	log     *slog.Logger
	suspend func(context.Context) ([]string, error)
	resume  func(context.Context) ([]string, error)
	flush   func(context.Context) error
	onWake  func()
	running chan bool     // capacity 1: only the newest value is kept
	retry   chan struct{} // requests another attempt to connect

	// The fields below belong to the goroutine of run.
	manager      *logind.Manager // nil while disconnected
	lock         *logind.Lock    // nil while it is not held
	anyRunning   bool            // at least one agent runs
	shuttingDown bool            // as last announced by the login manager
	suspendDone  <-chan struct{} // closed once all sessions are suspended; nil while no suspension is in progress
	asleep       bool            // the machine sleeps or is about to
	retryDelay   time.Duration   // delay before the next attempt to connect
}

const lockTimeout = 5 * time.Second

// After the bus was lost, the delay between attempts to connect doubles from the minimum to the
// maximum.
const (
	minReconnectDelay = time.Second
	maxReconnectDelay = time.Minute
)

func newShutdownInhibitor(log *slog.Logger) *shutdownInhibitor {
	return &shutdownInhibitor{log: log, running: make(chan bool, 1), retry: make(chan struct{}, 1)}
}

// setAnyRunning records whether any agent runs. It does not block; only the supervisor's event loop
// calls it.
func (l *shutdownInhibitor) setAnyRunning(running bool) {
	select {
	case <-l.running:
	default:
	}
	l.running <- running
}

// run holds and releases the delay lock until ctx is done. It wakes when the first agent starts,
// when the last one has exited, when a shutdown is announced or cancelled, when the machine sleeps
// or wakes, and while it tries to reconnect to the bus.
func (l *shutdownInhibitor) run(ctx context.Context) {
	l.manager = l.connect(ctx)
	defer func() {
		l.releaseLock()
		if l.manager != nil {
			_ = l.manager.Close()
		}
	}()
	l.loop(ctx)
}

func (l *shutdownInhibitor) loop(ctx context.Context) {
	for {
		var goingDown, sleeping <-chan bool
		if l.manager != nil {
			goingDown, sleeping = l.manager.PreparingForShutdown(), l.manager.PreparingForSleep()
		}
		select {
		case <-ctx.Done():
			return
		case l.anyRunning = <-l.running:
			if !l.anyRunning && l.suspendDone == nil {
				l.releaseLock()
			}
			if !l.asleep {
				l.acquireLock(ctx)
			}
		case l.asleep = <-sleeping:
			l.drainShutdown(ctx, goingDown)
			if l.asleep {
				l.flushBeforeSleep(ctx)
				l.releaseLock()
			} else {
				l.onWake()
				l.acquireLock(ctx)
			}
		case down, connected := <-goingDown:
			l.handleShutdown(ctx, down, connected)
		case <-l.suspendDone:
			l.finishSuspend(ctx)
		case <-l.retry:
			l.reconnect(ctx)
		}
	}
}

// drainShutdown handles a shutdown announcement that arrived before the announcement of a sleep.
// Handled after the sleep, it would take the lock again, which would keep the machine awake.
func (l *shutdownInhibitor) drainShutdown(ctx context.Context, goingDown <-chan bool) {
	asleep := l.asleep
	select {
	case down, connected := <-goingDown:
		l.handleShutdown(ctx, down, connected)
	default:
	}
	l.asleep = asleep
}

func (l *shutdownInhibitor) handleShutdown(ctx context.Context, down, connected bool) {
	// After a restart of the login manager or the bus no signal reports that the machine has woken.
	l.asleep = false
	if connected {
		l.setShuttingDown(ctx, down)
	} else {
		l.disconnected()
	}
}

// acquireLock takes the lock if an agent runs.
func (l *shutdownInhibitor) acquireLock(ctx context.Context) {
	if l.anyRunning && l.lock == nil {
		if l.manager == nil {
			l.manager = l.connect(ctx)
		}
		l.lock = l.requestLock(ctx)
	}
}

func (l *shutdownInhibitor) releaseLock() {
	l.lock.Release()
	l.lock = nil
}

// setShuttingDown handles an announcement that the machine shuts down, or does not.
func (l *shutdownInhibitor) setShuttingDown(ctx context.Context, down bool) {
	changed := down != l.shuttingDown
	l.shuttingDown = down
	switch {
	case down && changed:
		l.suspendDone = runAsync(ctx, l.suspendAll)
	case changed:
		runAsync(ctx, l.resumeAll) // it takes as long as agents take to start, and may itself be cancelled
	case !down: // the login manager may be able to grant a lock now
		l.acquireLock(ctx)
	}
}

// finishSuspend releases the lock once all sessions are suspended. If the shutdown was cancelled in
// the meantime, it also resumes the sessions whose agents were still exiting at that time.
func (l *shutdownInhibitor) finishSuspend(ctx context.Context) {
	l.suspendDone = nil
	if l.shuttingDown || !l.anyRunning || l.manager == nil {
		l.releaseLock()
	}
	if !l.shuttingDown {
		runAsync(ctx, l.resumeAll)
	}
}

// runAsync runs f in a new goroutine and returns once the supervisor has accepted what f requests:
// later requests are handled after it. The returned channel is closed when f returns.
func runAsync(ctx context.Context, f func(context.Context)) <-chan struct{} {
	accepted, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		accept := sync.OnceFunc(func() { close(accepted) })
		defer accept() // f may have failed earlier
		f(supervisor.WhenAccepted(ctx, accept))
	}()
	<-accepted
	return ended
}

// disconnected closes the connection and releases the lock: without the connection the daemon could
// not learn when to release it, and the lock would only delay the shutdown. During a suspension the
// time of release is known, so the lock is kept.
func (l *shutdownInhibitor) disconnected() {
	_ = l.manager.Close()
	l.manager = nil
	if l.suspendDone == nil {
		l.releaseLock()
	}
	l.scheduleReconnect(minReconnectDelay)
}

func (l *shutdownInhibitor) scheduleReconnect(delay time.Duration) {
	l.retryDelay = delay
	deadline.AfterFunc(delay, func() {
		select {
		case l.retry <- struct{}{}:
		default: // an attempt is already pending
		}
	})
}

// reconnect tries to reconnect to the bus, unless it is connected.
func (l *shutdownInhibitor) reconnect(ctx context.Context) {
	if l.manager != nil {
		return
	}
	if l.manager = l.connect(ctx); l.manager == nil {
		l.scheduleReconnect(min(2*l.retryDelay, maxReconnectDelay))
		return
	}
	l.acquireLock(ctx)
}

func (l *shutdownInhibitor) connect(ctx context.Context) *logind.Manager {
	ctx, cancel := deadline.Context(ctx, lockTimeout)
	defer cancel()
	manager, err := logind.Connect(ctx, logind.Address())
	if err != nil {
		l.log.Debug("no login manager is running: a shutdown or sleep is not delayed", "err", err)
		return nil
	}
	return manager
}

func (l *shutdownInhibitor) requestLock(ctx context.Context) *logind.Lock {
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

func (l *shutdownInhibitor) flushBeforeSleep(ctx context.Context) {
	ctx, cancel := deadline.Context(ctx, lockTimeout) // the login manager's default InhibitDelayMaxSec= is also 5 s
	defer cancel()
	if err := l.flush(ctx); err != nil && ctx.Err() == nil {
		l.log.Warn("cannot save all changes before the machine sleeps", "err", err)
	}
}

func (l *shutdownInhibitor) suspendAll(ctx context.Context) {
	ids, err := l.suspend(ctx)
	if err != nil && ctx.Err() == nil {
		l.log.Warn("cannot suspend every session before the machine goes down", "err", err)
	}
	if len(ids) > 0 {
		l.log.Info("suspended sessions before the machine goes down", "sessions", ids)
	}
}

func (l *shutdownInhibitor) resumeAll(ctx context.Context) {
	ids, err := l.resume(ctx)
	if err != nil && ctx.Err() == nil {
		l.log.Warn("cannot resume every session after the shutdown was canceled", "err", err)
	}
	if len(ids) > 0 {
		l.log.Info("resumed sessions after the shutdown was canceled", "sessions", ids)
	}
}
