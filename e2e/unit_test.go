//go:build e2e

package e2e

import (
	"bufio"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	// nightly replaces the agent of the example: it appends its arguments to a file for each run, and
	// other files control how long it runs and how it exits.
	nightly = `#!/bin/sh
printf '%s\n' "$*" >>$HOME/nights
while [ -e $HOME/busy ]; do sleep 0.1; done
exit $(cat $HOME/code 2>/dev/null || echo 0)
`
	// mail replaces the program that sends its standard input.
	mail = "#!/bin/sh\n{ echo \"$*\"; cat; } >$HOME/mail.new; mv $HOME/mail.new $HOME/mail\n"
	// soon makes a nightly timer elapse every second.
	soon = "[Timer]\nOnCalendar=\nOnCalendar=*:*:*\nAccuracySec=1ms\n"
)

// program installs a script for all users.
func (d *desk) program(name, text string) {
	d.t.Helper()
	d.Run("sh", "-ec", `printf '%s' "$1" >"$2"; chmod 755 "$2"`, "sh", text, "/usr/local/bin/"+name)
}

// TestUnit_RunsNightlyByTimer runs the example of corral@.service(5) literally and lets its timer
// elapse: at once, since the machine was off at two o'clock, and then every second.
func TestUnit_RunsNightlyByTimer(t *testing.T) {
	onEach(t, func(t *testing.T, d *desk) {
		d.program("claude", nightly)
		d.program("mail", mail)
		d.do("mkdir", "-p", "src/shop", ".local/share/systemd/timers")
		d.do("touch", "-d", "2 days ago", ".local/share/systemd/timers/stamp-corral@nightly.timer")
		script := exampleOf(t, "What is to be done when it fails").script() +
			exampleOf(t, "An agent that runs every night").script()
		linger := "\ncorralctl linger on\n"
		require.Contains(t, script, linger)
		if !d.polkit() { // without polkit only root can enable lingering, which the test bed has done
			script = strings.Replace(script, linger, "\n", 1)
		}
		assert.Contains(t, d.do("bash", "-c", script), "corral@nightly.timer", "list-timers")

		d.waitFile("/home/ann/nights")
		d.until("nightly", "completed")
		assert.Equal(t, "-p Update the dependencies, run the tests, open a pull request", d.do("cat", "nights"))
		assert.Equal(t, `s "/home/ann/src/shop"`, d.property("nightly", "WorkingDirectory"))
		next := d.do("systemctl", "--user", "show", "-P", "NextElapseUSecRealtime", "corral@nightly.timer")
		assert.Contains(t, next, " 02:00:00 ", "and then every night at two")

		d.do("sh", "-ec", `mkdir -p ~/.config/systemd/user/corral@nightly.timer.d; printf "$1" >~/.config/systemd/user/corral@nightly.timer.d/soon.conf
			systemctl --user daemon-reload; systemctl --user restart corral@nightly.timer`, "sh", soon)
		nights := func(n string) {
			t.Helper()
			d.do("timeout", "60", "sh", "-c", `until [ $(wc -l <nights) -ge "$1" ]; do sleep 0.05; done`, "sh", n)
		}
		nights("3")
		d.do("sh", "-c", "echo 3 >code")
		d.waitFile("/home/ann/mail")
		output := d.do("cat", "mail")
		assert.Contains(t, output, "-s nightly has failed me@example.org")
		assert.Contains(t, output, "command exited with code 3")

		d.do("sh", "-c", "touch busy; rm code; wc -l <nights >before")
		d.do("timeout", "60", "sh", "-c", `until [ $(wc -l <nights) -gt $(cat before) ]; do sleep 0.05; done`)
		d.until("nightly", "running") // despite the earlier failure
		runs, fired := d.property("nightly", "NRuns"), d.do("systemctl", "--user", "show", "-P", "LastTriggerUSec",
			"corral@nightly.timer")
		d.do("timeout", "60", "sh", "-c", `second=$(date +%s); until [ $(date +%s) -ge $((second + 3)) ]; do sleep 0.1; done`)
		assert.Equal(t, runs, d.property("nightly", "NRuns"), "nights on which the previous run still runs are skipped: %s",
			fired)

		d.PowerOff()
		d.Boot()
		d.User(d.user)
		d.do("timeout", "60", "sh", "-c", "until systemctl --user is-active --quiet corral@nightly; do sleep 0.05; done")
		assert.Equal(t, `s "running"`, d.property("nightly", "State"), "a run that a shutdown has interrupted is resumed the next night")
		assert.NotEqual(t, runs, d.property("nightly", "NRuns"))
		d.do("rm", "busy")
		d.until("nightly", "completed")
	})
}

