package supervisor

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/supervisor/session"
)

const (
	day  = 24 * time.Hour
	year = 365 * day
)

// alarmed is a supervisor with the alarm that it sets itself, by the bubble's clock.
type alarmed struct {
	*bed
	at time.Time // what the alarm is set to; belongs to the loop
}

// expiring runs f with a supervisor that has taken over these sessions.
func expiring(t *testing.T, records func() []*session.Session, f func(a *alarmed)) {
	synctest.Test(t, func(t *testing.T) {
		a, saved := &alarmed{bed: newBed(t)}, records()
		a.sup.Alarm = func(at time.Time) { a.at = at }
		for _, rec := range saved {
			require.NoError(t, a.records.Create(rec.ID))
		}
		require.NoError(t, a.sup.Adopt(t.Context(), saved))
		ctx, cancel := context.WithCancel(t.Context())
		go a.sup.Run(ctx)
		f(a)
		cancel()
		synctest.Wait()
	})
}

// pass lets time go by.
func (a *alarmed) pass(d time.Duration) {
	for end := time.Now().Add(d); ; {
		var at time.Time
		require.NoError(a.t, a.sup.do(func() { at = a.at }))
		if at.IsZero() || at.After(end) {
			<-time.After(time.Until(end))
			return
		}
		<-time.After(time.Until(at))
		require.NoError(a.t, a.sup.do(func() { a.at = time.Time{} })) // it goes off once
		a.rings()
	}
}

func (a *alarmed) rings() {
	a.sup.AlarmRang()
	synctest.Wait()
}

// setClock sets the clock forward.
func (a *alarmed) setClock(by time.Duration) {
	<-time.After(by)
	a.bed.set += by
	a.rings()
}

// setBack has an hour go by in which the clock on the wall stands still, which is as good as setting it back at its end.
func (a *alarmed) setBack() {
	a.bed.set -= time.Hour
	a.rings()
}

func (a *alarmed) there(id string) bool {
	synctest.Wait()
	_, err := a.sup.Session(id)
	return err == nil
}

// fails has a session that has just failed.
func (a *alarmed) fails(id string) {
	a.start(id)
	a.exit(id, 3)
	a.empty(id)
	synctest.Wait()
}

// failsSeen has a session that has just failed, and somebody sees it.
func (a *alarmed) failsSeen(id string) {
	a.t.Helper()
	a.fails(id)
	require.NoError(a.t, a.sup.Acknowledge(a.t.Context(), id))
	synctest.Wait()
}

// keptFor holds that the session expires in so long, is there until then and is not there afterwards.
func (a *alarmed) keptFor(id string, d time.Duration) {
	a.t.Helper()
	assert.Equal(a.t, time.Now().Add(d).Unix(), a.expires(id).Unix())
	a.pass(d - time.Second)
	assert.True(a.t, a.there(id))
	a.pass(2 * time.Second)
	assert.False(a.t, a.there(id))
}

func (a *alarmed) expires(id string) time.Time {
	a.t.Helper()
	snap, err := a.sup.Session(id)
	require.NoError(a.t, err)
	return snap.Expires
}

// TestRetention_IsNotPostponedForASessionThatExpiresMeanwhile: it expires while another one is being
// removed.
func TestRetention_IsNotPostponedForASessionThatExpiresMeanwhile(t *testing.T) {
	expiring(t, nothing, func(a *alarmed) {
		a.world.clearing = 5 * time.Second
		a.failsSeen("shop")
		<-time.After(time.Second)
		a.failsSeen("site")
		a.pass(day)
		<-time.After(10 * time.Second)
		assert.False(t, a.there("shop"))
		a.pass(time.Minute)
		assert.False(t, a.there("site"))
	})
}

func TestRetention_FailedIsKeptForADayAfterItWasSeen(t *testing.T) {
	expiring(t, nothing, func(a *alarmed) {
		a.fails("shop")
		a.pass(3 * day)
		require.NoError(t, a.sup.Acknowledge(a.t.Context(), "shop"))
		synctest.Wait()
		a.pass(time.Hour)
		require.NoError(t, a.sup.Acknowledge(a.t.Context(), "shop"), "it was seen before")
		synctest.Wait()
		a.keptFor("shop", day-time.Hour)
	})
}

