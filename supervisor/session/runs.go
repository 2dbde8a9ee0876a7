package session

import "time"

// RunSummary describes one run: State, Result and Reason as they were when that run was the
// session's current one. Times that are not known are zero.
type RunSummary struct {
	ID           string
	Began, Ended time.Time
	Result       string // one of the results, "" while it runs
	Code, Status int    // the agent's exit, as its shim recorded it; zero if there is no record
	Reason       string
}

// Duration returns the duration of a run that has ended, zero if it is not known.
func (s RunSummary) Duration() time.Duration {
	if s.Ended.IsZero() {
		return 0
	}
	return max(0, s.Ended.Sub(s.Began))
}

// SummarizeRun returns the summary of one of the session's runs.
func (s *Session) SummarizeRun(r *Run) RunSummary {
	only := Session{Run: r, ResumeCommand: s.ResumeCommand}
	v := only.runView()
	summary := RunSummary{ID: r.ID, Began: r.Started, Result: v.Result, Reason: v.Reason}
	if summary.Began.IsZero() {
		summary.Began = r.Requested
	}
	switch {
	case r.Exit != nil:
		summary.Ended, summary.Code, summary.Status = r.Exit.Exited, int(r.Exit.Code), r.Exit.Value
	case r.Ended():
		summary.Ended = v.Since
	}
	return summary
}

// RunSummaries returns the summaries of Past and Run, the newest last. If the end of an earlier run
// was not observed, because the next one began in the same scope among its leftover processes, it
// ended when that one was requested.
func (s *Session) RunSummaries() []RunSummary {
	var all []RunSummary
	for i := range s.Past {
		next := s.Run
		if i+1 < len(s.Past) {
			next = &s.Past[i+1]
		}
		summary := s.SummarizeRun(&s.Past[i])
		if summary.Ended.IsZero() && next != nil {
			summary.Ended = next.Requested
		}
		all = append(all, summary)
	}
	if s.Run != nil {
		all = append(all, s.SummarizeRun(s.Run))
	}
	return all
}
