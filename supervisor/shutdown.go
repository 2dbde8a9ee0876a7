package supervisor

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/corrald/corral/supervisor/session"
)

// shutdown is the end of the daemon, or of the machine.
type shutdown struct {
	loop         *loop
	stopping     bool              // the daemon is about to exit
	machineStops bool              // SuspendForShutdown was called
	announced    bool              // the last argument of Callbacks.AnnounceShutdown
	suspended    map[string]string // ids of the runs that it suspended, by session; see ShutdownCancelled
}

// SuspendForShutdown suspends all sessions because the machine is about to be shut down, and
// returns their ids once their scopes are empty. Until ShutdownCancelled is called, no run begins:
// methods that begin one return ShuttingDown. The call is accepted (see WhenAccepted) once all
// suspensions are decided.
func (s *Supervisor) SuspendForShutdown(ctx context.Context) ([]string, error) {
	d := &s.loop.shutdown
	return s.loop.operations.suspendAll(ctx, "the machine was shut down", func() {
		d.machineStops = true
		for id, e := range s.loop.sessions.byID {
			if r := e.rec.Run; !r.Ended() && r.Intent == session.NoIntent {
				d.suspended[id] = r.ID
			}
		}
		d.announce(true)
	})
}

// ShutdownCancelled reverts SuspendForShutdown because the shutdown of the machine was canceled. It
// resumes the sessions that were suspended for it, the oldest first and a few at the same time,
// except those that were used since. It returns the ids of the sessions that run again. A session
// that is still stopping is not resumed: for that, call ShutdownCancelled once more after
// SuspendForShutdown has returned. The sessions get back the places that they held: no queued one
// begins meanwhile. The call is accepted once runs may begin again.
func (s *Supervisor) ShutdownCancelled(ctx context.Context) ([]string, error) {
	d, o, queue := &s.loop.shutdown, &s.loop.operations, &s.loop.sessions.queue
	err := s.loop.do(func() {
		queue.hold()
		d.machineStops = false
		d.announce(d.stopping)
		maps.DeleteFunc(d.suspended, func(id, run string) bool {
			e := s.loop.sessions.byID[id]
			return e == nil || e.rec.Run == nil || e.rec.Run.ID != run
		})
	})
	if err != nil {
		return nil, err
	}
	defer s.loop.post(queue.release)
	accepted(ctx)
	// Sessions that are not resumed before the next shutdown is announced are resumed after that one.
	ids, err := o.idsWhere(func(e *entry) bool {
		return d.suspended[e.rec.ID] != "" && e.rec.View().State == session.Suspended
	})
	if err != nil {
		return nil, err
	}
	return o.forEachID(ctx, ids, maxResumes, func(ctx context.Context, id string) error {
		return o.resume(ctx, id, BeginOptions{Now: true})
	})
}

// check returns an error if a run that begins now would be stopped immediately.
func (d *shutdown) check() error {
	switch {
	case d.stopping:
		return refuse(ShuttingDown, "corrald is shutting down")
	case d.machineStops:
		return refuse(ShuttingDown, "the machine is shutting down")
	}
	return nil
}

// announce records and announces that the machine or the login session is about to end, or
// no longer is.
func (d *shutdown) announce(on bool) {
	if on != d.announced && d.loop.callbacks.AnnounceShutdown != nil {
		d.loop.callbacks.AnnounceShutdown(on)
	}
	d.announced = on
}

// reasonLoginSessionEnded is the reason of a run that ended together with the user manager.
const reasonLoginSessionEnded = "the login session ended"

// run is the last iteration of the event loop. It is called when the daemon has to exit, or has
// lost the bus.
//
// If only the daemon exits, the agents continue to run. Each live session is marked, so that it is
// suspended if its agent is gone when the next daemon starts. But agents whose scopes systemd stops
// at the same time are stopped first: systemd has left that to this daemon, or is about to, and
// there may be no other daemon.
//
// If the whole user manager stops, at logout or poweroff, all agents are stopped so that they can
// be resumed: systemd stops the scopes only after the daemon, and would send SIGTERM to all their
// processes at the same time.
func (d *shutdown) run() {
	d.stopping = true
	for _, e := range d.loop.sessions.byID {
		if e.stopQueries > 0 {
			e.markDirty()
		}
	}
	d.loop.problems.retries.retrySaves() // for the last time
	d.loop.saveExits()
	if d.isManagerStopping() {
		d.announce(true)
		for _, e := range d.loop.sessions.sorted() {
			if e.rec.Run.Live() {
				e.apply(session.EndRequested{Op: session.OpSuspend, Why: reasonLoginSessionEnded, Systemd: true})
			}
		}
		d.waitForScopes(d.hasLiveRuns)
		return
	}
	d.announce(d.machineStops)
	d.detectStoppingScopes()
	d.waitForScopes(d.hasStoppingScopes)
	now := time.Now()
	for _, e := range d.loop.sessions.sorted() {
		r, scope := e.rec.Run, &e.run.scope
		switch {
		case !r.Ended():
			e.apply(session.LeftRunning{Run: r.ID, At: now})
		case scope.systemdStops && scope.isEmptied(): // systemd may not have reported it yet, or the bus is lost
			e.apply(session.ScopeEnded{Run: r.ID, At: now})
		}
	}
	d.loop.finishIteration()
}

