package shimwire_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/shimwire"
)

// TestFindEnvironment_SkipsOtherOutput also checks that an incomplete environment is not returned.
func TestFindEnvironment_SkipsOtherOutput(t *testing.T) {
	environ := []string{"A=1", "B=two\nlines", "C="}
	printed := append([]byte("Welcome!\n\x00"), shimwire.AppendEnvironment(nil, "mark", environ)...)
	for i := range printed {
		_, found := shimwire.FindEnvironment(printed[:i], "mark")
		require.False(t, found, "after %d bytes", i)
	}
	got, found := shimwire.FindEnvironment(append(printed, "Good-bye\n"...), "mark")
	assert.True(t, found)
	assert.Equal(t, environ, got)
	_, found = shimwire.FindEnvironment(printed, "another")
	assert.False(t, found)
}

// FuzzEnvironment checks that an environment is decoded unchanged, whatever output surrounds it.
func FuzzEnvironment(f *testing.F) {
	f.Add("noise\x00mark begin", "A=1\x00B=2", "mark end\x00")
	f.Add("", "", "")
	f.Add("mark end\x00", "A=x end", "\x00")
	f.Fuzz(func(t *testing.T, before, entries, after string) {
		const mark = "\xff0123456789abcdef"
		if strings.Contains(before+entries, "\xff") {
			return
		}
		var environ []string
		for entry := range strings.SplitSeq(entries, "\x00") {
			if entry != "" {
				environ = append(environ, entry)
			}
		}
		printed := append(shimwire.AppendEnvironment([]byte(before), mark, environ), after...)
		got, found := shimwire.FindEnvironment(printed, mark)
		require.True(t, found)
		require.Equal(t, environ, got)
	})
}
