package supervisor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/corrald/corral/dbusapi/word"
	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/hookreport"
	"github.com/corrald/corral/internal/shimwire"
	"github.com/corrald/corral/supervisor/session"
)

// Report is a status report of an agent's hook.
type Report struct {
	Activity       string    // session.Working, Idle or Waiting
	Reason         string    // one of word.Reasons, or "": then the reason for waiting is a question
	Message        string    // for a person; what shimwire.SanitizeLine returns for it is stored
	Until          time.Time // of the reason limit: when it resets; zero if that is unknown
	ConversationID string    // the agent's own id of its conversation, "" if it is not reported
	Expected       string    // the session to which the caller believes that it belongs, or ""; see Misreported
}

// statusReports is what is known of the status of a run's agent in addition to its facts.
type statusReports struct {
	e                *entry
	attached         bool              // a client is attached to the terminal
	detachedAt       time.Duration     // by CLOCK_MONOTONIC: when the last client detached, 0 if none has
	answeredAt       time.Duration     // by CLOCK_MONOTONIC: when the agent was sent input that it had requested
	lastMisreport    *session.Evidence // the last report for the session that Misreported has dropped, nil if none
	nextMisreportLog time.Duration     // by CLOCK_MONOTONIC: the next such report is not logged before
	nextSlot         time.Time         // when the next report would be accepted if bursts were not allowed
	delayed          *delayedReport    // the last report, if it has exceeded the limit, else nil
	timerRuns        bool              // applyDelayed will be called
}

// delayedReport is a report that is applied once the limit of reports permits it.
type delayedReport struct {
	report Report
	at     session.Moment
}

// Report records a status report of a hook of the session's agent. Errors: NoSuchSession,
// InvalidState, Invalid, OverLimit.
func (s *Supervisor) Report(ctx context.Context, id string, r Report) error {
	if err := r.normalize(); err != nil {
		return err
	}
	return s.loop.withSession(ctx, id, func(e *entry) (<-chan error, error) {
		if e.rec.Run.Ended() {
			return nil, refuse(InvalidState, "session %q has no agent that could report: %s",
				id, stateClause(e.rec.View().State))
		}
		return e.run.reports.reported(r, s.loop.now())
	})
}

// reported records the report of a hook, which has the time at. It returns what to wait for, nil if
// the report changes nothing. A report that exceeds the limit is delayed. Errors: OverLimit.
func (r *statusReports) reported(report Report, at session.Moment) (<-chan error, error) {
	e := r.e
	if r.delayed != nil && report.ConversationID == "" {
		report.ConversationID = r.delayed.report.ConversationID
	}
	r.delayed = nil
	status, changed := e.rec.NextReport(session.Report{
		Activity: report.Activity, Reason: report.Reason, Message: report.Message, Until: report.Until,
		At: at.At, Monotonic: at.Monotonic,
	})
	rules, conversation := e.loop.settings.conversationRules(e.rec), report.ConversationID
	newConversation := rules.IsNew(conversation, e.run.openFileDetection.reported)
	if !changed && !newConversation {
		return nil, nil
	}
	if wait := r.takeSlot(time.Now()); wait > 0 {
		r.delayed = &delayedReport{report, at}
		if run := e.rec.Run.ID; !r.timerRuns {
			r.timerRuns = true
			e.loop.clocks.AfterFunc(wait, func() { e.postFor(run, r.applyDelayed) })
		}
		return nil, refuse(OverLimit, "session %q reports too often: at most %d reports at once, then one every %v; "+
			"the last one is delayed", e.rec.ID, reportBurst, reportEvery)
	}
	if newConversation {
		e.setConversation(conversation, session.Reported)
		e.run.openFileDetection.reported = conversation
	}
	e.run.openFileDetection.detectIfDue(report.Activity, newConversation)
	if changed {
		e.apply(session.StatusReported{Run: e.rec.Run.ID, Source: session.FromReport, Report: status})
	}
	return e.whenPublished(), nil
}

// applyDelayed applies the report that has exceeded the limit, unless another one has replaced it.
func (r *statusReports) applyDelayed() {
	r.timerRuns = false
	if d := r.delayed; d != nil && !r.e.rec.Run.Ended() {
		_, _ = r.reported(d.report, d.at)
	}
}

// readLeft records the report that a hook has left because no daemon answered in time. It is
// ignored if it is invalid, or older than the last report: it may have been received after all.
func (r *statusReports) readLeft() {
	e := r.e
	dir := e.loop.settings.runtimeDir(e.rec.ID)
	left, ok, err := hookreport.Take(dir)
	report := Report{
		Activity: left.Activity, Reason: left.Reason, Message: left.Message, Until: left.Until,
		ConversationID: left.ConversationID,
	}
	if ok {
		err = report.normalize()
	}
	isOld := left.Monotonic <= e.rec.Run.Reported.Monotonic || left.Monotonic > e.loop.clocks.Monotonic() ||
		r.delayed != nil && left.Monotonic <= r.delayed.at.Monotonic
	if err == nil && ok && !isOld && !e.rec.Run.Ended() {
		_, err = r.reported(report, session.Moment{At: left.At, Monotonic: left.Monotonic})
	}
	if err != nil && kindOf(err) != OverLimit && e.takeLogSlot("left report") {
		e.loop.log.Warn("ignored the report that a hook has left", "session", e.rec.ID, "err", err)
	}
	if ok && kindOf(err) != OverLimit {
		e.loop.iteration.afterPublish = append(e.loop.iteration.afterPublish, func() {
			e.loop.post(func() {
				if !e.saving.unsaved {
					hookreport.Remove(dir)
				}
			})
		})
	}
}

