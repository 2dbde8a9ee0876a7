//go:build e2e

package e2e

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// A daemon that stands still is no obstacle to a polite end: systemd has it go on when it tells it
// to end, and everybody's agents have their time.
func TestDaemonSIGSTOP_DoesNotPreventGracefulShutdown(t *testing.T) {
	for name, end := range map[string]func(*desk){
		"user exit": func(d *desk) {
			uid := d.do("id", "-u")
			d.do("systemctl", "--user", "exit")
			d.gone("user@" + uid + ".service")
			d.Run("systemctl", "start", "user@"+uid+".service")
		},
		"poweroff": func(d *desk) {
			d.PowerOff()
			d.Boot()
			d.User(d.user)
		},
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, d *desk) {
				rested(d)
				d.do("kill", "-STOP", d.daemon(""))
				end(d)
				back(t, d)
				d.saved("resumed", "fresh", "left")
				reasons := []string{`s "the login session ended"`}
				if name == "poweroff" { // it depends on what it hears first when it goes on
					reasons = append(reasons, `s "the machine was shut down"`)
				}
				assert.Contains(t, reasons, d.property("left", "Reason"))
			})
		})
	}
}

// A daemon that stands still for a while has missed nothing when it goes on.
func TestDaemonSIGSTOP_MissesNothing(t *testing.T) {
	onEach(t, func(t *testing.T, d *desk) {
		rested(d)
		before, pid := d.life("fresh", "left"), d.daemon("")
		d.run("leaves", "--", "sh", "-c", "while ! [ -e go ]; do sleep 0.05; done; exit 5")
		d.run("stopped", "--", "sleep", "1000")
		d.do("kill", "-STOP", pid)
		d.do("touch", "go")
		d.waitFile("/home/ann/.local/state/corral/sessions/leaves/exit_status")
		stop := d.Command(d.user, "systemctl", "--user", "stop", "app-corral-command-stopped.scope") // systemd leaves it to the daemon how
		if err := stop.Start(); err != nil {
			t.Fatal(err)
		}
		d.do("systemctl", "--user", "daemon-reload")
		d.do("systemctl", "--user", "daemon-reexec")
		d.do("kill", "-CONT", pid)
		d.until("leaves", "failed")
		assert.Equal(t, "failed | exit-code | 1 | 5 | command exited with code 5", d.told("leaves"))
		_ = stop.Wait() // it may have lost systemd when that was executed again
		d.until("stopped", "stopped")
		assert.Equal(t, "stopped | success | 2 | 15 | its scope was stopped", d.told("stopped"))
		assert.Equal(t, pid, d.daemon(""), "the same daemon")
		assert.Equal(t, before, d.life("fresh", "left"))
	})
}
