//go:build e2e

package e2e

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// lifeProperties are the properties of a session that must not change when the daemon restarts.
var lifeProperties = []string{
	"State", "MainPID", "NRuns", "ExecMainStartTimestamp", "ControlGroup", "SessionAlive", "Result", "Reason",
}

func (d *desk) life(ids ...string) map[string]string {
	d.t.Helper()
	all := map[string]string{}
	for _, id := range ids {
		for _, name := range lifeProperties {
			all[id+" "+name] = d.property(id, name)
		}
	}
	return all
}

// daemon waits for a corrald with another PID than before and returns its PID. After the bus was
// killed, systemd may hang for a minute and a half, while it waits for a reply from the bus that it
// would have to start.
func (d *desk) daemon(before string) string {
	d.t.Helper()
	out, code := d.try("timeout", "150", "sh", "-c", `while
		pid=$(systemctl --user show -P MainPID corrald); [ "$pid" = "$1" ] || [ "$pid" = 0 ] || ! systemctl --user is-active --quiet corrald
	do sleep 0.05; done; echo $pid`, "sh", before)
	require.Zero(d.t, code, "corrald does not come back: %s", out)
	return out
}

// TestDaemon_AdoptsAfterRestart checks that agents are not affected by restarts of the daemon, and
// that it adopts them again. A restarted daemon does not start sessions that are to start at login;
// the test has such a session, which has ended.
func TestDaemon_AdoptsAfterRestart(t *testing.T) {
	onEach(t, func(t *testing.T, d *desk) {
		startSavers(d)
		d.run("once", "--on-login", "start", "--", "sh", "-c", "exit 4")
		d.until("once", "failed")
		before := d.life("resumed", "fresh", "left", "once")
		pid := d.daemon("")
		for _, event := range []struct{ name, script string }{
			{"restart", "systemctl --user restart corrald"},
			{"stop and start", "systemctl --user stop corrald; systemctl --user start corrald"},
			{"crash", "kill -KILL $(systemctl --user show -P MainPID corrald)"},
			{"reexec, then restart", "systemctl --user daemon-reexec; systemctl --user restart corrald"},
		} {
			d.try("sh", "-c", event.script) // systemctl may lose its own connection
			pid = d.daemon(pid)
			assert.Equal(t, before, d.life("resumed", "fresh", "left", "once"), event.name)
		}

		// An upgrade as a package does it: new files with the same names, then a restart.
		for _, program := range []string{"/usr/bin/corrald", "/usr/bin/corralctl", "/usr/libexec/corral/corral-shim"} {
			d.Run("sh", "-ec", `cp "$1" "$1.new"; printf x >> "$1.new"; mv "$1.new" "$1"`, "sh", program)
		}
		d.do("systemctl", "--user", "restart", "corrald")
		pid = d.daemon(pid)
		exe := d.Run("readlink", "/proc/"+pid+"/exe")
		assert.Equal(t, "/usr/bin/corrald", strings.TrimSpace(exe))
		assert.Equal(t, before, d.life("resumed", "fresh", "left", "once"), "upgrade")

		for _, id := range []string{"resumed", "fresh", "left"} {
			d.do("corralctl", "stop", id)
			assert.Equal(t, "stopped | success | 1 | 7 | ", d.result(id), "it is still watched")
		}
		d.saved("resumed", "fresh", "left")
	})
}

// TestDelayLock checks that the daemon holds logind's delay lock while agents run, and that they
// are suspended before the shutdown begins. Root may take the lock without a polkit rule.
func TestDelayLock(t *testing.T) {
	onEach(t, func(t *testing.T, d *desk) {
		agent := d.write("saver", saver)
		d.run("refused", "--", agent, "refused")
		d.waitFile("/home/ann/ready-refused")

		root := func(args ...string) string {
			t.Helper()
			return strings.TrimSpace(d.Run(append([]string{"env", "XDG_RUNTIME_DIR=/run/user/0",
				"DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/0/bus"}, args...)...))
		}
		locks := func() string { return d.Run("systemd-inhibit", "--list", "--no-pager", "--no-legend") }
		d.lingerRoot()
		d.Run("systemctl", "start", "user@0.service")
		root("corralctl", "run", "-q", "--id", "idle", "--no-start", "--", agent, "held")
		require.NotContains(t, locks(), "root 0", "nobody to wait for")
		root("corralctl", "start", "idle")
		d.Run("timeout", "30", "sh", "-c",
			"until systemd-inhibit --list | grep corrald | grep -q shutdown; do sleep 0.05; done")
		root("corralctl", "stop", "idle")
		d.Run("timeout", "30", "sh", "-c", "while systemd-inhibit --list | grep -q 'corrald *0 '; do sleep 0.05; done")
		d.Run("rm", "-f", "/root/saved-held", "/root/ready-held")
		root("corralctl", "start", "idle")
		d.Run("timeout", "30", "sh", "-c",
			"until [ -e /root/ready-held ] && systemd-inhibit --list | grep -q 'corrald *0 '; do sleep 0.05; done")
		assert.Contains(t, locks(), "Agents save their work")

		d.PowerOff()
		d.Boot()
		d.Run("systemctl", "start", "user@0.service")
		assert.Equal(t, "suspended", root("corralctl", "show", "-P", "State", "idle"))
		assert.Equal(t, "the machine was shut down", root("corralctl", "show", "-P", "Reason", "idle"))
		assert.Equal(t, "saved", strings.TrimSpace(d.Run("cat", "/root/saved-held")))
		d.User(d.user)
		d.saved("refused") // with or without a lock of its own
		assert.Equal(t, `s "suspended"`, d.property("refused", "State"))
	})
}

// TestShutdown_CancelledResumesSessions makes a shutdown fail after logind has announced it: the
// suspended sessions have to run again.
func TestShutdown_CancelledResumesSessions(t *testing.T) {
	onEach(t, func(t *testing.T, d *desk) {
		d.run("wanted", "--", "bash", "--norc", "-i")
		d.run("stopped", "--", "sleep", "1000")
		d.do("corralctl", "stop", "stopped")
		before := d.pid("wanted")
		d.Run("sh", "-ec", `mkdir -p /run/systemd/system/poweroff.target.d
			printf '[Unit]\nRefuseManualStart=yes\n' >/run/systemd/system/poweroff.target.d/refuse.conf; systemctl daemon-reload`)
		// Corrald's own lock may be refused.
		d.Run("systemd-run", "--collect", "systemd-inhibit", "--what=shutdown", "--mode=delay", "sleep", "1000")
		d.Run("timeout", "30", "sh", "-c", "until systemd-inhibit --list | grep -q sleep; do sleep 0.05; done")
		d.Run("busctl", "call", "org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager",
			"PowerOff", "b", "false")
		d.Run("timeout", "30", "sh", "-c", "while [ -d /proc/$1 ]; do sleep 0.05; done", "sh", before)
		d.until("wanted", "suspended")
		output, _ := d.try("corralctl", "run", "--", "sleep", "1000")
		assert.Contains(t, output, "the machine is shutting down")
		d.do("timeout", "30", "sh", "-c", `until [ "$(corralctl show -P State wanted)" = running ]; do sleep 0.05; done`)
		assert.Equal(t, "u 2", d.property("wanted", "NRuns"))
		assert.NotEqual(t, before, d.pid("wanted"))
		assert.Equal(t, "u 1", d.property("stopped", "NRuns"))
		d.run("new", "--", "sleep", "1000")
	})
}
