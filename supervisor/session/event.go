package session

import (
	"strings"
	"time"

	"github.com/corrald/corral/internal/exitstatus"
)

// Event is something that was asked or has happened. The set is closed: its members are below.
//
// All but the first name the run they are about, and do nothing to a session whose current run is another one. Within a run a fact only ever
// goes forward, which is what makes the order of events, and their repetition, unimportant.
type Event interface {
	apply(*Session)
}

// Apply changes the session's facts by e, and tells whether any that is saved has become another.
func (s *Session) Apply(e Event) (changed bool) {
	run, archived, workspace, seen, prompted, conversation := s.Run, s.Archived, s.WorkspaceInode, s.Seen, s.Prompted, s.ConversationID
	var before Run
	if run != nil {
		before = *run
	}
	e.apply(s)
	return s.Run != run || run != nil && *run != before || s.Archived != archived || s.WorkspaceInode != workspace || s.Seen != seen ||
		s.Prompted != prompted || s.ConversationID != conversation
}

// RunAsked begins a new run. The caller has made sure that the one before it is over.
type RunAsked struct {
	Run     string // its id, never used before
	BootID  string
	Unit    string
	Resumed bool
	Notify  bool     // its agent says itself when it is ready
	Sources []string // who is heard of its agent, the strongest first; nil for everybody
	At      time.Time
}

// ScopeStarted tells that systemd has put the run's first process into its scope.
type ScopeStarted struct {
	Run, InvocationID, ControlGroup string
}

// ScopeResult tells the Result of a scope that has not ended yet but will: its time is up.
type ScopeResult struct {
	Run, Result string
	At          time.Time
	Monotonic   time.Duration // the same moment
}

// ScopeEnded tells that the scope is empty and gone. Result is systemd's, "" if nobody can tell any more.
type ScopeEnded struct {
	Run, Result string
	At          time.Time
}

// TmuxStarted tells which process the run's tmux server is. A run whose server has died can get another one.
type TmuxStarted struct {
	Run     string
	Process Process
}

// TmuxDied tells that a tmux server is gone: this one, or the one that is known if Process is zero.
type TmuxDied struct {
	Run     string
	Process Process
}

// AgentStarted tells, from the shim, that the agent was executed.
type AgentStarted struct {
	Run         string
	Shim, Agent Process
	At          time.Time
}

// AgentExited tells the end of the run's agent, or that it could not be executed, as recorded by its shim.
type AgentExited struct {
	Status exitstatus.Status
}

// ShimDied tells that the shim is gone and has left no record of the agent's exit. Outlived tells that tmux still answered afterwards: only
// then was it the shim alone that somebody killed.
type ShimDied struct {
	Run      string
	Outlived bool
	At       time.Time
}

// StartFailed tells what kept the run from getting as far as its agent.
type StartFailed struct {
	Run, Reason string
	Interrupted bool // it was the end of a daemon: nothing is wrong with the session
	At          time.Time
	Monotonic   time.Duration // the same moment
}

// TerminalClosed is the reason of a run that ended because a person closed its terminal.
const TerminalClosed = "its terminal was closed"

// EndAsked tells that the run is to be ended: by the user's wish, or to be resumed.
type EndAsked struct {
	Run    string
	Intent Intent
	Why    string
	Idle   bool // it is suspended for being idle
	Told   bool // systemd had told the agent so by At: an agent that has ended since then has ended of it, also where that was heard of first

	At        time.Time
	Monotonic time.Duration // the same moment
}

// MachineWentDown tells that the boot the run lived on is over.
type MachineWentDown struct {
	Run string
	At  time.Time
}

// LeftBehind tells that the daemon ends, by somebody's wish, while the run lives.
type LeftBehind struct {
	Run string
	At  time.Time
}

// FoundAlive tells that a run which was left behind was found alive.
type FoundAlive struct {
	Run string
}

// WorkspaceSeen tells whether the workspace is at its place, and which directory that is.
type WorkspaceSeen struct {
	Gone  bool
	Inode Inode // of what is there; of no use if it is gone
}

// FrozenSeen tells whether the run's scope is frozen. Like WorkspaceSeen it is what is there now: it is looked up anew, never remembered.
type FrozenSeen struct {
	Run    string
	Frozen bool
}

// ArchiveAsked puts the session out of sight, for good.
type ArchiveAsked struct {
	At time.Time
}

