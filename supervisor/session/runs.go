package session

import "time"

// Account is what a run is told to have been: what State and its like said of the session when that was its run. Times are zero where there is none.
type Account struct {
	ID           string
	Began, Ended time.Time
	Result       string // one of the results, "" while it runs
	Code, Status int    // of the agent's exit, as in the record of it; zero if there is none
	Reason       string
}

// Duration is how long a run has lived that is over, zero if that is not known.
func (a Account) Duration() time.Duration {
	if a.Ended.IsZero() {
		return 0
	}
	return max(0, a.Ended.Sub(a.Began))
}

// Account returns what the run is told to have been, in this session.
func (s *Session) Account(r *Run) Account {
	only := Session{Run: r, ResumeCommand: s.ResumeCommand}
	v := only.runView()
	a := Account{ID: r.ID, Began: r.Started, Result: v.Result, Reason: v.Reason}
	if a.Began.IsZero() {
		a.Began = r.Asked
	}
	switch {
	case r.Exit != nil:
		a.Ended, a.Code, a.Status = r.Exit.Exited, int(r.Exit.Code), r.Exit.Value
	case r.Ended():
		a.Ended = v.Since
	}
	return a
}

// Accounts returns what the runs that are remembered are told to have been, the newest last. One whose end nobody has seen, because the next has begun among
// what was left of it, is over since then.
func (s *Session) Accounts() []Account {
	var all []Account
	for i := range s.Past {
		next := s.Run
		if i+1 < len(s.Past) {
			next = &s.Past[i+1]
		}
		a := s.Account(&s.Past[i])
		if a.Ended.IsZero() && next != nil {
			a.Ended = next.Asked
		}
		all = append(all, a)
	}
	if s.Run != nil {
		all = append(all, s.Account(s.Run))
	}
	return all
}