func TestRetention_FailedAndUnseenIsKeptForAWeek(t *testing.T) {
	expiring(t, nothing, func(a *alarmed) {
		a.fails("shop")
		a.keptFor("shop", 7*day)
	})
}

// TestRetention_UnseenIsNeverKeptForLess than what was seen: who configures a longer time for failed sessions means all of them.
func TestRetention_UnseenIsNeverKeptForLess(t *testing.T) {
	expiring(t, nothing, func(a *alarmed) {
		require.NoError(t, a.sup.do(func() { a.sup.Config.Retention.Failed = 30 * day }))
		a.fails("shop")
		a.keptFor("shop", 30*day)
	})
}

// TestRetention_ANewRunIsUnseen: what was seen of the run before it says nothing of this one.
func TestRetention_ANewRunIsUnseen(t *testing.T) {
	expiring(t, nothing, func(a *alarmed) {
		a.failsSeen("shop")
		require.NoError(t, a.sup.Start(a.t.Context(), "shop"))
		synctest.Wait()
		a.exit("shop", 3)
		a.empty("shop")
		a.keptFor("shop", 7*day)
	})
}

// TestRetention_ResumableIsKeptForThirtyDays, and what cannot be resumed for seven.
func TestRetention_ResumableIsKeptForThirtyDays(t *testing.T) {
	suspended := func() []*session.Session {
		record := func(id string, resume []string) *session.Session {
			return &session.Session{
				ID: id, Agent: "command", Command: []string{"true"}, ResumeCommand: resume, WorkingDirectory: "/", State: session.Suspended, StateChanged: time.Now(),
				Run: &session.Run{ID: "r1", BootID: "last boot", Scope: session.ScopeGone, Intent: session.Suspend},
			}
		}
		return []*session.Session{record("plain", nil), record("resumes", []string{"true"})}
	}
	expiring(t, suspended, func(a *alarmed) {
		a.keptFor("plain", 7*day)
		a.keptFor("resumes", 23*day-time.Second)
	})
}

// TestRetention_WhatIsEnabledDoesNotExpire, and from the day on which it is not enabled any more it is kept as if it had ended then.
func TestRetention_WhatIsEnabledDoesNotExpire(t *testing.T) {
	for _, how := range []string{"resume", "start"} {
		expiring(t, nothing, func(a *alarmed) {
			a.failsSeen("shop")
			require.NoError(t, a.sup.SetOnLogin(a.t.Context(), "shop", how))
			synctest.Wait()
			assert.Zero(t, a.expires("shop"))
			a.pass(year)
			require.True(t, a.there("shop"))
			require.NoError(t, a.sup.SetOnLogin(a.t.Context(), "shop", session.Ignore))
			a.keptFor("shop", day)
		})
	}
}

// TestRetention_WhatAUnitStartsDoesNotExpire: systemd is asked when the session ends, when the user manager was reloaded, and before the session would be removed.
func TestRetention_WhatAUnitStartsDoesNotExpire(t *testing.T) {
	expiring(t, nothing, func(a *alarmed) {
		a.world.pulledIn = []string{"nightly"}
		a.failsSeen("nightly")
		assert.Zero(t, a.expires("nightly"))
		a.pass(year)
		a.world.pulledIn = nil // the timer is disabled, for which the user manager is reloaded
		a.sup.Resync()
		synctest.Wait()
		assert.Equal(t, time.Now().Add(day).Unix(), a.expires("nightly").Unix())
		a.world.pulledIn = []string{"nightly"} // a timer is started that is not enabled: nobody is told
		a.pass(day + time.Second)
		require.True(t, a.there("nightly"))
		assert.Zero(t, a.expires("nightly"))
	})
}

// TestRetention_WhatAUnitStartedIsKnownAfterARestart: the daemon's absence is no end of a timer, and one that was disabled meanwhile is no reason to remove the
// session at once.
func TestRetention_WhatAUnitStartedIsKnownAfterARestart(t *testing.T) {
	longAgo := func() []*session.Session {
		records := failedLongAgo(30 * day)()
		records[0].PulledIn, records[0].SeenAt = true, time.Time{}
		return records
	}
	expiring(t, longAgo, func(a *alarmed) { a.keptFor("shop", 7*day) })
}

