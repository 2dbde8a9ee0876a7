package supervisor

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/corrald/corral/internal/failpoint"
	"github.com/corrald/corral/supervisor/session"
)

// Adopt adopts the saved sessions, before Run. It lists the scopes that exist and applies what it
// finds as events, the same as while the loop runs. A session whose record was lost is rebuilt if
// its agent is running. Any other scope that belongs to no session is logged and left alone.
func (s *Supervisor) Adopt(ctx context.Context, saved []*session.Session) error {
	for _, rec := range saved {
		s.add(&entry{rec: rec, adoptedState: rec.State})
	}
	if err := s.listAndCompare(ctx); err != nil {
		return err
	}
	s.removeEmptyRuntimeDirs()
	for _, e := range s.sessions {
		if e.rec.ConversationID == "" {
			s.detectPrintedConversation(e)
		}
	}
	if ids, err := s.Systemd.PulledIn(ctx); err == nil {
		s.expiry.setPulledIn(ids)
	}
	s.problemsStale = true
	s.undoUnconfirmed()
	s.awaitProbes(ctx)
	failpoint.Hit("adopt.applied")
	s.finishIteration()
	failpoint.Hit("adopt.saved")
	s.publishProblems()
	s.reportStatus()
	s.reportAnyAgentAlive()
	s.expiry.armAlarm()
	return nil
}

// firstProbeTimeout is how long the probes of the workspaces of adopted sessions may take before
// the sessions are published without their results.
const firstProbeTimeout = time.Second

// awaitProbes applies the results of the probes of workspaces before the loop runs. The time limit
// is for all of them together, if several do not return.
func (s *Supervisor) awaitProbes(ctx context.Context) {
	ctx, cancel := s.AfterFunc.Context(ctx, firstProbeTimeout)
	defer cancel()
	for s.files.IsProbing() {
		select {
		case f := <-s.mailbox:
			f()
		case <-ctx.Done():
			return
		}
	}
}

// Resync compares the scopes that systemd lists with the sessions, because events may have been
// missed. If systemd does not answer, Resync is repeated after increasing delays.
func (s *Supervisor) Resync() {
	var runs map[*entry]string
	if s.do(func() { runs = s.quiescentRuns() }) != nil {
		return
	}
	ctx, cancel := s.AfterFunc.Context(s.ctx, systemdTimeout)
	defer cancel()
	scopes, err := s.Systemd.Scopes(ctx)
	s.post(func() {
		if err != nil {
			s.retryListing(err)
			return
		}
		s.relistDelay = 0
		s.compareScopes(scopes, runs)
	})
	_ = s.expiry.refreshPulledIn(ctx) // an error does no harm: it is read again before a session is removed
}

// retryListing logs that the scopes could not be listed, and repeats Resync after a delay.
func (s *Supervisor) retryListing(err error) {
	if s.relistScheduled {
		return
	}
	s.relistScheduled, s.relistDelay = true, min(max(2*s.relistDelay, firstRetry), maxRetry)
	s.Log.Error("cannot list the scopes; retrying", "err", err, "after", s.relistDelay)
	s.AfterFunc(s.relistDelay, func() {
		s.post(func() {
			s.relistScheduled = false
			go s.Resync()
		})
	})
}

// quiescentRuns returns the ids of the live runs of sessions for which no effect is being carried
// out: a list of the scopes that is made from now on is accurate for these runs.
func (s *Supervisor) quiescentRuns() map[*entry]string {
	runs := map[*entry]string{}
	for _, e := range s.sessions {
		if e.rec.Run.Live() && !e.busy {
			runs[e] = e.rec.Run.ID
		}
	}
	return runs
}

