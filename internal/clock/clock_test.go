package clock_test

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/clock"
)

func TestClocks_OnlyMoveForward(t *testing.T) {
	for name, read := range map[string]func() time.Duration{"Monotonic": clock.Monotonic, "SinceBoot": clock.SinceBoot} {
		before := read()
		require.Positive(t, before, name)
		assert.GreaterOrEqual(t, read(), before, name)
	}
}

// TestSinceBoot_MatchesProcUptime: /proc/uptime includes the time that the machine was asleep.
func TestSinceBoot_MatchesProcUptime(t *testing.T) {
	content, err := os.ReadFile("/proc/uptime")
	require.NoError(t, err)
	uptime, err := strconv.ParseFloat(strings.Fields(string(content))[0], 64)
	require.NoError(t, err)
	assert.InDelta(t, uptime, clock.SinceBoot().Seconds(), 1)
}