// unsaved returns an error if changes of sessions could not be saved before the end. Records of a
// newer version do not count: they are read-only, which was reported when they were read.
func (d *shutdown) unsaved() error {
	var ids []string
	for _, e := range d.loop.sessions.sorted() {
		if canRetrySave(e) && !e.removed {
			ids = append(ids, e.rec.ID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	return fmt.Errorf("the last changes of these sessions could not be saved: %s",
		strings.Join(ids, ", "))
}

// shutdownQueryTimeout limits a query to systemd while the daemon exits: systemd is busy then, and
// may be gone.
const shutdownQueryTimeout = 2 * time.Second

// isManagerStopping reports whether the whole user manager is stopping.
func (d *shutdown) isManagerStopping() bool {
	ctx, cancel := d.loop.clocks.AfterFunc.Context(d.loop.ctx, shutdownQueryTimeout)
	defer cancel()
	return d.loop.system.Systemd.IsStopping(ctx)
}

// detectStoppingScopes lists the scopes and begins to stop the agents of those that systemd stops.
// It abandons all others to systemd, which cannot know yet that this daemon exits. A run that has
// ended by such a stop before systemd could report it is recorded as stopped.
func (d *shutdown) detectStoppingScopes() {
	if !d.hasLiveRuns() {
		return
	}
	ctx, cancel := d.loop.clocks.AfterFunc.Context(d.loop.ctx, shutdownQueryTimeout)
	defer cancel()
	scopes, err := d.loop.system.Systemd.Scopes(ctx)
	if err != nil {
		d.loop.log.Warn("cannot list the scopes that are stopped together with corrald", "err", err)
		return
	}
	found := func(e *entry) { // that systemd stops its scope
		e.run.scope.systemdStops = true
		e.run.scope.queryFoundStop()
	}
	active, running := map[*entry]bool{}, []string{}
	for _, sc := range scopes {
		e := d.loop.sessions.findByUnit(sc.Name)
		if e == nil || !isInvocationOf(e.rec.Run, sc.InvocationID) {
			continue
		}
		active[e] = sc.Active && !sc.Stopping
		switch {
		case sc.Stopping:
			found(e)
		case sc.Active:
			running = append(running, sc.Name)
		}
	}
	stopping, err := d.loop.system.Systemd.Abandon(ctx, running)
	if err != nil {
		d.loop.log.Warn("cannot leave the scopes to systemd", "err", err)
	}
	for _, name := range stopping {
		found(d.loop.sessions.findByUnit(name))
	}
	for _, e := range d.loop.sessions.sorted() {
		if !e.rec.Run.Live() || active[e] {
			continue
		}
		if stop, ok := e.run.exit.recordedStop(); ok {
			e.run.scope.systemdStops = true
			e.apply(stop)
		}
	}
}

// hasStoppingScopes reports whether there are agents to wait for in scopes that systemd stops.
func (d *shutdown) hasStoppingScopes() bool {
	return d.loop.sessions.contains(func(e *entry) bool {
		return e.stopQueries > 0 || e.run.scope.systemdStops && e.rec.Run.Live() && !e.run.scope.isEmptied()
	})
}

// shutdownMargin is how much longer than the agents' stop timeout a shutdown may take: until the
// killed processes are gone, and that is saved.
const shutdownMargin = 5 * time.Second

// waitForScopes continues the event loop while mustWait returns true, but not longer than the live
// agents have time to exit. It also waits for the detection of conversations that agents have
// printed at their end: a daemon that starts later than recentExit detects them only for
// sessions that have none.
func (d *shutdown) waitForScopes(mustWait func() bool) {
	d.loop.finishIteration()
	d.loop.problems.publish() // and schedule the retry of what could not be saved
	isDetecting := func(e *entry) bool { return e.detectingPrinted }
	mustContinue := func() bool { return mustWait() || d.loop.sessions.contains(isDetecting) }
	if !mustContinue() {
		return
	}
	timeout := d.loop.settings.config.StopTimeout
	for _, e := range d.loop.sessions.byID {
		if e.rec.Run.Live() {
			timeout = max(timeout, d.loop.settings.stopTimeout(e.rec))
		}
	}
	timeout += shutdownMargin
	if d.loop.callbacks.StopDelayed != nil {
		d.loop.callbacks.StopDelayed(timeout)
	}
	limit, cancel := d.loop.clocks.AfterFunc.Context(context.Background(), timeout)
	defer cancel()
	for mustContinue() {
		select {
		case f := <-d.loop.mailbox:
			d.loop.iterate(f)
		case <-limit.Done():
			return
		}
	}
}

// hasLiveRuns reports whether any session has a live run.
func (d *shutdown) hasLiveRuns() bool {
	return d.loop.sessions.contains(func(e *entry) bool { return e.rec.Run.Live() })
}
