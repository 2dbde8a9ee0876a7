package supervisor

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/corrald/corral/dbusapi/word"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/internal/failpoint"
	"github.com/corrald/corral/internal/shimwire"
	"github.com/corrald/corral/supervisor/session"
)

// exitRecord reads the record of the exit of a run's agent.
type exitRecord struct {
	e        *entry
	rejected *exitstatus.Status // the last record that was found while the agent ran, nil if none was
	unproven bool               // a record was found before the shim's Hello
}

// read reads and applies the exit of the current run's agent, if the shim has recorded it: in the
// state directory or, if nothing could be written there any more, only in the runtime directory. It
// returns whether the exit is known.
//
// Any process of the user can write such a record. The shim writes it after wait4(2) has returned:
// a true record never appears before the agent has exited. A record that was found while its agent
// ran is never believed, not even later. If the agent is unknown because its shim has not sent a
// Hello, the shim must at least have read its spec, and must not be about to send a Hello.
//
// This is not a security boundary: a record that another process writes after the end of the agent
// and before the end of its shim is believed.
func (x *exitRecord) read() (found bool) {
	e, r := x.e, x.e.rec.Run
	if r == nil || r.Exit != nil {
		return r != nil
	}
	for _, dir := range []string{e.loop.records.SessionDir(e.rec.ID), e.loop.settings.runtimeDir(e.rec.ID)} {
		status, err := exitstatus.Read(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			if e.takeLogSlot("unreadable exit") {
				e.loop.log.Warn("cannot read an exit status", "session", e.rec.ID, "err", err)
			}
		case status.RunID != r.ID || x.rejected != nil && status == *x.rejected: // of another run, or ignored before
		case x.isUnproven():
			x.unproven = true // it is read again after the Hello
		case x.isAgentRunning():
			x.reject(status, dir)
		default:
			x.apply(status, dir)
			return true
		}
	}
	return false
}

// isUnproven reports whether a record cannot be believed yet, because the shim may still be about
// to start the agent.
func (x *exitRecord) isUnproven() bool {
	e, r := x.e, x.e.rec.Run
	if r.Agent.PID != 0 {
		return false
	}
	t := e.target()
	isStarting := exists(filepath.Join(t.RuntimeDir, shimwire.SpecName)) || e.loop.isShimListening(t)
	return isStarting && (r.Scope == session.ScopeNone || !e.run.scope.isEmpty())
}

// isShimListening reports whether any process listens on the socket of a run's shim.
func (l *loop) isShimListening(t Target) bool {
	err := l.probeShim(t)
	return !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ECONNREFUSED)
}

// isAgentRunning reports whether the agent is known, and has not exited.
func (x *exitRecord) isAgentRunning() bool {
	e, r := x.e, x.e.rec.Run
	return r.Agent.PID != 0 && r.BootID == e.loop.settings.bootID && !e.run.agent.hasExited(r.Agent) &&
		e.loop.system.Processes.IsRunning(r.Agent)
}

// reject reports a record in dir that another process than the shim has written, as a problem and
// in the journal. The record is ignored from now on.
func (x *exitRecord) reject(status exitstatus.Status, dir string) {
	e, pid := x.e, x.e.rec.Run.Agent.PID
	path := filepath.Join(dir, exitstatus.FileName)
	x.rejected = &status
	if e.takeLogSlot("forged exit") {
		e.loop.log.Warn("ignored the recorded exit of an agent that is still running",
			"session", e.rec.ID, "path", path, "pid", pid)
	}
	e.loop.problems.setFile(e, path, fmt.Sprintf("%q records the exit of its agent (PID %d), which is still running: "+
		"the record is ignored; remove it and find out which program wrote it", path, pid))
}

// apply applies the exit that is recorded in dir.
func (x *exitRecord) apply(status exitstatus.Status, dir string) {
	e := x.e
	status = clampTimes(status, e.rec.Run, time.Now(), e.loop.clocks.Monotonic())
	if mayBeStop := status.SIGTERMMonotonic != 0 && e.rec.Run.Intent == session.NoIntent; mayBeStop {
		e.run.scope.queryUnreportedStop()
	}
	e.apply(session.AgentExited{Status: status})
	e.loop.problems.clearFile(e, filepath.Join(dir, exitstatus.FileName))
	if stop, ok := x.recordedStop(); ok && e.loop.shutdown.stopping { // systemd may report the stop too late
		e.apply(stop)
	}
	e.saving.exitInRuntimeDir = dir == e.loop.settings.runtimeDir(e.rec.ID)
	e.detectPrintedConversation()
	if e.run.reports.attached && e.rec.View().State == session.Completed {
		e.acknowledge() // the attached person has seen it
	}
}

