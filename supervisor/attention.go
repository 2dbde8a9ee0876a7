package supervisor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/shimwire"
	"github.com/corrald/corral/supervisor/session"
)

// Report is a status report of an agent's hook.
type Report struct {
	Activity       string // session.Working, Idle or Waiting
	Reason         string // one of session.ReportReasons, or "": then the reason for waiting is a question
	Message        string // for a person; what shimwire.SanitizeLine returns for it is stored
	ConversationID string // the agent's own id of its conversation, "" if it is not reported
	Expected       string // the session to which the caller believes that it belongs, or ""; see Misreported
}

// The limit of reports of a session: reportBurst at once, and then one each reportEvery. Reports
// that repeat the one before do not count.
const (
	reportBurst = 20
	reportEvery = 500 * time.Millisecond
)

// maxReportedText limits a received message, in bytes, before it is sanitized. A longer text is not
// a message.
const maxReportedText = 64 << 10

// Report records a status report of a hook of the session's agent. Errors: NoSuchSession,
// InvalidState, Invalid, OverLimit.
func (s *Supervisor) Report(ctx context.Context, id string, r Report) error {
	if err := r.check(); err != nil {
		return err
	}
	r.Message = shimwire.SanitizeLine(r.Message)
	if r.Activity == session.Waiting && r.Reason == "" {
		r.Reason = session.Question
	}
	return s.withSession(ctx, id, func(e *entry) (<-chan error, error) {
		if e.rec.Run.Ended() {
			return nil, refuse(InvalidState, "session %q has no agent that could report: %s",
				id, stateClause(e.rec.View().State))
		}
		status, changed := e.rec.NextReport(session.Report{
			Activity: r.Activity, Reason: r.Reason, Message: r.Message, At: time.Now(), Monotonic: s.Monotonic(),
		})
		newConversation := s.conversationRules(e.rec).IsNew(r.ConversationID, e.run.detection.reported)
		if !changed && !newConversation {
			return nil, nil
		}
		if !e.run.takeReportSlot(time.Now()) {
			return nil, refuse(OverLimit, "session %q reports too often: at most %d reports at once, then one every %v",
				id, reportBurst, reportEvery)
		}
		if newConversation {
			s.setConversation(e, r.ConversationID, session.Reported)
			e.run.detection.reported = r.ConversationID
		}
		s.detectConversation(e, r.Activity, newConversation)
		if changed {
			s.apply(e, session.StatusReported{Run: e.rec.Run.ID, Source: session.FromReport, Report: status})
		}
		return s.waitUntil(e, func(*entry) bool { return true }, noError), nil
	})
}

// misreportEvery is the minimum time between two log records of Misreported for the same session.
const misreportEvery = time.Minute

// Misreported is called for a report of a process that does not belong to the session that it
// reports for: the daemon of an agent that serves several conversations, or a process that has left
// its scope. Expected is the id of the session that it reports for, from that of the session to
// which it belongs, "" for none. The report is dropped. Misreported returns the error for the
// process: NoSessionForPID, or NoSuchSession if there is no session with the id expected.
func (s *Supervisor) Misreported(ctx context.Context, expected, from string) error {
	where := "outside of all sessions"
	if from != "" {
		where = fmt.Sprintf("of session %q", from)
	}
	err := s.withSession(ctx, expected, func(e *entry) (<-chan error, error) {
		e.run.lastMisreport = session.Evidence{
			Subject: "activity", Source: "report", At: time.Now(), Value: "rejected: it came from a process " + where,
		}
		if now := s.Monotonic(); e.run.nextMisreportLog <= now {
			e.run.nextMisreportLog = now + misreportEvery
			s.Log.Warn("a report from elsewhere was dropped", "session", expected, "from", from)
		}
		return nil, nil
	})
	if err != nil {
		return err
	}
	return refuse(NoSessionForPID, "the process is %s, but reports for %q", where, expected)
}

// check returns an error if the report is invalid. Errors: Invalid, OverLimit.
func (r Report) check() error {
	switch {
	case !slices.Contains(shimwire.Activities, r.Activity):
		return refuse(Invalid, "invalid activity %s: expected one of %s",
			brief(r.Activity), strings.Join(shimwire.Activities, ", "))
	case r.Reason != "" && !slices.Contains(session.ReportReasons, r.Reason):
		return refuse(Invalid, "invalid Reason %s: expected one of %s",
			brief(r.Reason), strings.Join(session.ReportReasons, ", "))
	case r.Reason != "" && r.Activity == session.Working:
		return refuse(Invalid, "invalid Reason %s: an agent that is working has no reason", brief(r.Reason))
	case len(r.Message) > maxReportedText:
		return refuse(OverLimit, "Message is longer than %d bytes", maxReportedText)
	case r.ConversationID != "" && !config.ValidConversationID(r.ConversationID):
		return refuse(Invalid, "invalid ConversationId %s: it cannot be part of a command", brief(r.ConversationID))
	}
	return nil
}

