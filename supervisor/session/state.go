package session

import (
	"cmp"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/dbusapi/word"
	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/internal/outcome"
)

// State summarizes a session in one word.
type State string

const (
	Created   State = word.Created   // never started
	Starting  State = word.Starting  // a run was requested, its agent has not appeared yet
	Running   State = word.Running   // scope, tmux and agent are alive
	Stopping  State = word.Stopping  // its end was requested, the scope is not empty yet
	Stopped   State = word.Stopped   // ended as the user requested
	Completed State = word.Completed // the agent exited with code 0
	Failed    State = word.Failed    // it ended otherwise
	Stale     State = word.Stale     // tmux is dead, the scope is not empty, no exit was recorded
	Suspended State = word.Suspended // ended, to be resumed
	Orphaned  State = word.Orphaned  // live, starting or never started, and its workspace is gone
	Archived  State = word.Archived  // kept, but hidden
)

// Lifecycle returns the group that the state belongs to: active, suspended, archived or error.
func (s State) Lifecycle() string {
	switch s {
	case Failed, Orphaned:
		return word.Error
	case Suspended, Archived:
		return string(s)
	}
	return word.Active
}

// View is what follows from a session's facts.
type View struct {
	State  State
	Result string    // one of the results, "" while the agent runs
	Reason string    // for a person: one English sentence, "" if there is nothing to add
	Since  time.Time // when the facts that State follows from happened, zero if that is not known
}

// View derives the session's state from its facts. States are decided only here and in runView: the
// first condition that holds decides.
func (s *Session) View() View {
	r := s.Run
	switch {
	case !s.Archived.IsZero():
		v := s.runView()
		return View{Archived, v.Result, v.Reason, s.Archived}
	case s.WorkspaceGone && (r == nil || !r.Ended() && !r.isEndIntended() && !r.isEndedByTimeout()):
		return View{State: Orphaned, Reason: fmt.Sprintf("workspace %q is gone", s.WorkingDirectory)}
	case r == nil:
		return View{State: Created, Reason: s.Setup.reason(), Since: s.Created}
	}
	return s.runView()
}

// AwaitsAgent reports whether a run was requested and its agent has not appeared yet, even if the
// workspace is gone meanwhile.
func (s *Session) AwaitsAgent() bool {
	state := s.View().State
	return state == Starting || state == Orphaned && s.Run != nil && s.Run.Started.IsZero()
}

// Stale reports whether the run has lost its tmux session, even if the workspace is gone as well.
func (s *Session) Stale() bool { return s.Archived.IsZero() && s.runView().State == Stale }

// runView derives the state from the facts of the current run.
func (s *Session) runView() View {
	r := s.Run
	switch {
	case r == nil:
		return View{}
	case r.isEndIntended() && r.Live():
		return View{State: Stopping, Since: r.IntentAt}
	case r.isEndIntended() && r.Intent == Suspend:
		return View{Suspended, word.Success, r.Why, r.ScopeGone}
	case r.isEndIntended():
		return View{Stopped, word.Success, r.Why, r.ScopeGone}
	case r.isEndedByTimeout() && !r.Ended():
		return View{State: Stopping, Since: r.TimedOut}
	case r.isEndedByTimeout():
		return View{Failed, word.Timeout, "it ran for as long as RuntimeMaxSec allows", r.end()}
	case r.StartError != "" && (r.Exit == nil || !r.exited().before(r.startEnded())):
		// An agent that appeared after the start had failed was ended by corrald.
		return unstartedView(r)
	case r.Exit != nil:
		return exitView(r)
	case !r.LeftRunning.IsZero() && !r.TmuxSurvived:
		return leftRunningView(r)
	case r.TmuxSurvived:
		return View{Failed, word.AgentLost, "shell process exited", r.ShimDied}
	case r.Scope == ScopeGone:
		return s.lostView()
	case r.Tmux == Dead:
		return View{State: Stale, Result: word.SessionLost, Reason: "scope running, session dead"}
	case !r.AgentAppeared():
		return View{State: Starting, Since: r.Requested}
	}
	return runningView(r)
}