// listAndCompare lists the scopes, rebuilds lost sessions, and applies to each session what has
// become of its run since it was saved.
func (s *Supervisor) listAndCompare(ctx context.Context) error {
	// Watch first, then list: the end of a scope in between is reported.
	var units []string
	for _, e := range s.sessions {
		if r := e.rec.Run; r.Live() && r.BootID == s.BootID {
			units = append(units, r.Unit)
		}
	}
	if err := s.Systemd.WatchScopes(ctx, units); err != nil {
		return err
	}
	failpoint.Hit("adopt.watched")
	scopes, err := s.Systemd.Scopes(ctx)
	if err != nil {
		return err
	}
	failpoint.Hit("adopt.listed")
	if scopes, err = s.rebuild(ctx, scopes); err != nil {
		return err
	}
	alive := s.aliveSessions()
	s.compareScopes(scopes, s.quiescentRuns())
	return s.applyMissedStops(ctx, alive)
}

// compareScopes applies the list of scopes to the runs that were quiescent before it was made and
// still are. The others are compared again once no effect of their sessions is being carried out.
func (s *Supervisor) compareScopes(scopes []Scope, runs map[*entry]string) {
	byName := make(map[string]Scope, len(scopes))
	for _, sc := range scopes {
		byName[sc.Name] = sc
	}
	for _, e := range s.sessions {
		r := e.rec.Run
		switch {
		case !r.Live():
		case e.busy || runs[e] != r.ID:
			s.postponeComparison(e)
		default:
			s.adoptRun(e, byName[r.Unit])
		}
	}
	// By now the shims that were connected first have sent their Hello. It is read in this iteration,
	// so that all sessions are published together.
	for _, e := range s.sessions {
		if e.run.shim.IsOpen() {
			s.readShim(e, e.rec.Run.ID)
		}
	}
}

// postponeComparison marks a session that could not be compared because an effect of it is being
// carried out.
func (s *Supervisor) postponeComparison(e *entry) {
	if !e.uncompared {
		e.uncompared = true
		s.uncompared++
	}
	s.resyncMissed(e)
}

// resyncMissed is called when the session may have no effects left. It calls Resync one time for
// all sessions that could not be compared, once none of them has effects left.
func (s *Supervisor) resyncMissed(e *entry) {
	if !e.uncompared || e.busy || len(e.queue) > 0 {
		return
	}
	e.uncompared = false
	if s.uncompared--; s.uncompared == 0 {
		go s.Resync()
	}
}

// adoptRun applies what has become of a run that was alive when it was last saved. The scope is
// zero if systemd does not know it.
func (s *Supervisor) adoptRun(e *entry, sc Scope) {
	r := e.rec.Run
	s.markDirty(e)
	if !s.adoptScope(e, sc, s.readExit(e)) {
		s.discardRecord(e, e.rec.Run)
		return
	}
	if e.run.stateDirWatch == 0 {
		// The directory may have been removed. watchRunFiles reports the problem if it cannot be watched.
		_ = os.MkdirAll(s.runtimeDir(e.rec.ID), 0o700)
		s.watchRunFiles(e)
	}
	// In this order: if an agent has started and exited since readExit above, readExit below finds its
	// record.
	hasPane := s.adoptTmux(e)
	s.connectShim(e)
	e.run.attached = s.Terminals.IsAttached(s.target(e))
	switch {
	case s.readExit(e):
	case r.Started.IsZero() && (hasPane || e.run.shim.IsOpen()): // its shim reports the agent soon
	case r.Started.IsZero():
		s.apply(e, session.StartFailed{
			Run: r.ID, Reason: interrupted, Interrupted: true, At: time.Now(), Monotonic: s.Monotonic(),
		})
	case !e.run.shim.IsOpen():
		s.shimDisconnected(e, r.ID)
	}
	// Either systemd stops the scope itself, and its SIGTERM has ended the tmux server, or it has left
	// that to an earlier daemon, which exited before it did so.
	if sc.Stopping && !e.pending.Ending() {
		s.queryStopCause(e, !hasPane)
	}
}

