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

// ForeignSocketError is the error if another process than the session's shim listens on the shim's
// socket.
type ForeignSocketError struct {
	Path         string
	PID          int    // of the process that listens there, 0 if it is in an invisible pid namespace
	ControlGroup string // of that process, "" if it has exited
}

func (e *ForeignSocketError) Error() string {
	return fmt.Sprintf("process %d in control group %q listens on %q but is not the session's shim",
		e.PID, e.ControlGroup, e.Path)
}

// reportForeignSocket reports a socket that is not the shim's, as a problem and in the journal. It
// ignores any error that is not a *ForeignSocketError.
func (s *Supervisor) reportForeignSocket(e *entry, err error) {
	var foreign *ForeignSocketError
	if !errors.As(err, &foreign) {
		return
	}
	if s.canLog(e, "foreign socket") {
		s.Log.Warn("another process listens on the socket of a session's shim", "session", e.rec.ID, "err", err)
	}
	s.setFileProblem(e, foreign.Path, err.Error()+": nothing is sent to it, and the activity of the agent is unknown "+
		"until the shim listens there again; find out which program replaced the socket")
}

// recoverSocket makes the shim recreate its socket after a text could not be sent because the
// socket was removed or replaced. It ignores other errors.
func (s *Supervisor) recoverSocket(t Target, err error) {
	var foreign *ForeignSocketError
	if !errors.As(err, &foreign) && !errors.Is(err, unix.ENOENT) {
		return
	}
	s.post(func() {
		e := s.sessions[t.ID]
		if e == nil || e.removed || !e.rec.Run.AgentAlive() || e.rec.Run.Agent != t.Agent {
			return
		}
		s.reportForeignSocket(e, err)
		go func() { _ = s.executeOn(s.ctx, t, session.ReopenSockets{}) }()
	})
}

// checkSocketRestored removes the problem with the socket of a session's shim, if there is one and
// the shim listens there again.
func (s *Supervisor) checkSocketRestored(e *entry) {
	t := s.target(e)
	isOfSocket := func(p Problem) bool { return p.Session == t.ID && p.Path == t.ShimSocket() }
	if !slices.ContainsFunc(s.addedProblems, isOfSocket) {
		return
	}
	if fd, _, err := s.Terminals.DialShim(t); err == nil {
		_ = unix.Close(fd)
		s.clearFileProblem(e, t.ShimSocket())
	}
}

// isHelloCredible reports whether the Hello of a shim can be believed: it comes from the process
// that it names as the shim, and names a child of that process as the agent. An agent that has
// exited in the meantime has no parent.
func (s *Supervisor) isHelloCredible(hello shimwire.Message, shim session.Process) bool {
	parent := s.Processes.Parent(hello.AgentPID)
	return hello.ShimPID == shim.PID && (parent == 0 || parent == shim.PID)
}

// logFalseHello logs a Hello that is not credible.
func (s *Supervisor) logFalseHello(e *entry, hello shimwire.Message) {
	if s.canLog(e, "untrue hello") {
		s.Log.Warn("a process claims to be the shim of a session and names processes that are not its own",
			"session", e.rec.ID, "pid", e.run.shimPeer.PID, "shim", hello.ShimPID, "agent", hello.AgentPID)
	}
}

// At most messageBurst messages of a shim are received in each messageSpan. A real shim sends
// fewer: those that it repeats to each daemon, a burst of status reports (reportBurst in
// corral-shim), and ten each second. Further messages stay in the socket until the next span, so
// that a process that poses as a shim and sends without pause occupies neither the loop nor the
// processor.
const (
	messageBurst = 64
	messageSpan  = 400 * time.Millisecond
)

// canReceive reports whether one more message of the run's shim may be received in this span. If
// not, readShim is called again when the next span begins.
func (s *Supervisor) canReceive(e *entry, run string) bool {
	now := s.Monotonic()
	if now-e.run.messageSpanStart >= messageSpan {
		e.run.messageSpanStart, e.run.messagesInSpan = now, 0
	}
	if e.run.messagesInSpan < messageBurst {
		return true
	}
	shim := e.run.shim
	s.AfterFunc(e.run.messageSpanStart+messageSpan-now, func() {
		s.post(func() {
			if e.run.shim == shim {
				s.readShim(e, run)
			}
		})
	})
	return false
}

// The agent can write to the directories of its run: it can rename and remove files there at any
// rate. Of a burst, eventBurst events are handled immediately, and then one in each eventInterval.
const (
	eventBurst    = 32
	eventInterval = 100 * time.Millisecond
)

// canHandleEvent reports whether an event of the run's directories may be handled immediately, and
// counts it. Once the limit is reached, the directories are not watched for eventInterval, so that
// further events do not wake the daemon. After that they are watched again and examined, so that no
// file that exists by then is missed.
func (s *Supervisor) canHandleEvent(e *entry) bool {
	now := s.Monotonic()
	e.run.nextEventSlot = max(e.run.nextEventSlot, now)
	if e.run.nextEventSlot-now <= (eventBurst-1)*eventInterval {
		e.run.nextEventSlot += eventInterval
		return true
	}
	s.unwatchRunFiles(e)
	e.run.watchesPaused = true
	run := e.rec.Run.ID
	s.AfterFunc(eventInterval, func() {
		s.post(func() {
			if e.removed || e.rec.Run.ID != run || !e.rec.Run.Live() {
				return
			}
			e.run.watchesPaused = false
			s.rewatchRunFiles(e)
			s.checkRecord(e)
		})
	})
	return false
}

// logEvery is the minimum time between two log records with the same cause for the same session. An
// agent can cause such records at any rate, and they must not drown those of other programs.
const logEvery = 10 * time.Second

// canLog reports whether a record with this cause may be logged for the session, because none was
// in the last logEvery. The caller then logs it.
func (s *Supervisor) canLog(e *entry, cause string) bool {
	now := s.Monotonic()
	if next, logged := e.nextLog[cause]; logged && now < next {
		return false
	}
	if e.nextLog == nil {
		e.nextLog = map[string]time.Duration{}
	}
	e.nextLog[cause] = now + logEvery
	return true
}
