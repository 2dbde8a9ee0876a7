package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestFileModes_ArePrivate checks that only the user can list and enter the directories, and read
// the files in them.
func TestFileModes_ArePrivate(t *testing.T) {
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	d := startDaemon(t)
	s := d.run(t, "private", "echo output; umask >"+d.dir+"/umask; exec sleep 1000")
	s.waitState("running")
	s.awaitFile("umask")
	ended := d.run(t, "over", "exit 0")
	ended.waitState("completed")
	require.NoError(t, s.do("SetDescription", "saved twice"))
	kinds := map[string]int{}
	runtimeDir := filepath.Dir(d.runtimeDir("private"))
	for _, root := range []string{d.dir + "/state/corral", runtimeDir} {
		require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil // a file of the daemon that was replaced or removed in the meantime
			}
			require.NoError(t, err)
			if filepath.Dir(path) == runtimeDir && entry.IsDir() && entry.Name()[0] != '.' &&
				!slices.Contains([]string{"private", "over"}, entry.Name()) {
				return filepath.SkipDir // a session of another test, which may have files of a fake shim
			}
			info, err := entry.Info()
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			require.NoError(t, err)
			want := map[fs.FileMode]fs.FileMode{fs.ModeDir: 0o700, 0: 0o600, fs.ModeSocket: 0o700}[info.Mode().Type()]
			// Write permission is what allows connecting to a socket. Its execute bit has no meaning; tmux
			// sets it while a client is attached.
			assert.Equal(t, want&^0o100, info.Mode().Perm()&^0o100, "%s", path)
			if info.Mode().Type() != fs.ModeSocket {
				assert.Equal(t, want, info.Mode().Perm(), "%s", path)
			}
			kinds[filepath.Base(path)]++
			return nil
		}))
	}
	for _, name := range []string{"session.json", "exit_status", "output.log", "tmux", "shim.sock"} {
		assert.NotZero(t, kinds[name], "%s was not found among %v", name, kinds)
	}
}

// TestUmask_IsInheritedFromTheDaemon checks the umask of agents, which under corrald.service is
// that of the user manager.
func TestUmask_IsInheritedFromTheDaemon(t *testing.T) {
	for _, mask := range []int{0o022, 0o027} {
		t.Run(fmt.Sprintf("%04o", mask), func(t *testing.T) {
			old := syscall.Umask(mask)
			defer syscall.Umask(old)
			d := startDaemon(t)
			s := d.run(t, "masked", "umask >"+d.dir+"/umask.new; mv "+d.dir+"/umask.new "+d.dir+"/umask; exec sleep 1000")
			assert.Equal(t, fmt.Sprintf("%04o", mask), strings.TrimSpace(s.awaitFile("umask")))
			info, err := os.Stat(d.stateDir("masked"))
			require.NoError(t, err)
			assert.Equal(t, os.FileMode(0o700), info.Mode().Perm())
		})
	}
}
