package session

import (
	"strings"
	"time"

	"github.com/corrald/corral/dbusapi/word"

	"github.com/corrald/corral/internal/exitstatus"
)

// Event is something that was requested or has happened. The set is closed. Its members are the
// facts, in this file and in conversation.go, limit.go, prompt.go, queue.go, report.go and
// setup.go, and, in requests.go, the requests for operations and the results of effects.
//
// Facts about a run contain its id, and have no effect if the session's current run is another one.
// A fact about a run changes in one direction only. Therefore neither the order of facts matters,
// nor their repetition.
type Event interface {
	apply(*Session)
}

// Apply changes the session's facts according to e. It reports whether a fact that is saved has
// changed.
func (s *Session) Apply(e Event) (changed bool) {
	run, archived, workspace, limit, continued := s.Run, s.Archived, s.WorkspaceInode, s.Limit, s.Continued
	seen, prompted, unsent, conversation, setup := s.Seen, s.Prompted, s.Unsent, s.ConversationID, s.Setup
	queued := s.Queued
	var before Run
	if run != nil {
		before = *run
	}
	e.apply(s)
	s.updateLimit()
	return s.Run != run || run != nil && *run != before || s.Archived != archived || s.WorkspaceInode != workspace ||
		s.Limit != limit || s.Continued != continued || s.Queued != queued || s.Setup != setup ||
		s.Seen != seen || s.Prompted != prompted || s.Unsent != unsent || s.ConversationID != conversation
}

// RunBegun begins a new run. The caller has checked that the run before it is over.
type RunBegun struct {
	Run     string // its id, never used before
	BootID  string
	Unit    string
	Resumed bool
	Notify  bool     // its agent reports when it is ready (Type=notify)
	Sources []string // the sources that count for its agent, the strongest first; nil for all
	// What confines its agent, as in Run.
	SandboxTool, SandboxNetwork string

	At time.Time
}

// ScopeStarted reports that systemd has put the run's first process into its scope.
type ScopeStarted struct {
	Run, InvocationID, ControlGroup string
}

// ScopeResult reports the Result of a scope that has not ended yet, but will: RuntimeMaxSec= has
// expired.
type ScopeResult struct {
	Run, Result string
	Moment
}

// ScopeEnded reports that the scope is empty and unloaded. Result is systemd's, "" if it is not
// known any more.
type ScopeEnded struct {
	Run, Result string
	At          time.Time
}

// TmuxStarted reports which process the run's tmux server is. A run whose server has died can get
// another one.
type TmuxStarted struct {
	Run     string
	Process Process
}

// TmuxDied reports that a tmux server has died: Process or, if that is zero, the known one.
type TmuxDied struct {
	Run     string
	Process Process
}

// AgentStarted reports that the agent was executed. Source: the shim.
type AgentStarted struct {
	Run         string
	Shim, Agent Process
	SendsTyped  bool // the shim sends Typed
	At          time.Time
}

// AgentExited reports that the run's agent has exited, or that it could not be executed, as
// recorded by its shim.
type AgentExited struct {
	Status exitstatus.Status
}

// ShimDied reports that the shim has died without recording the agent's exit. TmuxSurvived means
// that tmux still answered afterwards: only then is it certain that the shim alone was killed.
type ShimDied struct {
	Run          string
	TmuxSurvived bool
	At           time.Time
}

// StartFailed reports why the run's agent was not started, or did not become ready.
type StartFailed struct {
	Run, Reason string
	Interrupted bool // a daemon exited meanwhile: nothing is wrong with the session
	Moment
}

// TerminalClosed is the reason of a run that ended because a person closed its terminal.
const TerminalClosed = "its terminal was closed"

// ByScopeStop is the reason of a run whose scope was stopped with systemctl.
const ByScopeStop = "its scope was stopped"

// IntentSet reports that the run is to end: because the user requested that, or to be resumed
// later.
type IntentSet struct {
	Run    string
	Intent Intent
	Why    string
	Idle   bool // it is suspended because it is idle
	// SignalledBySystemd reports that systemd had signalled the agent by At. An agent that has exited
	// since then has exited because of that signal, even if its exit was received first.
	SignalledBySystemd bool
	Moment
}

