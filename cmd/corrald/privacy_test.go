package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestFileModes_ArePrivate: directories are the user's alone, so that nobody else can list or reach
// what is in them, and so are the files in them.
func TestFileModes_ArePrivate(t *testing.T) {
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	d := startDaemon(t)
	s := d.run(t, "private", "echo output; umask >"+d.dir+"/umask; exec sleep 1000")
	s.become("running")
	s.file("umask")
	ended := d.run(t, "over", "exit 0")
	ended.become("completed")
	require.NoError(t, s.do("SetDescription", "saved twice"))
	kinds := map[string]int{}
	for _, root := range []string{d.dir + "/state/corral", filepath.Dir(d.runtimeDir("x"))} {
		require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			require.NoError(t, err)
			info, err := entry.Info()
			require.NoError(t, err)
			want := map[fs.FileMode]fs.FileMode{fs.ModeDir: 0o700, 0: 0o600, fs.ModeSocket: 0o700}[info.Mode().Type()]
			// A socket is used by who may write to it. Its execute bit means nothing, and is set by tmux for
			// a session that somebody is attached to.
			assert.Equal(t, want&^0o100, info.Mode().Perm()&^0o100, "%s", path)
			if info.Mode().Type() != fs.ModeSocket {
				assert.Equal(t, want, info.Mode().Perm(), "%s", path)
			}
			kinds[filepath.Base(path)]++
			return nil
		}))
	}
	for _, name := range []string{"session.json", "exit_status", "output.log", "tmux", "shim.sock"} {
		assert.NotZero(t, kinds[name], "%s was looked at: %v", name, kinds)
	}
}

// TestUmask_IsInheritedFromTheDaemon, which in a service is the one that the user manager gives to
// everything.
func TestUmask_IsInheritedFromTheDaemon(t *testing.T) {
	for _, mask := range []int{0o022, 0o027} {
		t.Run(fmt.Sprintf("%04o", mask), func(t *testing.T) {
			old := syscall.Umask(mask)
			defer syscall.Umask(old)
			d := startDaemon(t)
			s := d.run(t, "masked", "umask >"+d.dir+"/umask.new; mv "+d.dir+"/umask.new "+d.dir+"/umask; exec sleep 1000")
			assert.Equal(t, fmt.Sprintf("%04o", mask), strings.TrimSpace(s.file("umask")))
			info, err := os.Stat(d.stateDir("masked"))
			require.NoError(t, err)
			assert.Equal(t, os.FileMode(0o700), info.Mode().Perm())
		})
	}
}
