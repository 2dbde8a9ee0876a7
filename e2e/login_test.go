//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/testbed/machine"
)

// logins are the kinds of login to a machine. Each function logs in and returns a function that
// logs out.
var logins = []struct {
	name string
	in   func(d *desk) (logout func())
}{
	{"a terminal", (*desk).loginOnTerminal},
	{"ssh", (*desk).loginBySSH},
	{"a desktop", (*desk).loginOnDesktop},
}

// TestLogin checks that no set-up is needed after the package has been installed. The first session
// enables the daemon for later logins of any kind, and sessions that start at login start once the
// daemon is ready. Without a login, the daemon starts at the first call, and at boot for lingering
// users.
func TestLogin(t *testing.T) {
	packages := packaged(t, "deb")
	for _, suite := range []string{"bookworm", "trixie"} {
		t.Run(suite, func(t *testing.T) {
			t.Parallel()
			m := machine.Boot(t, machine.Options{Root: machine.Debian(t, suite, "openssh-server", "openssh-client")})
			m.Install(packages)
			m.Run("sh", "-c", "dpkg --install /root/1.0/corral_1.0_"+runtime.GOARCH+".deb 2>&1")
			// A user's manager stops at the last logout, instead of ten seconds later.
			setUserStopDelay(m, 0)
			m.Run("sh", "-ec", "useradd --create-home --shell /bin/bash ann; echo ann:sesame | chpasswd")
			d := &desk{m, t, "ann"}
			uid := d.do("id", "-u")
			manager := "user@" + uid + ".service"

			for i, login := range logins {
				logout := login.in(d)
				if i == 0 {
					d.Run("timeout", "30", "sh", "-c", `until systemctl is-active --quiet "$1"; do sleep 0.05; done`, "sh", manager)
					d.run("agent", "--on-login", "start", "--", "sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.1; done")
					d.awaitEnabled()
				}
				d.awaitDaemon(manager)
				d.until("agent", "running")
				assert.Equal(t, fmt.Sprint("u ", i+1), d.property("agent", "NRuns"), "%s: it began at login", login.name)
				if i > 0 {
					d.checkStartedAfterDaemon(login.name)
				}
				logout()
				d.gone(manager)
			}

			d.Run("loginctl", "enable-linger", "ann")
			d.PowerOff()
			d.Boot()
			d.awaitDaemon(manager)
			d.until("agent", "running")
			assert.Equal(t, fmt.Sprint("u ", len(logins)+1), d.property("agent", "NRuns"))
			d.checkStartedAfterDaemon("boot")

			d.do("systemctl", "--user", "disable", "--now", "corrald")
			state, _ := d.try("systemctl", "--user", "is-active", "corrald")
			assert.Equal(t, "inactive", state)
			assert.Equal(t, `s "running"`, d.property("agent", "State"), "a call on the bus starts it")
			d.awaitDaemon(manager)
		})
	}
}

// awaitEnabled waits until corrald.service is enabled.
func (d *desk) awaitEnabled() {
	d.t.Helper()
	d.do("timeout", "30", "sh", "-c", "until systemctl --user is-enabled --quiet corrald; do sleep 0.05; done")
}

// awaitDaemon waits until the daemon is active, without a call that would start it.
func (d *desk) awaitDaemon(manager string) {
	d.t.Helper()
	d.Run("timeout", "30", "sh", "-c", `until systemctl is-active --quiet "$1"; do sleep 0.05; done`, "sh", manager)
	d.do("timeout", "30", "sh", "-c", "until systemctl --user is-active --quiet corrald; do sleep 0.05; done")
}

// checkStartedAfterDaemon checks that the daemon was active before systemd started the session's
// scope: a scope that waited for a daemon that waits for the scope would be a deadlock.
func (d *desk) checkStartedAfterDaemon(how string) {
	d.t.Helper()
	times := strings.Fields(d.do("systemctl", "--user", "show", "--value", "-p", "ActiveEnterTimestampMonotonic",
		"corrald.service", "app-corral-command-agent.scope"))
	require.Len(d.t, times, 2, how)
	var daemon, agent time.Duration
	_, err := fmt.Sscan(times[0]+" "+times[1], &daemon, &agent)
	require.NoError(d.t, err)
	assert.Less(d.t, daemon, agent, how)
}

// loginOnTerminal logs in at a getty with name and password.
func (d *desk) loginOnTerminal() (logout func()) {
	d.t.Helper()
	person, name := d.Terminal()
	getty := "container-" + strings.Replace(name, "pts/", "getty@", 1)
	words := make(chan byte, 1<<16)
	go func() {
		for text := make([]byte, 1024); ; {
			n, err := person.Read(text)
			for _, b := range text[:n] {
				words <- b
			}
			switch {
			case errors.Is(err, unix.EIO): // getty, and then login, close and reopen the terminal
				<-time.After(10 * time.Millisecond)
			case err != nil:
				return
			}
		}
	}()
	answer := func(question, answer string) {
		d.t.Helper()
		screen, deadline := "", time.After(30*time.Second)
		for !strings.HasSuffix(screen, question) {
			select {
			case b := <-words:
				screen += string(b)
			case <-deadline:
				d.t.Fatalf("%q is not on the terminal: %q\n%s", question, screen,
					d.Run("systemctl", "status", "--no-pager", "--full", getty))
			}
		}
		_, err := person.WriteString(answer + "\r")
		require.NoError(d.t, err)
	}
	d.Run("systemctl", "start", getty)
	answer("login: ", d.user)
	answer("Password: ", "sesame")
	answer(d.user+"@", "")
	return func() {
		d.t.Helper()
		_, err := person.WriteString("exit\r")
		require.NoError(d.t, err)
	}
}

// loginBySSH logs in through a real sshd with a key.
func (d *desk) loginBySSH() (logout func()) {
	d.t.Helper()
	d.Run("sh", "-ec", `mkdir -p /run/sshd; ssh-keygen -A; systemctl restart ssh
		ssh-keygen -q -t ed25519 -N '' -f /root/key
		install -d -m 700 -o "$1" -g "$1" "/home/$1/.ssh"; install -m 600 -o "$1" -g "$1" /root/key.pub "/home/$1/.ssh/authorized_keys"`, "sh", d.user)
	d.Run("systemd-run", "--quiet", "--collect", "--unit=from-afar", "ssh", "-i", "/root/key",
		"-o", "StrictHostKeyChecking=no", "-o", "BatchMode=yes", "-tt", d.user+"@127.0.0.1", "sleep infinity")
	return func() { d.Run("systemctl", "stop", "from-afar") }
}

// loginOnDesktop opens a session like a display manager's; the rest of a desktop is not needed
// here.
func (d *desk) loginOnDesktop() (logout func()) {
	d.t.Helper()
	d.Run("systemd-run", "--quiet", "--collect", "--unit=desktop", "--property=PAMName=login", "--property=User="+d.user,
		"--property=StandardInput=null", "--setenv=XDG_SESSION_TYPE=wayland", "--setenv=XDG_SESSION_CLASS=user",
		"--setenv=XDG_SESSION_DESKTOP=sway", "sleep", "infinity")
	return func() { d.Run("systemctl", "stop", "desktop") }
}
