package session

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/internal/outcome"
)

// State is what a session is, in one word.
type State string

const (
	Created   State = "created"   // never started
	Starting  State = "starting"  // a run was asked for, its agent is not there yet
	Running   State = "running"   // scope, tmux and agent are alive
	Stopping  State = "stopping"  // an end was asked for, the scope is not yet empty
	Stopped   State = "stopped"   // ended by the user's wish
	Completed State = "completed" // the agent ended with 0
	Failed    State = "failed"    // it ended otherwise
	Stale     State = "stale"     // the tmux session is dead, the scope is not empty, no exit was recorded
	Suspended State = "suspended" // ended, to be resumed
	Orphaned  State = "orphaned"  // the workspace vanished under a session that is live, starting or never started
	Archived  State = "archived"  // kept, out of sight
)

// States has every state, in the order of a session's life.
var States = []State{Created, Starting, Running, Stopping, Stopped, Completed, Failed, Stale, Suspended, Orphaned, Archived}

// Lifecycle returns the coarse view of the state: active, suspended, archived or error.
func (s State) Lifecycle() string {
	switch s {
	case Failed, Orphaned:
		return "error"
	case Suspended, Archived:
		return string(s)
	}
	return "active"
}

// The results of a run, as in the Result property. A run that lives has none.
const (
	Success     = outcome.Success
	ExitCode    = outcome.ExitCode
	Signal      = outcome.Signal
	CoreDump    = outcome.CoreDump
	OOMKill     = outcome.OOMKill
	Timeout     = outcome.Timeout
	CannotStart = outcome.CannotStart
	SessionLost = outcome.SessionLost
	AgentLost   = outcome.AgentLost
)

// View is what follows from a session's facts.
type View struct {
	State  State
	Result string    // one of the results, "" while it runs
	Reason string    // for a person: one English sentence, "" if there is nothing to add
	Since  time.Time // when the facts that made State happened, as far as they tell; else zero
}

// View derives the session's state. It is the one place where states are decided, in this order: the first rule that holds.
func (s *Session) View() View {
	r := s.Run
	switch {
	case !s.Archived.IsZero():
		v := s.runView()
		return View{Archived, v.Result, v.Reason, s.Archived}
	case s.WorkspaceGone && (r == nil || !r.Ended() && !r.intended() && !r.outOfTime()):
		return View{State: Orphaned, Reason: fmt.Sprintf("workspace %q is gone", s.WorkingDirectory)}
	case r == nil:
		return View{State: Created, Since: s.Created}
	}
	return s.runView()
}

// Awaited tells whether a run was asked for whose agent is not there yet, also where its workspace is gone meanwhile.
func (s *Session) Awaited() bool {
	state := s.View().State
	return state == Starting || state == Orphaned && s.Run != nil && s.Run.Started.IsZero()
}

// Stale tells whether the run has lost its tmux session, also where its workspace is gone as well.
func (s *Session) Stale() bool { return s.Archived.IsZero() && s.runView().State == Stale }

// runView derives what became of the current run.
func (s *Session) runView() View {
	r := s.Run
	switch {
	case r == nil:
		return View{}
	case r.intended() && r.Live():
		return View{State: Stopping, Since: r.IntentAt}
	case r.intended() && r.Intent == Suspend:
		return View{Suspended, Success, r.Why, r.ScopeGone}
	case r.intended():
		return View{Stopped, Success, r.Why, r.ScopeGone}
	case r.outOfTime() && !r.Ended():
		return View{State: Stopping, Since: r.TimedOut}
	case r.outOfTime():
		return View{Failed, Timeout, outcome.ReasonRuntimeMax, r.end()}
	case r.StartError != "" && (r.Exit == nil || !r.exited().before(r.startEnded())): // what came too late is ended, by us
		return unstartedView(r)
	case r.Exit != nil:
		return exitView(r)
	case !r.Left.IsZero() && !r.Outlived:
		return leftView(r)
	case r.Outlived:
		return View{Failed, AgentLost, outcome.ReasonShimDied, r.ShimDied}
	case r.Scope == ScopeGone:
		return s.lostView()
	case r.Tmux == Dead:
		return View{State: Stale, Result: SessionLost, Reason: outcome.ReasonStale}
	case !r.Begun():
		return View{State: Starting, Since: r.Asked}
	}
	return runningView(r)
}