func (e RunAsked) apply(s *Session) {
	if s.Run != nil && s.Run.ID == e.Run {
		return
	}
	suspended := s.View().State == Suspended
	if s.Run != nil {
		past := *s.Run
		past.Reported, past.Acknowledged, past.Answered, past.Overtaken = Word{}, Seqs{}, Seqs{}, 0
		s.Past = append(s.Past, past)
		if n := len(s.Past) - MaxPast; n > 0 {
			for _, forgotten := range s.Accounts()[:n] {
				s.Forgotten += forgotten.Duration()
			}
			s.Past = append([]Run(nil), s.Past[n:]...)
		}
	}
	s.NRuns++
	s.heard, s.Frozen = nil, false
	s.Unsee()
	s.Run = &Run{ID: e.Run, BootID: e.BootID, Unit: e.Unit, Resumed: e.Resumed, Notify: e.Notify, Sources: strings.Join(e.Sources, " "), Asked: e.At, WasSuspended: suspended}
}

// Unsee forgets that a person has taken note of a state.
func (s *Session) Unsee() { s.Seen, s.SeenAt, s.SeenOn = "", time.Time{}, Boot{} }

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
	if e.Result == Timeout && r.TimedOut.IsZero() {
		r.TimedOut, r.TimedOutMonotonic = e.At, e.Monotonic
	}
}

// setResult keeps the first Result that tells of a failure, as systemd does.
func (r *Run) setResult(result string) {
	if r.ScopeResult == "" || r.ScopeResult == Success {
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
	case r.TmuxProc == (Process{}) || later(e.Process, r.TmuxProc): // told before its start was
		r.Tmux, r.TmuxProc = Dead, e.Process
	}
}

// later tells whether a is another process than b, and not an earlier one.
func later(a, b Process) bool { return a != b && a.Start >= b.Start }

func (e AgentStarted) apply(s *Session) {
	r := s.run(e.Run)
	if r == nil {
		return
	}
	r.ShimProc, r.Agent = e.Shim, e.Agent
	if !r.Started.Equal(e.At) { // the same time, read from the record, may have another form
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
	s.Prompted = s.Prompted || status.Prompted
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

// paneClosed notes that a person closed the agent's terminal, and that this is why the agent ended: it may have done so before anybody could be told.
func (r *Run) paneClosed() {
	if r.Intent == NoIntent || r.exited().before(r.asked()) {
		r.Intent, r.Why = Stop, TerminalClosed
		r.IntentAt, r.IntentMonotonic = r.Exit.Exited, r.Exit.ExitedMonotonic
	}
}

func (e ShimDied) apply(s *Session) {
	if r := s.run(e.Run); r != nil && r.Shim != Dead {
		r.Shim, r.ShimDied, r.Outlived = Dead, e.At, e.Outlived
	}
}

func (e StartFailed) apply(s *Session) {
	if r := s.run(e.Run); r != nil && (r.StartError == "" || moment{e.At, e.Monotonic}.before(r.startEnded())) {
		r.StartError, r.StartInterrupted, r.StartEnded, r.StartEndedMonotonic = e.Reason, e.Interrupted, e.At, e.Monotonic
	}
}

func (e EndAsked) apply(s *Session) {
	r := s.run(e.Run)
	if r == nil || r.Intent == Stop || r.Intent == e.Intent {
		return
	}
	heardFirst := e.Told && r.Exit != nil && r.StartError == "" && !r.exitedBefore(moment{e.At, e.Monotonic}, true)
	if r.Ended() && !heardFirst {
		return
	}
	if r.Intent == NoIntent { // else the run is ending since then
		r.IntentAt, r.IntentMonotonic, r.SystemdTold = e.At, e.Monotonic, e.Told
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

func (e LeftBehind) apply(s *Session) {
	if r := s.run(e.Run); r != nil && !r.Ended() {
		r.Left = e.At
	}
}

func (e FoundAlive) apply(s *Session) {
	if r := s.run(e.Run); r != nil {
		r.Left = time.Time{}
	}
}

func (e WorkspaceSeen) apply(s *Session) {
	s.WorkspaceGone = e.Gone
	if !e.Gone && s.Run.Live() {
		s.WorkspaceInode = e.Inode
	}
}

func (e FrozenSeen) apply(s *Session) {
	if s.run(e.Run) != nil {
		s.Frozen = e.Frozen
	}
}

func (e ArchiveAsked) apply(s *Session) {
	if s.Archived.IsZero() {
		s.Archived = e.At
	}
}
