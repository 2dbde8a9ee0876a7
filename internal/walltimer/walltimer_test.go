package walltimer_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/walltimer"
)

func TestTimer_FiresAtSetTime(t *testing.T) {
	timer, err := walltimer.New()
	require.NoError(t, err)
	rang := make(chan time.Time, 8)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		timer.Run(func() { rang <- time.Now() })
	}()

	due := time.Now().Add(20 * time.Millisecond)
	require.NoError(t, timer.Set(due))
	assert.False(t, (<-rang).Before(due.Round(0)), "too early")

	require.NoError(t, timer.Set(time.Now().Add(-time.Hour)))
	<-rang

	for _, far := range []time.Time{
		time.Now().Add(time.Hour), time.Now().AddDate(250, 0, 0), time.Now().AddDate(100_000, 0, 0),
	} {
		require.NoError(t, timer.Set(far))
	}
	require.NoError(t, timer.Set(time.Unix(0, 0)))
	<-rang
	require.NoError(t, timer.Set(time.Now().AddDate(250, 0, 0)))
	require.NoError(t, timer.Set(time.Time{}))
	require.NoError(t, timer.Close())
	<-ended
	assert.Empty(t, rang, "a disarmed timer does not fire")
}
