//go:build e2e

package e2e

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// slow is an agent that needs five seconds to save.
const slow = `#!/bin/sh
trap 'sleep 5; echo saved >> $HOME/saved-$1; exit 0' TERM
> $HOME/ready-$1
while :; do sleep 0.1; done
`

// TestUserExit stops the user's manager as its user. logind would restart a lingering user's
// manager; here the test does it.
func TestUserExit(t *testing.T) {
	onEach(t, func(t *testing.T, d *desk) {
		startSavers(d)
		uid := d.do("id", "-u")
		d.do("systemctl", "--user", "exit")
		d.gone("user@" + uid + ".service")
		d.Run("systemctl", "start", "user@"+uid+".service")
		checkReturned(t, d)
		d.saved("resumed", "fresh", "left")
		assert.Equal(t, `s "the login session ended"`, d.property("left", "Reason"))
	})
}

// TestTerminateUser ends all processes of the user as an administrator.
func TestTerminateUser(t *testing.T) {
	onEach(t, func(t *testing.T, d *desk) {
		startSavers(d)
		uid := d.do("id", "-u")
		d.Run("loginctl", "disable-linger", d.user)
		// The user may have no processes by then.
		d.Run("sh", "-c", "loginctl terminate-user "+d.user+" 2>/dev/null || :")
		d.gone("user@" + uid + ".service")
		d.User(d.user)
		checkReturned(t, d)
		d.saved("resumed", "fresh", "left")
	})
}

// TestLastLogout checks that the last logout stops all agents gracefully without lingering, and
// changes nothing with lingering.
func TestLastLogout(t *testing.T) {
	onEach(t, func(t *testing.T, d *desk) {
		setUserStopDelay(d.Machine, 1)
		startSavers(d)
		uid, pid := d.do("id", "-u"), d.pid("left")
		manager := "user@" + uid + ".service"

		logout := d.login()
		logout()
		assert.Equal(t, pid, d.pid("left"), "a lingering user may log out")

		logout = d.login()
		d.Run("loginctl", "disable-linger", d.user)
		assert.Equal(t, pid, d.pid("left"), "the login session holds the manager")
		logout()
		d.gone(manager)
		d.saved("resumed", "fresh", "left")

		logout = d.login()
		checkReturned(t, d)
		logout()
		d.gone(manager)
	})
}

// TestPowerOff_WaitsForSlowAgent checks that an agent has its full stop timeout at poweroff,
// however long logind waits.
func TestPowerOff_WaitsForSlowAgent(t *testing.T) {
	onEach(t, func(t *testing.T, d *desk) {
		agent := d.write("slow", slow)
		d.do("systemctl", "--user", "enable", "corrald")
		d.run("slow", "--", agent, "slow")
		d.waitFile("/home/ann/ready-slow")
		d.PowerOff()
		d.Boot()
		d.User(d.user)
		d.saved("slow")
		assert.True(t, strings.HasPrefix(d.result("slow"), "suspended | success | 1 | 0 | "), d.result("slow"))
	})
}

// login opens a login session of the user, as a terminal or ssh would, and returns a function that
// ends it.
func (d *desk) login() (logout func()) {
	d.t.Helper()
	uid := d.do("id", "-u")
	d.Run("systemd-run", "--quiet", "--collect", "--unit=login", "--property=PAMName=login", "--property=User="+d.user,
		"--property=StandardInput=null", "--setenv=XDG_SESSION_TYPE=tty", "--setenv=XDG_SESSION_CLASS=user",
		"sleep", "infinity")
	d.Run("timeout", "30", "sh", "-c",
		"until loginctl --no-legend list-sessions | grep -v manager | grep -q "+d.user+"; do sleep 0.05; done")
	d.Run("timeout", "30", "sh", "-c", "until systemctl is-active --quiet user@"+uid+"; do sleep 0.05; done")
	return func() {
		d.t.Helper()
		d.Run("systemctl", "stop", "login.service")
		d.Run("timeout", "30", "sh", "-c",
			"while loginctl --no-legend list-sessions | grep -v manager | grep -q "+d.user+"; do sleep 0.05; done")
	}
}

// gone waits until a system unit is inactive or failed.
func (d *desk) gone(unit string) {
	d.t.Helper()
	cmd := d.Command("root", "timeout", "30", "sh", "-c", `while [ "$(systemctl show -P ActiveState "$1")" != inactive ] && [ "$(systemctl show -P ActiveState "$1")" != failed ]; do sleep 0.05; done`, "sh", unit)
	out, err := cmd.CombinedOutput()
	require.NoError(d.t, err, "%s is still there: %s", unit, out)
}

// saved checks that each agent has saved exactly once.
func (d *desk) saved(ids ...string) {
	d.t.Helper()
	for _, id := range ids {
		assert.Equal(d.t, "saved", strings.TrimSpace(d.Run("cat", "/home/ann/saved-"+id)), "session %s", id)
	}
}
