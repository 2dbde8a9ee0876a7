package sources

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

// newFiles returns Files that watch inodes only.
func newFiles(in Inotify) *Files {
	f := NewFiles()
	f.SetWatchers(in, nil)
	return f
}

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
func TestFiles_RequestsOnlyNeededEvents(t *testing.T) {
	in, err := inotify.New()
	require.NoError(t, err)
	defer func() { _ = in.Close() }()
	f := newFiles(in)
	base := t.TempDir()
	dir, link := filepath.Join(base, "dir"), filepath.Join(base, "link")
	require.NoError(t, os.Mkdir(dir, 0o700))
	require.NoError(t, os.Symlink(dir, link))
	watch := func(path string, mask uint32) *int32 {
		t.Helper()
		number := new(int32)
		var rewatch func()
		rewatch = func() {
			f.Unwatch(number)
			var err error
			*number, err = f.Watch(path, mask, func(inotify.Event) {}, rewatch)
			require.NoError(t, err)
		}
		rewatch()
		return number
	}

	moved := watch(dir, unix.IN_MOVE_SELF|unix.IN_ONLYDIR)
	created := watch(link, unix.IN_CREATE)
	createdOrDeleted := watch(dir, unix.IN_CREATE|unix.IN_DELETE)
	assert.EqualValues(t, unix.IN_MOVE_SELF|unix.IN_CREATE|unix.IN_DELETE, requestedEvents(t, dir))
	f.Unwatch(createdOrDeleted)
	assert.EqualValues(t, unix.IN_MOVE_SELF|unix.IN_CREATE, requestedEvents(t, dir), "the other watch needs IN_CREATE")
	f.Unwatch(created)
	assert.EqualValues(t, unix.IN_MOVE_SELF, requestedEvents(t, dir))

	t.Run("the path leads to another directory by now", func(t *testing.T) {
		other := filepath.Join(base, "other")
		require.NoError(t, os.Mkdir(other, 0o700))
		linked, extra := watch(link, unix.IN_MOVE_SELF), watch(dir, unix.IN_DELETE)
		f.Unwatch(moved)
		attributes := watch(other, unix.IN_ATTRIB)
		require.NoError(t, os.Remove(link))
		require.NoError(t, os.Symlink(other, link))
		f.Unwatch(extra)
		assert.Zero(t, requestedEvents(t, dir), "it is not watched any more")
		assert.EqualValues(t, unix.IN_ATTRIB|unix.IN_MOVE_SELF, requestedEvents(t, other), "the watch has followed its path")
		f.Unwatch(linked)
		assert.EqualValues(t, unix.IN_ATTRIB, requestedEvents(t, other))
		f.Unwatch(attributes)
		assert.Zero(t, requestedEvents(t, other))
	})
	assert.Zero(t, requestedEvents(t, dir))
	assert.Empty(t, f.inodes)
	assert.Empty(t, f.watches)
}

// simulated is an Inotify that numbers the watches by path.
type simulated struct{ numbers map[string]int32 }

func (s *simulated) Add(path string, _ uint32) (int32, error) {
	if s.numbers[path] == 0 {
		s.numbers[path] = int32(len(s.numbers) + 1)
	}
	return s.numbers[path], nil
}

func (s *simulated) Remove(int32)            {}
func (s *simulated) Run(func(inotify.Event)) {}
func (s *simulated) Close() error            { return nil }

func TestFiles_PassEventsToTheWatchesThatTheyAreFor(t *testing.T) {
	f := NewFiles()
	_, err := f.Watch("/dir", unix.IN_CREATE, nil, nil)
	require.ErrorIs(t, err, ErrNoInotify)
	assert.Nil(t, f.Inotify())
	in := &simulated{numbers: map[string]int32{}}
	f.SetWatchers(in, nil)
	var events []string
	var removed, created int32
	record := func(name string) func(inotify.Event) {
		return func(ev inotify.Event) { events = append(events, name+" "+ev.Name) }
	}
	rewatched := 0
	removed, err = f.Watch("/dir", unix.IN_DELETE|unix.IN_ONLYDIR, func(ev inotify.Event) {
		record("removed")(ev)
		f.Unwatch(&created)
	}, func() { rewatched++ })
	require.NoError(t, err)
	created, err = f.Watch("/dir", unix.IN_CREATE|unix.IN_DELETE, record("created"), func() { rewatched++ })
	require.NoError(t, err)
	other, err := f.Watch("/other", unix.IN_CREATE, record("other"), func() { rewatched++ })
	require.NoError(t, err)
	event := func(path string, mask uint32, name string) bool {
		return f.Handle(inotify.Event{Watch: in.numbers[path], Mask: mask, Name: name})
	}

	assert.False(t, event("/dir", unix.IN_CREATE, "a"))
	assert.False(t, event("/other", unix.IN_CREATE, "b"))
	assert.False(t, event("/other", unix.IN_DELETE, "b"))
	assert.False(t, event("/unknown", unix.IN_CREATE, "c"))
	assert.Equal(t, []string{"created a", "other b"}, events)
	events = nil

	assert.True(t, f.Handle(inotify.Event{Watch: -1, Mask: unix.IN_Q_OVERFLOW}))
	assert.Empty(t, events, "the caller examines everything")

	event("/dir", unix.IN_DELETE, "a")
	assert.Equal(t, []string{"removed a"}, events, "the first function has ended the second watch")
	assert.Zero(t, created)
	assert.Equal(t, 1, rewatched, "the first watch no longer gets events: IN_CREATE is not needed any more")
	event("/other", unix.IN_IGNORED, "")
	f.Unwatch(&other) // its inotify watch has ended before
	f.Unwatch(&removed)
	f.Unwatch(&removed)
	assert.Empty(t, f.watches)
	assert.Empty(t, f.inodes)
}
