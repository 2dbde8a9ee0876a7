package supervisor

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/inotify"
)

// asked returns what the process's inotify instances ask of the inode at path, 0 if it is not watched: see proc_pid_fdinfo(5).
func asked(t *testing.T, path string) uint32 {
	t.Helper()
	var st unix.Stat_t
	require.NoError(t, unix.Stat(path, &st))
	infos, err := filepath.Glob("/proc/self/fdinfo/*")
	require.NoError(t, err)
	watch := regexp.MustCompile(fmt.Sprintf(`(?m)^inotify wd:\S+ ino:%x sdev:\S+ mask:(\S+)`, st.Ino))
	for _, info := range infos {
		text, _ := os.ReadFile(info) // one of them is what it was listed by
		if found := watch.FindSubmatch(text); found != nil {
			var mask uint32
			_, err := fmt.Sscanf(string(found[1]), "%x", &mask)
			require.NoError(t, err)
			return mask & unix.IN_ALL_EVENTS
		}
	}
	return 0
}

// TestNoMoreIsAskedForThanIsWanted: the kernel is asked itself.
func TestNoMoreIsAskedForThanIsWanted(t *testing.T) {
	files, err := inotify.New()
	require.NoError(t, err)
	defer func() { _ = files.Close() }()
	s := New(Options{Files: files})
	base := t.TempDir()
	dir, link := filepath.Join(base, "dir"), filepath.Join(base, "link")
	require.NoError(t, os.Mkdir(dir, 0o700))
	require.NoError(t, os.Symlink(dir, link))
	watch := func(path string, mask uint32) *int32 {
		t.Helper()
		number := new(int32)
		var again func()
		again = func() {
			s.unwatchPath(number)
			var err error
			*number, err = s.watchPath(path, mask, func(inotify.Event) {}, again)
			require.NoError(t, err)
		}
		again()
		return number
	}

	moved := watch(dir, unix.IN_MOVE_SELF|unix.IN_ONLYDIR)
	filled := watch(link, unix.IN_CREATE)
	again := watch(dir, unix.IN_CREATE|unix.IN_DELETE)
	assert.EqualValues(t, unix.IN_MOVE_SELF|unix.IN_CREATE|unix.IN_DELETE, asked(t, dir))
	s.unwatchPath(again)
	assert.EqualValues(t, unix.IN_MOVE_SELF|unix.IN_CREATE, asked(t, dir), "what two want is asked for as long as one does")
	s.unwatchPath(filled)
	assert.EqualValues(t, unix.IN_MOVE_SELF, asked(t, dir))

	t.Run("where the path leads elsewhere by now", func(t *testing.T) {
		other := filepath.Join(base, "other")
		require.NoError(t, os.Mkdir(other, 0o700))
		left, extra := watch(link, unix.IN_MOVE_SELF), watch(dir, unix.IN_DELETE)
		s.unwatchPath(moved)
		there := watch(other, unix.IN_ATTRIB)
		require.NoError(t, os.Remove(link))
		require.NoError(t, os.Symlink(other, link))
		s.unwatchPath(extra)
		assert.Zero(t, asked(t, dir), "nobody wants anything of it any more")
		assert.EqualValues(t, unix.IN_ATTRIB|unix.IN_MOVE_SELF, asked(t, other), "who watches the path watches this")
		s.unwatchPath(left)
		assert.EqualValues(t, unix.IN_ATTRIB, asked(t, other))
		s.unwatchPath(there)
		assert.Zero(t, asked(t, other))
	})
	assert.Zero(t, asked(t, dir))
	assert.Empty(t, s.inodes)
	assert.Empty(t, s.paths)
}