// adoptScope applies what has become of the run's scope, and returns whether the run can be
// adopted. Exited is whether the agent's exit is recorded.
func (s *Supervisor) adoptScope(e *entry, sc Scope, exited bool) bool {
	r := e.rec.Run
	now := time.Now()
	if sc.TimedOut != 0 && r.BootID == s.BootID && sc.InvocationID == r.InvocationID {
		at := now.Add(sc.TimedOut - s.Monotonic())
		s.apply(e, session.ScopeResult{Run: r.ID, Result: session.Timeout, At: at, Monotonic: sc.TimedOut})
	}
	switch {
	case r.BootID != s.BootID:
		s.apply(e, session.MachineWentDown{Run: r.ID, At: now})
	case sc.Active && (r.InvocationID == "" || sc.InvocationID == r.InvocationID):
		if s.isEndUnnoticed(e) {
			s.readExit(e)
			s.releaseScope(e)
			s.applyScopeEnd(e, session.ScopeEnded{Run: r.ID, Result: sc.Result, At: now})
			return false
		}
		s.apply(e, session.ScopeStarted{Run: r.ID, InvocationID: sc.InvocationID, ControlGroup: sc.ControlGroup})
		if !r.LeftRunning.IsZero() {
			s.apply(e, session.FoundAlive{Run: r.ID})
		}
		return true
	case !sc.Active && s.ControlGroups.IsPopulated(r.ControlGroup):
		// systemd does not know a control group that the kernel has: it lists the scope again after a
		// reload.
		s.Log.Warn("a scope that systemd does not know has processes", "session", e.rec.ID, "unit", r.Unit)
	default:
		if r.Scope == session.ScopeNone && !exited {
			s.killUnplacedTmux(e)
			s.apply(e, session.StartFailed{
				Run: r.ID, Reason: interrupted, Interrupted: true, At: now, Monotonic: s.Monotonic(),
			})
		}
		s.applyScopeEnd(e, session.ScopeEnded{Run: r.ID, Result: sc.Result, At: now})
		if e.run.deferredEnd == nil {
			return false
		}
		if !r.LeftRunning.IsZero() { // the agent runs outside of its scope
			s.apply(e, session.FoundAlive{Run: r.ID})
		}
		return true
	}
	return false
}

// interrupted is the reason of a run that failed because the daemon exited during its start.
const interrupted = "corrald was interrupted while it started"

// killUnplacedTmux kills a tmux server that was started for a run and never got into its scope.
func (s *Supervisor) killUnplacedTmux(e *entry) {
	t := s.target(e)
	t.ControlGroup = ""
	if server, _ := s.Terminals.FindTmux(t); server.PID != 0 {
		s.killServer(e, server)
	}
}

func (s *Supervisor) killServer(e *entry, server session.Process) {
	s.queueEffect(e, session.KillProcess{Process: server})
}

// noServer identifies the tmux server in TmuxDied if none was ever seen: it differs from any real
// server, each of which was started later.
var noServer = session.Process{Start: 1}

// adoptTmux ensures that the run's tmux server is recorded and watched, even if an earlier daemon
// has started it and exited before it could record it. It returns whether there is a server with a
// pane. A server without one is of no use and is killed.
func (s *Supervisor) adoptTmux(e *entry) bool {
	r := e.rec.Run
	known := r.Tmux == session.Alive && s.watchTmux(e)
	if known && !r.Started.IsZero() {
		return true
	}
	server, hasPane := s.Terminals.FindTmux(s.target(e))
	switch {
	case hasPane && !known:
		s.apply(e, session.TmuxStarted{Run: r.ID, Process: server})
	case !hasPane:
		if server.PID != 0 {
			s.killServer(e, server)
		}
		gone := r.TmuxProc
		if gone == (session.Process{}) {
			gone = noServer
		}
		s.apply(e, session.TmuxDied{Run: r.ID, Process: gone})
	}
	return hasPane
}

// removeEmptyRuntimeDirs removes the empty runtime directories of sessions that an earlier daemon
// did not save before it exited. A directory that is not empty is in use, and stays.
func (s *Supervisor) removeEmptyRuntimeDirs() {
	entries, err := os.ReadDir(s.RuntimeDir)
	if err != nil {
		return // nothing has been started yet
	}
	for _, entry := range entries {
		if entry.IsDir() && s.sessions[entry.Name()] == nil {
			_ = os.Remove(filepath.Join(s.RuntimeDir, entry.Name()))
		}
	}
}
