package supervisor

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/shimwire"
	"github.com/corrald/corral/supervisor/session"
)

// ForeignSocketError is returned where another process listens in the place of a session's shim.
type ForeignSocketError struct {
	Path         string
	PID          int    // of the process that listens there, 0 if it is in a pid namespace that cannot be seen
	ControlGroup string // of that process, "" if it has ended
}

func (e *ForeignSocketError) Error() string {
	return fmt.Sprintf("process %d in control group %q listens on %q but is not the session's shim",
		e.PID, e.ControlGroup, e.Path)
}

// noteForeign reports a socket that is not the shim's, as a problem and in the journal. Any other
// error is none of its business.
func (s *Supervisor) noteForeign(e *entry, err error) {
	var foreign *ForeignSocketError
	if !errors.As(err, &foreign) {
		return
	}
	if s.mayLog(e, "foreign socket") {
		s.Log.Warn("another process listens on the socket of a session's shim", "session", e.rec.ID, "err", err)
	}
	s.problemWith(e, foreign.Path, err.Error()+": nothing is sent to it, and the activity of the agent is unknown until the shim "+
		"listens there again; find out which program replaced the socket")
}

// lostSocket has the shim make its socket anew after a text could not be sent because the socket
// was removed or replaced.
func (s *Supervisor) lostSocket(t Target, err error) {
	var foreign *ForeignSocketError
	if !errors.As(err, &foreign) && !errors.Is(err, unix.ENOENT) {
		return
	}
	s.post(func() {
		e := s.sessions[t.ID]
		if e == nil || e.removed || !e.rec.Run.AgentAlive() || e.rec.Run.Agent != t.Agent {
			return
		}
		s.noteForeign(e, err)
		go s.World.Reopen(t)
	})
}

// socketMended ends the problem with a shim's socket, if there is one, once the shim listens there
// again.
func (s *Supervisor) socketMended(e *entry) {
	t := s.target(e)
	if !slices.ContainsFunc(s.found, func(p Problem) bool { return p.Session == t.ID && p.Path == t.ShimSocket() }) {
		return
	}
	if fd, _, err := s.World.DialShim(t); err == nil {
		_ = unix.Close(fd)
		s.problemOver(e, t.ShimSocket())
	}
}

// isTrue tells whether the Hello of a shim can be believed: it comes from the process that it names
// as the shim, and names a child of that process as the agent. An agent that has ended meanwhile
// has no parent.
func (s *Supervisor) isTrue(hello shimwire.Message, shim session.Process) bool {
	parent := s.World.Parent(hello.AgentPID)
	return hello.ShimPID == shim.PID && (parent == 0 || parent == shim.PID)
}

// noteUntrue logs a Hello that cannot be believed.
func (s *Supervisor) noteUntrue(e *entry, hello shimwire.Message) {
	if s.mayLog(e, "untrue hello") {
		s.Log.Warn("a process claims to be the shim of a session and names processes that are not its own",
			"session", e.rec.ID, "pid", e.run.peer.PID, "shim", hello.ShimPID, "agent", hello.AgentPID)
	}
}

// A shim may say hearBurst messages in each hearSpan. A true one says less: reportBurst of the shim,
// what it repeats to each daemon, and ten each second. What comes beyond that stays in the socket
// until the next span, so that a process that speaks as a shim without pause takes neither the
// loop's time nor the processor's.
const (
	hearBurst = 64
	hearSpan  = 400 * time.Millisecond
)

// mayHear tells whether the run's shim may say one more message in this span. Where it may not,
// hearShim is called again when the next one begins.
func (s *Supervisor) mayHear(e *entry, run string) bool {
	now := s.Monotonic()
	if now-e.run.hearSince >= hearSpan {
		e.run.hearSince, e.run.heard = now, 0
	}
	if e.run.heard < hearBurst {
		return true
	}
	key := e.run.shim.key
	s.AfterFunc(e.run.hearSince+hearSpan-now, func() {
		s.post(func() {
			if e.run.shim.key == key {
				s.hearShim(e, run)
			}
		})
	})
	return false
}

// The directories of a run are the agent's to write to: it can rename and remove files there at any
// rate. lookBurst events are acted on at once, and then one in each lookEvery.
const (
	lookBurst = 32
	lookEvery = 100 * time.Millisecond
)

// mayLook takes one of the events of the run's directories that may be acted on at once. Where
// there is none left, the directories are not watched for lookEvery, so that further events do not
// wake the daemon, and then they are watched again and looked at: nothing that is there by then is
// missed.
func (s *Supervisor) mayLook(e *entry) bool {
	now := s.Monotonic()
	e.run.nextLook = max(e.run.nextLook, now)
	if e.run.nextLook-now <= (lookBurst-1)*lookEvery {
		e.run.nextLook += lookEvery
		return true
	}
	s.unwatchRecord(e)
	e.run.resting = true
	run := e.rec.Run.ID
	s.AfterFunc(lookEvery, func() {
		s.post(func() {
			if e.removed || e.rec.Run.ID != run || !e.rec.Run.Live() {
				return
			}
			e.run.resting = false
			s.watchAnew(e)
			s.checkRecord(e)
		})
	})
	return false
}

// logEvery is how often the journal is told of one cause for each session: what an agent can bring
// about at any rate must not drown what others log.
const logEvery = 10 * time.Second

// mayLog tells whether the journal may be told of this cause, which it was not told of the session
// within logEvery.
func (s *Supervisor) mayLog(e *entry, cause string) bool {
	now := s.Monotonic()
	if next, logged := e.logged[cause]; logged && now < next {
		return false
	}
	if e.logged == nil {
		e.logged = map[string]time.Duration{}
	}
	e.logged[cause] = now + logEvery
	return true
}
