package supervisor

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/corrald/corral/dbusapi/word"

	"github.com/corrald/corral/internal/failpoint"
	"github.com/corrald/corral/supervisor/session"
)

// adoption compares the sessions with what exists: systemd's scopes, processes and records of
// exits. A new daemon does this before its event loop runs, and resync repeats it. Only resync is
// called by other goroutines than the event loop.
type adoption struct {
	loop            *loop
	listing         bool            // resync is listing the scopes
	listAgain       bool            // they have to be listed once more, because resync was called meanwhile
	uncompared      map[*entry]bool // have to be compared with systemd's scopes once more
	relistScheduled bool            // listing these scopes has failed, and will be repeated
	relistDelay     time.Duration   // before that; 0 if the last listing has succeeded
}

// Adopt adopts the saved sessions, before Run. It lists the scopes that exist and applies what it
// finds as events, the same as while the loop runs. A session whose record was lost is rebuilt if
// its agent is running. Any other scope that belongs to no session is logged and left alone.
func (s *Supervisor) Adopt(ctx context.Context, saved []*session.Session) error {
	l := s.loop
	for _, rec := range saved {
		e := newEntry(l, rec)
		e.adoptedState = rec.State
		l.add(e)
	}
	if err := l.adoption.listAndCompare(ctx); err != nil {
		return err
	}
	l.adoption.removeEmptyRuntimeDirs()
	for _, e := range l.sessions.byID {
		if e.rec.ConversationID == "" || e.hasJustExited() {
			e.detectPrintedConversation()
		}
	}
	if ids, err := l.system.Systemd.PulledIn(ctx); err == nil {
		l.expiry.setPulledIn(ids)
	}
	l.problems.stale = true
	l.operations.worktrees.undoUnconfirmed()
	for _, e := range l.sessions.byID {
		e.setup.adopt()
	}
	l.adoption.awaitProbes(ctx)
	failpoint.Hit("adopt.applied")
	l.finishIteration()
	failpoint.Hit("adopt.saved")
	l.problems.publish()
	l.status.report()
	l.expiry.armAlarm()
	return nil
}

// listAndCompare lists the scopes, rebuilds lost sessions, and applies to each session what has
// become of its run since it was saved.
func (a *adoption) listAndCompare(ctx context.Context) error {
	// Watch first, then list: the end of a scope in between is reported.
	var units []string
	for _, e := range a.loop.sessions.byID {
		if r := e.rec.Run; r.Live() && r.BootID == a.loop.settings.bootID {
			units = append(units, r.Unit)
		}
	}
	if err := a.loop.system.Systemd.Watch(ctx, units...); err != nil {
		return err
	}
	failpoint.Hit("adopt.watched")
	scopes, err := a.loop.system.Systemd.Scopes(ctx)
	if err != nil {
		return err
	}
	failpoint.Hit("adopt.listed")
	if scopes, err = a.rebuild(ctx, scopes); err != nil {
		return err
	}
	var alive, justExited []*entry
	for _, e := range a.loop.sessions.byID {
		switch {
		case e.rec.Run.AgentAlive():
			alive = append(alive, e)
		case e.rec.Run.Live() && e.hasJustExited():
			justExited = append(justExited, e)
		}
	}
	a.compareScopes(scopes, a.quiescentRuns())
	for _, e := range justExited {
		if !e.rec.Run.Live() { // its scope has ended since the exit was saved
			alive = append(alive, e)
		}
	}
	isLive := func(unit string) bool { return a.loop.sessions.findByUnit(unit) != nil }
	if ended := slices.DeleteFunc(units, isLive); len(ended) > 0 {
		if err := a.loop.system.Systemd.Unwatch(ctx, ended...); err != nil {
			return err
		}
	}
	return a.applyMissedStops(ctx, alive)
}

