package program

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestLastChanged_FollowsEachLink: installers replace the program, a link to it, or a link to the
// directory of a version. What else changes does not count.
func TestLastChanged_FollowsEachLink(t *testing.T) {
	home := t.TempDir()
	at := func(name string) string { return filepath.Join(home, name) }
	require.NoError(t, os.MkdirAll(at("bin"), 0o700))
	for _, version := range []string{"1", "2"} {
		require.NoError(t, os.MkdirAll(at("versions/"+version), 0o700))
		require.NoError(t, os.WriteFile(at("versions/"+version+"/tool"), nil, 0o700))
	}
	link := func(target, name string) {
		t.Helper()
		require.NoError(t, os.Symlink(target, at("new")))
		require.NoError(t, os.Rename(at("new"), at(name)))
	}
	link("1", "versions/current")
	link("../versions/current/tool", "bin/tool")
	link(at("bin"), "path")

	for _, row := range []struct {
		name    string
		do      func()
		changes bool
	}{
		{"the link to the program is replaced", func() { link("../versions/current/./tool", "bin/tool") }, true},
		{"the link to the version is replaced", func() { link("2", "versions/current") }, true},
		{"the program is written", func() {
			require.NoError(t, os.WriteFile(at("versions/2/tool"), []byte("new"), 0o700))
		}, true},
		{"a link in the search path is replaced", func() { link("bin", "path") }, true},
		{"another program is installed", func() { require.NoError(t, os.WriteFile(at("bin/other"), nil, 0o700)) }, false},
		{"another version is removed", func() { require.NoError(t, os.RemoveAll(at("versions/1"))) }, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			before := fileTime(t, at("before"))
			row.do()
			changed, err := LastChanged("path/tool", home)
			require.NoError(t, err)
			assert.Equal(t, row.changes, changed.After(before), "changed at %v, after %v", changed, before)
		})
	}

	_, err := LastChanged(at("bin/none"), "")
	require.ErrorIs(t, err, os.ErrNotExist)
	link("loop", "loop")
	_, err = LastChanged(at("loop"), "")
	require.ErrorIs(t, err, syscall.ELOOP)
}

// fileTime returns the file system's time. It waits until a later change has a later time: file
// systems count in ticks of the kernel.
func fileTime(t *testing.T, path string) time.Time {
	t.Helper()
	read := func() time.Time {
		require.NoError(t, os.WriteFile(path, nil, 0o600))
		require.NoError(t, os.Chmod(path, 0o600))
		changed, err := LastChanged(path, "")
		require.NoError(t, err)
		return changed
	}
	first := read()
	for {
		if now := read(); now.After(first) {
			return first
		}
	}
}