// MachineWentDown reports that the run's boot is over.
type MachineWentDown struct {
	Run string
	At  time.Time
}

// LeftRunning reports that the daemon exits on request while the run continues.
type LeftRunning struct {
	Run string
	At  time.Time
}

// FoundAlive reports that a run which a daemon left running was found alive.
type FoundAlive struct {
	Run string
}

// WorkspaceObserved reports whether the workspace is at its path, and which directory is there.
type WorkspaceObserved struct {
	Gone  bool
	Inode Inode // of the directory; undefined if it is gone
}

// FreezeObserved reports whether the run's scope is frozen. Like WorkspaceObserved, it describes
// the present situation: each daemon determines it again, it is never saved.
type FreezeObserved struct {
	Run    string
	Frozen bool
}

// SessionArchived archives the session. An archived session is hidden, and stays archived.
type SessionArchived struct {
	At time.Time
}

func (e RunBegun) apply(s *Session) {
	if s.Run != nil && s.Run.ID == e.Run {
		return
	}
	suspended := s.View().State == Suspended
	s.discardUnsent(e.Resumed)
	if !e.Resumed || !suspended {
		s.Limit = Limit{}
	}
	if s.Run != nil {
		past := *s.Run
		past.Reported, past.Acknowledged, past.Answered, past.Superseded = Report{}, Seqs{}, Seqs{}, 0
		s.Past = append(s.Past, past)
		if n := len(s.Past) - MaxPast; n > 0 {
			for _, forgotten := range s.RunSummaries()[:n] {
				s.Forgotten += forgotten.Duration()
			}
			s.Past = append([]Run(nil), s.Past[n:]...)
		}
	}
	s.NRuns++
	s.Queued = QueuedRun{}
	s.received, s.Frozen = nil, false
	s.ClearSeen()
	s.Run = &Run{
		ID: e.Run, BootID: e.BootID, Unit: e.Unit, Resumed: e.Resumed, Notify: e.Notify,
		Sources: strings.Join(e.Sources, " "), Requested: e.At, WasSuspended: suspended,
		SandboxTool: e.SandboxTool, SandboxNetwork: e.SandboxNetwork,
	}
}

// ClearSeen removes the acknowledgement of a state.
func (s *Session) ClearSeen() { s.Seen, s.SeenAt, s.SeenOn = "", time.Time{}, Boot{} }

// run returns the current run if it is the one with this id.
func (s *Session) run(id string) *Run {
	if s.Run != nil && s.Run.ID == id {
		return s.Run
	}
	return nil
}

func (e ScopeStarted) apply(s *Session) {
	if r := s.run(e.Run); r != nil {
		r.Scope = max(r.Scope, ScopeActive)
		r.InvocationID, r.ControlGroup = e.InvocationID, e.ControlGroup
	}
}

func (e ScopeResult) apply(s *Session) {
	r := s.run(e.Run)
	if r == nil {
		return
	}
	r.setResult(e.Result)
	if e.Result == word.Timeout && r.TimedOut.IsZero() {
		r.TimedOut, r.TimedOutMonotonic = e.At, e.Monotonic
	}
}

// setResult keeps the first Result that is a failure, as systemd does.
func (r *Run) setResult(result string) {
	if r.ScopeResult == "" || r.ScopeResult == word.Success {
		r.ScopeResult = result
	}
}

func (e ScopeEnded) apply(s *Session) {
	r := s.run(e.Run)
	if r == nil {
		return
	}
	r.setResult(e.Result)
	if r.Scope != ScopeGone {
		r.Scope, r.ScopeGone = ScopeGone, e.At
	}
	r.Tmux = Dead
}

func (e TmuxStarted) apply(s *Session) {
	r := s.run(e.Run)
	switch {
	case r == nil || r.Scope == ScopeGone:
	case r.TmuxProc == (Process{}) && r.Tmux != Dead, r.TmuxProc != (Process{}) && later(e.Process, r.TmuxProc):
		r.Tmux, r.TmuxProc = Alive, e.Process
	}
}

