package retention_test

import (
	"testing"
	"time"

	"github.com/corrald/corral/dbusapi/word"

	"github.com/stretchr/testify/assert"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/supervisor/retention"
	"github.com/corrald/corral/supervisor/session"
)

func TestIdleLimit_OfTheAgentPrecedes(t *testing.T) {
	for _, row := range []struct {
		name           string
		resumable      bool
		ofAgent, ofAll time.Duration
		want           time.Duration
	}{
		{"neither", true, 0, 0, config.Infinity},
		{"general", true, 0, time.Hour, time.Hour},
		{"general, cannot be resumed", false, 0, time.Hour, config.Infinity},
		{"of the agent", true, time.Minute, time.Hour, time.Minute},
		{"of the agent, cannot be resumed", false, time.Minute, time.Hour, time.Minute},
		{"of the agent: never", true, config.Infinity, time.Hour, config.Infinity},
	} {
		t.Run(row.name, func(t *testing.T) {
			rec := &session.Session{}
			if row.resumable {
				rec.ResumeCommand = []string{"true"}
			}
			assert.Equal(t, row.want, retention.IdleLimit(rec, row.ofAgent, row.ofAll))
		})
	}
}

// The agent of these sessions reports its status at two hours by CLOCK_MONOTONIC.
func TestSuspendsAt_OnlyIfTheAgentIsIdle(t *testing.T) {
	reports := func(activity, reason string) session.Event {
		return session.StatusReported{Run: "r1", Source: session.FromOSC7501, Report: session.Report{
			Activity: activity, Reason: reason, At: ended, Monotonic: 2 * time.Hour, Seq: 1,
		}}
	}
	idle := reports(word.Idle, "")
	withoutTime := session.StatusReported{Run: "r1", Source: session.FromOSC7501, Report: session.Report{
		Activity: word.Idle, At: ended, Seq: 1,
	}}
	for _, row := range []struct {
		name   string
		status session.Event
		change func(*session.Session, *retention.Idleness)
		want   time.Duration
	}{
		{"idle", idle, nil, 3 * time.Hour},
		{"nothing was reported", nil, nil, 0},
		{"working", reports(word.Working, ""), nil, 0},
		{"waits for an answer", reports(word.Waiting, word.Permission), nil, 0},
		{"waits after its turn", reports(word.Waiting, word.TurnEnded), nil, 3 * time.Hour},
		{"idle since an unknown time", withoutTime, nil, 30*time.Minute + time.Hour},
		{"no limit", idle, func(_ *session.Session, i *retention.Idleness) { i.Limit = config.Infinity }, 0},
		{"a client is attached", idle, func(_ *session.Session, i *retention.Idleness) { i.Attached = true }, 0},
		{"a client has detached since",
			idle, func(_ *session.Session, i *retention.Idleness) { i.DetachedAt = 5 * time.Hour }, 6 * time.Hour},
		{"a client has detached before",
			idle, func(_ *session.Session, i *retention.Idleness) { i.DetachedAt = time.Hour }, 3 * time.Hour},
		{"an operation is pending",
			idle, func(_ *session.Session, i *retention.Idleness) { i.Pending = session.OpStop }, 0},
		{"frozen", idle, func(s *session.Session, _ *retention.Idleness) { s.Frozen = true }, 0},
		{"stopping", idle, func(s *session.Session, _ *retention.Idleness) { s.Run.Intent = session.Stop }, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			rec := &session.Session{ID: "shop", Run: &session.Run{ID: "r1", Scope: session.ScopeActive, Started: began}}
			if row.status != nil {
				rec.Apply(row.status)
			}
			i := retention.Idleness{Limit: time.Hour, DaemonStarted: 30 * time.Minute}
			if row.change != nil {
				row.change(rec, &i)
			}
			assert.Equal(t, row.want, retention.SuspendsAt(rec, i))
		})
	}
}