// quiescentRuns returns the ids of the live runs of sessions for which no effect is being carried
// out, and whose start has not been decided in this iteration: a list of the scopes that is made
// from now on is accurate for these runs.
func (a *adoption) quiescentRuns() map[*entry]string {
	runs := map[*entry]string{}
	for _, e := range a.loop.sessions.byID {
		if e.rec.Run.Live() && !e.effects.busy && !e.pending.Starting {
			runs[e] = e.rec.Run.ID
		}
	}
	return runs
}

// compareScopes applies the list of scopes to the runs that were quiescent before it was made and
// still are. The others are compared again once no effect of their sessions is being carried out.
func (a *adoption) compareScopes(scopes []Scope, runs map[*entry]string) {
	byName := make(map[string]Scope, len(scopes))
	for _, sc := range scopes {
		byName[sc.Name] = sc
	}
	for _, e := range a.loop.sessions.byID {
		r := e.rec.Run
		switch {
		case !r.Live():
		case e.effects.busy || runs[e] != r.ID:
			a.uncompared[e] = true
			a.resyncMissed(e)
		default:
			e.adoptRun(byName[r.Unit])
		}
	}
	// By now the shims that were connected first have sent their Hello. It is read in this iteration,
	// so that all sessions are published together.
	for _, e := range a.loop.sessions.byID {
		if e.run.shim.socket.IsOpen() {
			e.run.shim.read()
		}
	}
}

// adoptRun applies what has become of a run that was alive when it was last saved. The scope is
// zero if systemd does not know it.
func (e *entry) adoptRun(sc Scope) {
	r := e.rec.Run
	e.markDirty()
	if !e.run.scope.adopt(sc, e.run.exit.read()) {
		e.discardRecord(e.rec.Run)
		return
	}
	if e.run.files.stateDir == 0 {
		// The directory may have been removed. If it cannot be watched, watch records that.
		_ = os.MkdirAll(e.loop.settings.runtimeDir(e.rec.ID), 0o700)
		e.run.files.watch()
	}
	// In this order: if an agent has started and exited since the first exit.read, the second one
	// finds its record.
	hasPane := e.run.tmux.adopt()
	e.run.reports.readLeft()
	e.run.shim.connect()
	e.run.reports.attached = e.loop.system.Terminals.IsAttached(e.target())
	switch {
	case e.run.exit.read():
	case r.Started.IsZero() && (hasPane || e.run.shim.socket.IsOpen()): // its shim reports the agent soon
	case r.Started.IsZero():
		e.run.start.interrupted()
	case !e.run.shim.socket.IsOpen():
		e.run.shim.disconnected()
	}
	// Either systemd stops the scope itself, and its SIGTERM has ended the tmux server, or it has left
	// that to an earlier daemon, which exited before it did so.
	if sc.Stopping && !e.pending.Ending() {
		e.run.scope.queryStopCause(!hasPane)
	}
}

// adopt applies what has become of the run's scope, and returns whether the run can be adopted.
// Exited is whether the agent's exit is recorded.
func (w *scopeWatch) adopt(sc Scope, exited bool) bool {
	e, r := w.e, w.e.rec.Run
	isThisBoot := r.BootID == e.loop.settings.bootID
	if sc.TimedOut != 0 && isThisBoot && sc.InvocationID == r.InvocationID {
		e.apply(session.ScopeResult{Run: r.ID, Result: word.Timeout, Moment: e.loop.momentOf(sc.TimedOut)})
	}
	ended := session.ScopeEnded{Run: r.ID, Result: sc.Result, At: time.Now()}
	switch {
	case !isThisBoot:
		e.apply(session.MachineWentDown{Run: r.ID, At: ended.At})
		return false
	case sc.Active && (r.InvocationID == "" || sc.InvocationID == r.InvocationID):
		// A scope that is empty for as long as emptyScopeTimeout has ended, and systemd has not noticed.
		if w.stayedEmpty = w.stayedEmpty && w.isEmpty(); w.stayedEmpty {
			e.run.exit.read()
			w.release()
			w.applyEnd(ended)
			return false
		}
		e.apply(session.ScopeStarted{Run: r.ID, InvocationID: sc.InvocationID, ControlGroup: sc.ControlGroup})
	case !sc.Active && e.loop.system.ControlGroups.IsPopulated(r.ControlGroup):
		// systemd does not know a control group that the kernel has: it lists the scope again after a
		// reload.
		e.loop.log.Warn("a scope that systemd does not know has processes", "session", e.rec.ID, "unit", r.Unit)
		return false
	default:
		if r.Scope == session.ScopeNone && !exited {
			e.run.tmux.killUnplaced()
			e.run.start.interrupted()
		}
		if w.applyEnd(ended); w.deferredEnd == nil {
			return false
		} // otherwise the agent runs outside of its scope
	}
	if !r.LeftRunning.IsZero() {
		e.apply(session.FoundAlive{Run: r.ID})
	}
	return true
}

