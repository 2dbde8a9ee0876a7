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

// Report is what an agent's hook says of its agent.
type Report struct {
	Activity       string // session.Working, Idle or Waiting
	Reason         string // one of session.WordReasons, or "": then one that waits has a question
	Message        string // for a person; shimwire.SanitizeLine is what is kept of it
	ConversationID string // the agent's own id of its conversation, "" if it says nothing of that
	Expected       string // the session that who reports believes to be of, "" if it says nothing of that; see Misreported
}

// A session may be told reportBurst new things at once, and then one each reportEvery. What it says over and over again counts once.
const (
	reportBurst = 20
	reportEvery = 500 * time.Millisecond
)

// maxReportedText bounds a message as it comes, in bytes: beyond it something else than a message was sent.
const maxReportedText = 64 << 10

// Report takes note of what the hook of a session's agent says. Errors: NoSuchSession, InvalidState, Invalid, OverLimit.
func (s *Supervisor) Report(ctx context.Context, id string, r Report) error {
	if err := r.check(); err != nil {
		return err
	}
	r.Message = shimwire.SanitizeLine(r.Message)
	if r.Activity == session.Waiting && r.Reason == "" {
		r.Reason = session.Question
	}
	return s.with(ctx, id, func(e *entry) (<-chan error, error) {
		if e.rec.Run.Ended() {
			return nil, refuse(InvalidState, "session %q has no agent that could report: %s", id, stateClause(e.rec.View().State))
		}
		word, changed := e.rec.Report(session.Word{Activity: r.Activity, Reason: r.Reason, Message: r.Message, At: time.Now(), Monotonic: s.Monotonic()})
		conversed := s.conversed(e, r.ConversationID)
		if !changed && !conversed {
			return nil, nil
		}
		if !e.run.mayReport(time.Now()) {
			return nil, refuse(OverLimit, "session %q reports too often: at most %d reports at once, then one every %v", id, reportBurst, reportEvery)
		}
		if conversed {
			s.converse(e, r.ConversationID, session.Reported)
			e.run.reported = r.ConversationID
		}
		s.seek(e, r.Activity, conversed)
		if changed {
			s.apply(e, session.Said{Run: e.rec.Run.ID, Source: session.FromReport, Word: word})
		}
		return s.wait(e, func(*entry) bool { return true }, noError), nil
	})
}

// misreportEvery is how often the journal is told of reports from elsewhere, for each session.
const misreportEvery = time.Minute

// Misreported takes note that a process which believes to be of one session has reported, and is of another one, or of none (""): an agent's daemon that
// serves several conversations, or something that has left its scope. What it said is dropped. It returns the answer that it gets. Errors: NoSuchSession.
func (s *Supervisor) Misreported(ctx context.Context, expected, from string) error {
	where := "outside of all sessions"
	if from != "" {
		where = fmt.Sprintf("of session %q", from)
	}
	err := s.with(ctx, expected, func(e *entry) (<-chan error, error) {
		e.run.misreported = session.Told{Subject: "activity", Source: "report", At: time.Now(), Value: "rejected: it came from a process " + where}
		if now := s.Monotonic(); e.run.misreportAt <= now {
			e.run.misreportAt = now + misreportEvery
			s.Log.Warn("a report from elsewhere was dropped", "session", expected, "from", from)
		}
		return nil, nil
	})
	if err != nil {
		return err
	}
	return refuse(NoSessionForPID, "the process is %s, and reports for %q", where, expected)
}

func (r Report) check() error {
	switch {
	case !slices.Contains(shimwire.Activities, r.Activity):
		return refuse(Invalid, "activity is %s, and none of %s", brief(r.Activity), strings.Join(shimwire.Activities, ", "))
	case r.Reason != "" && !slices.Contains(session.WordReasons, r.Reason):
		return refuse(Invalid, "Reason is %s, and none of %s", brief(r.Reason), strings.Join(session.WordReasons, ", "))
	case r.Reason != "" && r.Activity == session.Working:
		return refuse(Invalid, "Reason means nothing of an agent that is working")
	case len(r.Message) > maxReportedText:
		return refuse(OverLimit, "Message is longer than %d bytes", maxReportedText)
	case r.ConversationID != "" && !config.ValidConversationID(r.ConversationID):
		return refuse(Invalid, "invalid ConversationId %s: it cannot be part of a command", brief(r.ConversationID))
	}
	return nil
}

// mayReport takes one of the reports that may come at once, if there is one left.
func (r *runtime) mayReport(now time.Time) bool {
	if r.nextReport.Before(now) {
		r.nextReport = now
	}
	if r.nextReport.Sub(now) > (reportBurst-1)*reportEvery {
		return false
	}
	r.nextReport = r.nextReport.Add(reportEvery)
	return true
}

