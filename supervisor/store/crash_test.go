package store

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/supervisor/session"
)

// A step is one system call of Save that changes the directory, by what inotify says of it, and how to do it by hand.
type step struct {
	told string
	do   func(t *testing.T, dir string, content []byte)
}

const (
	link = previousName + ".new"
	temp = "." + RecordName + ".new"
)

var saveSteps = []step{
	{"create " + link, func(t *testing.T, dir string, _ []byte) {
		require.NoError(t, os.Link(filepath.Join(dir, RecordName), filepath.Join(dir, link)))
	}},
	{"move " + link + " to " + previousName, func(t *testing.T, dir string, _ []byte) {
		require.NoError(t, os.Rename(filepath.Join(dir, link), filepath.Join(dir, previousName)))
	}},
	{"create " + temp, func(t *testing.T, dir string, _ []byte) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, temp), nil, 0o600))
	}},
	{"", func(t *testing.T, dir string, content []byte) { // a part of it reaches the disk
		require.NoError(t, os.WriteFile(filepath.Join(dir, temp), content[:len(content)/2], 0o600))
	}},
	{"", func(t *testing.T, dir string, content []byte) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, temp), content, 0o600))
	}},
	{"move " + temp + " to " + RecordName, func(t *testing.T, dir string, _ []byte) {
		require.NoError(t, os.Rename(filepath.Join(dir, temp), filepath.Join(dir, RecordName)))
	}},
}

// TestTheStepsOfASave keeps the list above what Save does.
func TestTheStepsOfASave(t *testing.T) {
	s := open(t, t.TempDir())
	dir := saved(t, s, record("shop"), record("shop"))
	var want []string
	for _, st := range saveSteps {
		if st.told != "" {
			want = append(want, st.told)
		}
	}
	assert.Equal(t, want, changesOf(t, dir, func() { require.NoError(t, s.Save(record("shop"), "test")) }))
}

// TestPowerCutsDuringASave: after each step of it, whoever loads gets the old session or the new one, no damage is told, and saving goes on.
func TestPowerCutsDuringASave(t *testing.T) {
	older, old, now, later := record("shop"), record("shop"), record("shop"), record("shop")
	older.Description, old.Description, now.Description, later.Description = "older", "old", "new", "later"
	content, err := encode(now, nil, "test")
	require.NoError(t, err)
	for _, before := range [][]*session.Session{{old}, {older, old}} {
		for steps := range len(saveSteps) + 1 {
			dir := t.TempDir()
			s := open(t, dir)
			sessionDir := saved(t, s, before...)
			for _, st := range saveSteps[:steps] {
				st.do(t, sessionDir, content)
			}
			require.NoError(t, s.Close())
			s = open(t, dir)
			got, damage := loadOne(t, s)
			require.Nil(t, damage, "after %d steps", steps)
			want := old
			if steps == len(saveSteps) {
				want = now
			}
			require.Equal(t, want, got, "after %d steps", steps)
			for range 2 {
				require.NoError(t, s.Save(later, "test"))
				got, damage = loadOne(t, s)
				require.Nil(t, damage)
				require.Equal(t, later, got)
			}
			assert.Equal(t, []string{RecordName, previousName}, namesIn(t, sessionDir), "what was begun is not left over")
		}
	}
}

// TestPowerCutsWhileADamagedRecordIsReplaced: the record that was recovered stays until the new one is there.
func TestPowerCutsWhileADamagedRecordIsReplaced(t *testing.T) {
	before, now := record("shop"), record("shop")
	before.Description = "before"
	content, err := encode(now, nil, "test")
	require.NoError(t, err)
	for steps := range saveSteps {
		dir := t.TempDir()
		s := open(t, dir)
		sessionDir := saved(t, s, before, now)
		require.NoError(t, os.Remove(filepath.Join(sessionDir, RecordName)))
		require.NoError(t, os.WriteFile(filepath.Join(sessionDir, RecordName), nil, 0o600))
		rec, damage := loadOne(t, s)
		require.NotNil(t, damage)
		require.Equal(t, before, rec)
		for i, st := range saveSteps[:steps] {
			if i >= 2 { // there is nothing to keep
				st.do(t, sessionDir, content)
			}
		}
		rec, _ = loadOne(t, s)
		require.Equal(t, before, rec, "after %d steps", steps)
		if steps == 0 {
			told := changesOf(t, sessionDir, func() { require.NoError(t, s.Save(now, "test")) })
			assert.Equal(t, []string{"create " + temp, "move " + temp + " to " + RecordName}, told)
		}
	}
}

// TestPowerCutsDuringACreationOrARemoval: what is left is a session as it was, or none; never half of one, and never one that comes back.
func TestPowerCutsDuringACreationOrARemoval(t *testing.T) {
	t.Run("a creation", func(t *testing.T) {
		s := open(t, t.TempDir())
		require.NoError(t, s.Create("shop"))
		rec, damage := loadOne(t, s)
		assert.Nil(t, rec)
		assert.Nil(t, damage)
	})
	older := record("shop")
	older.Description = "older"
	var removed []string
	t.Run("the steps of a removal", func(t *testing.T) {
		s := open(t, t.TempDir())
		dir := saved(t, s, older, record("shop"))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "output.log"), nil, 0o600))
		removed = changesOf(t, dir, func() { require.NoError(t, s.Remove("shop")) })
		assert.Equal(t, []string{"delete " + previousName, "delete " + RecordName, "delete output.log"}, removed)
		assert.NoDirExists(t, dir)
		require.NoError(t, s.Create("shop"), "the id is free again")
	})
	for steps := range len(removed) + 1 {
		s := open(t, t.TempDir())
		dir := saved(t, s, older, record("shop"))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "output.log"), nil, 0o600))
		for _, told := range removed[:steps] {
			require.NoError(t, os.Remove(filepath.Join(dir, told[len("delete "):])))
		}
		rec, damage := loadOne(t, s)
		assert.Nil(t, damage)
		if steps < 2 {
			assert.Equal(t, record("shop"), rec)
		} else {
			assert.Nil(t, rec)
		}
		require.NoError(t, s.Remove("shop"), "it can be done again")
	}
}

func namesIn(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// changesOf returns what the kernel tells of the names in dir while f runs.
func changesOf(t *testing.T, dir string, f func()) []string {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	require.NoError(t, err)
	defer func() { _ = unix.Close(fd) }()
	_, err = unix.InotifyAddWatch(fd, dir, unix.IN_CREATE|unix.IN_DELETE|unix.IN_MOVE)
	require.NoError(t, err)
	f()
	buf := make([]byte, 64<<10)
	n, err := unix.Read(fd, buf)
	require.NoError(t, err)
	var told []string
	from := ""
	for b := buf[:n]; len(b) >= unix.SizeofInotifyEvent; {
		mask, size := binary.NativeEndian.Uint32(b[4:]), int(binary.NativeEndian.Uint32(b[12:]))
		name := string(bytes.TrimRight(b[unix.SizeofInotifyEvent:unix.SizeofInotifyEvent+size], "\x00"))
		b = b[unix.SizeofInotifyEvent+size:]
		switch {
		case mask&unix.IN_CREATE != 0:
			told = append(told, "create "+name)
		case mask&unix.IN_DELETE != 0:
			told = append(told, "delete "+name)
		case mask&unix.IN_MOVED_FROM != 0:
			from = name
		case mask&unix.IN_MOVED_TO != 0:
			told = append(told, "move "+from+" to "+name)
		}
	}
	return told
}