// interrupted applies the failure of a start that an earlier daemon did not finish.
func (s *runStart) interrupted() {
	s.e.apply(session.StartFailed{
		Run: s.e.rec.Run.ID, Reason: "corrald was interrupted while it started", Interrupted: true,
		Moment: s.e.loop.now(),
	})
}

// killUnplaced kills a tmux server that was started for a run and was never moved into its scope.
func (w *tmuxWatch) killUnplaced() {
	t := w.e.target()
	t.ControlGroup = ""
	if server, _ := w.e.loop.system.Terminals.FindTmux(t); server.PID != 0 {
		w.e.queueEffect(session.KillProcess{Process: server})
	}
}

// noServer identifies the tmux server in TmuxDied if none was ever seen: it differs from any real
// server, each of which was started later.
var noServer = session.Process{Start: 1}

// adopt ensures that the run's tmux server is recorded and watched, even if an earlier daemon
// has started it and exited before it could record it. It returns whether there is a server with a
// pane. A server without one is of no use and is killed.
func (w *tmuxWatch) adopt() (hasPane bool) {
	e, r := w.e, w.e.rec.Run
	known := r.Tmux == session.Alive && w.watch()
	if known && !r.Started.IsZero() {
		return true
	}
	server, hasPane := e.loop.system.Terminals.FindTmux(e.target())
	switch {
	case hasPane && !known:
		e.apply(session.TmuxStarted{Run: r.ID, Process: server})
	case !hasPane:
		if server.PID != 0 {
			e.queueEffect(session.KillProcess{Process: server})
		}
		gone := r.TmuxProc
		if gone == (session.Process{}) {
			gone = noServer
		}
		e.apply(session.TmuxDied{Run: r.ID, Process: gone})
	}
	return hasPane
}

// applyMissedStops applies the stops that happened while no daemon was running to be notified of
// them. Of the agents that were alive before, or whose exit a daemon could only just save, it finds
// those that have exited because systemd stopped their scopes: their shims got SIGTERM together
// with them. If systemd ended a scope for a
// reason other than a stop, such as a lack of memory or RuntimeMaxSec, that is known by now. A
// scope that was stopped under an earlier user manager may have been stopped because that manager
// exited: its session is suspended, so that it is resumed if it is configured to be.
func (a *adoption) applyMissedStops(ctx context.Context, alive []*entry) error {
	for _, e := range alive {
		stop, ok := e.run.exit.recordedStop()
		if !ok {
			continue
		}
		managerStart, err := a.loop.system.Systemd.StartTime(ctx)
		if err != nil {
			return err
		}
		switch {
		case e.rec.Run.BootID != a.loop.settings.bootID || stop.Monotonic < managerStart:
			stop.Intent, stop.Why = session.Suspend, "its scope was stopped, and the login session ended"
		case a.loop.system.Systemd.IsStopping(ctx):
			stop.Intent, stop.Why = session.Suspend, reasonLoginSessionEnded
		}
		e.apply(stop)
	}
	return nil
}

