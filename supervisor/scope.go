package supervisor

import (
	"errors"
	"path/filepath"
	"time"

	"github.com/corrald/corral/internal/deadline"
	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/internal/failpoint"
	"github.com/corrald/corral/internal/unitproperty"
	"github.com/corrald/corral/supervisor/session"
	"github.com/corrald/corral/supervisor/sources"
)

// runtime is what the event loop needs for a run in addition to its facts. It ends with the daemon,
// and a new daemon builds it again when it adopts the session.
type runtime struct {
	emptyTimer   deadline.Stopper // runs while the scope is empty and systemd has not reported its end
	stayedEmpty  bool             // the scope was empty when that timer expired
	systemdStops bool             // systemd stops the scope, and waits for its end

	// deferredEnd is the end of a scope that its agent has left. It is applied once the agent has
	// ended. It is nil if there is none.
	deferredEnd *session.ScopeEnded

	// callerEnvironment is the environment of the client that has requested the run: all of it until
	// the run has begun, then the variables that the search for its conversation needs.
	callerEnvironment []string

	attached         bool             // a client is attached to the terminal
	detachedAt       time.Duration    // by CLOCK_MONOTONIC: when the last client detached, 0 if none has
	answeredAt       time.Duration    // by CLOCK_MONOTONIC: when the agent was sent input that it had requested
	lastMisreport    session.Evidence // the last report for the session that Misreported has dropped
	nextMisreportLog time.Duration    // by CLOCK_MONOTONIC: the next such report is not logged before
	nextReportSlot   time.Time        // when the next report would be accepted if bursts were not allowed

	cancelConversation func() // cancels the creation of the conversation, nil if none is being created

	detection detection // of the conversation that the agent has

	// earlyEnds are ends of scopes that were reported before the start of the run had returned. They
	// may belong to earlier runs.
	earlyEnds []scopeEnd

	tmux        sources.Descriptor // pidfd of the tmux server
	tmuxProcess session.Process    // the process of that pidfd
	lostTmux    session.Process    // the tmux server that had exited before it could be watched
	shim        sources.Descriptor // the socket
	shimPeer    session.Process    // the process at its other end

	messageSpanStart time.Duration // by CLOCK_MONOTONIC: begin of the span that limits the shim's messages
	messagesInSpan   int           // number of messages that were read in that span

	agent        sources.Descriptor // pidfd of the agent, none once it has exited
	watchedAgent session.Process    // the process of that pidfd, also after it has exited
	agentEnded   bool               // that pidfd has reported its exit
	tmuxReaped   bool               // the tmux server was made to notice that the agent has exited
	recordTimer  deadline.Stopper   // runs while the agent has exited and its exit is not recorded

	redialScheduled bool          // the loop is about to connect to the shim again
	redialDelay     time.Duration // before the next such attempt, 0 for none
	redialedAt      time.Duration // by CLOCK_MONOTONIC: when the last attempt was made

	falseExit     exitstatus.Status // the last record of an exit that was found while the agent ran
	exitUnproven  bool              // a record was found before the shim had introduced itself
	nextEventSlot time.Duration     // by CLOCK_MONOTONIC: like nextReportSlot, for events of its directories
	watchesPaused bool              // its directories are not watched for a moment: they had too many events

	stateDirWatch     int32 // inotify watch of the session's state directory
	runtimeDirWatch   int32 // inotify watch of its runtime directory
	controlGroupWatch int32 // inotify watch of cgroup.events of its control group
}

// stopTimeout returns the time from SIGTERM to SIGKILL when the session is stopped: its own, else
// that of its agent's definition, else the configured one.
func (s *Supervisor) stopTimeout(rec *session.Session) time.Duration {
	const limit = 24 * time.Hour
	timeout := s.Config.StopTimeout
	def := s.Agents[rec.Agent]
	if own := def.StopTimeout(); own > 0 {
		timeout = own
	}
	for _, p := range rec.UnitProperties {
		if p.Name != "TimeoutStopUSec" {
			continue
		}
		v, err := unitproperty.Decode(p.Signature, p.Value)
		if usec, ok := v.Value().(uint64); err == nil && ok && usec > 0 {
			timeout = time.Duration(min(usec, uint64(limit/time.Microsecond))) * time.Microsecond
		}
	}
	return min(timeout, limit)
}

// updateWatches watches the processes and the control group of the session's run that have to be
// watched now that facts have changed.
func (s *Supervisor) updateWatches(e *entry) {
	r := e.rec.Run
	if !r.Live() {
		return
	}
	if !s.watchTmux(e) && e.run.lostTmux != r.TmuxProc {
		// The shim may have reported that its pane is lost before the loop knew of this server: then
		// nothing else reports its exit.
		e.run.lostTmux = r.TmuxProc
		go s.confirmTmuxDeath(e, r.ID, s.target(e))
	}
	s.watchAgent(e)
	s.reapTmux(e)
	if r.Scope == session.ScopeActive {
		s.watchScope(e)
	}
}

