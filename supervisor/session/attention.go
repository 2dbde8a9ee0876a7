package session

import (
	"slices"
	"strings"
	"time"

	"github.com/corrald/corral/dbusapi/word"
)

// StatusText returns that the agent retries what has failed or, if it does not, the text that it
// sends as STATUS= (sd_notify(3)). It returns "" if the agent is not alive.
func (s *Session) StatusText() string {
	if !s.Run.AgentAlive() {
		return ""
	}
	_, decider, _ := s.decidingReport()
	screen, _ := s.received.from(FromScreen)
	for _, report := range []Report{decider, screen} {
		if report.isRetrying() && decider.Activity == word.Working {
			return "retrying" + inParentheses(report.Message)
		}
	}
	report, _ := s.received.from(FromNotify)
	return report.Message
}

// LastOutput returns when the agent last printed something before it became silent or, if it is
// printing, when it began to. It is zero if the agent is not alive.
func (s *Session) LastOutput() time.Time {
	if !s.Run.AgentAlive() {
		return time.Time{}
	}
	report, _ := s.received.from(FromOutput)
	return report.At
}

// IsSilent reports whether the agent has ended, or does not print anything.
func (s *Session) IsSilent() bool {
	output, _ := s.received.from(FromOutput)
	return !s.Run.AgentAlive() || output.Activity == word.Idle
}

// TurnEnded reports whether the agent waits for nothing but its next turn.
func (s *Session) TurnEnded() bool {
	_, report, ok := s.decidingReport()
	return ok && report.Reason == word.TurnEnded
}

// OpenRequests returns the Seq of each report whose request for attention is not resolved.
func (s *Session) OpenRequests() Seqs {
	var open Seqs
	for _, source := range Sources {
		if r, ok := s.latestReport(source); ok && r.requestsAttention() && !s.isResolved(source, r) {
			*open.of(source) = r.Seq
		}
	}
	return open
}

// isResolved reports whether the request of a report needs no answer any more: the agent was given
// input after it, a stronger source has superseded it or, if it is a bell, a person has
// acknowledged it. A request by OSC 7501 stays open until the agent reports something else: input
// that the agent discards, as many agents do for a moment after they have shown a question, is not
// an answer.
func (s *Session) isResolved(source Source, report Report) bool {
	if source == FromOSC7501 {
		return false
	}
	return *s.Run.Answered.of(source) >= report.Seq || source == FromBell && s.isAcknowledged(source, report) ||
		s.isSuperseded(source, report) || s.isOver(source, report)
}

// isOver reports whether the screen has shown since the report of a hook that the agent has nothing
// to do: it was interrupted or denied something, which not every agent has a hook for.
func (s *Session) isOver(source Source, report Report) bool {
	screen, _ := s.received.from(FromScreen)
	if source != FromReport || screen.Activity != word.Idle || report.Activity == word.Idle {
		return false
	}
	output, _ := s.received.from(FromOutput)
	isSilent := report.Activity == word.Working && output.Activity == word.Idle // so the report has come late
	return isSilent || screen.Monotonic > report.Monotonic
}

// isSuperseded reports whether a stronger source has reported, after the request of this report,
// that the agent works. The last report of that source may be empty by now.
func (s *Session) isSuperseded(source Source, report Report) bool {
	if !report.requestsAttention() || report.Monotonic == 0 {
		return false
	}
	if source == FromReport && report.Seq != 0 && s.Run.Superseded >= report.Seq {
		return true
	}
	for _, stronger := range s.trustedSources() {
		switch {
		case stronger == source:
			return false
		case s.lastWorking(stronger) > report.Monotonic:
			return true
		}
	}
	return false
}

// lastWorking returns when a source last reported that the agent works, by CLOCK_MONOTONIC; 0 if it
// never did. Of hooks, only the last report is known.
func (s *Session) lastWorking(source Source) time.Duration {
	if report, _ := s.latestReport(source); source == FromReport && report.Activity == word.Working {
		return report.Monotonic
	}
	return s.received.lastWorking(source)
}

// IsAnswered reports whether the agent was given input after the report that decides.
func (s *Session) IsAnswered() bool {
	source, report, ok := s.decidingReport()
	return ok && *s.Run.Answered.of(source) >= report.Seq
}

