//go:build e2e

package e2e

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/testbed"
	"github.com/corrald/corral/internal/testbed/machine"
)

// host is a machine of newHosts.
type host struct {
	name string
	tree string // the installed Corral, "" for that of this checkout
}

// newHosts boots machines with Debian 13 in one network, each with Corral, sshd, and a lingering
// user ann. Ann's key on the first one, her laptop, opens her account on all of them. Each of them
// may be cut off (Disconnect), switched off and booted again.
func newHosts(t *testing.T, hosts ...host) []*desk {
	t.Helper()
	network := machine.NewNetwork(t)
	root := machine.Debian(t, "trixie", "openssh-server", "openssh-client")
	var desks []*desk
	for _, each := range hosts {
		if each.tree == "" {
			each.tree = installed(t)
		}
		desks = append(desks, newDeskOf(t, machine.Options{Root: root, Network: network, Name: each.name}, each.tree))
	}
	authorize(desks[0], desks...)
	return desks
}

// authorize lets a user on a machine use ssh to the accounts of the same or other users, without
// a password or a question, and starts sshd on their machines, also after each boot.
func authorize(from *desk, to ...*desk) {
	from.do("sh", "-ec", `mkdir -p -m 700 ~/.ssh && ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/id_ed25519
printf 'StrictHostKeyChecking accept-new\nBatchMode yes\nLogLevel ERROR\n' >~/.ssh/config`)
	key := from.do("cat", ".ssh/id_ed25519.pub")
	for _, d := range to {
		d.do("sh", "-ec", `mkdir -p -m 700 ~/.ssh; printf '%s\n' "$1" >>~/.ssh/authorized_keys; chmod 600 ~/.ssh/authorized_keys`,
			"sh", strings.TrimSpace(key))
		d.Run("sh", "-ec", "ssh-keygen -A >&2; systemctl add-wants machine.target ssh.service; systemctl restart ssh.service")
	}
}

// olderCommit is the commit of the older Corral in tests of several hosts; the Makefile has the
// same one for make upgrade-test.
const olderCommit = "bbaa65f"

