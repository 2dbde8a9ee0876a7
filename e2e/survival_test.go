//go:build e2e

package e2e

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// saver is an agent that saves when it is asked to end, and takes its time.
const saver = `#!/bin/sh
trap 'sleep 0.5; echo saved >> $HOME/saved-$1; exit 7' TERM
> $HOME/ready-$1
while :; do sleep 0.1; done
`

// rested prepares three sessions: one that is resumed at login, one that is started afresh, one
// that is left as it is.
func rested(d *desk) {
	agent := d.write("saver", saver)
	d.do("systemctl", "--user", "enable", "corrald")
	d.run("resumed", "--on-login", "resume", "--", agent, "resumed")
	d.run("fresh", "--on-login", "start", "--", agent, "fresh")
	d.run("left", "--", agent, "left")
	for _, id := range []string{"resumed", "fresh", "left"} {
		d.waitFile("/home/ann/ready-" + id)
	}
}

// back is what has to be so once the user is there again.
func back(t *testing.T, d *desk) {
	t.Helper()
	d.until("resumed", "running")
	d.until("fresh", "running")
	assert.Equal(t, "u 2", d.property("resumed", "NRuns"))
	assert.Equal(t, "u 2", d.property("fresh", "NRuns"))
	assert.Equal(t, `s "suspended"`, d.property("left", "State"))
	assert.Equal(t, "u 1", d.property("left", "NRuns"))
}

// At poweroff the agents have their time to save, and what ended them is no failure; at the next
// boot those that are to be resumed are.
func TestPowerOff(t *testing.T) {
	onEach(t, func(t *testing.T, d *desk) {
		rested(d)
		d.PowerOff()
		d.Boot()
		d.User(d.user)
		back(t, d)
		for _, id := range []string{"resumed", "fresh", "left"} {
			assert.Equal(t, "saved", d.do("cat", "/home/ann/saved-"+id), "session %s had no time to save", id)
		}
		assert.Equal(t, "i 7", d.property("left", "ExecMainStatus"))
	})
}

// The same where somebody has stopped the daemon before: then it is systemd that ends the agents,
// and nobody hears of it.
func TestPowerOff_WithoutDaemon(t *testing.T) {
	onEach(t, func(t *testing.T, d *desk) {
		rested(d)
		d.do("systemctl", "--user", "stop", "corrald")
		d.PowerOff()
		d.Boot()
		d.User(d.user)
		back(t, d)
		assert.Equal(t, "saved", d.do("cat", "/home/ann/saved-left"))
		assert.Equal(t, "i 7", d.property("left", "ExecMainStatus"))
	})
}

// The same at the end of the user's manager alone.
func TestLogout(t *testing.T) {
	onEach(t, func(t *testing.T, d *desk) {
		rested(d)
		manager := "user@" + d.do("id", "-u") + ".service"
		d.Run("systemctl", "stop", manager)
		d.Run("systemctl", "start", manager)
		d.User(d.user)
		back(t, d)
		assert.Equal(t, "saved", d.do("cat", "/home/ann/saved-left"))
	})
}

// A power loss is told as what it was.
func TestPowerLoss(t *testing.T) {
	onEach(t, func(t *testing.T, d *desk) {
		d.do("systemctl", "--user", "enable", "corrald")
		d.run("lost", "--", "sleep", "1000")
		d.run("done", "--", "sh", "-c", "exit 3")
		d.until("done", "failed")
		d.Crash()
		d.Boot()
		d.User(d.user)
		assert.Equal(t, "failed | session-lost | 0 | 0 | the machine went down", d.told("lost"))
		assert.Equal(t, "failed | exit-code | 1 | 3 | command exited with code 3", d.told("done"))
	})
}
