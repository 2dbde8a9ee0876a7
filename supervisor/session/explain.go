package session

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/internal/outcome"
)

// Told is one thing that is known of a session, with who told it.
type Told struct {
	Subject string // state, activity or attention
	Source  string // of the state: user, systemd, tmux, shim, exit_status, inotify, kernel or corrald; else a Source
	At      time.Time
	Value   string
}

// Explain returns what the session's state, activity and attention follow from. Of the state these are its facts, the oldest first and those without
// a time before them; of activity and attention what each source says: the one that decides first, then the others by what their word weighs, with why it does
// not count.
func (s *Session) Explain() []Told {
	all := s.explainState()
	activity, source, since := s.Active()
	all = append(all, Told{"activity", string(source), since, activity})
	a := s.Attention()
	if s.Run.AgentAlive() {
		all = append(all, s.explainOthers("activity", source, activityOf)...)
	}
	if a.Reason != "" {
		source := string(a.Source)
		if source == "" {
			source = "state"
		}
		value := withMessage(a.Reason, a.Message)
		if a.Acknowledged {
			value += inBrackets("acknowledged")
		}
		all = append(all, Told{"attention", source, a.Since, value})
	}
	if s.Run.AgentAlive() {
		all = append(all, s.explainOthers("attention", a.Source, reasonOf)...)
	}
	return all
}

func activityOf(w Word) string { return w.Activity }

func reasonOf(w Word) string {
	if w.Reason == "" {
		return ""
	}
	return withMessage(w.Reason, w.Message)
}

func withMessage(reason, message string) string {
	if message == "" {
		return reason
	}
	return reason + ": " + message
}

// explainOthers tells what the sources say beside the one that is told already. Of the activity it tells also who has nothing to say: these are listened to.
func (s *Session) explainOthers(subject string, told Source, of func(Word) string) []Told {
	var all []Told
	heard := s.sources()
	for _, source := range slices.Concat(heard, s.unheard(heard)) {
		w, ok := s.word(source)
		value := of(w)
		switch {
		case source == told:
		case value != "":
			all = append(all, Told{subject, string(source), w.At, value + inBrackets(s.discounted(source, w, heard))})
		case subject == "activity" && source != FromScreen && (!ok || !w.says()):
			all = append(all, Told{subject, string(source), w.At, "nothing"})
		}
	}
	return all
}

// unheard are the sources that have said something but are not heard.
func (s *Session) unheard(heard []Source) []Source {
	return slices.DeleteFunc(slices.Clone(Sources), func(source Source) bool {
		_, ok := s.word(source)
		return !ok || slices.Contains(heard, source)
	})
}

// discounted tells why a word does not count.
func (s *Session) discounted(source Source, w Word, heard []Source) string {
	decider, _, _ := s.decides()
	switch {
	case !slices.Contains(heard, source):
		return "ignored: not in the agent's Sources="
	case source != FromOutput && source != FromOSC7501 && *s.Run.Answered.of(source) >= w.Seq:
		return "answered"
	case source == FromBell && w.Reason != "" && s.acknowledged(source, w):
		return "acknowledged"
	case source != FromOutput && s.settled(source, w):
		return "the agent has continued"
	case source == FromScreen && s.spoke(heard):
		return "the agent reports its own status"
	case decider != source && decider != "":
		return "overruled by " + string(decider)
	}
	return ""
}

func (s *Session) explainState() []Told {
	var all []Told
	tell := func(source string, at time.Time, value string) { all = append(all, Told{"state", source, at, value}) }
	tell("user", s.Created, "created")
	if s.Run != nil {
		s.Run.explain(tell)
	}
	if s.WorkspaceGone {
		tell("inotify", time.Time{}, fmt.Sprintf("workspace %q is gone", s.WorkingDirectory))
	}
	if !s.Archived.IsZero() {
		tell("user", s.Archived, "archived")
	}
	slices.SortStableFunc(all, func(a, b Told) int { return cmp.Compare(unixMicro(a.At), unixMicro(b.At)) })
	return all
}

func unixMicro(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// explain tells the facts of a run.
func (r *Run) explain(tell func(source string, at time.Time, value string)) {
	asked := "start asked"
	if r.Resumed {
		asked = "resume asked"
	}
	tell("user", r.Asked, asked)
	if r.Scope == ScopeActive {
		tell("systemd", time.Time{}, "the scope is active")
	}
	if r.Scope == ScopeGone {
		tell("systemd", r.ScopeGone, "the scope is gone"+inBrackets(r.ScopeResult))
	}
	if !r.TimedOut.IsZero() {
		tell("systemd", r.TimedOut, "RuntimeMaxSec= has expired")
	}
	switch r.Tmux {
	case Alive:
		tell("tmux", time.Time{}, "its server is alive")
	case Dead:
		tell("tmux", time.Time{}, "its server is dead")
	}
	if !r.Started.IsZero() {
		tell("shim", r.Started, fmt.Sprintf("agent started (PID %d)", r.Agent.PID))
	}
	if !r.Ready.IsZero() {
		tell("shim", r.Ready, "the agent is ready")
	}
	if r.Shim == Dead {
		tell("kernel", r.ShimDied, "the shim is dead")
	}
	if r.Exit != nil {
		tell("exit_status", r.Exit.Exited, describeExit(r.Exit))
	}
	if r.StartError != "" {
		tell("corrald", r.StartEnded, r.StartError)
	}
	if r.Intent != NoIntent {
		tell(intentSource(r.Why), r.IntentAt, string(r.Intent)+" asked"+inBrackets(r.Why))
	}
	if !r.Left.IsZero() {
		tell("corrald", r.Left, "corrald was asked to exit")
	}
	if !r.MachineDown.IsZero() {
		tell("kernel", r.MachineDown, "the machine was rebooted")
	}
}

// intentSource tells who has asked for an end: what a person asks for by itself needs no reason.
func intentSource(why string) string {
	if why == "" {
		return "user"
	}
	return "corrald"
}

func inBrackets(text string) string {
	if text == "" {
		return ""
	}
	return " (" + text + ")"
}

func describeExit(e *exitstatus.Status) string {
	switch e.Code {
	case exitstatus.NotStarted:
		return e.Error
	case exitstatus.Killed:
		return "killed by " + outcome.SignalName(e.Value)
	case exitstatus.Dumped:
		return "killed by " + outcome.SignalName(e.Value) + " (core dumped)"
	}
	return fmt.Sprintf("exited with code %d", e.Value)
}
