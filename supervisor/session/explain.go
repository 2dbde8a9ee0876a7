package session

import (
	"fmt"
	"slices"
	"time"

	"github.com/corrald/corral/dbusapi/word"
	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/internal/outcome"
)

// Evidence is one thing that is known about a session, and its source.
type Evidence struct {
	Subject string // state, activity or attention
	// Source is, for the state, one of user, systemd, tmux, shim, exit_status, inotify, kernel and
	// corrald. Otherwise it is a Source, or "state" if the state requests attention.
	Source string
	At     time.Time
	Value  string
}

// Explain returns what the session's state, activity and attention follow from. For the state,
// these are its facts: those without a time, then the others, the oldest first. For activity and
// attention, it is what each source reports: first the source that decides, then the others by
// their strength, each with the reason why it does not count.
func (s *Session) Explain() []Evidence {
	all := s.explainState()
	activity, source, since := s.Activity()
	all = append(all, Evidence{word.Activity, string(source), since, activity})
	a := s.Attention()
	if s.Run.AgentAlive() {
		all = append(all, s.explainOthers(word.Activity, source, func(r Report) string { return r.Activity })...)
	}
	if a.Reason != "" {
		source := string(a.Source)
		if source == "" {
			source = word.State
		}
		value := withMessage(a.Reason, a.Message)
		if a.Acknowledged {
			value += inParentheses("acknowledged")
		}
		all = append(all, Evidence{word.Attention, source, a.Since, value})
	}
	if s.Run.AgentAlive() {
		all = append(all, s.explainOthers(word.Attention, a.Source, reasonOf)...)
	}
	return all
}

func reasonOf(report Report) string {
	if report.Reason == "" || report.isRetrying() {
		return ""
	}
	return withMessage(report.Reason, report.Message)
}

func withMessage(reason, message string) string {
	if message == "" {
		return reason
	}
	return reason + ": " + message
}

// explainOthers returns what the sources other than decider report. For the activity, this includes
// the trusted sources that report nothing.
func (s *Session) explainOthers(subject string, decider Source, valueOf func(Report) string) []Evidence {
	var all []Evidence
	trusted := s.trustedSources()
	for _, source := range slices.Concat(trusted, s.ignoredSources(trusted)) {
		report, ok := s.latestReport(source)
		value := valueOf(report)
		switch {
		case source == decider:
		case value != "":
			value += inParentheses(s.reasonIgnored(source, report, trusted))
			all = append(all, Evidence{subject, string(source), report.At, value})
		case subject == word.Activity && source != FromScreen && (!ok || !report.hasStatus()):
			all = append(all, Evidence{subject, string(source), report.At, "nothing"})
		}
	}
	return all
}

// ignoredSources returns the sources that have reported something but are not trusted.
func (s *Session) ignoredSources(trusted []Source) []Source {
	return slices.DeleteFunc(slices.Clone(Sources), func(source Source) bool {
		_, ok := s.latestReport(source)
		return !ok || slices.Contains(trusted, source)
	})
}

// reasonIgnored returns why a report does not count.
func (s *Session) reasonIgnored(source Source, report Report, trusted []Source) string {
	decider, _, _ := s.decidingReport()
	switch {
	case !slices.Contains(trusted, source):
		return "ignored: not in the agent's Sources="
	case source != FromOutput && source != FromOSC7501 && *s.Run.Answered.of(source) >= report.Seq:
		return "answered"
	case source == FromBell && report.Reason != "" && s.isAcknowledged(source, report):
		return "acknowledged"
	case source != FromOutput && s.isResolved(source, report):
		return "the agent has continued"
	case source == FromScreen && report.Reason == word.Setup && s.reportsOwnStatus(trusted):
		return "the agent reports its own status"
	case decider != source && decider != "":
		return "overruled by " + string(decider)
	}
	return ""
}

func (s *Session) explainState() []Evidence {
	var all []Evidence
	add := func(source string, at time.Time, value string) {
		all = append(all, Evidence{word.State, source, at, value})
	}
	add("user", s.Created, "created")
	if s.Run != nil {
		s.Run.explain(add)
	}
	if s.WorkspaceGone {
		add("inotify", time.Time{}, fmt.Sprintf("workspace %q is gone", s.WorkingDirectory))
	}
	if !s.Archived.IsZero() {
		add("user", s.Archived, "archived")
	}
	if s.IsQueued() {
		add("user", s.Queued.At, "queued to "+s.Queued.Op)
	}
	if s.Unsent != "" {
		add("corrald", time.Time{}, "a text that could not be sent is typed once the session is resumed")
	}
	slices.SortStableFunc(all, func(a, b Evidence) int { return a.At.Compare(b.At) })
	return all
}

// explain adds the facts of a run.
func (r *Run) explain(add func(source string, at time.Time, value string)) {
	request := "start asked"
	if r.Resumed {
		request = "resume asked"
	}
	add("user", r.Requested, request)
	if r.Scope == ScopeActive {
		add("systemd", time.Time{}, "the scope is active")
	}
	if r.Scope == ScopeGone {
		add("systemd", r.ScopeGone, "the scope is gone"+inParentheses(r.ScopeResult))
	}
	if !r.TimedOut.IsZero() {
		add("systemd", r.TimedOut, "RuntimeMaxSec= has expired")
	}
	switch r.Tmux {
	case Alive:
		add("tmux", time.Time{}, "its server is alive")
	case Dead:
		add("tmux", time.Time{}, "its server is dead")
	}
	if !r.Started.IsZero() {
		add("shim", r.Started, fmt.Sprintf("agent started (PID %d)", r.Agent.PID))
	}
	if !r.Ready.IsZero() {
		add("shim", r.Ready, "the agent is ready")
	}
	if r.Shim == Dead {
		add("kernel", r.ShimDied, "the shim is dead")
	}
	if r.Exit != nil {
		add("exit_status", r.Exit.Exited, describeExit(r.Exit))
	}
	if r.StartError != "" {
		add("corrald", r.StartEnded, r.StartError)
	}
	if r.Intent != NoIntent {
		add(intentSource(r.Why), r.IntentAt, string(r.Intent)+" asked"+inParentheses(r.Why))
	}
	if !r.LeftRunning.IsZero() {
		add("corrald", r.LeftRunning, "corrald was asked to exit")
	}
	if !r.MachineDown.IsZero() {
		add("kernel", r.MachineDown, "the machine was rebooted")
	}
}

// intentSource returns who requested the end of a run: a request of a person has no reason.
func intentSource(why string) string {
	if why == "" {
		return "user"
	}
	return "corrald"
}

func inParentheses(text string) string {
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
