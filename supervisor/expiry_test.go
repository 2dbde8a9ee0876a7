package supervisor

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/corrald/corral/dbusapi/word"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/supervisor/retention"
	"github.com/corrald/corral/supervisor/session"
)

const (
	day  = 24 * time.Hour
	year = 365 * day
)

// expiryBed is a test bed whose alarm goes off at the time that the supervisor sets, by the clock
// of the synctest bubble.
type expiryBed struct {
	*bed
	alarmAt time.Time // when the alarm goes off, zero for never; belongs to the event loop
}

// superviseExpiring runs f with a supervisor that has adopted these sessions.
func superviseExpiring(t *testing.T, records func() []*session.Session, f func(a *expiryBed)) {
	synctest.Test(t, func(t *testing.T) {
		a, saved := &expiryBed{bed: newBed(t)}, records()
		a.sup.loop.callbacks.SetAlarm = func(at time.Time) { a.alarmAt = at }
		for _, rec := range saved {
			require.NoError(t, a.records.Create(rec.ID))
		}
		require.NoError(t, a.sup.Adopt(t.Context(), saved))
		ctx, cancel := context.WithCancel(t.Context())
		go a.run(ctx)
		f(a)
		cancel()
		synctest.Wait()
	})
}

// advance waits for this time, and lets the alarm go off when it is due.
func (a *expiryBed) advance(d time.Duration) {
	for end := time.Now().Add(d); ; {
		var at time.Time
		require.NoError(a.t, a.sup.loop.do(func() { at = a.alarmAt }))
		if at.IsZero() || at.After(end) {
			<-time.After(time.Until(end))
			return
		}
		<-time.After(time.Until(at))
		require.NoError(a.t, a.sup.loop.do(func() { a.alarmAt = time.Time{} })) // it goes off once
		a.fireAlarm()
	}
}

func (a *expiryBed) fireAlarm() {
	a.sup.AlarmRang()
	synctest.Wait()
}

// setClock sets the clock forward.
func (a *expiryBed) setClock(by time.Duration) {
	<-time.After(by)
	a.bed.clockOffset += by
	a.fireAlarm()
}

// setClockBack simulates that an hour passes by the monotonic clock, but not by the wall clock: the
// same as setting the wall clock back by an hour after that hour.
func (a *expiryBed) setClockBack() {
	a.bed.clockOffset -= time.Hour
	a.fireAlarm()
}

func (a *expiryBed) there(id string) bool {
	synctest.Wait()
	_, err := a.sup.Session(id)
	return err == nil
}

// fail creates a session whose agent fails now.
func (a *expiryBed) fail(id string) {
	a.start(id)
	a.exit(id, 3)
	a.endScope(id)
	synctest.Wait()
}

// failAndAcknowledge creates a session whose agent fails now, and acknowledges this.
func (a *expiryBed) failAndAcknowledge(id string) {
	a.t.Helper()
	a.fail(id)
	require.NoError(a.t, a.sup.Acknowledge(a.t.Context(), id))
	synctest.Wait()
}

// assertKeptFor asserts that the session expires after this time, exists until then, and is removed
// then.
func (a *expiryBed) assertKeptFor(id string, d time.Duration) {
	a.t.Helper()
	assert.Equal(a.t, time.Now().Add(d).Unix(), a.expires(id).Unix())
	a.advance(d - time.Second)
	assert.True(a.t, a.there(id))
	a.advance(2 * time.Second)
	assert.False(a.t, a.there(id))
}

func (a *expiryBed) expires(id string) time.Time {
	a.t.Helper()
	snap, err := a.sup.Session(id)
	require.NoError(a.t, err)
	return snap.Expires
}

// A session that expires while another one is being removed must be removed at its own time.
func TestRetention_IsNotPostponedForASessionThatExpiresMeanwhile(t *testing.T) {
	superviseExpiring(t, nothing, func(a *expiryBed) {
		a.system.clearing = 5 * time.Second
		a.failAndAcknowledge("shop")
		<-time.After(time.Second)
		a.failAndAcknowledge("site")
		a.advance(day)
		<-time.After(10 * time.Second)
		assert.False(t, a.there("shop"))
		a.advance(time.Minute)
		assert.False(t, a.there("site"))
	})
}