// clampTimes returns the record with possible times: an agent has not exited after its record was
// read, and was not started before its run was requested.
func clampTimes(status exitstatus.Status, r *session.Run, now time.Time, monotonic time.Duration) exitstatus.Status {
	earliest := r.Requested
	if now.Before(earliest) { // the clock was set back in the meantime
		earliest = now
	}
	status.Exited = clamp(status.Exited, earliest, now)
	status.Started = clamp(status.Started, earliest, status.Exited)
	status.ExitedMonotonic = min(status.ExitedMonotonic, monotonic)
	status.SIGTERMMonotonic = min(status.SIGTERMMonotonic, status.ExitedMonotonic)
	return status
}

// clamp returns t, or the nearest time between from and to. A zero t, which is an unknown time, is
// returned unchanged.
func clamp(t, from, to time.Time) time.Time {
	switch {
	case t.IsZero():
		return t
	case t.Before(from):
		return from
	case t.After(to):
		return to
	}
	return t
}

// stopMargin is added to the stop timeout: an agent that exits even later after SIGTERM has not
// exited because of it.
const stopMargin = time.Second

// recordedStop returns the stop that the record of the agent's exit shows, if there is one: the
// shim got SIGTERM too, and no end of the run was requested.
func (x *exitRecord) recordedStop() (stop session.IntentSet, ok bool) {
	r := x.e.rec.Run
	if r.Intent != session.NoIntent || r.Exit == nil || r.Exit.SIGTERMMonotonic == 0 ||
		r.OutOfMemory() || r.ScopeResult == word.OOMKill {
		return stop, false
	}
	took := r.Exit.ExitedMonotonic - r.Exit.SIGTERMMonotonic
	if took > x.e.loop.settings.stopTimeout(x.e.rec)+stopMargin {
		return stop, false
	}
	return session.IntentSet{
		Run: r.ID, Intent: session.Stop, Why: session.ByScopeStop, SignalledBySystemd: true,
		Moment: session.Moment{At: r.Exit.Exited.Add(-took), Monotonic: r.Exit.SIGTERMMonotonic},
	}, true
}

// discardRecord removes the files that were prepared for the record of an agent's exit, if its shim
// has exited without writing it.
func (e *entry) discardRecord(r *session.Run) {
	if r.Live() || r.Exit != nil {
		return
	}
	for _, dir := range []string{e.loop.records.SessionDir(e.rec.ID), e.loop.settings.runtimeDir(e.rec.ID)} {
		if err := exitstatus.Discard(dir); err != nil {
			e.loop.log.Warn("cannot remove the file in which an exit was to be recorded",
				"session", e.rec.ID, "err", err)
		}
	}
}

// ScopeEnded is called when systemd reports that the scope's last process is gone. The invocation
// distinguishes the scope from earlier ones of the same name, which do not belong to a live run. It
// is "" if systemd has not reported it.
func (s *Supervisor) ScopeEnded(unit, invocation, result string) {
	s.loop.post(func() {
		e := s.loop.sessions.findByUnit(unit)
		if e == nil {
			return
		}
		failpoint.Hit("stop.gone")
		ended := scopeEnd{invocation, session.ScopeEnded{Run: e.rec.Run.ID, Result: result, At: time.Now()}}
		if e.pending.Starting {
			e.run.start.earlyEnds = append(e.run.start.earlyEnds, ended)
			return
		}
		e.run.scope.ended(ended)
	})
}

// scopeEnd is the end of a scope. It applies to a run that has the same invocation.
type scopeEnd struct {
	invocation string
	event      session.ScopeEnded
}

// ended applies the end of a scope that systemd has reported, if the scope belongs to the session's
// live run. It first reads the record of the agent's exit, whose event may not have arrived yet.
func (w *scopeWatch) ended(ended scopeEnd) {
	e := w.e
	if e.rec.Run.Live() && isInvocationOf(e.rec.Run, ended.invocation) {
		e.run.exit.read()
		w.applyEnd(ended.event)
	}
}

// isInvocationOf reports whether a scope with this invocation may be that of the run: whether they
// are the same, or one is unknown.
func isInvocationOf(r *session.Run, invocation string) bool {
	return invocation == "" || r.InvocationID == "" || r.InvocationID == invocation
}

// applyEnd applies the end of the run's scope. systemd reports the result timeout also for a scope
// that a user has stopped and that did not end in time, for example because its agent ignores
// SIGTERM. If the cause was RuntimeMaxSec=, systemd has reported when that time was up.
func (w *scopeWatch) applyEnd(ended session.ScopeEnded) {
	e, r := w.e, w.e.rec.Run
	if ended.Result == word.Timeout && r.TimedOut.IsZero() {
		ended.Result = word.Success
		if r.Intent == session.NoIntent {
			changed := e.rec.Apply(session.IntentSet{
				Run: r.ID, Intent: session.Stop, Why: session.ByScopeStop, Moment: e.loop.now(),
			})
			e.saving.unsaved = e.saving.unsaved || changed
		}
	}
	if !w.hasAgentLeft() {
		e.apply(ended)
		return
	}
	w.deferEnd(ended)
	if r.Intent == session.Stop && !e.pending.Ending() { // the agent lives elsewhere: end it, too
		e.apply(session.ScopeStopped{})
	}
}