// ScopeEnded is called when systemd reports that the scope's last process is gone. The invocation
// distinguishes the scope from earlier ones of the same name, which do not belong to a live run. It
// is "" if systemd has not reported it.
func (s *Supervisor) ScopeEnded(unit, invocation, result string) {
	s.post(func() {
		e := s.findByUnit(unit)
		if e == nil {
			return
		}
		failpoint.Hit("stop.gone")
		ended := scopeEnd{invocation, session.ScopeEnded{Run: e.rec.Run.ID, Result: result, At: time.Now()}}
		if e.pending.Starting {
			e.run.earlyEnds = append(e.run.earlyEnds, ended)
			return
		}
		s.scopeEnded(e, ended)
	})
}

// scopeEnd is the end of a scope. It applies to a run that has the same invocation.
type scopeEnd struct {
	invocation string
	event      session.ScopeEnded
}

// scopeEnded applies the end of a scope if the scope belongs to the session's live run.
func (s *Supervisor) scopeEnded(e *entry, ended scopeEnd) {
	if e.rec.Run.Live() && isInvocationOf(e.rec.Run, ended.invocation) {
		s.readExit(e)
		s.applyScopeEnd(e, ended.event)
	}
}

// applyScopeEnd applies the end of a scope. systemd reports the result timeout also for a scope
// that a user has stopped and that did not end in time, for example because its agent ignores
// SIGTERM. If the cause was RuntimeMaxSec=, systemd has reported when that time was up.
func (s *Supervisor) applyScopeEnd(e *entry, ended session.ScopeEnded) {
	r := e.rec.Run
	if ended.Result == session.Timeout && r.TimedOut.IsZero() {
		ended.Result = session.Success
		if r.Intent == session.NoIntent {
			stop := session.IntentSet{
				Run: r.ID, Intent: session.Stop, Why: reasonScopeStopped, At: time.Now(), Monotonic: s.Monotonic(),
			}
			e.unsaved = e.rec.Apply(stop) || e.unsaved
		}
	}
	switch {
	case !s.deferScopeEnd(e, ended):
		s.apply(e, ended)
	case r.Intent == session.Stop && !e.pending.Ending(): // the agent lives elsewhere: end it, too
		s.apply(e, session.ScopeStopped{})
	}
}

// isInvocationOf reports whether a scope with this invocation may be that of the run: whether they
// are the same, or one is unknown.
func isInvocationOf(r *session.Run, invocation string) bool {
	return invocation == "" || r.InvocationID == "" || r.InvocationID == invocation
}

// ScopeStopRequested is called when systemd requests that the daemon stops the scope.
func (s *Supervisor) ScopeStopRequested(unit, invocation string) {
	s.scopeIsStopping(unit, invocation, func(e *entry) { s.queryStopCause(e, false) })
}

// ScopeStopping is called when systemd has begun to stop the scope itself, as it does if another
// daemon has started the scope. Its processes have received SIGTERM, and some may have exited. They
// must not receive a second one: it makes many programs give up saving their state.
func (s *Supervisor) ScopeStopping(unit, invocation string, cause StopCause) {
	s.scopeIsStopping(unit, invocation, func(e *entry) { s.applyStopCause(e, true, cause) })
}

// scopeIsStopping records that systemd stops the scope, and calls f unless the daemon ends the run
// already.
func (s *Supervisor) scopeIsStopping(unit, invocation string, f func(*entry)) {
	s.post(func() {
		e := s.findByUnit(unit)
		if e == nil || !isInvocationOf(e.rec.Run, invocation) {
			return
		}
		e.run.systemdStops = true
		if !e.pending.Ending() {
			f(e)
		}
	})
}

// tmuxExitTimeout is how long a tmux server may take to exit after systemd has sent SIGTERM to all
// processes of a scope.
const tmuxExitTimeout = 250 * time.Millisecond

// queryFoundStop is queryStopCause for a scope that systemd stops without having reported it. The
// tmux server, which exits immediately at SIGTERM, shows whether systemd has sent SIGTERM, or has
// left that to a daemon.
func (s *Supervisor) queryFoundStop(e *entry) {
	run, unit := e.rec.Run.ID, e.rec.Run.Unit
	s.stopQueries++
	go func() {
		cause, _ := s.Systemd.StopCause(s.ctx, unit) // immediately: systemd forgets it with the scope
		s.AfterFunc(tmuxExitTimeout, func() {
			s.post(func() {
				s.stopQueries--
				if !e.removed && e.rec.Run.ID == run && !e.pending.Ending() {
					s.applyStopCause(e, !e.run.tmux.IsOpen(), cause)
				}
			})
		})
	}()
}

