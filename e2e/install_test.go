//go:build e2e || limits

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// tree is the result of make install, which runs once, for all tests.
var tree struct {
	sync.Mutex
	dir      string
	complete bool
}

// installed returns a directory with the result of make install. Nothing may write to it.
func installed(t *testing.T) string {
	tree.Lock()
	defer tree.Unlock()
	if !tree.complete {
		makeIn(t, "install-files", "DESTDIR="+tree.dir, "PREFIX=/usr")
		require.FileExists(t, filepath.Join(tree.dir, "usr/bin/corrald"))
		tree.complete = true
	}
	return tree.dir
}

// installedFrom returns a directory with the result of make install in a commit of this checkout's
// history, whose version is that commit.
func installedFrom(t *testing.T, commit string) string {
	t.Helper()
	source, tree := t.TempDir(), t.TempDir()
	cmd := exec.Command("bash", "-ec", `set -o pipefail
		git -C .. archive "$1" | tar -x -C "$2"
		make --no-print-directory -C "$2" install BUILD="$2/build" VERSION="0.0.0+git$1" DESTDIR="$3" PREFIX=/usr`,
		"bash", commit, source, tree)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return tree
}

func TestMain(m *testing.M) {
	if os.Getuid() != 0 {
		fmt.Fprintln(os.Stderr, "these tests boot machines, which needs root: sudo make e2e")
		os.Exit(1)
	}
	dir, err := os.MkdirTemp("", "corral-e2e.")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	tree.dir = filepath.Join(dir, "tree")
	status := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(status)
}

// makeIn runs make in the source tree and returns its output.
func makeIn(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command("make", append([]string{"--no-print-directory"}, args...)...)
	cmd.Dir = ".."
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}
