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
// canceled, it resumes them. It keeps handling signals while agents exit, which may take as long
// as their stop time-out. Without a login manager, or if that refuses the lock, agents still have
// the time that systemd grants at the end of the user manager. After the connection to the system
// bus is lost, it reconnects. Over the same connection it learns whether the user is present.
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
	present func(bool)    // called when the user may have come to, or left, this machine
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
func (i *shutdownInhibitor) setAnyRunning(running bool) {
	select {
	case <-i.running:
	default:
	}
	i.running <- running
}

// run holds and releases the delay lock until ctx is done. It wakes when the first agent starts,
// when the last one has exited, when a shutdown is announced or canceled, when the machine sleeps
// or wakes, and while it tries to reconnect to the bus.
func (i *shutdownInhibitor) run(ctx context.Context) {
	i.present(false) // a daemon that was killed may have left another value
	i.manager = i.connect(ctx)
	defer func() {
		i.present(false)
		i.releaseLock()
		if i.manager != nil {
			_ = i.manager.Close()
		}
	}()
	i.loop(ctx)
}

func (i *shutdownInhibitor) loop(ctx context.Context) {
	for {
		var goingDown, sleeping, present <-chan bool
		if i.manager != nil {
			goingDown, sleeping = i.manager.PreparingForShutdown(), i.manager.PreparingForSleep()
			present = i.manager.Present()
		}
		select {
		case <-ctx.Done():
			return
		case i.anyRunning = <-i.running:
			if !i.anyRunning && i.suspendDone == nil {
				i.releaseLock()
			}
			if !i.asleep {
				i.acquireLock(ctx)
			}
		case i.asleep = <-sleeping:
			i.drainShutdown(ctx, goingDown)
			if i.asleep {
				i.flushBeforeSleep(ctx)
				i.releaseLock()
			} else {
				i.onWake()
				i.acquireLock(ctx)
			}
		case down, connected := <-goingDown:
			i.handleShutdown(ctx, down, connected)
		case isPresent := <-present:
			i.present(isPresent)
		case <-i.suspendDone:
			i.finishSuspend(ctx)
		case <-i.retry:
			i.reconnect(ctx)
		}
	}
}

// drainShutdown handles a shutdown announcement that arrived before the announcement of a sleep.
// Handled after the sleep, it would take the lock again, which would keep the machine awake.
func (i *shutdownInhibitor) drainShutdown(ctx context.Context, goingDown <-chan bool) {
	asleep := i.asleep
	select {
	case down, connected := <-goingDown:
		i.handleShutdown(ctx, down, connected)
	default:
	}
	i.asleep = asleep
}

func (i *shutdownInhibitor) handleShutdown(ctx context.Context, down, connected bool) {
	// After a restart of the login manager or the bus no signal reports that the machine has woken.
	i.asleep = false
	if connected {
		i.setShuttingDown(ctx, down)
		return
	}
	_ = i.manager.Close()
	i.manager = nil
	i.present(false)
	// Without the connection the daemon could not learn when to release the lock, which would only
	// delay the shutdown. During a suspension that time is known, so the lock is kept.
	if i.suspendDone == nil {
		i.releaseLock()
	}
	i.scheduleReconnect(minReconnectDelay)
}

// acquireLock takes the lock if an agent runs.
func (i *shutdownInhibitor) acquireLock(ctx context.Context) {
	if i.anyRunning && i.lock == nil {
		if i.manager == nil {
			i.manager = i.connect(ctx)
		}
		i.lock = i.requestLock(ctx)
	}
}

func (i *shutdownInhibitor) releaseLock() {
	i.lock.Release()
	i.lock = nil
}

// setShuttingDown handles an announcement that the machine shuts down, or does not.
func (i *shutdownInhibitor) setShuttingDown(ctx context.Context, down bool) {
	changed := down != i.shuttingDown
	i.shuttingDown = down
	switch {
	case down && changed:
		i.suspendDone = runAsync(ctx, i.suspendAll)
	case changed:
		runAsync(ctx, i.resumeAll) // it takes as long as agents take to start, and may itself be canceled
	case !down: // the login manager may be able to grant a lock now
		i.acquireLock(ctx)
	}
}

// finishSuspend releases the lock once all sessions are suspended. If the shutdown was canceled in
// the meantime, it also resumes the sessions whose agents were still exiting at that time.
func (i *shutdownInhibitor) finishSuspend(ctx context.Context) {
	i.suspendDone = nil
	if i.shuttingDown || !i.anyRunning || i.manager == nil {
		i.releaseLock()
	}
	if !i.shuttingDown {
		runAsync(ctx, i.resumeAll)
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

func (i *shutdownInhibitor) scheduleReconnect(delay time.Duration) {
	i.retryDelay = delay
	deadline.AfterFunc(delay, func() {
		select {
		case i.retry <- struct{}{}:
		default: // an attempt is already pending
		}
	})
}

// reconnect tries to reconnect to the bus, unless it is connected.
func (i *shutdownInhibitor) reconnect(ctx context.Context) {
	if i.manager != nil {
		return
	}
	if i.manager = i.connect(ctx); i.manager == nil {
		i.scheduleReconnect(min(2*i.retryDelay, maxReconnectDelay))
		return
	}
	i.acquireLock(ctx)
}

func (i *shutdownInhibitor) connect(ctx context.Context) *logind.Manager {
	ctx, cancel := deadline.Context(ctx, lockTimeout)
	defer cancel()
	manager, err := logind.Connect(ctx, logind.Address())
	if err != nil {
		i.log.Debug("no login manager is running: a shutdown or sleep is not delayed", "err", err)
		return nil
	}
	return manager
}

func (i *shutdownInhibitor) requestLock(ctx context.Context) *logind.Lock {
	if i.manager == nil {
		return nil
	}
	ctx, cancel := deadline.Context(ctx, lockTimeout)
	defer cancel()
	lock, err := i.manager.Inhibit(ctx, "corrald", "Agents save their work")
	if err != nil {
		i.log.Debug("the login manager does not delay a shutdown or sleep", "err", err)
	}
	return lock
}

func (i *shutdownInhibitor) flushBeforeSleep(ctx context.Context) {
	ctx, cancel := deadline.Context(ctx, lockTimeout) // the login manager's default InhibitDelayMaxSec= is also 5 s
	defer cancel()
	if err := i.flush(ctx); err != nil && ctx.Err() == nil {
		i.log.Warn("cannot save all changes before the machine sleeps", "err", err)
	}
}

func (i *shutdownInhibitor) suspendAll(ctx context.Context) {
	ids, err := i.suspend(ctx)
	if err != nil && ctx.Err() == nil {
		i.log.Warn("cannot suspend every session before the machine goes down", "err", err)
	}
	if len(ids) > 0 {
		i.log.Info("suspended sessions before the machine goes down", "sessions", ids)
	}
}

func (i *shutdownInhibitor) resumeAll(ctx context.Context) {
	ids, err := i.resume(ctx)
	if err != nil && ctx.Err() == nil {
		i.log.Warn("cannot resume every session after the shutdown was canceled", "err", err)
	}
	if len(ids) > 0 {
		i.log.Info("resumed sessions after the shutdown was canceled", "sessions", ids)
	}
}