func (s *Session) isAcknowledged(source Source, report Report) bool {
	return *s.Run.Acknowledged.of(source) >= report.Seq
}

// trustedSources returns the sources that count for this agent, the strongest first.
func (s *Session) trustedSources() []Source {
	if s.Run == nil || s.Run.Sources == "" {
		return Sources
	}
	var trusted []Source
	for name := range strings.FieldsSeq(s.Run.Sources) {
		trusted = append(trusted, Source(name))
	}
	return append(trusted, FromScreen, FromOutput)
}

// isOutdated reports whether the screen has shown an idle agent before a hook has reported that it
// works or waits: the screen is searched a moment after output only.
func (s *Session) isOutdated(screen Report) bool {
	hook, ok := s.latestReport(FromReport)
	return ok && screen.Activity == word.Idle && hook.Activity != word.Idle && !s.isOver(FromReport, hook)
}

// decidingReport returns the report that decides: that of the strongest source whose report has a
// status and is not resolved. A dialog on the screen precedes all of them: one at the start of the
// agent only until the agent has reported its own status.
func (s *Session) decidingReport() (Source, Report, bool) {
	if !s.Run.AgentAlive() {
		return "", Report{}, false
	}
	sources := s.trustedSources()
	screen, ok := s.received.from(FromScreen)
	if ok && screen.requestsAttention() && !s.isResolved(FromScreen, screen) &&
		(screen.Reason != word.Setup || !s.reportsOwnStatus(sources)) {
		return FromScreen, screen, true
	}
	for _, source := range sources {
		report, ok := s.latestReport(source)
		if !ok || source == FromScreen && (report.requestsAttention() || s.isOutdated(report)) || !report.hasStatus() {
			continue
		}
		if source == FromOutput || !s.isResolved(source, report) {
			return source, report, true
		}
	}
	return "", Report{}, false
}

// reportsOwnStatus reports whether the agent itself has reported its status. A title or a hook that
// reports an idle agent does not count: some programs set such a title while they show their first
// dialog, or run such a hook before it.
func (s *Session) reportsOwnStatus(sources []Source) bool {
	return slices.ContainsFunc(sources, func(source Source) bool {
		report, ok := s.latestReport(source)
		switch source {
		case FromOSC7501, FromNotify:
			return ok && report.hasStatus()
		case FromTitle, FromReport:
			return ok && report.hasStatus() && (report.Activity != word.Idle || report.Reason != "")
		}
		return false
	})
}

// Activity returns what the session's agent does, the source of that, and since when. A bell does
// not report what the agent does. An agent that rings the bell and then becomes silent waits for a
// person.
func (s *Session) Activity() (activity string, source Source, since time.Time) {
	activity, source, report := s.currentActivity()
	return activity, source, report.At
}

// ActivitySince returns what the session's agent does, and since when by CLOCK_MONOTONIC, 0 if that
// is not known.
func (s *Session) ActivitySince() (activity string, since time.Duration) {
	activity, _, report := s.currentActivity()
	return activity, report.Monotonic
}

// currentActivity returns the activity, its source, and the report that contains since when the
// agent does this.
func (s *Session) currentActivity() (activity string, source Source, since Report) {
	source, report, ok := s.decidingReport()
	switch {
	case !ok:
		return word.Unknown, "", Report{}
	case report.Activity != "":
		return report.Activity, source, report
	}
	output, ok := s.received.from(FromOutput)
	switch {
	case !ok:
		return word.Unknown, source, Report{}
	case source == FromBell && output.Activity == word.Idle:
		return word.Waiting, source, output
	}
	return output.Activity, FromOutput, output
}

// Attention is why a session requests a person's attention. The zero value means that it does not.
type Attention struct {
	Reason       string // a reason, or one of the states failed, completed, stale, orphaned
	Message      string // what the agent has asked
	Source       Source // "" for a state
	Since        time.Time
	Until        time.Time // of a usage limit: when it resets; zero if that is unknown
	Acknowledged bool      // by a person: nobody is notified of it any more
}

// attentionStates are the states that request attention until a person has acknowledged them.
var attentionStates = []State{Failed, Completed, Stale, Orphaned}