// runningView tells since when an agent is there.
func runningView(r *Run) View {
	if r.Notify {
		return View{State: Running, Since: r.Ready}
	}
	return View{State: Running, Since: r.Started}
}

// unstartedView tells what it means that a run did not get as far as its agent.
func unstartedView(r *Run) View {
	if r.StartInterrupted && r.WasSuspended { // it still is
		return View{Suspended, Success, r.StartError, r.StartEnded}
	}
	return View{Failed, CannotStart, r.StartError, r.StartEnded}
}

// exitView tells what a recorded exit means.
func exitView(r *Run) View {
	e := r.Exit
	switch {
	case e.Code == exitstatus.NotStarted:
		return View{Failed, CannotStart, e.Error, e.Exited}
	case r.OutOfMemory():
		return View{Failed, OOMKill, oomReason(e.MemoryMax), e.Exited}
	case e.Code == exitstatus.Killed:
		return View{Failed, Signal, "command was killed by " + outcome.SignalName(e.Value), e.Exited}
	case e.Code == exitstatus.Dumped:
		return View{Failed, CoreDump, "command was killed by " + outcome.SignalName(e.Value) + " (core dumped)", e.Exited}
	case e.Value == 0:
		return View{Completed, Success, "", e.Exited}
	}
	return View{Failed, ExitCode, fmt.Sprintf("command exited with code %d", e.Value), e.Exited}
}

// OutOfMemory tells whether it was an OOM killer that ended the agent: the kernel's, which the control group counts, or systemd, which ends a
// whole scope for one process (OOMPolicy=stop), or systemd-oomd. What befalls the leftovers of an agent that has ended says nothing of it.
func (r *Run) OutOfMemory() bool {
	e := r.Exit
	killed, failed := e.Code == exitstatus.Killed, e.Code != exitstatus.Exited || e.Value != 0
	return killed && e.Value == int(unix.SIGKILL) && e.OOMKills > 0 || r.ScopeResult == OOMKill && (killed || failed && e.OOMKills > 0)
}

// leftView is for a run that a daemon left behind when it was told to end: suspended, until it is found alive or its exit is.
func leftView(r *Run) View {
	v := View{State: Suspended, Reason: "corrald was shut down", Since: r.Left}
	if r.Scope == ScopeGone {
		v.Result = SessionLost
	}
	return v
}

// lostView tells what it means that the scope is gone and no exit was recorded.
func (s *Session) lostView() View {
	r := s.Run
	switch {
	case !r.MachineDown.IsZero() && s.Resumable():
		return View{Suspended, SessionLost, outcome.ReasonMachine, r.ScopeGone}
	case !r.MachineDown.IsZero():
		return View{Failed, SessionLost, outcome.ReasonMachine, r.ScopeGone}
	case r.ScopeResult == OOMKill:
		return View{Failed, OOMKill, oomReason(0), r.ScopeGone}
	}
	return View{Failed, SessionLost, outcome.ReasonKilled, r.ScopeGone}
}

// end returns when the run ended, as exactly as is known.
func (r *Run) end() time.Time {
	if r.Exit != nil {
		return r.Exit.Exited
	}
	return r.ScopeGone
}

func oomReason(limit uint64) string {
	if limit == 0 {
		return "out of memory"
	}
	return "out of memory (limit " + FormatBytes(limit) + ")"
}

// FormatBytes returns a number of bytes as systemd writes limits: 512M, 1.5G.
func FormatBytes(n uint64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return fmt.Sprintf("%dB", n)
	}
	f, unit := float64(n), byte('B')
	for i := 0; f >= 1024 && i < len(units); i++ {
		f /= 1024
		unit = units[i]
	}
	if f == float64(uint64(f)) {
		return fmt.Sprintf("%.0f%c", f, unit)
	}
	return fmt.Sprintf("%.1f%c", f, unit)
}
