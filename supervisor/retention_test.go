package supervisor

import (
	"context"
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

func (a *alarmed) expires(id string) time.Time {
	a.t.Helper()
	snap, err := a.sup.Session(id)
	require.NoError(a.t, err)
	return snap.Expires
}

func TestWhatFailedIsKeptForADay(t *testing.T) {
	expiring(t, nothing, func(a *alarmed) {
		a.fails("shop")
		assert.Equal(t, time.Now().Add(day).UnixMicro(), a.expires("shop").UnixMicro())
		a.pass(day - time.Second)
		assert.True(t, a.there("shop"))
		a.pass(2 * time.Second)
		assert.False(t, a.there("shop"))
	})
}

// TestTheClockIsSetForward by what had been wrong with it, as on a machine without a battery for its clock, once the network is there: what has just
// failed is kept for as long as ever, and the time that is announced is one of the new clock.
func TestTheClockIsSetForward(t *testing.T) {
	expiring(t, nothing, func(a *alarmed) {
		a.fails("shop")
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
		a.fails("shop")
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
			ID: "shop", Agent: "command", Command: []string{"true"}, WorkingDirectory: "/", State: session.Failed, StateChanged: at,
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