// Misreported is called for a report of a process that does not belong to the session that it
// reports for: the daemon of an agent that serves several conversations, or a process that has left
// its scope. Expected is the id of the session that it reports for, from that of the session to
// which it belongs, "" for none. The report is dropped. Misreported returns the error for the
// process: NoSessionForPID, or NoSuchSession if there is no session with the id expected.
func (s *Supervisor) Misreported(expected, from string) error {
	where := "outside of all sessions"
	if from != "" {
		where = fmt.Sprintf("of session %q", from)
	}
	if err := s.loop.doWith(expected, func(e *entry) error {
		r := &e.run.reports
		r.lastMisreport = &session.Evidence{
			Subject: "activity", Source: "report", At: time.Now(), Value: "rejected: it came from a process " + where,
		}
		if now := s.loop.clocks.Monotonic(); r.nextMisreportLog <= now {
			r.nextMisreportLog = now + misreportEvery
			s.loop.log.Warn("dropped a status report of a process outside of the session", "session", expected, "from", from)
		}
		return nil
	}); err != nil {
		return err
	}
	return refuse(NoSessionForPID, "the process is %s, but reports for %q", where, expected)
}

// misreportEvery is the minimum time between two log records of Misreported for the same session.
const misreportEvery = time.Minute

// Explain returns the facts and status reports that determine the session's state, activity and
// attention. Errors: NoSuchSession.
func (s *Supervisor) Explain(id string) (facts []session.Evidence, err error) {
	err = s.loop.doWith(id, func(e *entry) error {
		facts = e.rec.Explain()
		if misreport := e.run.reports.lastMisreport; misreport != nil {
			facts = append(facts, *misreport)
		}
		return nil
	})
	return facts, err
}

// Acknowledge records that a person knows why the session needs attention. Errors: NoSuchSession.
func (s *Supervisor) Acknowledge(ctx context.Context, id string) error {
	return s.loop.withSession(ctx, id, func(e *entry) (<-chan error, error) {
		if !e.acknowledge() {
			return nil, nil
		}
		return e.whenPublished(), nil
	})
}

// AcknowledgeState records that a person knows the state of the session. A request of its agent
// stays unacknowledged. Errors: NoSuchSession.
func (s *Supervisor) AcknowledgeState(ctx context.Context, id string) error {
	return s.loop.withSession(ctx, id, func(e *entry) (<-chan error, error) {
		if e.rec.Attention().Source != "" || !e.acknowledge() {
			return nil, nil
		}
		return e.whenPublished(), nil
	})
}

// maxReportedText limits a received message, in bytes, before it is sanitized. A longer text is not
// a message.
const maxReportedText = 64 << 10

// normalize makes the message printable and adds the reason for waiting. It returns an error if the
// report is invalid. Errors: Invalid, OverLimit.
func (r *Report) normalize() error {
	if err := r.check(); err != nil {
		return err
	}
	r.Message = shimwire.SanitizeLine(r.Message)
	if r.Activity == word.Waiting && r.Reason == "" {
		r.Reason = word.Question
	}
	return nil
}

// check returns an error if the report is invalid. Errors: Invalid, OverLimit.
func (r *Report) check() error {
	switch {
	case !slices.Contains(word.Activities, r.Activity):
		return refuse(Invalid, "invalid activity %s: expected one of %s",
			brief(r.Activity), strings.Join(word.Activities, ", "))
	case r.Reason != "" && !slices.Contains(word.Reasons, r.Reason):
		return refuse(Invalid, "invalid Reason %s: expected one of %s",
			brief(r.Reason), strings.Join(word.Reasons, ", "))
	case r.Reason != "" && r.Activity == word.Working && r.Reason != word.Error:
		return refuse(Invalid, "invalid Reason %s: the only reason of an agent that is working is error", brief(r.Reason))
	case len(r.Message) > maxReportedText:
		return refuse(OverLimit, "Message is longer than %d bytes", maxReportedText)
	case r.Reason != word.Limit && !r.Until.IsZero():
		return refuse(Invalid, "invalid Until: only the reason limit has one")
	case !r.Until.IsZero() && !isPlausibleReset(r.Until):
		return refuse(Invalid, "invalid Until: expected a time within a year of now")
	case r.ConversationID != "" && !config.ValidConversationID(r.ConversationID):
		return refuse(Invalid, "invalid ConversationId %s: it cannot be part of a command", brief(r.ConversationID))
	}
	return nil
}

