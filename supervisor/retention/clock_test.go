package retention_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/corrald/corral/supervisor/retention"
	"github.com/corrald/corral/supervisor/session"
)

func TestClock_DetectsThatItWasSet(t *testing.T) {
	for _, row := range []struct {
		name  string
		since time.Duration // by a clock that cannot be set, after the first reading
		wall  time.Duration // by the wall clock
		set   bool
	}{
		{"an hour passes", time.Hour, time.Hour, false},
		{"corrected forward", time.Hour, time.Hour + time.Minute - 1, false},
		{"corrected back", time.Hour, time.Hour - time.Minute + 1, false},
		{"set forward by a minute", time.Hour, time.Hour + time.Minute, true},
		{"set back by a minute", time.Hour, time.Hour - time.Minute, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := retention.NewClock("boot")
			first, set := c.Check(ended, time.Hour)
			assert.True(t, set, "the first reading")
			assert.Equal(t, session.Boot{ID: "boot", Began: began}, first)
			now, set := c.Check(ended.Add(row.wall), time.Hour+row.since)
			assert.Equal(t, row.set, set)
			assert.Equal(t, session.Boot{ID: "boot", Began: began.Add(row.wall - row.since)}, now)
		})
	}
}

// TestClock_FollowsSmallCorrections: each is compared with the reading before it.
func TestClock_FollowsSmallCorrections(t *testing.T) {
	c := retention.NewClock("boot")
	c.Check(ended, time.Hour)
	for i := range 5 {
		_, set := c.Check(ended.Add(time.Duration(i+1)*30*time.Second), time.Hour)
		assert.False(t, set)
	}
}
