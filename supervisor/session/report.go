package session

import (
	"slices"
	"time"

	"github.com/corrald/corral/dbusapi/word"
)

// Source is the source of a status report: of what an agent does, or why it requests attention. The
// values are those of the AttentionSource property.
type Source string

// The sources. All but FromReport are observations of the shim.
const (
	FromOSC7501 Source = word.OSC7501
	FromReport  Source = word.Report
	FromNotify  Source = word.Notify
	FromTitle   Source = word.Title
	FromBell    Source = word.Bell
	FromOutput  Source = word.Output

	// FromScreen is the shim's observation that the output of an agent which reports nothing shows a
	// dialog. The property has "output" for it.
	FromScreen Source = word.Screen
)

// Sources has every source, the strongest first. The strongest one that reports something decides.
// An agent's definition may omit sources and change their order, except for the last two.
var Sources = []Source{FromOSC7501, FromReport, FromNotify, FromTitle, FromBell, FromScreen, FromOutput}

// Public returns the value of the AttentionSource property for the source.
func (f Source) Public() string {
	if f == FromScreen {
		f = FromOutput
	}
	return string(f)
}

// Report is the last status report of one source about the agent that is alive. It stands until the
// next report of that source.
type Report struct {
	Activity string    `json:"activity,omitempty"` // Working, Idle or Waiting; "" if it is not reported
	Reason   string    `json:"reason,omitempty"`   // why the agent requests attention, "" if it does not
	Message  string    `json:"message,omitempty"`  // for the person whose attention it requests
	At       time.Time `json:"at"`

	// Until is when the usage limit resets that is the Reason, by the wall clock; zero if that is
	// unknown.
	Until time.Time `json:"until,omitzero"`

	// Monotonic is At by CLOCK_MONOTONIC, 0 in a record of an older version.
	Monotonic time.Duration `json:"monotonic,omitzero"`

	// Seq increases with each report of a source during a run. Unlike the wall clock it cannot be set
	// back.
	Seq uint64 `json:"seq"`
}

// requestsAttention reports whether the report requests a person's attention.
func (r Report) requestsAttention() bool {
	return r.Reason != "" && !r.isRetrying() || r.Activity == word.Waiting
}

// isRetrying reports whether the agent is working although something has failed, which it tries
// again. This is an error only if the agent gives up.
func (r Report) isRetrying() bool { return r.Activity == word.Working && r.Reason == word.Error }

// hasStatus reports whether the report states what the agent does, or what it requests.
func (r Report) hasStatus() bool { return r.Activity != "" || r.Reason != "" }

// reports has the last report of each source that has sent one. Most agents have one such source.
// The elements are never changed, so that copies can share them.
type reports []sourceReport

type sourceReport struct {
	source Source
	Report
	// lastWorking is when the source last reported that the agent works, by CLOCK_MONOTONIC; 0 if it
	// never did.
	lastWorking time.Duration
}

func (rs reports) from(source Source) (Report, bool) {
	for _, r := range rs {
		if r.source == source {
			return r.Report, true
		}
	}
	return Report{}, false
}

// with returns a copy in which the source has this report.
func (rs reports) with(source Source, report Report) reports {
	more := make(reports, 0, len(rs)+1)
	more = append(more, rs...)
	i := slices.IndexFunc(more, func(r sourceReport) bool { return r.source == source })
	if i < 0 {
		i = len(more)
		more = append(more, sourceReport{source: source})
	}
	more[i].Report = report
	if report.Activity == word.Working {
		more[i].lastWorking = report.Monotonic
	}
	return more
}

// lastWorking returns when a source last reported that the agent works, 0 if it never did.
func (rs reports) lastWorking(source Source) time.Duration {
	for _, r := range rs {
		if r.source == source {
			return r.lastWorking
		}
	}
	return 0
}

// Seqs has the Seq of one report of each source that can request attention, 0 for none.
type Seqs struct {
	OSC7501 uint64 `json:"osc7501,omitempty"`
	Report  uint64 `json:"report,omitempty"`
	Notify  uint64 `json:"notify,omitempty"`
	Title   uint64 `json:"title,omitempty"`
	Bell    uint64 `json:"bell,omitempty"`
	Screen  uint64 `json:"screen,omitempty"`
}

