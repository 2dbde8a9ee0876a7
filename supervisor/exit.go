package supervisor

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/supervisor/session"
)

// specName is the name of the file in the session's runtime directory that describes to the shim
// what to run (shimwire.Spec). The shim removes it as soon as it has read it.
const specName = "run"

// isExitCredible reports whether the record of an exit, read from path, may be true, and reports a
// forged one as a problem. The shim writes the record after wait4(2) has returned: a true record
// never appears before the agent has exited. A record that was found while its agent ran is never
// believed, not even later. If the agent is unknown because its shim has not sent a Hello, the shim
// must at least have read its spec, and must not be about to send a Hello.
//
// This is not a security boundary: a record that another process writes after the end of the agent
// and before the end of its shim is believed.
func (s *Supervisor) isExitCredible(e *entry, status exitstatus.Status, path string) bool {
	r := e.rec.Run
	if status == e.run.falseExit {
		return false
	}
	if r.Agent.PID == 0 {
		t := s.target(e)
		isStarting := exists(filepath.Join(t.RuntimeDir, specName)) || s.isShimListening(t)
		e.run.exitUnproven = isStarting && (r.Scope == session.ScopeNone || s.ControlGroups.IsPopulated(r.ControlGroup))
		return !e.run.exitUnproven
	}
	if r.BootID != s.BootID || e.run.agentEnded && e.run.watchedAgent == r.Agent || !s.Processes.IsRunning(r.Agent) {
		return true
	}
	e.run.falseExit = status
	if s.canLog(e, "forged exit") {
		s.Log.Warn("ignored the recorded exit of an agent that is still running",
			"session", e.rec.ID, "path", path, "pid", r.Agent.PID)
	}
	s.setFileProblem(e, path, fmt.Sprintf("%q records the exit of its agent (PID %d), which is still running: "+
		"the record is ignored; remove it and find out which program wrote it", path, r.Agent.PID))
	return false
}

// isShimListening reports whether any process listens on the socket of a run's shim.
func (s *Supervisor) isShimListening(t Target) bool {
	fd, _, err := s.Terminals.DialShim(t)
	if err == nil {
		_ = unix.Close(fd)
	}
	return !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ECONNREFUSED)
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

// setFileProblem sets the problem with a file of a session. It is published once, and ends when the
// file is gone or clearFileProblem is called.
func (s *Supervisor) setFileProblem(e *entry, path, text string) {
	p := Problem{Session: e.rec.ID, Text: text, Path: path}
	if !slices.Contains(s.addedProblems, p) {
		s.clearFileProblem(e, path)
		s.AddProblem(p)
	}
}

// clearFileProblem removes the problem with a file of a session, if there is one.
func (s *Supervisor) clearFileProblem(e *entry, path string) {
	s.dropProblems(func(p Problem) bool { return p.Session == e.rec.ID && p.Path == path })
}
