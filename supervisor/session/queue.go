package session

import (
	"time"

	"github.com/corrald/corral/dbusapi/word"
)

// QueuedRun is a run that waits until MaxRunning= permits it. The zero value stands for none.
type QueuedRun struct {
	Op string `json:"op"` // word.Start or word.Resume
	// At is when it was queued, in microseconds of the wall clock. The queue is in this order: it is
	// later than that of each session that waits already, even if the clock was set back.
	At time.Time `json:"at"`
	// Runs is NRuns at that time. Once another run has begun, also under a version of Corral that has
	// no queue and keeps this field unchanged, the session is not queued any more.
	Runs uint32 `json:"runs"`
}

// RunQueued reports that a run waits until MaxRunning= permits it: Op is word.Start or word.Resume.
// A session that is queued already keeps its place.
type RunQueued struct {
	Op string
	At time.Time
}

// RunUnqueued reports that the session's run does not wait any more.
type RunUnqueued struct{}

func (e RunQueued) apply(s *Session) {
	if s.IsQueued() {
		s.Queued.Op = e.Op
		return
	}
	s.Queued = QueuedRun{Op: e.Op, At: e.At, Runs: s.NRuns}
}

func (RunUnqueued) apply(s *Session) { s.Queued = QueuedRun{} }

// IsQueued reports whether a run of the session waits until MaxRunning= permits it.
func (s *Session) IsQueued() bool {
	return !s.Queued.At.IsZero() && s.Queued.Runs == s.NRuns && s.Archived.IsZero()
}

// Operation returns the operation that begins the run.
func (q QueuedRun) Operation() Op {
	if q.Op == word.Resume {
		return OpResume
	}
	return OpStart
}

// HoldsPlace reports whether the session counts towards MaxRunning=: its run has not ended, or
// another one is about to replace it. A session does not count while its agent waits until a usage
// limit has reset.
func (p Pending) HoldsPlace(s *Session) bool {
	return p.WaitsToBegin() || !s.Run.Ended() && (!s.Run.AgentAlive() || s.Limit.Run != s.Run.ID)
}
