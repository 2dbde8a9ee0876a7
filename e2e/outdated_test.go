//go:build e2e

package e2e

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/testbed"
)

// installClaude installs a version of a program in place of Claude Code, as its native installer
// does: a new file, a symbolic link to it that is renamed over the old one, and no older versions.
// The program is a server that exits with 69 if it cannot reach its vendor.
const installClaude = `set -e
mkdir -p ~/.local/bin ~/.local/share/claude/versions
cat >~/.local/share/claude/versions/$1 <<EOF
#!/bin/sh
[ -e ~/network ] || exit 69
echo "version $1: \$*"
exec sleep infinity
EOF
chmod 755 ~/.local/share/claude/versions/$1
ln -s ~/.local/share/claude/versions/$1 ~/.local/bin/claude.new
sleep 0.3 # systemd reports the first change before the last one
mv -T ~/.local/bin/claude.new ~/.local/bin/claude
find ~/.local/share/claude/versions -type f ! -name $1 -delete
`

// TestOutdated_IsRestartedOnceUnused runs the example of corral@.service(5) literally. Its server
// is started again while it cannot reach its vendor. After an update it is restarted: at once, or
// once nobody is attached to it; also after a reboot, and not for another change in the directory
// of its program.
func TestOutdated_IsRestartedOnceUnused(t *testing.T) {
	onEach(t, func(t *testing.T, d *desk) {
		install := func(version string) { t.Helper(); d.do("sh", "-c", installClaude, "sh", version) }
		runs := func(version, n, when string) {
			t.Helper()
			d.do("timeout", "60", "sh", "-c", `until corralctl peek remote 2>&1 | grep -qx "$1"; do sleep 0.05; done`,
				"sh", "version "+version+": remote-control --name remote")
			assert.Equal(t, "u "+n, d.property("remote", "NRuns"), when)
		}
		service := func(state string) {
			t.Helper()
			d.do("timeout", "30", "sh", "-c",
				`until systemctl --user is-active corral-restart@remote.service | grep -qx "$1"; do sleep 0.05; done`, "sh", state)
		}
		started := func() string {
			t.Helper()
			return d.do("systemctl", "--user", "show", "-P", "InactiveExitTimestampMonotonic", "corral-restart@remote.service")
		}
		d.do("sh", "-ec", `mkdir -p src/shop .config/corral .config/environment.d .config/systemd/user/corral@remote.service.d
			printf '[Corral]\nIdleAfterSec=200ms\n' >.config/corral/corral.conf
			printf '[Service]\nRestartSec=200ms\n' >.config/systemd/user/corral@remote.service.d/soon.conf
			echo 'PATH=$HOME/.local/bin:/usr/local/bin:/usr/bin:/bin' >.config/environment.d/path.conf
			systemctl --user daemon-reload; systemctl --user restart corrald`)
		install("1")
		script := exampleOf(t, "A server for remote control").script()
		linger := "\ncorralctl linger on\n"
		require.Contains(t, script, linger)
		if !d.polkit() { // without polkit only root can enable lingering, which the test bed has done
			script = strings.Replace(script, linger, "\n", 1)
		}
		// The service fails at first, and enable reports that.
		script = strings.Replace(script, "\nsystemctl --user enable --now ", "\nsystemctl --user enable --now --no-block ", 1)
		d.do("bash", "-c", "PATH=$HOME/.local/bin:$PATH\n"+script)
		testbed.Poll(t, "the server was started again", func() bool {
			restarts := d.do("systemctl", "--user", "show", "-P", "NRestarts", "corral@remote")
			return restarts != "0" && restarts != "1"
		})
		d.do("touch", "network")
		d.until("remote", "idle")
		first := d.property("remote", "NRuns")
		n := func(more int) string {
			t.Helper()
			before, err := strconv.Atoi(strings.TrimPrefix(first, "u "))
			require.NoError(t, err)
			return strconv.Itoa(before + more)
		}
		runs("1", n(0), "at first")

		install("2")
		runs("2", n(1), "after an update while nobody is attached")
		service("inactive")

		d.do("tmux", "-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", "corralctl attach remote")
		testbed.Poll(t, "it is attached", func() bool { return d.property("remote", "Attached") == "b true" })
		install("3")
		service("activating")
		install("4") // while the service waits already
		d.until("remote", "idle")
		runs("2", n(1), "while somebody is attached")
		d.do("tmux", "kill-server")
		runs("4", n(2), "once nobody is attached")
		service("inactive")

		before := started()
		d.do("touch", ".local/bin/other")
		testbed.Poll(t, "the service has examined the program", func() bool { return started() != before })
		service("inactive")
		runs("4", n(2), "after another program was installed")
		assert.Equal(t, "active", d.do("systemctl", "--user", "is-active", "corral@remote"), "it has followed the restarts")

		d.PowerOff()
		d.Boot()
		d.User(d.user)
		d.do("timeout", "60", "sh", "-c", "until systemctl --user is-active --quiet corral@remote; do sleep 0.05; done")
		runs("4", n(3), "after a reboot")
		testbed.Poll(t, "the directory is watched", func() bool {
			_, code := d.try("systemctl", "--user", "is-active", "corral-restart@remote.path")
			return code == 0
		})
		install("5")
		runs("5", n(4), "after an update that follows a reboot")

		service("inactive")
		d.do("corralctl", "stop", "remote")
		before = started()
		install("6")
		testbed.Poll(t, "the service has examined the session", func() bool { return started() != before })
		service("inactive")
		assert.Equal(t, `s "stopped"`, d.property("remote", "State"), "a session that was stopped is not started")
		assert.Empty(t, d.do("systemctl", "--user", "list-units", "--failed", "--no-legend", "corral*"))
	})
}