// reasonScopeStopped is the reason of a run whose scope was stopped with systemctl.
const reasonScopeStopped = "its scope was stopped"

// queryStopCause asks systemd why it stops the scope, and then ends the run for that reason.
// Signaled reports whether the processes have received SIGTERM.
func (s *Supervisor) queryStopCause(e *entry, signaled bool) {
	run, unit := e.rec.Run.ID, e.rec.Run.Unit
	s.stopQueries++
	go func() {
		cause, err := s.Systemd.StopCause(s.ctx, unit)
		s.post(func() {
			s.stopQueries--
			if e.removed || e.rec.Run.ID != run || e.pending.Ending() {
				return
			}
			if err != nil {
				s.Log.Warn("cannot ask why a scope is stopped", "session", e.rec.ID, "unit", unit, "err", err)
			}
			s.applyStopCause(e, signaled, cause)
		})
	}()
}

// applyStopCause ends the run because systemd stops its scope. What systemd reports about the scope
// does not contain whether a user has stopped the scope, or the login session ends: for that,
// applyStopCause asks systemd whether the whole user manager stops.
func (s *Supervisor) applyStopCause(e *entry, signaled bool, cause StopCause) {
	if !signaled || cause.Since == 0 {
		cause.Since = s.Monotonic()
	}
	run := e.rec.Run.ID
	switch cause.Result {
	case session.Timeout:
		s.apply(e, session.ScopeResult{
			Run: run, Result: cause.Result, At: s.timeOf(cause.Since), Monotonic: cause.Since,
		})
		s.apply(e, session.ScopeStopped{Signalled: signaled})
		return
	case session.OOMKill: // not requested by anybody
		s.apply(e, session.ScopeStopped{Signalled: signaled})
		return
	}
	s.stopQueries++
	go func() {
		stopping := s.Systemd.IsStopping(s.ctx)
		s.post(func() {
			s.stopQueries--
			if e.removed || e.rec.Run.ID != run || e.pending.Ending() {
				return
			}
			request := session.EndRequested{
				Op: session.OpStop, Systemd: true, Signalled: signaled,
				At: session.Now{Wall: s.timeOf(cause.Since), Monotonic: cause.Since},
			}
			switch {
			case stopping:
				request.Op, request.Why = session.OpSuspend, "the login session ended"
			case cause.Result != "": // otherwise systemd does not know the cause
				request.Why = reasonScopeStopped
			}
			s.apply(e, request)
		})
	}()
}

// timeOf returns the time of the wall clock for a time of CLOCK_MONOTONIC.
func (s *Supervisor) timeOf(monotonic time.Duration) time.Time {
	return time.Now().Add(monotonic - s.Monotonic())
}

// findByUnit returns the session whose live run has this scope, nil if there is none.
func (s *Supervisor) findByUnit(unit string) *entry {
	if e := s.units[unit]; e != nil && e.rec.Run.Live() {
		return e
	}
	return nil
}

// readExit reads and applies the exit of the current run's agent, if the shim has recorded it: in
// the state directory, or, if nothing could be written there any more, in the runtime directory. It
// returns whether the exit is known.
func (s *Supervisor) readExit(e *entry) (found bool) {
	r := e.rec.Run
	if r == nil || r.Exit != nil {
		return r != nil
	}
	state := s.Records.SessionDir(e.rec.ID)
	for _, dir := range []string{state, s.runtimeDir(e.rec.ID)} {
		status, err := exitstatus.Read(dir)
		path := filepath.Join(dir, exitstatus.FileName)
		if err == nil && status.RunID == r.ID && s.isExitCredible(e, status, path) {
			s.apply(e, session.AgentExited{Status: clampTimes(status, r, time.Now(), s.Monotonic())})
			s.clearFileProblem(e, path)
			if stop, ok := s.recordedStop(e); ok && s.stopping { // systemd may report the stop too late
				s.apply(e, stop)
			}
			e.exitInRuntimeDir = dir != state
			s.detectPrintedConversation(e)
			if e.run.attached && e.rec.View().State == session.Completed {
				s.acknowledge(e) // the attached person has seen it
			}
			return true
		}
		if err != nil && !errors.Is(err, errNotExist) && s.canLog(e, "unreadable exit") {
			s.Log.Warn("cannot read an exit status", "session", e.rec.ID, "err", err)
		}
	}
	return false
}
