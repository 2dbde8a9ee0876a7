package retention

import (
	"time"

	"github.com/corrald/corral/dbusapi/word"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/supervisor/session"
)

// IdleLimit returns how long the session's agent may be idle, config.Infinity for without limit.
// The arguments are IdleSuspendSec= of the agent's definition and of the configuration, 0 if not
// set. The latter does not apply to an agent that could not be resumed.
func IdleLimit(rec *session.Session, ofAgent, ofAll time.Duration) time.Duration {
	switch {
	case ofAgent != 0:
		return ofAgent
	case ofAll == 0 || !rec.Resumable():
		return config.Infinity
	}
	return ofAll
}

// Idleness is what determines, beside its record, when a session is suspended for being idle. Times
// are by CLOCK_MONOTONIC.
type Idleness struct {
	Limit         time.Duration // the result of IdleLimit
	Attached      bool          // a client is attached to the session's terminal
	DetachedAt    time.Duration // when the last client has detached, 0 if none has
	Pending       session.Op    // the operation that is not finished
	DaemonStarted time.Duration
}

// SuspendsAt returns when the session is to be suspended for being idle, by CLOCK_MONOTONIC, 0 if
// never. A session is not idle while a client is attached or while its agent waits for an answer,
// but it is after its turn has ended. The time that the machine sleeps does not count: a person who
// opens a laptop in the morning finds the agents as they were.
func SuspendsAt(rec *session.Session, i Idleness) time.Duration {
	if i.Limit == config.Infinity || i.Attached || i.Pending != session.NoOp || rec.Frozen ||
		rec.View().State != session.Running {
		return 0
	}
	activity, since := rec.ActivitySince()
	if activity == word.Working || activity == word.Unknown ||
		activity == word.Waiting && !rec.TurnEnded() {
		return 0
	}
	if since == 0 {
		since = i.DaemonStarted // an older version has recorded the status, without this time
	}
	return max(since, i.DetachedAt) + i.Limit
}
