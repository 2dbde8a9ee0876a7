package session

import "time"

// moment is a point of time within a run, by two clocks: the wall clock, which people read and set,
// and CLOCK_MONOTONIC, which cannot be set. A run does not outlive its boot. Therefore the second
// clock decides which moment came first, unless a record of an older version lacks it.
type moment struct {
	wall      time.Time
	monotonic time.Duration // 0 if it is not known
}

func (m moment) before(n moment) bool {
	if m.monotonic != 0 && n.monotonic != 0 {
		return m.monotonic < n.monotonic
	}
	return m.wall.Before(n.wall)
}

func (m moment) earlier(by time.Duration) moment {
	m.wall = m.wall.Add(-by)
	if m.monotonic != 0 {
		m.monotonic = max(m.monotonic-by, 1)
	}
	return m
}

func (r *Run) exited() moment       { return moment{r.Exit.Exited, r.Exit.ExitedMonotonic} }
func (r *Run) intentMoment() moment { return moment{r.IntentAt, r.IntentMonotonic} }
func (r *Run) timedOut() moment     { return moment{r.TimedOut, r.TimedOutMonotonic} }
func (r *Run) startEnded() moment   { return moment{r.StartEnded, r.StartEndedMonotonic} }
func (r *Run) conversationIdentified() moment {
	return moment{r.ConversationAt, r.ConversationMonotonic}
}
