package session

import (
	"slices"
	"time"

	"github.com/corrald/corral/internal/exitstatus"
)

// advance makes at most one step that follows from the facts or the deadline. It reports whether it
// made one.
func (n *next) advance() bool {
	r, p := n.s.Run, &n.Pending
	due := p.Deadline != 0 && n.env.Monotonic >= p.Deadline
	switch {
	case p.Phase == Cleanup:
		return false
	case !r.Live():
		return n.live && n.gone()
	case p.Phase.ends():
		return n.escalate(due)
	case p.Phase.starts():
		return n.start(due)
	case p.Phase == NoPhase:
		return n.derive()
	}
	return false
}

// gone continues once the scope of the run is gone.
func (n *next) gone() bool {
	was := n.Pending
	if n.live {
		n.live = false
		n.do(ReleaseRun{*n.s.Run})
	}
	n.Pending = Pending{Replies: was.Replies}
	switch {
	case was.WaitsToBegin() && !n.env.Closing:
		n.Pending.Op, n.Pending.Begin = was.Op, was.Begin
		n.begin()
	case was.Op == OpArchive && n.s.Archived.IsZero():
		n.record(SessionArchived{At: n.env.At})
	case was.Op == OpRemove:
		n.Pending.Op = OpRemove
		n.enter(Cleanup, 0)
		n.do(CleanUp{})
	}
	return true
}

// escalate continues the escalation.
func (n *next) escalate(due bool) bool {
	r, p := n.s.Run, &n.Pending
	if p.Phase <= HangUpAgent && r.Scope == ScopeActive {
		switch {
		case r.Ended():
			n.termAll()
			return true
		case r.AgentAlive() && !p.Signalled:
			p.Signalled = true
			n.do(SignalAgent{})
		}
	}
	if !due {
		return false
	}
	switch p.Phase {
	case TermAgent:
		p.Phase = HangUpAgent
		p.Deadline = p.escalationDeadline()
		if r.AgentAlive() {
			n.do(HangUp{})
		}
	case HangUpAgent:
		n.termAll()
	case TermAll, KillAll:
		n.kill()
	}
	return true
}

func (n *next) termAll() {
	n.Pending.Phase = TermAll
	n.Pending.Deadline = n.Pending.escalationDeadline()
	n.do(SignalAll{})
}

// kill sends SIGKILL to the processes in the scope, each time after a longer wait.
func (n *next) kill() {
	p := &n.Pending
	p.Kills++
	p.Phase = KillAll
	if p.Kills > maxKills {
		p.Phase, p.Op, p.Deadline = Surviving, NoOp, 0
		return
	}
	n.do(KillScope{})
	p.Deadline = max(p.escalationDeadline(), n.after(killTime))
}

// derive begins an operation that follows from the facts alone, as after a restart of the daemon.
func (n *next) derive() bool {
	r, p := n.s.Run, &n.Pending
	switch {
	case r.Scope == ScopeActive && r.Exit != nil && r.Exit.Code == exitstatus.NotStarted:
		// Nothing was executed: there is no agent to signal, and no last screen to keep.
		p.Op = OpStop
		n.end(FailedGrace)
		n.termAll()
	case r.Intent != NoIntent && !n.env.Closing:
		p.Op = OpStop
		n.end(0)
	case r.StartError != "" && r.Scope == ScopeActive && !n.s.sharesScope():
		p.Op = OpStop
		n.end(FailedGrace)
	case n.s.AwaitsAgent() && !r.Ended():
		n.enter(Launch, n.after(AppearTime))
	default:
		return false
	}
	return true
}

// sharesScope reports whether the run began in the scope of an earlier one.
func (s *Session) sharesScope() bool {
	return slices.ContainsFunc(s.Past, func(past Run) bool { return past.InvocationID == s.Run.InvocationID })
}

// start makes the next step of a start. The start is no longer pending if the run loses its
// terminal before its agent appears; derive resumes it once there is another terminal.
func (n *next) start(due bool) bool {
	r, p := n.s.Run, &n.Pending
	limit := StartTimeout
	if r.Notify {
		limit = ReadyTimeout
	}
	switch {
	case r.AgentAppeared(), r.Ended(), p.Phase >= Launch && !n.s.AwaitsAgent():
		p.Op = NoOp
		n.enter(NoPhase, 0)
	case !due:
		return false
	case p.Phase == Launch:
		n.enter(Continued, p.Deadline+limit-AppearTime)
		n.do(ContinueShim{})
	default:
		reason := "its agent did not appear within " + limit.String()
		if !r.Started.IsZero() {
			reason = "its agent did not report that it is ready within " + limit.String()
		}
		n.record(StartFailed{Run: r.ID, Reason: reason, Moment: n.env.Moment})
		p.Op = OpStop
		n.end(FailedGrace)
	}
	return true
}

// escalationDeadline is when the phase of the escalation is over.
func (p Pending) escalationDeadline() time.Duration {
	after := p.Grace
	switch p.Phase {
	case TermAgent:
		after = min(HangUpTime, after/4)
	case HangUpAgent:
		after -= min(after/2, AllTime)
	case KillAll:
		after <<= p.Kills
	}
	return p.Began + after
}
