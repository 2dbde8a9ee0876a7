//go:build e2e

package e2e

import (
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/testbed/machine"
)

// packaged returns a directory in which root/VERSION.deb are packages of two versions.
func packaged(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, version := range []string{"1.0", "1.1"} {
		out, err := exec.Command("../scripts/dist.sh", version, filepath.Join(dir, "root", version), "deb").CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	return dir
}

// Installed, upgraded and removed as a Debian package, with agents running: none of them notices.
func TestDebianPackage(t *testing.T) {
	packages := packaged(t)
	said, err := exec.Command("lintian", "--fail-on=error,warning", "--allow-root", filepath.Join(packages, "root/1.0/corral_1.0_"+runtime.GOARCH+".deb")).CombinedOutput()
	require.NoError(t, err, "lintian: %s", said)
	for _, suite := range []string{"bookworm", "trixie"} {
		t.Run(suite, func(t *testing.T) {
			m := machine.Boot(t, machine.Options{Root: machine.Debian(t, suite)})
			d := &desk{m, t, m.User("ann")}
			m.Install(packages)
			dpkg := func(args ...string) string {
				t.Helper()
				return m.Run(append([]string{"sh", "-c", `exec dpkg "$@" 2>&1`, "dpkg"}, args...)...)
			}
			dpkg("--install", "/root/1.0/corral_1.0_"+runtime.GOARCH+".deb")
			assert.Equal(t, "enabled", d.do("systemctl", "--user", "is-enabled", "corrald"))
			d.run("agent", "--", "sleep", "1000") // activation starts the daemon
			d.run("review", "--no-start", "--", "sleep", "1000")
			d.do("systemctl", "--user", "start", "corral@review")
			assert.Contains(t, d.do("corralctl", "version"), "1.0")
			before, pid := d.life("agent", "review"), d.daemon("")

			dpkg("--install", "/root/1.1/corral_1.1_"+runtime.GOARCH+".deb")
			d.daemon(pid)
			assert.Equal(t, before, d.life("agent", "review"), "an upgrade")
			assert.Contains(t, d.do("corralctl", "version"), "1.1")
			assert.Equal(t, "active", d.do("systemctl", "--user", "is-active", "corral@review"))

			agent := d.pid("agent")
			said := dpkg("--remove", "corral")
			assert.Contains(t, said, "Agents that run go on")
			assert.Equal(t, "sleep", strings.TrimSpace(m.Run("cat", "/proc/"+agent+"/comm")), "an agent goes on after a removal")
			state, _ := d.try("systemctl", "--user", "is-active", "corrald")
			assert.Equal(t, "inactive", state)

			dpkg("--install", "/root/1.1/corral_1.1_"+runtime.GOARCH+".deb")
			assert.Equal(t, before, d.life("agent", "review"), "and is taken over when it is installed again")
			dpkg("--purge", "corral")
			m.Run("sh", "-c", "! find /usr /etc /var/lib/systemd -name '*corral*' | grep .")
		})
	}
}
