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

// requestedEvents returns the events that the process's inotify instances request for the inode at
// path, 0 if it is not watched: see proc_pid_fdinfo(5).
func requestedEvents(t *testing.T, path string) uint32 {
	t.Helper()
	var st unix.Stat_t
	require.NoError(t, unix.Stat(path, &st))
	infos, err := filepath.Glob("/proc/self/fdinfo/*")
	require.NoError(t, err)
	watch := regexp.MustCompile(fmt.Sprintf(`(?m)^inotify wd:\S+ ino:%x sdev:\S+ mask:(\S+)`, st.Ino))
	for _, info := range infos {
		text, _ := os.ReadFile(info) // the descriptor with which the directory was listed is closed
		if found := watch.FindSubmatch(text); found != nil {
			var mask uint32
			_, err := fmt.Sscanf(string(found[1]), "%x", &mask)
			require.NoError(t, err)
			return mask & unix.IN_ALL_EVENTS
		}
	}
	return 0
}

// The masks are those that the kernel reports.
func TestWatchPath_RequestsOnlyNeededEvents(t *testing.T) {
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
		var rewatch func()
		rewatch = func() {
			s.unwatchPath(number)
			var err error
			*number, err = s.watchPath(path, mask, func(inotify.Event) {}, rewatch)
			require.NoError(t, err)
		}
		rewatch()
		return number
	}

	moved := watch(dir, unix.IN_MOVE_SELF|unix.IN_ONLYDIR)
	created := watch(link, unix.IN_CREATE)
	createdOrDeleted := watch(dir, unix.IN_CREATE|unix.IN_DELETE)
	assert.EqualValues(t, unix.IN_MOVE_SELF|unix.IN_CREATE|unix.IN_DELETE, requestedEvents(t, dir))
	s.unwatchPath(createdOrDeleted)
	assert.EqualValues(t, unix.IN_MOVE_SELF|unix.IN_CREATE, requestedEvents(t, dir), "the other watch needs IN_CREATE")
	s.unwatchPath(created)
	assert.EqualValues(t, unix.IN_MOVE_SELF, requestedEvents(t, dir))

	t.Run("the path leads to another directory by now", func(t *testing.T) {
		other := filepath.Join(base, "other")
		require.NoError(t, os.Mkdir(other, 0o700))
		linked, extra := watch(link, unix.IN_MOVE_SELF), watch(dir, unix.IN_DELETE)
		s.unwatchPath(moved)
		attributes := watch(other, unix.IN_ATTRIB)
		require.NoError(t, os.Remove(link))
		require.NoError(t, os.Symlink(other, link))
		s.unwatchPath(extra)
		assert.Zero(t, requestedEvents(t, dir), "it is not watched any more")
		assert.EqualValues(t, unix.IN_ATTRIB|unix.IN_MOVE_SELF, requestedEvents(t, other), "the watch has followed its path")
		s.unwatchPath(linked)
		assert.EqualValues(t, unix.IN_ATTRIB, requestedEvents(t, other))
		s.unwatchPath(attributes)
		assert.Zero(t, requestedEvents(t, other))
	})
	assert.Zero(t, requestedEvents(t, dir))
	assert.Empty(t, s.inodes)
	assert.Empty(t, s.paths)
}
