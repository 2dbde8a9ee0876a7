//go:build e2e

package e2e

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/corrald/corral/internal/testbed"
)

// TestPresence_FollowsTheDesktop: the file that CLAUDE_CLIENT_PRESENCE_FILE names exists while the
// desktop's session is neither idle nor locked, and not without the desktop or the daemon. A value
// of the user's own is used instead.
func TestPresence_FollowsTheDesktop(t *testing.T) {
	onEach(t, func(t *testing.T, d *desk) {
		d.program("claude", "#!/bin/sh\necho \"the file is $CLAUDE_CLIENT_PRESENCE_FILE\"\nexec sleep infinity\n")
		named := func(id string) string {
			t.Helper()
			var name string
			testbed.Poll(t, "the agent has printed its variable", func() bool {
				_, after, found := strings.Cut(d.do("corralctl", "peek", id), "the file is ")
				name = strings.TrimSpace(after)
				return found
			})
			return name
		}
		d.run("one", "claude")
		file := named("one")
		present := func(is bool, when string) {
			t.Helper()
			testbed.Poll(t, when, func() bool {
				_, code := d.try("test", "-e", file)
				return (code == 0) == is
			})
		}
		// As the desktop does, from within its session.
		hint := func(name, value string) {
			t.Helper()
			id := strings.Fields(d.Run("sh", "-c", "loginctl --no-legend list-sessions | grep -v manager | grep ann"))[0]
			session := d.Run("busctl", "call", "org.freedesktop.login1", "/org/freedesktop/login1",
				"org.freedesktop.login1.Manager", "GetSession", "s", id)
			path := strings.Trim(strings.Fields(session)[1], `"`)
			d.do("busctl", "call", "org.freedesktop.login1", path, "org.freedesktop.login1.Session", name, "b", value)
		}
		present(false, "nobody has logged in")
		logout := d.loginOnDesktop()
		d.Run("timeout", "30", "sh", "-c",
			"until loginctl --no-legend list-sessions | grep -v manager | grep -q ann; do sleep 0.05; done")
		hint("SetIdleHint", "true")
		hint("SetIdleHint", "false")
		present(true, "the desktop is not idle any more")
		hint("SetIdleHint", "true")
		present(false, "it is idle")
		hint("SetIdleHint", "false")
		present(true, "it is in use again")
		hint("SetLockedHint", "true")
		present(false, "it is locked")
		hint("SetLockedHint", "false")
		present(true, "it is unlocked")

		d.do("systemctl", "--user", "stop", "corrald")
		present(false, "the daemon was stopped")
		d.do("systemctl", "--user", "start", "corrald")
		present(true, "it was started again")
		d.Run("systemctl", "restart", "systemd-logind")
		present(false, "a new login manager does not know whether the desktop sets hints")
		hint("SetIdleHint", "true")
		hint("SetIdleHint", "false")
		present(true, "the desktop sets them")
		logout()
		present(false, "the user has logged out")

		d.run("two", "-E", "CLAUDE_CLIENT_PRESENCE_FILE=/home/ann/mine", "claude")
		assert.Equal(t, "/home/ann/mine", named("two"))
		d.do("sh", "-ec", `mkdir -p .config/environment.d; echo CLAUDE_CLIENT_PRESENCE_FILE=/home/ann/ours >.config/environment.d/a.conf
			systemctl --user daemon-reload`)
		d.run("three", "claude")
		assert.Equal(t, "/home/ann/ours", named("three"))
	})
}