// removeEmptyRuntimeDirs removes the empty runtime directories of sessions that an earlier daemon
// did not save before it exited. A directory that is not empty is in use, and stays.
func (a *adoption) removeEmptyRuntimeDirs() {
	files, err := os.ReadDir(a.loop.settings.runDir)
	if err != nil {
		return // nothing has been started yet
	}
	for _, file := range files {
		if file.IsDir() && a.loop.sessions.byID[file.Name()] == nil {
			_ = os.Remove(filepath.Join(a.loop.settings.runDir, file.Name()))
		}
	}
}

// runUntilTimeout is how long RunUntil waits.
const runUntilTimeout = time.Second

// RunUntil runs the event loop until done is closed, between Adopt and Run, and applies what was
// posted before that. If done is not closed in time, it returns anyway. What other goroutines
// decide about the adopted sessions is thus published with them, and not one more time once there
// are clients.
func (s *Supervisor) RunUntil(ctx context.Context, done <-chan struct{}) {
	ctx, cancel := s.loop.clocks.AfterFunc.Context(ctx, runUntilTimeout)
	defer cancel()
	for {
		select {
		case f := <-s.loop.mailbox:
			s.loop.iterate(f)
			continue
		case <-done:
		case <-ctx.Done():
		}
		s.loop.iterate(func() {})
		return
	}
}

// firstProbeTimeout is how long the probes of the workspaces of adopted sessions may take before
// the sessions are published without their results.
const firstProbeTimeout = time.Second

// awaitProbes applies the results of the probes of workspaces before the loop runs. The time limit
// is for all of them together, if several do not return.
func (a *adoption) awaitProbes(ctx context.Context) {
	ctx, cancel := a.loop.clocks.AfterFunc.Context(ctx, firstProbeTimeout)
	defer cancel()
	for a.loop.workspaces.IsProbing() {
		select {
		case f := <-a.loop.mailbox:
			f()
		case <-ctx.Done():
			return
		}
	}
}

// Resync compares the scopes that systemd lists with the sessions, because events may have been
// missed. If systemd does not answer, it is repeated after increasing delays. Calls during a
// listing lead to one more.
func (s *Supervisor) Resync() { s.loop.adoption.resync() }

// resync is Resync. It waits for systemd: any goroutine but the event loop may call it.
func (a *adoption) resync() {
	var runs map[*entry]string // nil if the scopes are being listed
	err := a.loop.do(func() {
		if a.listing {
			a.listAgain = true
			return
		}
		a.listing, runs = true, a.quiescentRuns()
	})
	if err != nil || runs == nil {
		return
	}
	ctx, cancel := a.loop.clocks.AfterFunc.Context(a.loop.ctx, systemdTimeout)
	defer cancel()
	scopes, err := a.loop.system.Systemd.Scopes(ctx)
	a.loop.post(func() {
		if a.listing = false; a.listAgain {
			a.listAgain = false
			go a.resync()
		}
		if err != nil {
			a.retryListing(err)
			return
		}
		a.relistDelay = 0
		a.compareScopes(scopes, runs)
	})
	_ = a.loop.expiry.refreshPulledIn(ctx) // an error does no harm: it is read again before a session is removed
}

// retryListing logs that the scopes could not be listed, and repeats resync after a delay.
func (a *adoption) retryListing(err error) {
	if a.relistScheduled {
		return
	}
	a.relistScheduled, a.relistDelay = true, min(max(2*a.relistDelay, firstRetry), maxRetry)
	a.loop.log.Error("cannot list the scopes; retrying", "err", err, "after", a.relistDelay)
	a.loop.clocks.AfterFunc(a.relistDelay, func() {
		a.loop.post(func() {
			a.relistScheduled = false
			go a.resync()
		})
	})
}

// resyncMissed is called when the session may have no effects left. It calls resync one time for
// all sessions that could not be compared, once none of them has effects left.
func (a *adoption) resyncMissed(e *entry) {
	if !a.uncompared[e] || e.effects.busy || len(e.effects.waiting) > 0 {
		return
	}
	if delete(a.uncompared, e); len(a.uncompared) == 0 {
		go a.resync()
	}
}