// Attention returns why the session requests attention: its state comes first, then what its agent
// reports. A state is shown until a person has acknowledged it. A request of the agent is shown
// until it is answered or the agent continues; an acknowledgement only silences it. A bell needs no
// answer: it ends when it is acknowledged (see isResolved).
func (s *Session) Attention() Attention {
	a, _ := s.attention()
	return a
}

// attention returns Attention, and its Since by CLOCK_MONOTONIC, 0 if that is not known.
func (s *Session) attention() (a Attention, since time.Duration) {
	if v := s.View(); slices.Contains(attentionStates, v.State) && s.Seen != v.State {
		since := v.Since
		if since.IsZero() && s.State == v.State {
			since = s.StateChanged
		}
		return Attention{Reason: string(v.State), Since: since}, 0
	}
	source, report, ok := s.decidingReport()
	if limit, isLimited := s.failureOf(source, report); ok && isLimited {
		source, report = FromReport, limit
	}
	if !ok || report.Reason == "" || report.isRetrying() {
		return Attention{}, 0
	}
	a = Attention{
		Reason: report.Reason, Message: report.Message, Source: source, Since: report.At, Until: report.Until,
		Acknowledged: s.isAcknowledged(source, report),
	}
	if source == FromScreen && report.Reason == word.Limit && report.Until.IsZero() {
		if r, _ := s.latestReport(FromReport); r.Reason == word.Limit && !s.isResolved(FromReport, r) {
			a.Until = r.Until // the dialog is about the same limit
		}
	}
	if source == FromTitle && (report.Activity == word.Waiting || report.Reason == word.TurnEnded) {
		s.refineAttention(&a, report)
	}
	return a, report.Monotonic
}

// correlationTime is how much earlier than the title another source can have reported the same
// request.
const correlationTime = 2 * time.Second

// failureOf returns the report of a hook that the agent's turn has ended because of a usage limit
// or for lack of a login, if the deciding report, by the Program Status Protocol, is about the end
// of that turn: the protocol does not distinguish these.
func (s *Session) failureOf(decider Source, ended Report) (failure Report, ok bool) {
	failure, ok = s.latestReport(FromReport)
	return failure, ok && decider == FromOSC7501 && ended.Activity == word.Idle && failure.Activity == word.Idle &&
		(failure.Reason == word.Limit || failure.Reason == word.Auth) &&
		failure.Monotonic >= ended.Monotonic-correlationTime && !s.isResolved(FromReport, failure)
}

// failures are the reasons for attention of a turn that has failed.
var failures = []string{word.Error, word.Limit, word.Auth}

// refineAttention adds what the title does not contain, what the agent waits for or that its turn
// has ended with an error, from the report of another source about the same request.
func (s *Session) refineAttention(a *Attention, title Report) {
	for _, source := range s.trustedSources() {
		report, ok := s.latestReport(source)
		refines := report.Activity == word.Waiting && report.Reason != ""
		if title.Activity != word.Waiting {
			refines = slices.Contains(failures, report.Reason)
		}
		isRecent := report.Monotonic >= title.Monotonic-correlationTime
		if ok && source != FromTitle && refines && isRecent && !s.isResolved(source, report) {
			a.Reason, a.Message, a.Source, a.Until = report.Reason, report.Message, source, report.Until
			a.Acknowledged = a.Acknowledged && s.isAcknowledged(source, report)
			return
		}
	}
}

// HasFailed reports whether the agent itself has reported that its turn has ended with an error.
func (s *Session) HasFailed() bool {
	return slices.ContainsFunc(s.trustedSources(), func(source Source) bool {
		report, ok := s.latestReport(source)
		return ok && report.Activity == word.Idle && report.Reason == word.Error
	})
}

// Acknowledgement returns the event that a person acknowledges everything for which the session
// requests attention now.
func (s *Session) Acknowledgement() Acknowledged {
	var a Acknowledged
	if s.Run != nil {
		a.Run = s.Run.ID
	}
	if v := s.View(); slices.Contains(attentionStates, v.State) {
		a.State = v.State
	}
	for _, source := range Sources {
		if r, ok := s.latestReport(source); ok && r.Reason != "" {
			*a.Reports.of(source) = r.Seq
		}
	}
	return a
}