// TestUnit_EnabledStartsAtLoginAndBoot checks that a session enabled as a unit starts at login and
// at boot, after the units that it needs, and is suspended when the login session ends.
func TestUnit_EnabledStartsAtLoginAndBoot(t *testing.T) {
	onEach(t, func(t *testing.T, d *desk) {
		setUserStopDelay(d.Machine, 0)
		agent := d.write("agent", `#!/bin/sh
cat $XDG_RUNTIME_DIR/server >>$HOME/saw 2>&1
trap 'echo saved >>$HOME/saved; exit 0' TERM
while :; do sleep 0.1; done
`)
		d.do("bash", "-c", exampleOf(t, "A server that an agent needs").script())
		d.do("sh", "-ec", `printf '%s' "$1" >~/.config/systemd/user/dev-server.service; systemctl --user daemon-reload`, "sh",
			"[Service]\nType=notify\nNotifyAccess=all\n"+
				"ExecStart=sh -c 'sleep 0.5; echo serving >$$XDG_RUNTIME_DIR/server; "+
				"systemd-notify --ready; exec sleep infinity'\n"+
				"ExecStopPost=rm -f %t/server\n")
		d.run("review", "--no-start", "--", agent)
		d.do("systemctl", "--user", "enable", "--now", "corral@review")
		is := func(runs, when string) {
			t.Helper()
			d.do("timeout", "60", "sh", "-c", "until systemctl --user is-active --quiet corral@review; do sleep 0.05; done")
			assert.Equal(t, `s "running"`, d.property("review", "State"), when)
			assert.Equal(t, "u "+runs, d.property("review", "NRuns"), when)
			d.do("timeout", "30", "sh", "-c", `until [ "$(wc -l <saw)" = "$1" ]; do sleep 0.05; done`, "sh", runs)
			assert.Equal(t, strings.TrimSpace(strings.Repeat("serving\n", int(runs[0]-'0'))), d.do("cat", "saw"),
				"%s: the server was there first", when)
		}
		is("1", "at first")

		// No client that follows the daemon may restart one that was stopped.
		monitor := d.Command(d.user, "corralctl", "monitor", "--format=json")
		events, err := monitor.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, monitor.Start())
		_, err = bufio.NewReader(events).ReadString('\n') // it first lists the sessions, which would start a daemon
		require.NoError(t, err)
		for range 5 {
			d.do("systemctl", "--user", "stop", "corrald")
			d.do("timeout", "30", "sh", "-c",
				`until systemctl --user show -P StatusText corral@review | grep -q "corrald is not running"; do sleep 0.05; done`)
			state, _ := d.try("systemctl", "--user", "is-active", "corrald")
			assert.Equal(t, "inactive", state)
			d.do("systemctl", "--user", "start", "corrald")
			d.do("timeout", "30", "sh", "-c",
				`until systemctl --user show -P StatusText corral@review | grep -q running,; do sleep 0.05; done`)
		}
		require.NoError(t, monitor.Process.Kill())
		_ = monitor.Wait()

		manager := "user@" + d.do("id", "-u") + ".service"
		logout := d.login()
		d.Run("loginctl", "disable-linger", d.user)
		logout()
		d.gone(manager)
		logout = d.login()
		is("2", "at the next login")
		assert.Equal(t, "saved", d.do("cat", "saved"))
		d.Run("loginctl", "enable-linger", d.user)
		logout()

		d.PowerOff()
		d.Boot()
		d.User(d.user)
		is("3", "at boot")
		assert.Equal(t, "saved\nsaved", d.do("cat", "saved"))

		d.do("systemctl", "--user", "disable", "corral@review")
		d.PowerOff()
		d.Boot()
		d.User(d.user)
		assert.Equal(t, `s "suspended"`, d.property("review", "State"), "who is not enabled any more stays away")
	})
}