// takeReportSlot reports whether the limit of reports permits another one now, and counts it if so.
func (r *runtime) takeReportSlot(now time.Time) bool {
	if r.nextReportSlot.Before(now) {
		r.nextReportSlot = now
	}
	if r.nextReportSlot.Sub(now) > (reportBurst-1)*reportEvery {
		return false
	}
	r.nextReportSlot = r.nextReportSlot.Add(reportEvery)
	return true
}

// shimSources are the sources whose status reports a shim forwards.
var shimSources = []session.Source{
	session.FromOSC7501, session.FromNotify, session.FromTitle, session.FromBell, session.FromScreen,
}

// statusReported records a status report that the shim has received from its agent. A shim of a
// newer version may send values that this version does not know: they are ignored.
func (s *Supervisor) statusReported(e *entry, m shimwire.Message) {
	source := session.Source(m.Source)
	if !slices.Contains(shimSources, source) ||
		m.Activity != "" && !slices.Contains(shimwire.Activities, m.Activity) ||
		m.Reason != "" && !slices.Contains(shimwire.Reasons, m.Reason) {
		return
	}
	s.apply(e, session.StatusReported{Run: e.rec.Run.ID, Source: source, Report: session.Report{
		Activity: m.Activity, Reason: m.Reason, Message: shimwire.SanitizeLine(m.Text),
		At: m.Since, Monotonic: s.reportedAt(m), Seq: uint64(m.Seq),
	}})
	s.detectConversation(e, m.Activity, false)
}

// reportedAt returns when the reported status began, by CLOCK_MONOTONIC. A shim of an older version
// reports only the time of the wall clock: its status counts as new.
func (s *Supervisor) reportedAt(m shimwire.Message) time.Duration {
	if m.SinceMonotonic == 0 {
		return s.Monotonic()
	}
	return m.SinceMonotonic
}

// outputReported records whether the agent prints output (working) or has fallen silent (idle).
func (s *Supervisor) outputReported(e *entry, idle bool, m shimwire.Message) {
	report := session.Report{Activity: session.Working, At: m.Since, Monotonic: s.reportedAt(m), Seq: uint64(m.Seq)}
	if idle {
		report.Activity = session.Idle
	}
	s.apply(e, session.StatusReported{Run: e.rec.Run.ID, Source: session.FromOutput, Report: report})
	s.detectConversation(e, report.Activity, false)
}

// Acknowledge records that a person knows why the session needs attention. Errors: NoSuchSession.
func (s *Supervisor) Acknowledge(ctx context.Context, id string) error {
	return s.withSession(ctx, id, func(e *entry) (<-chan error, error) {
		if !s.acknowledge(e) {
			return nil, nil
		}
		return s.waitUntil(e, func(*entry) bool { return true }, noError), nil
	})
}

// AcknowledgeState records that a person knows the state of the session. A request of its agent
// stays unacknowledged. Errors: NoSuchSession.
func (s *Supervisor) AcknowledgeState(ctx context.Context, id string) error {
	return s.withSession(ctx, id, func(e *entry) (<-chan error, error) {
		if e.rec.Attention().Source != "" || !s.acknowledge(e) {
			return nil, nil
		}
		return s.waitUntil(e, func(*entry) bool { return true }, noError), nil
	})
}

// acknowledge acknowledges in the event loop, and reports whether there was anything to
// acknowledge.
func (s *Supervisor) acknowledge(e *entry) bool {
	if a := e.rec.Attention(); a.Reason == "" || a.Acknowledged {
		return false
	}
	seen := e.rec.Acknowledgement()
	seen.On, seen.At = s.expiry.checkClock(), time.Now()
	s.apply(e, seen)
	return true
}

// markAnswered records that the agent was sent input after it had made the requests of these status
// reports.
func (s *Supervisor) markAnswered(e *entry, run string, requests session.Seqs) {
	if e.rec.Run != nil && e.rec.Run.ID == run && requests != (session.Seqs{}) {
		e.run.answeredAt = s.Monotonic()
		s.apply(e, session.Answered{Run: run, Reports: requests})
	}
}

// updateAttached checks whether a client is attached to the session's terminal. A person who
// attaches has seen why the session needs attention.
func (s *Supervisor) updateAttached(e *entry) {
	attached := s.Terminals.IsAttached(s.target(e))
	switch {
	case attached == e.run.attached:
		return
	case attached:
		s.acknowledge(e)
	default:
		e.run.detachedAt = s.Monotonic()
	}
	e.run.attached = attached
	s.markDirty(e)
}

// Explain returns the facts and status reports that determine the session's state, activity and
// attention. Errors: NoSuchSession.
func (s *Supervisor) Explain(id string) (facts []session.Evidence, err error) {
	if e := s.do(func() {
		var e *entry
		if e, err = s.find(id); err == nil {
			facts = e.rec.Explain()
			if !e.run.lastMisreport.At.IsZero() {
				facts = append(facts, e.run.lastMisreport)
			}
		}
	}); e != nil {
		return nil, e
	}
	return facts, err
}
