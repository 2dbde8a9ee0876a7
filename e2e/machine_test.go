//go:build e2e

// Package e2e tests Corral as its users have it: installed with make install on a booted machine
// and controlled by an ordinary user with corralctl, busctl and systemctl. Booting machines needs
// root.
package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/testbed/machine"
)

// systems are the systems on which most tests run: the host's own, and one whose tmux asks systemd
// for a scope for each new pane (3.4 and later, built with libsystemd).
var systems = map[string]func(*testing.T) string{
	"this system": func(*testing.T) string { return "/" },
	"Debian 13":   func(t *testing.T) string { return machine.Debian(t, "trixie") },
}

// onEach runs a test on each of the systems.
func onEach(t *testing.T, test func(*testing.T, *desk)) {
	t.Parallel()
	for name, root := range systems {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newDesk(t, root(t)))
		})
	}
}

// desk is an ordinary user on a machine with Corral installed.
type desk struct {
	*machine.Machine
	t    *testing.T
	user string
}

func newDesk(t *testing.T, root string) *desk {
	return newDeskOf(t, machine.Options{Root: root}, installed(t))
}

// newDeskOf is newDesk for a machine with more options, and an installed tree.
func newDeskOf(t *testing.T, options machine.Options, tree string) *desk {
	t.Helper()
	m := machine.Boot(t, options)
	m.Install(tree)
	d := &desk{m, t, m.User("ann")}
	d.do("systemctl", "--user", "daemon-reload")
	return d
}

// lingerRoot enables lingering for root and allows corrald to run in root's user manager.
func (d *desk) lingerRoot() {
	d.t.Helper()
	d.Run("sh", "-ec", `mkdir -p /etc/systemd/user/corrald.service.d
printf '[Unit]\nConditionUser=\n' > /etc/systemd/user/corrald.service.d/root.conf
loginctl enable-linger root`)
}

// setUserStopDelay sets how long the manager of a user runs after the last logout, in seconds
// (logind.conf(5), UserStopDelaySec=).
func setUserStopDelay(m *machine.Machine, seconds int) {
	m.Run("sh", "-ec", fmt.Sprintf("mkdir -p /etc/systemd/logind.conf.d; "+
		"printf '[Login]\\nUserStopDelaySec=%d\\n' > /etc/systemd/logind.conf.d/soon.conf; "+
		"systemctl restart systemd-logind", seconds))
}

// do runs a command as the user and returns its output without surrounding space.
func (d *desk) do(args ...string) string {
	d.t.Helper()
	return strings.TrimSpace(d.As(d.user, args...))
}

// try runs a command as the user that may fail. It returns its output, including standard error,
// and the exit status.
func (d *desk) try(args ...string) (string, int) {
	cmd := d.Command(d.user, args...)
	out, _ := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), cmd.ProcessState.ExitCode()
}

// run starts a session with corralctl; args are options, followed by the command.
func (d *desk) run(id string, args ...string) {
	d.t.Helper()
	d.do(append([]string{"corralctl", "run", "--id", id}, args...)...)
}

// property reads a property of a session from the bus, in busctl's format.
func (d *desk) property(id, name string) string {
	d.t.Helper()
	path := "/io/github/corrald/Corral1/session/" + id
	return d.do("busctl", "--user", "get-property", "io.github.corrald.Corral1", path,
		"io.github.corrald.Corral1.Session", name)
}

// result reads the state and the exit of a session from the bus, in one line.
func (d *desk) result(id string) string {
	d.t.Helper()
	var all []string
	for _, name := range []string{"State", "Result", "ExecMainCode", "ExecMainStatus", "Reason"} {
		_, value, _ := strings.Cut(d.property(id, name), " ")
		all = append(all, strings.Trim(value, `"`))
	}
	return strings.Join(all, " | ")
}

// until waits with corralctl wait until a session is in one of the states. corralctl wait gives up
// if the session has ended, so it is repeated: here the session may start again.
func (d *desk) until(id, states string) {
	d.t.Helper()
	if out, code := d.try("timeout", "30", "sh", "-c", `until corralctl wait --until="$2" "$1"; do sleep 0.1; done`, "sh",
		id, states); code != 0 {
		d.t.Fatalf("session %s did not become %s: %s\n%s", id, states, out, d.do("corralctl", "show", id))
	}
}

// pid returns the PID of a session's agent.
func (d *desk) pid(id string) string {
	d.t.Helper()
	return strings.TrimPrefix(d.property(id, "MainPID"), "u ")
}

// write creates an executable file in the user's home and returns its path on the machine.
func (d *desk) write(name, content string) string {
	d.t.Helper()
	path := "/home/" + d.user + "/" + name
	cmd := d.Command(d.user, "sh", "-c", `cat > "$1" && chmod 755 "$1"`, "sh", path)
	cmd.Stdin = strings.NewReader(content)
	out, err := cmd.CombinedOutput()
	require.NoError(d.t, err, "%s", out)
	return path
}