func TestRetention_FailedIsKeptForADayAfterItWasSeen(t *testing.T) {
	superviseExpiring(t, nothing, func(a *expiryBed) {
		a.fail("shop")
		a.advance(3 * day)
		require.NoError(t, a.sup.Acknowledge(a.t.Context(), "shop"))
		synctest.Wait()
		a.advance(time.Hour)
		require.NoError(t, a.sup.Acknowledge(a.t.Context(), "shop"), "a second time does not prolong the retention")
		synctest.Wait()
		a.assertKeptFor("shop", day-time.Hour)
	})
}

func TestRetention_FailedAndUnseenIsKeptForAWeek(t *testing.T) {
	superviseExpiring(t, nothing, func(a *expiryBed) {
		a.fail("shop")
		a.assertKeptFor("shop", 7*day)
	})
}

// A longer time that is configured for failed sessions applies also to those that were not
// acknowledged.
func TestRetention_UnseenIsNeverKeptForLess(t *testing.T) {
	superviseExpiring(t, nothing, func(a *expiryBed) {
		require.NoError(t, a.sup.loop.do(func() { a.sup.loop.settings.config.Retention.Failed = 30 * day }))
		a.fail("shop")
		a.assertKeptFor("shop", 30*day)
	})
}

// The acknowledgement of one run does not apply to the next one.
func TestRetention_ANewRunIsUnseen(t *testing.T) {
	superviseExpiring(t, nothing, func(a *expiryBed) {
		a.failAndAcknowledge("shop")
		require.NoError(t, a.sup.Start(a.t.Context(), "shop"))
		synctest.Wait()
		a.exit("shop", 3)
		a.endScope("shop")
		a.assertKeptFor("shop", 7*day)
	})
}

// A suspended session that cannot be resumed is kept for seven days.
func TestRetention_ResumableIsKeptForThirtyDays(t *testing.T) {
	suspended := func() []*session.Session {
		record := func(id string, resume []string) *session.Session {
			return &session.Session{
				ID: id, Agent: "command", Command: []string{"true"}, ResumeCommand: resume, WorkingDirectory: "/",
				State: session.Suspended, StateChanged: time.Now(),
				Run: &session.Run{ID: "r1", BootID: "last boot", Scope: session.ScopeGone, Intent: session.Suspend},
			}
		}
		return []*session.Session{record("plain", nil), record("resumes", []string{"true"})}
	}
	superviseExpiring(t, suspended, func(a *expiryBed) {
		a.assertKeptFor("plain", 7*day)
		a.assertKeptFor("resumes", 23*day-time.Second)
	})
}

// A session that is disabled is kept from then on as if it had ended then.
func TestRetention_EnabledSessionsDoNotExpire(t *testing.T) {
	for _, how := range []string{"resume", "start"} {
		superviseExpiring(t, nothing, func(a *expiryBed) {
			a.failAndAcknowledge("shop")
			require.NoError(t, a.sup.SetOnLogin(a.t.Context(), "shop", how))
			synctest.Wait()
			assert.Zero(t, a.expires("shop"))
			a.advance(year)
			require.True(t, a.there("shop"))
			require.NoError(t, a.sup.SetOnLogin(a.t.Context(), "shop", word.Ignore))
			a.assertKeptFor("shop", day)
		})
	}
}

// The daemon queries systemd when the session ends, after a reload of the user manager, and before
// it would remove the session.
func TestRetention_PulledInSessionsDoNotExpire(t *testing.T) {
	superviseExpiring(t, nothing, func(a *expiryBed) {
		a.system.pulledIn = []string{"nightly"}
		a.failAndAcknowledge("nightly")
		assert.Zero(t, a.expires("nightly"))
		a.advance(year)
		a.system.pulledIn = nil // the timer is disabled, for which the user manager is reloaded
		a.sup.loop.adoption.resync()
		synctest.Wait()
		assert.Equal(t, time.Now().Add(day).Unix(), a.expires("nightly").Unix())
		a.system.pulledIn = []string{"nightly"} // a timer was started without being enabled, which causes no event
		a.advance(day + time.Second)
		require.True(t, a.there("nightly"))
		assert.Zero(t, a.expires("nightly"))
	})
}

// Timers continue while the daemon is not running. If a timer was disabled meanwhile, the session
// is not removed immediately.
func TestRetention_RemembersPulledInSessions(t *testing.T) {
	longAgo := func() []*session.Session {
		records := failedBefore(30 * day)()
		records[0].PulledIn, records[0].SeenAt = true, time.Time{}
		return records
	}
	superviseExpiring(t, longAgo, func(a *expiryBed) { a.assertKeptFor("shop", 7*day) })
}