// runningView returns the view of a run whose agent has appeared.
func runningView(r *Run) View {
	if r.Notify {
		return View{State: Running, Since: r.Ready}
	}
	return View{State: Running, Since: r.Started}
}

// unstartedView returns the view of a run whose start has failed.
func unstartedView(r *Run) View {
	if r.StartInterrupted && r.WasSuspended { // it is suspended as before
		return View{Suspended, word.Success, r.StartError, r.StartEnded}
	}
	return View{Failed, word.StartFailed, r.StartError, r.StartEnded}
}

// exitView returns the view of a run whose exit was recorded.
func exitView(r *Run) View {
	e := r.Exit
	switch {
	case e.Code == exitstatus.NotStarted:
		return View{Failed, word.StartFailed, e.Error, e.Exited}
	case r.OutOfMemory():
		return View{Failed, word.OOMKill, oomReason(e.MemoryMax), e.Exited}
	case e.Code == exitstatus.Killed:
		reason := cmp.Or(e.Error, "command "+outcome.Phrase(word.Signal, e.Value))
		return View{Failed, word.Signal, reason, e.Exited}
	case e.Code == exitstatus.Dumped:
		return View{Failed, word.CoreDump, "command " + outcome.Phrase(word.CoreDump, e.Value), e.Exited}
	case e.Value == 0:
		return View{Completed, word.Success, "", e.Exited}
	}
	return View{Failed, word.ExitCode, "command " + outcome.Phrase(word.ExitCode, e.Value), e.Exited}
}

// OutOfMemory reports whether an OOM killer ended the agent: the kernel's, whose kills the control
// group counts; or systemd, which ends a whole scope because of one process (OOMPolicy=stop); or
// systemd-oomd. It is false if only leftover processes of an agent that had exited were killed.
func (r *Run) OutOfMemory() bool {
	e := r.Exit
	killed, failed := e.Code == exitstatus.Killed, e.Code != exitstatus.Exited || e.Value != 0
	return killed && e.Value == int(unix.SIGKILL) && e.OOMKills > 0 ||
		r.ScopeResult == word.OOMKill && (killed || failed && e.OOMKills > 0)
}

// leftRunningView returns the view of a run that a daemon left running when it exited on request.
// It counts as suspended until the run is found alive, or the record of its exit is found.
func leftRunningView(r *Run) View {
	v := View{State: Suspended, Reason: "corrald was shut down", Since: r.LeftRunning}
	if r.Scope == ScopeGone {
		v.Result = word.SessionLost
	}
	return v
}

// lostView returns the view of a run whose scope is gone without a recorded exit.
func (s *Session) lostView() View {
	r := s.Run
	switch {
	case !r.MachineDown.IsZero() && s.Resumable():
		return View{Suspended, word.SessionLost, reasonMachine, r.ScopeGone}
	case !r.MachineDown.IsZero():
		return View{Failed, word.SessionLost, reasonMachine, r.ScopeGone}
	case r.ScopeResult == word.OOMKill:
		return View{Failed, word.OOMKill, oomReason(0), r.ScopeGone}
	}
	return View{Failed, word.SessionLost, "tmux session no longer exists", r.ScopeGone}
}

const reasonMachine = "the machine went down"

// EndCause returns what ended or suspended the last run, as in the EndCause property. It is "" if
// the agent or a client did, if the result names the cause, or while the run has not ended.
func (s *Session) EndCause() string {
	v, r := s.runView(), s.Run
	switch {
	case v.State == Suspended && r.IdledOut:
		return word.Idle
	case v.State == Suspended && v.Reason != "", v.Result == word.SessionLost && !r.MachineDown.IsZero():
		return word.Shutdown
	case v.State == Failed && v.Result == word.SessionLost:
		return word.Killed
	case v.State == Stopped && r.Why == TerminalClosed:
		return word.TerminalClosed
	case v.State == Stopped && r.Why == ByScopeStop:
		return word.ScopeStopped
	}
	return ""
}

// end returns when the run ended, as exactly as that is known.
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

// FormatBytes formats a number of bytes as systemd formats limits: 512M, 1.5G.
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