// TestHosts_InOneList follows and directs three machines from a fourth one. One of them reboots,
// one loses its network for a minute, and one has not been upgraded for a long time.
func TestHosts_InOneList(t *testing.T) {
	t.Parallel()
	all := newHosts(t, host{name: "laptop"}, host{name: "gpu"}, host{name: "build"},
		host{name: "old", tree: installedFrom(t, olderCommit)})
	laptop, gpu, build := all[0], all[1], all[2]
	laptop.do("sh", "-ec", `mkdir -p ~/.config/corral
printf '[Corral]\nHosts=gpu build old @lab=gpu,build\n' >~/.config/corral/corral.conf`)
	ctl := func(args ...string) (string, int) {
		return laptop.try(append([]string{"timeout", "30", "corralctl"}, args...)...)
	}
	works := func(args ...string) string {
		t.Helper()
		out, code := ctl(args...)
		assert.Zero(t, code, "%s: %s", args, out)
		return out
	}
	for _, name := range []string{"gpu", "build", "old"} {
		works("-H", name, "run", "--dir", "/tmp", "--id", "shop", "--", "sh", "-c", "echo on $HOSTNAME; exec cat")
	}
	works("run", "--dir", "/tmp", "--id", "shop", "--", "cat")
	assert.Equal(t, "build:shop running\ngpu:shop   running\nold:shop   running\nshop       running",
		works("-H", "@all", "list", "--no-legend", "--columns=id,state"))

	// top and monitor follow all of them.
	laptop.do("tmux", "-f", "/dev/null", "new-session", "-d", "-x", "120", "-y", "40", "corralctl -H @all top")
	shows := func(why string, lines ...string) {
		t.Helper()
		screen := ""
		testbed.Poll(t, why, func() bool {
			screen = laptop.do("tmux", "capture-pane", "-p")
			for _, line := range lines {
				if !regexp.MustCompile("(?m)^(..)?" + line).MatchString(screen) {
					return false
				}
			}
			return true
		})
	}
	shows("all are running", "build:shop +sh +running", "gpu:shop +sh +running", "old:shop +sh +running",
		"shop +cat +running")
	monitor := laptop.Command("ann", "corralctl", "-H", "@all", "monitor", "--json=short")
	events, err := monitor.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, monitor.Start())
	var received atomic.Pointer[string] // what monitor has printed
	received.Store(new(string))
	go func() {
		for lines := bufio.NewScanner(events); lines.Scan(); {
			text := *received.Load() + lines.Text() + "\n"
			received.Store(&text)
		}
	}()
	printed := func(text string) {
		t.Helper()
		testbed.Poll(t, "monitor prints "+text, func() bool { return strings.Contains(*received.Load(), text) })
	}
	job := laptop.Command("ann", "corralctl", "-H", "build", "run", "--wait", "--dir", "/tmp", "--id", "job", "--",
		"sh", "-c", "until [ -e /tmp/go ]; do sleep 0.1; done; exit 5")
	require.NoError(t, job.Start())
	shows("the job is running", "build:job +sh +running")
	printed(`"Id":"build:job"`) // however long ssh has taken

	// The network of build is lost. Its sessions continue, and so does everything else.
	build.Disconnect()
	lost := time.Now()
	shows("build is lost", "build:shop +sh +unknown", "build:job +sh +unknown", "gpu:shop +sh +running",
		"build cannot be reached: the connection was lost")
	out, code := ctl("-H", "@all", "list", "--no-legend", "--columns=id")
	assert.Equal(t, "gpu:shop\nold:shop\nshop\ncorralctl: build cannot be reached: no answer within 2s 0",
		fmt.Sprint(out, " ", code))
	for _, verb := range []string{"stop", "freeze", "rm"} {
		out, code = ctl("-H", "gpu,build", verb, "shop")
		assert.Equal(t, 5, code, out)
		assert.Contains(t, out, `"shop": the session may be on build, which cannot be reached`)
	}
	out, code = ctl("-H", "gpu,old", "stop", "sho")
	assert.Equal(t, `corralctl: cannot stop "sho": ambiguous id: matches gpu:shop, old:shop 1`, fmt.Sprint(out, " ", code))
	build.do("touch", "/tmp/go")
	build.do("corralctl", "stop", "shop")

	// Meanwhile gpu is switched off, and on.
	gpu.PowerOff()
	shows("gpu is off", "gpu:shop +sh +unknown", "shop +cat +running")
	gpu.Boot()
	gpu.User("ann")
	shows("gpu is back", "gpu:shop +sh +suspended")
	works("restart", "gpu:shop")
	shows("its session is running again", "gpu:shop +sh +running")
	assert.Equal(t, "running", gpu.do("corralctl", "is-active", "shop"))

	// What both versions have works on the old host; the difference is named.
	works("send", "old:shop", "hello there")
	testbed.Poll(t, "the text is shown", func() bool { return strings.Contains(works("peek", "old:shop"), "hello there") })
	out, code = ctl("continue", "old:shop")
	assert.Equal(t, 1, code)
	assert.Regexp(t, `^corralctl: cannot continue "old:shop": corrald 0.0.0\+git`+olderCommit+
		` there cannot do this, and corralctl is `, out)
	works("stop", "old:shop")
	assert.Equal(t, "stopped", works("show", "-P", "State", "old:shop"))

	<-time.After(time.Until(lost.Add(time.Minute)))
	build.Connect()
	shows("build is back", "build:shop +sh +stopped", "build:job +sh +failed +exit 5", "gpu:shop +sh +running",
		"old:shop +sh +stopped", "shop +cat +running")
	require.Error(t, job.Wait())
	assert.Equal(t, 5, job.ProcessState.ExitCode())
	assert.Equal(t, "failed | exit-code | 1 | 5 | command exited with code 5", build.result("job"))
	laptop.do("tmux", "kill-server")
	works("stop", "shop")
	for _, want := range []string{
		`"Event":"daemon-gone","Host":"build"`, `"Event":"daemon-back","Host":"build"`,
		`"Event":"daemon-gone","Host":"gpu"`, `"Event":"daemon-back","Host":"gpu"`,
		`"Event":"changed","Id":"build:job"`, `"Event":"changed","Id":"old:shop"`,
	} {
		printed(want)
	}
	require.NoError(t, monitor.Process.Signal(os.Interrupt))
	_ = monitor.Wait()
}