// conversed tells whether the agent says something new of its conversation. One that is kept in a file which we have named is no other's business. A file that
// it holds open knows better, but of several this tells which.
func (s *Supervisor) conversed(e *entry, id string) bool {
	def, r := s.Agents[e.rec.Agent], e.rec.Run
	return id != "" && (def.IdSource == config.IdReport || config.UsesConversation(def.ResumeCommand)) && def.IdSource != config.IdHistoryFile &&
		id != e.run.reported && (id != r.Conversation || r.ConversationFrom != session.Reported)
}

// shimSources are those that a shim speaks for.
var shimSources = []session.Source{session.FromOSC7501, session.FromNotify, session.FromTitle, session.FromBell, session.FromScreen}

// agentSaid takes note of what the shim has heard of its agent. A younger shim may know words that we do not: they are passed over.
func (s *Supervisor) agentSaid(e *entry, m shimwire.Message) {
	source := session.Source(m.Source)
	if !slices.Contains(shimSources, source) ||
		m.Activity != "" && !slices.Contains(shimwire.Activities, m.Activity) || m.Reason != "" && !slices.Contains(shimwire.Reasons, m.Reason) {
		return
	}
	s.apply(e, session.Said{Run: e.rec.Run.ID, Source: source, Word: session.Word{
		Activity: m.Activity, Reason: m.Reason, Message: shimwire.SanitizeLine(m.Text), At: m.Since, Monotonic: s.saidAt(m), Seq: uint64(m.Seq),
	}})
	s.seek(e, m.Activity, false)
}

// saidAt is when what a shim tells has begun, by CLOCK_MONOTONIC. An older shim tells only what the clock on the wall said then: as far as that goes it is
// new.
func (s *Supervisor) saidAt(m shimwire.Message) time.Duration {
	if m.SinceMonotonic == 0 {
		return s.Monotonic()
	}
	return m.SinceMonotonic
}

// printed takes note of whether the agent prints.
func (s *Supervisor) printed(e *entry, idle bool, m shimwire.Message) {
	w := session.Word{Activity: session.Working, At: m.Since, Monotonic: s.saidAt(m), Seq: uint64(m.Seq)}
	if idle {
		w.Activity = session.Idle
	}
	s.apply(e, session.Said{Run: e.rec.Run.ID, Source: session.FromOutput, Word: w})
	s.seek(e, w.Activity, false)
}

// Acknowledge takes note that a person knows what the session wants attention for. Errors: NoSuchSession.
func (s *Supervisor) Acknowledge(ctx context.Context, id string) error {
	return s.with(ctx, id, func(e *entry) (<-chan error, error) {
		if !s.acknowledge(e) {
			return nil, nil
		}
		return s.wait(e, func(*entry) bool { return true }, noError), nil
	})
}

// AcknowledgeState takes note that a person knows what state the session is in. What its agent asks for stays unacknowledged. Errors: NoSuchSession.
func (s *Supervisor) AcknowledgeState(ctx context.Context, id string) error {
	return s.with(ctx, id, func(e *entry) (<-chan error, error) {
		if e.rec.Attention().Source != "" || !s.acknowledge(e) {
			return nil, nil
		}
		return s.wait(e, func(*entry) bool { return true }, noError), nil
	})
}

// acknowledge does so in the event loop, and returns whether there was anything to acknowledge.
func (s *Supervisor) acknowledge(e *entry) bool {
	if a := e.rec.Attention(); a.Reason == "" || a.Acknowledged {
		return false
	}
	s.lookAtClock()
	seen := e.rec.Acknowledgement()
	seen.At, seen.On = time.Now(), s.boot
	s.apply(e, seen)
	return true
}

// answered takes note that the agent was given input while these words of its were known.
func (s *Supervisor) answered(e *entry, run string, words session.Seqs) {
	if e.rec.Run != nil && e.rec.Run.ID == run && words != (session.Seqs{}) {
		e.run.answered = s.Monotonic()
		s.apply(e, session.Answered{Run: run, Words: words})
	}
}

// attachedOrNot looks whether somebody is attached to the session's terminal. Who comes has seen what it wants attention for.
func (s *Supervisor) attachedOrNot(e *entry) {
	attached := s.World.Attached(s.target(e))
	switch {
	case attached == e.run.attached:
		return
	case attached:
		s.acknowledge(e)
	default:
		e.run.detached = s.Monotonic()
	}
	e.run.attached = attached
	s.touch(e)
}

// Explain returns what the session's state, activity and attention follow from. Errors: NoSuchSession.
func (s *Supervisor) Explain(id string) (told []session.Told, err error) {
	if e := s.do(func() {
		var e *entry
		if e, err = s.find(id); err == nil {
			told = e.rec.Explain()
			if !e.run.misreported.At.IsZero() {
				told = append(told, e.run.misreported)
			}
		}
	}); e != nil {
		return nil, e
	}
	return told, err
}