// As long as systemd does not report which sessions its units start, none is removed.
func TestRetention_RemovesNothingWithoutSystemd(t *testing.T) {
	superviseExpiring(t, nothing, func(a *expiryBed) {
		a.system.pulledErr = errors.New("no systemd")
		a.failAndAcknowledge("shop")
		a.advance(2 * day)
		require.True(t, a.there("shop"))
		a.system.pulledErr = nil
		a.advance(retention.ClockTrustDelay)
		assert.False(t, a.there("shop"))
	})
}

func TestRetention_SessionsThatNeverRanDoNotExpire(t *testing.T) {
	superviseExpiring(t, nothing, func(a *expiryBed) {
		_, err := a.sup.Create(a.t.Context(), "command",
			Spec{ID: "plan", Command: []string{"true"}, WorkingDirectory: a.home, NoStart: true})
		require.NoError(t, err)
		assert.Zero(t, a.expires("plan"))
	})
}

// The clock of a machine without a battery for it is set forward once there is a network. A session
// that has just failed is kept for as long as before, and the published time is one of the
// corrected clock.
func TestRetention_FollowsAClockThatIsSetForward(t *testing.T) {
	superviseExpiring(t, nothing, func(a *expiryBed) {
		a.failAndAcknowledge("shop")
		a.advance(time.Hour)
		a.setClock(3 * year)
		assert.Equal(t, time.Now().Add(day-time.Hour).Unix(), a.expires("shop").Unix())
		a.advance(day - time.Hour - time.Second)
		assert.True(t, a.there("shop"))
		a.advance(2 * time.Second)
		assert.False(t, a.there("shop"))
	})
}

// No session is kept for longer because of that.
func TestRetention_FollowsAClockThatIsSetBack(t *testing.T) {
	superviseExpiring(t, nothing, func(a *expiryBed) {
		a.failAndAcknowledge("shop")
		a.setClockBack()
		assert.Equal(t, time.Now().Add(day-time.Hour).Unix(), a.expires("shop").Unix())
		a.advance(day - time.Hour - time.Second)
		assert.True(t, a.there("shop"))
		a.advance(2 * time.Second)
		assert.False(t, a.there("shop"))
	})
}

// failedBefore returns a session that failed on an earlier boot.
func failedBefore(ago time.Duration) func() []*session.Session {
	return func() []*session.Session {
		at := time.Now().Add(-ago)
		return []*session.Session{{
			ID: "shop", Agent: "command", Command: []string{"true"}, WorkingDirectory: "/",
			State: session.Failed, StateChanged: at, Seen: session.Failed, SeenAt: at,
			ChangedOn: session.Boot{ID: "last boot", Began: at},
			Run: &session.Run{
				ID: "r1", BootID: "last boot", Scope: session.ScopeGone, StartError: "it cannot", StartEnded: at,
			},
		}}
	}
}

// nothing returns no records.
func nothing() []*session.Session { return nil }

// The clock is years ahead. A session of an earlier boot that has expired by this clock is kept
// until there was time to correct the clock.
func TestRetention_WaitsBeforeItTrustsANewClock(t *testing.T) {
	superviseExpiring(t, failedBefore(time.Hour), func(a *expiryBed) {
		a.setClock(3 * year)
		a.advance(retention.ClockTrustDelay - time.Second)
		assert.True(t, a.there("shop"), "it is not trusted yet")
		a.advance(2 * time.Second)
		assert.False(t, a.there("shop"))
	})
}

// A session that has expired when the daemon starts is removed soon after that, and by Clean
// immediately, because a user has requested it.
func TestRetention_WaitsAfterTheDaemonHasStarted(t *testing.T) {
	superviseExpiring(t, failedBefore(2*day), func(a *expiryBed) {
		a.advance(retention.ClockTrustDelay - time.Second)
		assert.True(t, a.there("shop"))
		a.advance(2 * time.Second)
		assert.False(t, a.there("shop"))
	})
	superviseExpiring(t, failedBefore(2*day), func(a *expiryBed) {
		ids, err := a.sup.Clean(a.t.Context())
		require.NoError(t, err)
		assert.Equal(t, []string{"shop"}, ids)
		assert.False(t, a.there("shop"))
	})
}
