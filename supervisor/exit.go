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

// specName is the name of the file in the session's runtime directory that tells the shim what to
// run. The shim removes it first of all.
const specName = "run"

// mayBelieve tells whether the record of an exit, read from path, may be true. The shim writes it
// after wait4(2) has returned, so that a true one always finds the agent gone: one that was found
// while its agent ran is never believed, also not later. Of an agent that is not known, because its
// shim has not introduced itself, the shim must at least have begun, and not be about to do so.
//
// This is no boundary: who writes a record between the agent's end and that of its shim is
// believed.
func (s *Supervisor) mayBelieve(e *entry, status exitstatus.Status, path string) bool {
	r := e.rec.Run
	if status == e.run.forged {
		return false
	}
	if r.Agent.PID == 0 {
		t := s.target(e)
		begins := there(filepath.Join(t.RuntimeDir, specName)) || s.listens(t)
		e.run.unproven = begins && (r.Scope == session.ScopeNone || s.World.Occupied(r.ControlGroup))
		return !e.run.unproven
	}
	if r.BootID != s.BootID || e.run.agentEnded && e.run.awaited == r.Agent || !s.World.Running(r.Agent) {
		return true
	}
	e.run.forged = status
	if s.mayLog(e, "forged exit") {
		s.Log.Warn("ignored the recorded exit of an agent that is still running",
			"session", e.rec.ID, "path", path, "pid", r.Agent.PID)
	}
	s.problemWith(e, path, fmt.Sprintf("%q records the exit of its agent (PID %d), which is still running: the record is "+
		"ignored; remove it and find out which program wrote it", path, r.Agent.PID))
	return false
}

// listens tells whether any process listens on the socket of a run's shim.
func (s *Supervisor) listens(t Target) bool {
	fd, _, err := s.World.DialShim(t)
	if err == nil {
		_ = unix.Close(fd)
	}
	return !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ECONNREFUSED)
}

// within returns the record with times that can be: an agent has not ended after the record was
// read, and was not started before its run was asked for.
func within(status exitstatus.Status, r *session.Run, now time.Time, monotonic time.Duration) exitstatus.Status {
	earliest := r.Asked
	if now.Before(earliest) { // the clock was set back since
		earliest = now
	}
	status.Exited = clamp(status.Exited, earliest, now)
	status.Started = clamp(status.Started, earliest, status.Exited)
	status.ExitedMonotonic = min(status.ExitedMonotonic, monotonic)
	status.SIGTERMMonotonic = min(status.SIGTERMMonotonic, status.ExitedMonotonic)
	return status
}

// clamp returns t, or the nearest time between from and to. A time that is not known stays so.
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

// problemWith reports a problem with a file of a session, once, until the file is gone or
// problemOver is called.
func (s *Supervisor) problemWith(e *entry, path, text string) {
	p := Problem{Session: e.rec.ID, Text: text, Path: path}
	if !slices.Contains(s.found, p) {
		s.problemOver(e, path)
		s.Found(p)
	}
}

// problemOver ends what was reported of a file of a session.
func (s *Supervisor) problemOver(e *entry, path string) {
	s.endFound(func(p Problem) bool { return p.Session == e.rec.ID && p.Path == path })
}
