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

const day = 24 * time.Hour

var (
	never time.Time
	began = time.Date(2025, 3, 1, 8, 0, 0, 0, time.UTC) // when the machine booted
	ended = began.Add(time.Hour)
	boot  = session.Boot{ID: "boot", Began: began}
	last  = session.Boot{ID: "last boot", Began: began.Add(-day)}

	times = config.Retention{
		Suspended: 7 * day, Resumable: 30 * day, Failed: day, Unseen: 8 * day, Completed: 9 * day, Stopped: 10 * day,
	}
)

// clock returns a clock that was first read at the time ended, and was then set by this time.
func clock(set time.Duration) *retention.Clock {
	c := retention.NewClock(boot.ID)
	c.Check(ended, time.Hour)
	if set != 0 {
		c.Check(ended.Add(set), time.Hour)
	}
	return &c
}

// endedSession returns a session whose state changed at the time ended.
func endedSession() *session.Session {
	return &session.Session{ID: "shop", StateChanged: ended, ChangedOn: boot}
}

func TestExpiry_DependsOnTheState(t *testing.T) {
	seenAt := ended.Add(3 * day)
	for _, row := range []struct {
		name   string
		state  session.State
		change func(*session.Session)
		want   time.Time
	}{
		{"created", session.Created, nil, never},
		{"running", session.Running, nil, never},
		{"archived", session.Archived, nil, never},
		{"completed", session.Completed, nil, ended.Add(9 * day)},
		{"stopped", session.Stopped, nil, ended.Add(10 * day)},
		{"suspended, cannot be resumed", session.Suspended, nil, ended.Add(7 * day)},
		{"suspended, can be resumed", session.Suspended,
			func(s *session.Session) { s.ResumeCommand = []string{"true"} }, ended.Add(30 * day)},
		{"failed, unseen", session.Failed, nil, ended.Add(8 * day)},
		{"failed, seen", session.Failed,
			func(s *session.Session) { s.Seen, s.SeenAt, s.SeenOn = session.Failed, seenAt, boot }, seenAt.Add(day)},
		{"failed, seen in another state", session.Failed,
			func(s *session.Session) { s.Seen, s.SeenAt, s.SeenOn = session.Stale, seenAt, boot }, ended.Add(8 * day)},
		{"failed, seen at an unknown time", session.Failed,
			func(s *session.Session) { s.Seen = session.Failed }, ended.Add(8 * day)},
		{"a unit starts it", session.Stopped, func(s *session.Session) { s.PulledIn = true }, never},
		{"enabled", session.Stopped, func(s *session.Session) { s.OnLogin = "start" }, never},
		{"not enabled", session.Stopped, func(s *session.Session) { s.OnLogin = word.Ignore }, ended.Add(10 * day)},
		{"was wanted after it ended", session.Stopped,
			func(s *session.Session) { s.Released, s.ReleasedOn = seenAt, boot }, seenAt.Add(10 * day)},
		{"was wanted before it ended", session.Stopped,
			func(s *session.Session) { s.Released, s.ReleasedOn = began, boot }, ended.Add(10 * day)},
	} {
		t.Run(row.name, func(t *testing.T) {
			rec := endedSession()
			if row.change != nil {
				row.change(rec)
			}
			assert.Equal(t, row.want, clock(0).Expiry(rec, row.state, times))
		})
	}
}

func TestExpiry_LongerOfFailedAndUnseenApplies(t *testing.T) {
	longer := times
	longer.Failed = 30 * day
	assert.Equal(t, ended.Add(30*day), clock(0).Expiry(endedSession(), session.Failed, longer))
}

func TestExpiry_InfinityIsNever(t *testing.T) {
	assert.Zero(t, clock(0).Expiry(endedSession(), session.Stopped, config.Retention{Stopped: config.Infinity}))
}

func TestExpiry_FollowsAClockThatIsSet(t *testing.T) {
	for _, row := range []struct {
		name string
		on   session.Boot
		set  time.Duration
		want time.Duration // later than without this
	}{
		{"set forward", boot, 3 * day, 3 * day},
		{"set back", boot, -3 * day, -3 * day},
		{"corrected by network time", boot, time.Minute - 1, 0},
		{"ended on another boot", last, 3 * day, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			rec := endedSession()
			rec.ChangedOn = row.on
			assert.Equal(t, ended.Add(10*day+row.want), clock(row.set).Expiry(rec, session.Stopped, times))
		})
	}
}

// A session that ended on an earlier boot was acknowledged, or released, on this one.
func TestExpiry_FollowsTheClockOfTheBootFromWhichItCounts(t *testing.T) {
	for name, change := range map[string]func(*session.Session){
		"seen":     func(s *session.Session) { s.Seen, s.SeenAt, s.SeenOn = session.Failed, ended, boot },
		"released": func(s *session.Session) { s.Released, s.ReleasedOn = ended, boot },
	} {
		t.Run(name, func(t *testing.T) {
			rec := &session.Session{ID: "shop", StateChanged: ended.Add(-day), ChangedOn: last}
			change(rec)
			before := clock(0).Expiry(rec, session.Failed, times)
			assert.Equal(t, before.Add(3*day), clock(3*day).Expiry(rec, session.Failed, times))
		})
	}
}

// The clock was first read at the time ended.
func TestRemovalTime_WaitsUntilTheClockCanBeTrusted(t *testing.T) {
	trusted := ended.Add(retention.ClockTrustDelay)
	short := config.Retention{Stopped: time.Minute}
	for _, row := range []struct {
		name               string
		times              config.Retention
		set                time.Duration
		expires, notBefore time.Time
		want               time.Time
	}{
		{"never", times, 0, never, never, never},
		{"never, not before some time", times, 0, never, trusted, never},
		{"later than the clock can be trusted", times, 0, ended.Add(day), never, ended.Add(day)},
		{"earlier than that", times, 0, began, never, trusted},
		{"a shorter retention time", short, 0, began, never, ended.Add(time.Minute)},
		{"after the clock was set", times, day, began, never, trusted.Add(day)},
		{"after the clock was corrected", times, time.Second, began, never, trusted},
		{"the last attempt has failed", times, 0, began, trusted.Add(time.Hour), trusted.Add(time.Hour)},
		{"that attempt was long ago", times, 0, ended.Add(day), trusted, ended.Add(day)},
	} {
		t.Run(row.name, func(t *testing.T) {
			at := clock(row.set).RemovalTime(endedSession(), session.Stopped, row.times, row.expires, row.notBefore)
			assert.Equal(t, row.want, at)
		})
	}
}

func TestIsDue_NotBeforeItsTime(t *testing.T) {
	assert.True(t, retention.IsDue(ended, ended))
	assert.True(t, retention.IsDue(ended, ended.Add(1)))
	assert.False(t, retention.IsDue(ended, ended.Add(-1)))
	assert.False(t, retention.IsDue(never, ended))
}

func TestEarliest_IgnoresZero(t *testing.T) {
	assert.Equal(t, began, retention.Earliest(never, ended, began, never))
	assert.Equal(t, began, retention.Earliest(began, ended))
	assert.Zero(t, retention.Earliest(never, never))
	assert.Zero(t, retention.Earliest())
}
