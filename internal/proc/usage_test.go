package proc

import (
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReadUsage_OfThisProcess(t *testing.T) {
	group, err := Cgroup(os.Getpid())
	require.NoError(t, err)
	u, exists := ReadUsage(group)
	assert.True(t, exists)
	assert.NotEqual(t, uint64(Unknown), u.Tasks, "known with and without the pids controller")
	assert.NotZero(t, u.Tasks)
	assert.NotEqual(t, uint64(Unknown), u.CPUTime)
}

func TestReadUsage_OfMissingGroup(t *testing.T) {
	for _, group := range []string{"", "/no-such-group", "/../../../etc"} {
		u, exists := ReadUsage(group)
		assert.False(t, exists, group)
		assert.Zero(t, u)
	}
}

func TestFlatKeyed(t *testing.T) {
	const events = "low 0\noom 3\noom_kill 7\noom_group_kill 1\nbad x\nhuge 99999999999999999999\nlast 5"
	for key, want := range map[string]uint64{"low": 0, "oom_kill": 7, "last": 5} {
		n, ok := FlatKeyed([]byte(events), key)
		assert.True(t, ok, key)
		assert.Equal(t, want, n, key)
	}
	for _, key := range []string{"kill", "oom_", "bad", "huge", "absent"} {
		_, ok := FlatKeyed([]byte(events), key)
		assert.False(t, ok, key)
	}
	_, ok := FlatKeyed(nil, "low")
	assert.False(t, ok)
}

// FuzzCPUTime checks that a time is returned only if the text contains it, and that it has not
// overflowed.
func FuzzCPUTime(f *testing.F) {
	for _, seed := range []string{
		"usage_usec 1500\nuser_usec 1000\n", "usage_usec 18446744073709551615\n", "usage_usec -1\n", "",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, stat string) {
		if n := cpuTime([]byte(stat)); n != Unknown {
			require.Zero(t, n%1000)
			require.Contains(t, stat, "usage_usec ")
			require.Contains(t, stat, strconv.FormatUint(n/1000, 10))
		}
	})
}
