//go:build e2e

package e2e

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// saver is an agent that takes half a second to save at SIGTERM.
const saver = `#!/bin/sh
trap 'sleep 0.5; echo saved >> $HOME/saved-$1; exit 7' TERM
> $HOME/ready-$1
while :; do sleep 0.1; done
`

// startSavers starts three sessions: one that is resumed at login, one that is started afresh, one
// that is left as it is.
func startSavers(d *desk) {
	agent := d.write("saver", saver)
	d.do("systemctl", "--user", "enable", "corrald")
	d.run("resumed", "--on-login", "resume", "--", agent, "resumed")
	d.run("fresh", "--on-login", "start", "--", agent, "fresh")
	d.run("left", "--", agent, "left")
	for _, id := range []string{"resumed", "fresh", "left"} {
		d.waitFile("/home/ann/ready-" + id)
	}
}

// checkReturned checks the states of these sessions after the user has logged in again.
func checkReturned(t *testing.T, d *desk) {
	t.Helper()
	d.until("resumed", "running")
	d.until("fresh", "running")
	assert.Equal(t, "u 2", d.property("resumed", "NRuns"))
	assert.Equal(t, "u 2", d.property("fresh", "NRuns"))
	assert.Equal(t, `s "suspended"`, d.property("left", "State"))
	assert.Equal(t, "u 1", d.property("left", "NRuns"))
}

// TestPowerOff checks that agents have time to save at poweroff and are suspended, not failed, and
// that those to be resumed are resumed at the next boot.
func TestPowerOff(t *testing.T) {
	onEach(t, func(t *testing.T, d *desk) {
		startSavers(d)
		d.PowerOff()
		d.Boot()
		d.User(d.user)
		checkReturned(t, d)
		for _, id := range []string{"resumed", "fresh", "left"} {
			assert.Equal(t, "saved", d.do("cat", "/home/ann/saved-"+id), "session %s had no time to save", id)
		}
		assert.Equal(t, "i 7", d.property("left", "ExecMainStatus"))
	})
}

// TestPowerOff_WithoutDaemon does the same with the daemon stopped: then systemd stops the agents,
// and no daemon observes it.
func TestPowerOff_WithoutDaemon(t *testing.T) {
	onEach(t, func(t *testing.T, d *desk) {
		startSavers(d)
		d.do("systemctl", "--user", "stop", "corrald")
		d.PowerOff()
		d.Boot()
		d.User(d.user)
		checkReturned(t, d)
		assert.Equal(t, "saved", d.do("cat", "/home/ann/saved-left"))
		assert.Equal(t, "i 7", d.property("left", "ExecMainStatus"))
	})
}

// TestLogout does the same when only the user's manager stops.
func TestLogout(t *testing.T) {
	onEach(t, func(t *testing.T, d *desk) {
		startSavers(d)
		manager := "user@" + d.do("id", "-u") + ".service"
		d.Run("systemctl", "stop", manager)
		d.Run("systemctl", "start", manager)
		d.User(d.user)
		checkReturned(t, d)
		assert.Equal(t, "saved", d.do("cat", "/home/ann/saved-left"))
	})
}

// TestPowerLoss checks that sessions that ended by a power loss are reported as such.
func TestPowerLoss(t *testing.T) {
	onEach(t, func(t *testing.T, d *desk) {
		d.do("systemctl", "--user", "enable", "corrald")
		d.run("lost", "--", "sleep", "1000")
		d.run("done", "--", "sh", "-c", "exit 3")
		d.until("done", "failed")
		d.Crash()
		d.Boot()
		d.User(d.user)
		assert.Equal(t, "failed | session-lost | 0 | 0 | the machine went down", d.result("lost"))
		assert.Equal(t, "failed | exit-code | 1 | 3 | command exited with code 3", d.result("done"))
	})
}
