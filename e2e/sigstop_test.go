//go:build e2e

package e2e

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestDaemonSIGSTOP_DoesNotPreventGracefulShutdown checks that agents still have their time to save
// if the daemon was stopped by SIGSTOP: systemd sends SIGCONT with SIGTERM.
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
				startSavers(d)
				d.do("kill", "-STOP", d.daemon(""))
				end(d)
				checkReturned(t, d)
				d.saved("resumed", "fresh", "left")
				reasons := []string{`s "the login session ended"`}
				if name == "poweroff" { // it depends on which event it receives first after SIGCONT
					reasons = append(reasons, `s "the machine was shut down"`)
				}
				assert.Contains(t, reasons, d.property("left", "Reason"))
			})
		})
	}
}

// TestDaemonSIGSTOP_MissesNothing checks that a daemon that was stopped by SIGSTOP handles all
// events after SIGCONT.
func TestDaemonSIGSTOP_MissesNothing(t *testing.T) {
	onEach(t, func(t *testing.T, d *desk) {
		startSavers(d)
		before, pid := d.life("fresh", "left"), d.daemon("")
		d.run("leaves", "--", "sh", "-c", "while ! [ -e go ]; do sleep 0.05; done; exit 5")
		d.run("stopped", "--", "sleep", "1000")
		d.do("kill", "-STOP", pid)
		d.do("touch", "go")
		d.waitFile("/home/ann/.local/state/corral/sessions/leaves/exit_status")
		// Systemd lets the daemon stop it (RequestStop).
		stop := d.Command(d.user, "systemctl", "--user", "stop", "app-corral-command-stopped.scope")
		if err := stop.Start(); err != nil {
			t.Fatal(err)
		}
		// A request that has not reached systemd when it executes itself again is lost.
		d.do("timeout", "30", "sh", "-c", `until systemctl --user is-active "$1" | grep -x deactivating
			do sleep 0.05; done`, "sh", "app-corral-command-stopped.scope")
		d.do("systemctl", "--user", "daemon-reload")
		d.do("systemctl", "--user", "daemon-reexec")
		d.do("kill", "-CONT", pid)
		d.until("leaves", "failed")
		assert.Equal(t, "failed | exit-code | 1 | 5 | command exited with code 5", d.result("leaves"))
		_ = stop.Wait() // it may have lost its connection when systemd executed itself again
		d.until("stopped", "stopped")
		assert.Equal(t, "stopped | success | 2 | 15 | its scope was stopped", d.result("stopped"))
		assert.Equal(t, pid, d.daemon(""), "the same daemon")
		assert.Equal(t, before, d.life("fresh", "left"))
	})
}
