package effects

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzCPUUsage checks that a time is returned only if the text contains it, and that it has not
// overflowed.
func FuzzCPUUsage(f *testing.F) {
	for _, seed := range []string{
		"usage_usec 1500\nuser_usec 1000\n", "usage_usec 18446744073709551615\n", "usage_usec -1\n", "",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, stat string) {
		if n, ok := cpuUsage(stat); ok {
			require.Zero(t, n%1000)
			require.Contains(t, stat, strconv.FormatUint(n/1000, 10))
		}
	})
}
