//go:build e2e || limits

package e2e

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// installed returns a directory with what make install makes.
func installed(t *testing.T) string {
	dir := t.TempDir()
	cmd := exec.Command("make", "--no-print-directory", "install-files", "DESTDIR="+dir, "PREFIX=/usr")
	cmd.Dir = ".."
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.FileExists(t, filepath.Join(dir, "usr/bin/corrald"))
	return dir
}