// TestHosts_LostConnection: a session that was started on another host exists there with its exit,
// whatever happens to the connection.
func TestHosts_LostConnection(t *testing.T) {
	t.Parallel()
	hosts := newHosts(t, host{name: "laptop"}, host{name: "gpu"})
	laptop, gpu := hosts[0], hosts[1]
	start := func(id string) *exec.Cmd {
		cmd := laptop.Command("ann", "timeout", "60", "corralctl", "-H", "gpu", "run", "--wait", "--dir", "/tmp",
			"--id", id, "--", "sh", "-c", "until [ -e finish ]; do sleep 0.1; done; exit 6")
		require.NoError(t, cmd.Start())
		testbed.Poll(t, id+" runs", func() bool {
			out, _ := gpu.try("corralctl", "is-active", id)
			return out == "running"
		})
		return cmd
	}
	waits, killed := start("waits"), start("killed")
	laptop.do("pkill", "-KILL", "-f", "^corralctl .* killed")
	require.Error(t, killed.Wait())
	laptop.do("pkill", "-KILL", "-x", "ssh") // of the first one
	gpu.Disconnect()
	gpu.do("touch", "/tmp/finish")
	for _, id := range []string{"waits", "killed"} {
		gpu.until(id, "failed")
		assert.Equal(t, "failed | exit-code | 1 | 6 | command exited with code 6", gpu.result(id))
	}
	gpu.Connect()
	_ = waits.Wait()
	assert.Equal(t, 6, waits.ProcessState.ExitCode(), "it connects again")
}

// TestHosts_JobsOfSystemd runs the examples of docs/SCHEDULERS.md for systemd's own means.
func TestHosts_JobsOfSystemd(t *testing.T) {
	t.Parallel()
	hosts := newHosts(t, host{name: "laptop"}, host{name: "gpu"})
	laptop, gpu := hosts[0], hosts[1]

	out, code := laptop.try("ssh", "gpu", "systemd-run --user --wait --pipe --quiet "+
		"corralctl run --wait --follow --id build -- sh -c 'echo made; exit 3'")
	assert.Equal(t, "made 3", fmt.Sprint(out, " ", code))

	laptop.do("ssh", "gpu", "systemd-run --user --quiet --unit=train -p RuntimeMaxSec=8h "+
		"corralctl run --wait --follow --id train -- "+
		"sh -c 'trap \"echo saved; exit\" TERM; echo begun; while :; do sleep 0.1; done'")
	testbed.Poll(t, "it has begun", func() bool {
		out, _ := gpu.try("corralctl", "logs", "train")
		return out == "begun"
	})
	laptop.do("ssh", "gpu", "systemctl --user stop train")
	assert.Equal(t, "stopped", strings.Split(gpu.result("train"), " ")[0])
	assert.Contains(t, gpu.Run("journalctl", "-o", "cat", "_UID=1000"), "saved\n", "its output is in the journal")

	laptop.do("ssh", "gpu", "systemd-run --user --quiet --on-active=1s --timer-property=AccuracySec=1s "+
		"corralctl run --wait -- touch /tmp/timer")
	testbed.Poll(t, "the timer has started a session", func() bool {
		_, code := gpu.try("test", "-e", "/tmp/timer")
		return code == 0
	})

	// The system's own systemd, on another host.
	gpu.Run("sh", "-ec", "mkdir -p -m 700 /root/.ssh; cp /home/ann/.ssh/authorized_keys /root/.ssh/")
	out, code = laptop.try("systemd-run", "-H", "root@gpu", "--uid=ann", "--wait", "--quiet", "-p", "WorkingDirectory=~",
		"-p", "StandardOutput=append:/tmp/out", "corralctl", "run", "--wait", "--follow", "--id", "nightly", "--",
		"sh", "-c", "echo there; exit 4")
	assert.Equal(t, " 4", fmt.Sprint(out, " ", code))
	assert.Equal(t, "there", gpu.do("cat", "/tmp/out"))
}
