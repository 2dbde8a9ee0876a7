package hookreport

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestTake_ReturnsTheLastReportOnce(t *testing.T) {
	dir := t.TempDir()
	last := Report{Activity: "waiting", Reason: "permission", Message: "touch ü\x00", Monotonic: 9}
	last.At = time.Unix(5, 7).UTC()
	require.NoError(t, Write(dir, Report{Activity: "working"}))
	require.NoError(t, Write(dir, last))
	for range 2 { // a daemon that has taken it may be killed before it has recorded it
		r, ok, err := Take(dir)
		require.NoError(t, err)
		assert.True(t, ok)
		assert.Equal(t, last, r)
	}
	Remove(dir)
	_, ok, err := Take(dir)
	require.NoError(t, err)
	assert.False(t, ok)
	names, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, names)
	require.Error(t, Write(filepath.Join(dir, "missing"), last))
}

// TestTake_RemovesWhatItCannotRead: it would be found again and again.
func TestTake_RemovesWhatItCannotRead(t *testing.T) {
	for name, put := range map[string]func(path string) error{
		"no JSON":     func(path string) error { return os.WriteFile(path, []byte("{"), 0o600) },
		"too large":   func(path string) error { return os.WriteFile(path, []byte(strings.Repeat(" ", maxSize+1)), 0o600) },
		"a FIFO":      func(path string) error { return unix.Mkfifo(path, 0o600) },
		"a link":      func(path string) error { return os.Symlink("/dev/zero", path) },
		"a directory": func(path string) error { return os.MkdirAll(path+"/more", 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, put(filepath.Join(dir, FileName)))
			_, ok, err := Take(dir)
			require.Error(t, err)
			assert.False(t, ok)
			assert.NoFileExists(t, filepath.Join(dir, FileName))
			assert.NoDirExists(t, filepath.Join(dir, FileName))
			_, ok, err = Take(dir)
			require.NoError(t, err)
			assert.False(t, ok)
		})
	}
}
