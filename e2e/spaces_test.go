//go:build e2e

package e2e

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/testbed/machine"
)

// TestInstalledWhereAPathHasSpaces: somebody's home may be called "/home/Ann Bee". All of it goes there and runs from there, and nothing of it stays.
func TestInstalledWhereAPathHasSpaces(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a place")
	where := []string{"DESTDIR=" + dir, "PREFIX=/opt/Ann Bee", "UNITDIR=/usr/lib/systemd/user"}
	files := func() string {
		out, err := exec.Command("find", dir, "-type", "f").CombinedOutput()
		require.NoError(t, err)
		return string(out)
	}
	assert.Empty(t, makeIn(t, append(where, "install-files")...))

	m := machine.Boot(t, machine.Options{Root: "/"})
	m.Install(dir)
	d := &desk{m, t, m.User("ann")}
	d.do("systemctl", "--user", "daemon-reload")
	d.do("systemctl", "--user", "start", "corrald")
	corralctl := "/opt/Ann Bee/bin/corralctl"
	d.do(corralctl, "run", "--id", "shop", "--", "sleep", "infinity")
	d.do("systemctl", "--user", "start", "corral@shop")
	assert.Contains(t, d.do(corralctl, "doctor"), "/opt/Ann Bee/libexec/corral/corral-shim")

	assert.Empty(t, makeIn(t, append(where, "uninstall")...))
	assert.Empty(t, files())
}
