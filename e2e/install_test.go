//go:build e2e || limits

package e2e

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// installed returns a directory with the result of make install.
func installed(t *testing.T) string {
	dir := t.TempDir()
	makeIn(t, "install-files", "DESTDIR="+dir, "PREFIX=/usr")
	require.FileExists(t, filepath.Join(dir, "usr/bin/corrald"))
	return dir
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
