package session

import "time"

// Moment is a point of time within a run, by two clocks: the wall clock, which people read and set,
// and CLOCK_MONOTONIC, which cannot be set. A run does not outlive its boot. Therefore the second
// clock decides which moment came first, unless a record of an older version lacks it.
type Moment struct {
	At        time.Time
	Monotonic time.Duration // 0 if it is not known
}

func (m Moment) before(n Moment) bool {
	if m.Monotonic != 0 && n.Monotonic != 0 {
		return m.Monotonic < n.Monotonic
	}
	return m.At.Before(n.At)
}

func (m Moment) earlier(by time.Duration) Moment {
	m.At = m.At.Add(-by)
	if m.Monotonic != 0 {
		m.Monotonic = max(m.Monotonic-by, 1)
	}
	return m
}

func (r *Run) exited() Moment       { return Moment{r.Exit.Exited, r.Exit.ExitedMonotonic} }
func (r *Run) intentMoment() Moment { return Moment{r.IntentAt, r.IntentMonotonic} }
func (r *Run) timedOut() Moment     { return Moment{r.TimedOut, r.TimedOutMonotonic} }
func (r *Run) startEnded() Moment   { return Moment{r.StartEnded, r.StartEndedMonotonic} }
func (r *Run) conversationIdentified() Moment {
	return Moment{r.ConversationAt, r.ConversationMonotonic}
}
