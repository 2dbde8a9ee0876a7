//go:build e2e

package e2e

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestBus_KilledAndRestarted checks that agents are not affected and that the daemon adopts them
// again. After the bus was killed, systemd may hang for a minute and a half; this is the first test
// in the package, so that others run meanwhile.
func TestBus_KilledAndRestarted(t *testing.T) {
	onEach(t, func(t *testing.T, d *desk) {
		startSavers(d)
		before, pid := d.life("resumed", "fresh", "left"), d.daemon("")
		for _, event := range []struct{ name, script string }{
			{"restart", "systemctl --user restart dbus.service"},
			{"killed", "kill -KILL $(systemctl --user show -P MainPID dbus.service)"},
			{"killed with the daemon",
				"kill -KILL $(systemctl --user show -P MainPID dbus.service) $(systemctl --user show -P MainPID corrald)"},
		} {
			d.try("sh", "-c", event.script) // systemctl may lose its own connection
			pid = d.daemon(pid)
			assert.Equal(t, before, d.life("resumed", "fresh", "left"), event.name)
		}
		for _, id := range []string{"resumed", "fresh", "left"} {
			d.do("corralctl", "stop", id)
			assert.Equal(t, "stopped | success | 1 | 7 | ", d.result(id), "it is still watched")
		}
	})
}

// TestLogLevel reads and changes the log level and target of the running service with systemctl.
func TestLogLevel(t *testing.T) {
	onEach(t, func(t *testing.T, d *desk) {
		d.do("systemctl", "--user", "start", "corrald.service")
		assert.Equal(t, "info", d.do("systemctl", "--user", "service-log-level", "corrald.service"))
		assert.Equal(t, "auto", d.do("systemctl", "--user", "service-log-target", "corrald.service"))
		d.do("systemctl", "--user", "service-log-level", "corrald.service", "debug")
		assert.Equal(t, "debug", d.do("systemctl", "--user", "service-log-level", "corrald.service"))
		d.do("systemctl", "--user", "service-log-target", "corrald.service", "null")
		assert.Equal(t, "null", d.do("systemctl", "--user", "service-log-target", "corrald.service"))
		output, code := d.try("systemctl", "--user", "service-log-target", "corrald.service", "kmsg")
		assert.NotZero(t, code)
		assert.Contains(t, output, "expected one of auto, journal, console, null")
	})
}

// TestStop_ThawsFrozenSession checks that a frozen session can be stopped, although some versions
// of systemd refuse to stop a frozen scope: Corral thaws it first.
func TestStop_ThawsFrozenSession(t *testing.T) {
	onEach(t, func(t *testing.T, d *desk) {
		d.write("saves", "#!/bin/sh\ntrap 'exit 0' TERM\ntouch \"$HOME/up\"\nwhile :; do sleep 1000 & wait; done\n")
		up := func() {
			t.Helper()
			d.do("timeout", "60", "sh", "-c", "until [ -e /home/ann/up ]; do sleep 0.05; done; rm /home/ann/up")
		}
		for _, end := range [][]string{
			{"stop", "frozen"}, {"suspend", "frozen"}, {"restart", "frozen"}, {"rm", "--force", "frozen"},
		} {
			if _, code := d.try("corralctl", "start", "frozen"); code != 0 {
				d.run("frozen", "--", "/home/ann/saves")
			}
			up()
			d.do("corralctl", "freeze", "frozen")
			assert.Equal(t, "b true", d.property("frozen", "Frozen"))
			d.do(append([]string{"corralctl"}, end...)...)
			switch end[0] {
			case "stop":
				assert.Equal(t, "stopped | success | 1 | 0 | ", d.result("frozen"))
			case "suspend":
				assert.Equal(t, "suspended | success | 1 | 0 | ", d.result("frozen"))
			case "restart":
				assert.Equal(t, "b false", d.property("frozen", "Frozen"))
				up()
				d.do("corralctl", "stop", "frozen")
			}
		}
		d.run("again", "--", "/home/ann/saves")
		up()
		d.do("systemctl", "--user", "freeze", "app-corral-command-again.scope")
		d.do("systemctl", "--user", "restart", "corrald.service")
		assert.Equal(t, "b true", d.property("again", "Frozen"), "found again")
		assert.Equal(t, `s "running"`, d.property("again", "State"))
		d.do("corralctl", "stop", "again")
		assert.Equal(t, "stopped | success | 1 | 0 | ", d.result("again"))
	})
}

// TestSetUnitProperties sets properties that this systemd knows, and expects an error for those
// that it rejects.
func TestSetUnitProperties(t *testing.T) {
	onEach(t, func(t *testing.T, d *desk) {
		d.run("shop", "--", "sleep", "1000")
		set := func(args ...string) (string, int) {
			return d.try(append([]string{
				"busctl", "--user", "call", "io.github.corrald.Corral1", "/io/github/corrald/Corral1/session/shop",
				"io.github.corrald.Corral1.Session", "SetUnitProperties", "a(sv)",
			}, args...)...)
		}
		_, code := set("2", "TasksMax", "t", "77", "MemoryHigh", "t", "536870912")
		assert.Zero(t, code)
		show := func(property string) string {
			return d.do("systemctl", "--user", "show", "--value", "--property="+property, "app-corral-command-shop.scope")
		}
		assert.Equal(t, "77", show("TasksMax"))
		for property, args := range map[string][]string{
			"Frobnicate": {"b", "true"}, "CPUWeight": {"t", "1000000"}, "TasksMax": {"s", "many"}, "RuntimeMaxUSec": {"s", "1h"},
			"OOMPolicy": {"s", "maybe"},
		} {
			output, code := set(append([]string{"2", "TasksMax", "t", "66", property}, args...)...)
			assert.NotZero(t, code, property)
			assert.Contains(t, output, property)
			assert.Equal(t, "77", show("TasksMax"), property)
		}
		d.do("corralctl", "restart", "shop")
		assert.Equal(t, "77", show("TasksMax"))
		assert.Equal(t, "536870912", show("MemoryHigh"))
	})
}
