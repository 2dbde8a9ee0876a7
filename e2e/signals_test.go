//go:build e2e

package e2e

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSignals_FromAnotherUserAreIgnored lets another user send signals to each corrald on the
// system bus, by its unique name: signals that only the login manager may send, and malformed ones.
// No session ends, new ones can start, and root's delay lock stays held; an ordinary user's may be
// refused.
func TestSignals_FromAnotherUserAreIgnored(t *testing.T) {
	onEach(t, func(t *testing.T, d *desk) {
		d.User("bob")
		root := func(args ...string) string {
			t.Helper()
			return strings.TrimSpace(d.Run(append([]string{"env", "XDG_RUNTIME_DIR=/run/user/0",
				"DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/0/bus"}, args...)...))
		}
		d.lingerRoot()
		d.Run("systemctl", "start", "user@0.service")
		d.run("agent", "--", "sleep", "1000")
		root("corralctl", "run", "-q", "--id", "agent", "--", "sleep", "1000")
		lock := func() {
			t.Helper()
			d.Run("timeout", "30", "sh", "-c",
				"until systemd-inhibit --list | grep 'corrald *0 ' | grep -q shutdown:sleep; do sleep 0.05; done")
		}
		lock()
		const daemons = `busctl --system list --no-legend | awk '$1 ~ /^:/ && $3 == "corrald" { print $1 }'`
		const manager = "org.freedesktop.login1.Manager"
		facts := func() []string {
			t.Helper()
			shuttingDown := []string{
				"busctl", "--user", "get-property", "io.github.corrald.Corral1", "/io/github/corrald/Corral1",
				"io.github.corrald.Corral1.Manager", "ShuttingDown",
			}
			show, pid := []string{"corralctl", "show", "-P", "MainPID,State,NRuns,Reason", "agent"}, []string{
				"systemctl", "--user", "show", "-P", "MainPID,NRestarts", "corrald",
			}
			return []string{
				d.do(show...), d.do(pid...), d.do(shuttingDown...), root(show...), root(pid...), root(shuttingDown...),
				d.Run("busctl", "get-property", "org.freedesktop.login1", "/org/freedesktop/login1", manager,
					"PreparingForShutdown"),
				d.As("bob", "sh", "-c", daemons), // each still has the same connection
			}
		}
		before := facts()
		assert.Equal(t, "b false", before[2])
		assert.Equal(t, "b false", before[5])

		for name, emit := range map[string][]string{
			"the machine goes down": {"/org/freedesktop/login1", manager, "PrepareForShutdown", "b", "true"},
			"the machine sleeps":    {"/org/freedesktop/login1", manager, "PrepareForSleep", "b", "true"},
			"the login manager is away": {"/org/freedesktop/DBus", "org.freedesktop.DBus", "NameOwnerChanged", "sss",
				"org.freedesktop.login1", "", ""},
			"keys that are no strings": {"/a", "a.b", "C", "a{bs}", "1", "true", "a"},
		} {
			t.Log(name)
			sent := d.As("bob", append([]string{"sh", "-ec", `
				for to in $(` + daemons + `); do
					busctl --system emit --destination=$to "$@"; echo $to
				done`, "sh"}, emit...)...)
			require.Len(t, strings.Fields(sent), 2, "%s: to each of the two daemons", name)
			for _, run := range []func(...string) string{d.do, root} { // corrald handles these calls after the signals
				run("corralctl", "run", "-q", "--id", "next", "--", "sleep", "1000")
				run("corralctl", "rm", "--force", "next")
			}
			lock()
			assert.Equal(t, before, facts(), name)
		}

		d.PowerOff() // which the login manager itself announces
		d.Boot()
		d.Run("systemctl", "start", "user@0.service")
		assert.Equal(t, "suspended\nthe machine was shut down", root("corralctl", "show", "-P", "State,Reason", "agent"))
	})
}