// isPlausibleReset reports whether a usage limit can reset at that time: within a year of now.
func isPlausibleReset(until time.Time) bool { return time.Until(until).Abs() < 366*24*time.Hour }

// The limit of reports of a session: reportBurst at once, and then one each reportEvery. Reports
// that repeat the one before do not count.
const (
	reportBurst = 50
	reportEvery = 200 * time.Millisecond
)

// takeSlot counts another report if the limit of reports permits it now. It returns how long it
// takes until the limit permits it, else 0.
func (r *statusReports) takeSlot(now time.Time) (wait time.Duration) {
	if r.nextSlot.Before(now) {
		r.nextSlot = now
	}
	if wait = r.nextSlot.Sub(now) - (reportBurst-1)*reportEvery; wait > 0 {
		return wait
	}
	r.nextSlot = r.nextSlot.Add(reportEvery)
	return 0
}

// shimSources are the sources whose status reports a shim forwards.
var shimSources = []session.Source{
	session.FromOSC7501, session.FromNotify, session.FromTitle, session.FromBell, session.FromScreen,
}

// received records a status report that the shim has received from its agent. A shim of a
// newer version may send values that this version does not know: they are ignored.
func (r *statusReports) received(m shimwire.Message) {
	source := session.Source(m.Source)
	if !slices.Contains(shimSources, source) ||
		m.Activity != "" && !slices.Contains(word.Activities, m.Activity) ||
		m.Reason != "" && !slices.Contains(shimwire.Reasons, m.Reason) {
		return
	}
	text := shimwire.SanitizeLine(m.Text)
	if m.Reason != word.Limit || !isPlausibleReset(m.Until) {
		m.Until = time.Time{}
	}
	r.apply(m, source, session.Report{Activity: m.Activity, Reason: m.Reason, Message: text, Until: m.Until})
}

// outputReceived records whether the agent prints output (working) or has fallen silent (idle).
func (r *statusReports) outputReceived(idle bool, m shimwire.Message) {
	activity := word.Working
	if idle {
		activity = word.Idle
	}
	r.apply(m, session.FromOutput, session.Report{Activity: activity})
}

// typed records that somebody has typed, which matters only to an agent that has reached a usage
// limit.
func (r *statusReports) typed(m shimwire.Message) {
	if r.e.rec.Limit != (session.Limit{}) {
		r.e.apply(session.Typed{Run: r.e.rec.Run.ID, Monotonic: m.SinceMonotonic})
	}
}

// apply applies a status report that the shim has sent with the message m. A shim of an older
// version sends only the time of the wall clock: its report counts as new.
func (r *statusReports) apply(m shimwire.Message, source session.Source, report session.Report) {
	e := r.e
	report.At, report.Monotonic, report.Seq = m.Since, m.SinceMonotonic, uint64(m.Seq)
	if report.Monotonic == 0 {
		report.Monotonic = e.loop.clocks.Monotonic()
	}
	e.apply(session.StatusReported{Run: e.rec.Run.ID, Source: source, Report: report})
	e.run.openFileDetection.detectIfDue(report.Activity, false)
}

// checkWaiting returns an error if the session's agent does not wait for input. Errors: NotWaiting.
func (r *statusReports) checkWaiting() error {
	e := r.e
	activity, _, _ := e.rec.Activity()
	switch {
	case activity != word.Waiting:
		return refuse(NotWaiting, "session %q does not wait for input: its agent is %s", e.rec.ID, activity)
	case r.isJustAnswered():
		return refuse(NotWaiting, "session %q does not wait for input: it was answered just now", e.rec.ID)
	}
	return nil
}

// isJustAnswered reports whether the agent was answered so recently that it may not have read the
// answer.
func (r *statusReports) isJustAnswered() bool {
	return r.e.rec.IsAnswered() && r.e.loop.clocks.Monotonic()-r.answeredAt < answerTimeout
}

// answerTimeout is how long an agent that reports its own status may take to report that it was
// answered. If it has not reported that by then, it has not read the answer.
const answerTimeout = time.Second

// updateAttached checks whether a client is attached to the session's terminal. A person who
// attaches has seen why the session needs attention.
func (r *statusReports) updateAttached() {
	e := r.e
	attached := e.loop.system.Terminals.IsAttached(e.target())
	switch {
	case attached == r.attached:
		return
	case attached:
		e.acknowledge()
	default:
		r.detachedAt = e.loop.clocks.Monotonic()
	}
	r.attached = attached
	e.markDirty()
}

// acknowledge records that a person knows why the session needs attention, and reports whether
// there was anything to acknowledge.
func (e *entry) acknowledge() bool {
	if a := e.rec.Attention(); a.Reason == "" || a.Acknowledged {
		return false
	}
	seen := e.rec.Acknowledgement()
	seen.On, seen.At = e.loop.expiry.checkClock(), time.Now()
	e.apply(seen)
	return true
}