// of returns a pointer to the Seq of a source.
func (q *Seqs) of(source Source) *uint64 {
	switch source {
	case FromOSC7501:
		return &q.OSC7501
	case FromReport:
		return &q.Report
	case FromNotify:
		return &q.Notify
	case FromTitle:
		return &q.Title
	case FromBell:
		return &q.Bell
	case FromScreen:
		return &q.Screen
	}
	return new(uint64) // output never requests attention
}

// include sets each Seq to the greater one of q and other.
func (q *Seqs) include(other Seqs) {
	for _, source := range Sources {
		*q.of(source) = max(*q.of(source), *other.of(source))
	}
}

// StatusReported is a source's status report about the run's agent.
type StatusReported struct {
	Run    string
	Source Source
	Report
}

// AgentReady reports that the agent has reported that it is ready (Type=notify).
type AgentReady struct {
	Run string
	At  time.Time
}

// Acknowledged reports that a person has acknowledged why the session requests attention: its
// state, and the reports up to then.
type Acknowledged struct {
	Run     string
	State   State // "" if the state did not request attention
	Reports Seqs  // the last reports
	At      time.Time
	On      Boot // the boot of At
}

// Answered reports that the agent was given input after these reports. It resolves their requests,
// except for those that the agent itself reports to be resolved (FromOSC7501).
type Answered struct {
	Run     string
	Reports Seqs
}

func (e StatusReported) apply(s *Session) {
	r := s.run(e.Run)
	if r == nil {
		return
	}
	if last, ok := s.latestReport(e.Source); ok && e.Seq < last.Seq {
		return
	}
	if e.Source == FromReport {
		r.Reported = e.Report
		return
	}
	if s.isRepetition(e) {
		seq := e.Seq
		e.Report, _ = s.latestReport(e.Source)
		e.Report.Seq = seq
	}
	s.received = s.received.with(e.Source, e.Report)
	if s.isSuperseded(FromReport, r.Reported) {
		r.Superseded = r.Reported.Seq // saved, because the received reports are not
	}
}

// isRepetition reports whether a bell or an sd_notify(3) message repeats a request that is neither
// resolved nor acknowledged: that request then keeps its time. Otherwise a bell that rings again,
// or a program that requests the same again by sd_notify(3), makes a new request.
func (s *Session) isRepetition(e StatusReported) bool {
	last, known := s.latestReport(e.Source)
	return known && (e.Source == FromBell || e.Source == FromNotify) && e.requestsAttention() &&
		last.Activity == e.Activity && last.Reason == e.Reason && last.Message == e.Message &&
		!s.isResolved(e.Source, last) && !s.isAcknowledged(e.Source, last)
}

func (e AgentReady) apply(s *Session) {
	if r := s.run(e.Run); r != nil && r.Ready.IsZero() {
		r.Ready = e.At
	}
}

func (e Acknowledged) apply(s *Session) {
	r := s.run(e.Run)
	if r == nil && (s.Run != nil || e.Run != "") {
		return
	}
	if e.State != "" && s.Seen != e.State {
		s.Seen, s.SeenAt, s.SeenOn = e.State, e.At, e.On
	}
	if r != nil {
		r.Acknowledged.include(e.Reports)
	}
}

func (e Answered) apply(s *Session) {
	if r := s.run(e.Run); r != nil {
		r.Answered.include(e.Reports)
	}
}

// latestReport returns the last report of a source.
func (s *Session) latestReport(source Source) (Report, bool) {
	if source != FromReport {
		return s.received.from(source)
	}
	if s.Run == nil {
		return Report{}, false
	}
	report := s.Run.Reported
	if output, _ := s.received.from(FromOutput); report.isRetrying() &&
		(output.Activity == word.Idle || s.isOver(FromReport, report)) {
		report.Activity = word.Idle // it has given up, which no hook reports
	}
	return report, report.Seq > 0
}

// NextReport returns a hook report with the next Seq, and whether it is new. If it only repeats the
// last one, NextReport returns that one. A repeated request for attention is new if the last one
// was resolved or acknowledged.
func (s *Session) NextReport(report Report) (next Report, changed bool) {
	last, known := s.latestReport(FromReport)
	report.Seq = last.Seq + 1
	same := known && last.Activity == report.Activity && last.Reason == report.Reason &&
		last.Message == report.Message && last.Until.Equal(report.Until)
	isOpen := func() bool { return !s.isResolved(FromReport, last) && !s.isAcknowledged(FromReport, last) }
	if same && (report.requestsAttention() && isOpen() || !report.requestsAttention() && !s.isOver(FromReport, last)) {
		return last, false
	}
	return report, true
}