func (e TmuxDied) apply(s *Session) {
	r := s.run(e.Run)
	switch {
	case r == nil:
	case e.Process == (Process{}) || e.Process == r.TmuxProc:
		r.Tmux = Dead
	case r.TmuxProc == (Process{}) || later(e.Process, r.TmuxProc): // its start is reported later
		r.Tmux, r.TmuxProc = Dead, e.Process
	}
}

// later reports whether a is another process than b, and did not start before it.
func later(a, b Process) bool { return a != b && a.Start >= b.Start }

func (e AgentStarted) apply(s *Session) {
	r := s.run(e.Run)
	if r == nil {
		return
	}
	r.ShimProc, r.Agent, r.ShimSendsTyped = e.Shim, e.Agent, e.SendsTyped
	if !r.Started.Equal(e.At) { // a time that was read from the record may differ in its representation
		r.Started = e.At
	}
	r.Shim = max(r.Shim, Alive)
}

func (e AgentExited) apply(s *Session) {
	r := s.run(e.Status.RunID)
	if r == nil || r.Exit != nil {
		return
	}
	status := e.Status
	r.Exit = &status
	if status.Prompted {
		Prompted{Run: status.RunID}.apply(s)
	}
	if r.Started.IsZero() && status.Code != exitstatus.NotStarted {
		r.Started = status.Started
	}
	if r.Agent.PID == 0 {
		r.Agent.PID = status.PID
	}
	if status.PaneClosed {
		r.paneClosed()
	}
}

// paneClosed records that a person has closed the agent's terminal, and that this is why the agent
// exited: the agent may have exited before the daemon could be notified that the pane was closed.
func (r *Run) paneClosed() {
	if r.Intent == NoIntent || r.exited().before(r.intentMoment()) {
		r.Intent, r.Why = Stop, TerminalClosed
		r.IntentAt, r.IntentMonotonic = r.Exit.Exited, r.Exit.ExitedMonotonic
	}
}

func (e ShimDied) apply(s *Session) {
	if r := s.run(e.Run); r != nil && r.Shim != Dead {
		r.Shim, r.ShimDied, r.TmuxSurvived = Dead, e.At, e.TmuxSurvived
	}
}

func (e StartFailed) apply(s *Session) {
	if r := s.run(e.Run); r != nil && (r.StartError == "" || e.before(r.startEnded())) {
		r.StartError, r.StartInterrupted, r.StartEnded, r.StartEndedMonotonic = e.Reason, e.Interrupted, e.At, e.Monotonic
	}
}

func (e IntentSet) apply(s *Session) {
	r := s.run(e.Run)
	if r == nil || r.Intent == Stop || r.Intent == e.Intent {
		return
	}
	exitReceivedFirst := e.SignalledBySystemd && r.Exit != nil && r.StartError == "" &&
		!r.exitedBefore(e.Moment, true)
	if r.Ended() && !exitReceivedFirst {
		return
	}
	if r.Intent == NoIntent { // otherwise the run has been ending since the first request
		r.IntentAt, r.IntentMonotonic, r.SignalledBySystemd = e.At, e.Monotonic, e.SignalledBySystemd
	}
	r.Intent, r.Why, r.IdledOut = e.Intent, e.Why, e.Idle
}

func (e MachineWentDown) apply(s *Session) {
	r := s.run(e.Run)
	if r == nil || r.Scope == ScopeGone {
		return
	}
	r.MachineDown = e.At
	ScopeEnded{Run: e.Run, At: e.At}.apply(s)
}

func (e LeftRunning) apply(s *Session) {
	if r := s.run(e.Run); r != nil && !r.Ended() {
		r.LeftRunning = e.At
	}
}

func (e FoundAlive) apply(s *Session) {
	if r := s.run(e.Run); r != nil {
		r.LeftRunning = time.Time{}
	}
}

func (e WorkspaceObserved) apply(s *Session) {
	s.WorkspaceGone = e.Gone
	if !e.Gone && s.Run.Live() {
		s.WorkspaceInode = e.Inode
	}
}

func (e FreezeObserved) apply(s *Session) {
	if s.run(e.Run) != nil {
		s.Frozen = e.Frozen
	}
}

func (e SessionArchived) apply(s *Session) {
	if s.Archived.IsZero() {
		s.Archived = e.At
	}
}