// TestRetention_NothingIsRemovedUnasked: where systemd does not say which sessions its units start, none is removed, until it does.
func TestRetention_NothingIsRemovedUnasked(t *testing.T) {
	expiring(t, nothing, func(a *alarmed) {
		a.world.pulledErr = errors.New("no systemd")
		a.failsSeen("shop")
		a.pass(2 * day)
		require.True(t, a.there("shop"))
		a.world.pulledErr = nil
		a.pass(trustAfter)
		assert.False(t, a.there("shop"))
	})
}

// TestRetention_WhatNeverRanDoesNotExpire.
func TestRetention_WhatNeverRanDoesNotExpire(t *testing.T) {
	expiring(t, nothing, func(a *alarmed) {
		_, err := a.sup.Create(a.t.Context(), "command", Spec{ID: "plan", Command: []string{"true"}, WorkingDirectory: a.home, NoStart: true})
		require.NoError(t, err)
		assert.Zero(t, a.expires("plan"))
	})
}

// TestTheClockIsSetForward by what had been wrong with it, as on a machine without a battery for its clock, once the network is there: what has just
// failed is kept for as long as ever, and the time that is announced is one of the new clock.
func TestTheClockIsSetForward(t *testing.T) {
	expiring(t, nothing, func(a *alarmed) {
		a.failsSeen("shop")
		a.pass(time.Hour)
		a.setClock(3 * year)
		assert.Equal(t, time.Now().Add(day-time.Hour).Unix(), a.expires("shop").Unix())
		a.pass(day - time.Hour - time.Second)
		assert.True(t, a.there("shop"))
		a.pass(2 * time.Second)
		assert.False(t, a.there("shop"))
	})
}

// TestTheClockIsSetBack: nothing is kept for longer either.
func TestTheClockIsSetBack(t *testing.T) {
	expiring(t, nothing, func(a *alarmed) {
		a.failsSeen("shop")
		a.setBack()
		assert.Equal(t, time.Now().Add(day-time.Hour).Unix(), a.expires("shop").Unix())
		a.pass(day - time.Hour - time.Second)
		assert.True(t, a.there("shop"))
		a.pass(2 * time.Second)
		assert.False(t, a.there("shop"))
	})
}

// failedLongAgo is a session that failed on an earlier boot.
func failedLongAgo(ago time.Duration) func() []*session.Session {
	return func() []*session.Session {
		at := time.Now().Add(-ago)
		return []*session.Session{{
			ID: "shop", Agent: "command", Command: []string{"true"}, WorkingDirectory: "/", State: session.Failed, StateChanged: at, Seen: session.Failed, SeenAt: at,
			ChangedOn: session.Boot{ID: "last boot", Began: at},
			Run:       &session.Run{ID: "r1", BootID: "last boot", Scope: session.ScopeGone, StartError: "it cannot", StartEnded: at},
		}}
	}
}

func nothing() []*session.Session { return nil }

// TestTheClockIsYearsAhead: what has expired by it, and is of an earlier boot, is kept until somebody had the time to put the clock right.
func TestTheClockIsYearsAhead(t *testing.T) {
	expiring(t, failedLongAgo(time.Hour), func(a *alarmed) {
		a.setClock(3 * year)
		a.pass(trustAfter - time.Second)
		assert.True(t, a.there("shop"), "it is not trusted yet")
		a.pass(2 * time.Second)
		assert.False(t, a.there("shop"))
	})
}

// TestWhatIsFoundToHaveExpired at the daemon's start is removed soon, and by Clean at once: that is somebody's wish.
func TestWhatIsFoundToHaveExpired(t *testing.T) {
	expiring(t, failedLongAgo(2*day), func(a *alarmed) {
		a.pass(trustAfter - time.Second)
		assert.True(t, a.there("shop"))
		a.pass(2 * time.Second)
		assert.False(t, a.there("shop"))
	})
	expiring(t, failedLongAgo(2*day), func(a *alarmed) {
		ids, err := a.sup.Clean(a.t.Context())
		require.NoError(t, err)
		assert.Equal(t, []string{"shop"}, ids)
		assert.False(t, a.there("shop"))
	})
}
