//go:build e2e

package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/testbed"
	"github.com/corrald/corral/internal/testbed/machine"
)

// TestNotification_OnDesktop installs the package, logs in to a desktop, lets an agent fail, and
// clicks on the notification. No other set-up is needed.
func TestNotification_OnDesktop(t *testing.T) {
	packages := t.TempDir()
	out, err := exec.Command("../scripts/dist.sh", "1.0", filepath.Join(packages, "root"), "deb").CombinedOutput()
	require.NoError(t, err, "%s", out)
	m := machine.Boot(t, machine.Options{
		Root: machine.Debian(t, "trixie", "dunst", "xvfb", "xterm", "xdotool", "imagemagick", "fonts-dejavu-core"),
	})
	m.Install(packages)
	m.Run("sh", "-c", "exec dpkg --install /root/corral_1.0_"+runtime.GOARCH+".deb 2>&1")

	m.Run("useradd", "--create-home", "--shell", "/bin/bash", "bob")
	d := &desk{m, t, "bob"}
	defer d.login()()
	d.desktop()
	d.do("mkdir", "-p", "/home/bob/.config/corral/hooks.d")
	d.write(".config/corral/hooks.d/log",
		"#!/bin/sh\necho the hook was here\ncat >$HOME/event.new\nmv $HOME/event.new $HOME/event\nexit 4\n")
	notified := d.notified()
	d.run("bob", "--", "sh", "-c", "sleep 2; exit 3")
	asked, shown := notified("bob: failed, exit 3")
	_, text, _ := strings.Cut(d.property("bob", "ExecMainExitTimestamp"), " ")
	micro, err := strconv.ParseInt(text, 10, 64)
	require.NoError(t, err)
	exit := time.UnixMicro(micro)
	t.Logf("after the exit: the server is asked to show it after %v, and has taken it after %v", asked.Sub(exit),
		shown.Sub(exit))
	assert.Less(t, shown.Sub(exit), 10*time.Second)
	assert.Equal(t, "1", d.do("dunstctl", "count", "displayed"))
	d.picture()

	d.do("dunstctl", "action", "0")
	d.do("timeout", "30", "sh", "-c",
		"until DISPLAY=:7 xdotool search --onlyvisible --name '^bob' >/dev/null; do sleep 0.05; done")
	d.do("timeout", "30", "sh", "-c", "until pgrep -f '^[^ ]*corralctl attach bob$' >/dev/null; do sleep 0.05; done")
	// Attaching marks it as seen.
	d.do("timeout", "30", "sh", "-c", "until [ $(dunstctl count displayed) = 0 ]; do sleep 0.05; done")
	d.picture()

	// The hook got the same event. Its output is in the journal, and its failure is reported.
	d.do("timeout", "30", "sh", "-c", "until [ -e event ]; do sleep 0.05; done")
	assert.Contains(t, d.do("cat", "event"), `"Title":"bob: failed, exit 3"`)
	d.do("timeout", "30", "sh", "-c", "until corralctl status | grep -q 'the hook \"log\" failed: "+
		".* exited with code 4; see: journalctl --user -u corral-hook-log-'; do sleep 0.05; done")
	m.Run("journalctl", "--sync")
	assert.Contains(t, m.Run("journalctl", "--no-pager", "--output=cat", "_SYSTEMD_USER_SLICE=background.slice"),
		"the hook was here")
	assert.Regexp(t, `corral-hook-log-\w+\.service: Main process exited, code=exited, status=4`,
		m.Run("journalctl", "--no-pager", "--output=cat"))
}

// desktop starts a display, sets DISPLAY in the user's manager, and starts a notification server.
func (d *desk) desktop() {
	d.t.Helper()
	d.do("systemd-run", "--user", "--quiet", "--unit=display", "Xvfb", ":7", "-screen", "0", "640x360x24", "-nolisten",
		"tcp")
	d.do("timeout", "30", "sh", "-c", "until DISPLAY=:7 xdotool getmouselocation >/dev/null 2>&1; do sleep 0.05; done")
	d.do("systemctl", "--user", "set-environment", "DISPLAY=:7")
	d.do("systemd-run", "--user", "--quiet", "--unit=notifications", "dunst")
	d.do("timeout", "30", "sh", "-c",
		"until busctl --user --no-pager list | grep -q '^org.freedesktop.Notifications .*dunst'; do sleep 0.05; done")
}

// notified monitors the bus. It returns a function that waits for a notification and returns when
// the server was asked to show it and when it replied.
func (d *desk) notified() func(title string) (asked, shown time.Time) {
	d.t.Helper()
	monitor := d.Command(d.user, "busctl", "--user", "--json=short", "monitor", "org.freedesktop.Notifications")
	messages, err := monitor.StdoutPipe()
	require.NoError(d.t, err)
	require.NoError(d.t, monitor.Start())
	d.t.Cleanup(func() {
		_ = monitor.Process.Kill()
		_ = monitor.Wait()
	})
	type message struct {
		Type        string `json:"type"`
		Cookie      int    `json:"cookie"`
		ReplyCookie int    `json:"reply_cookie"`
		Destination string `json:"destination"`
		Sender      string `json:"sender"`
		Member      string `json:"member"`
		Time        int64  `json:"timestamp-realtime"`
		Payload     struct {
			Data []any `json:"data"`
		} `json:"payload"`
	}
	received := make(chan message, 64)
	go func() {
		for decoder := json.NewDecoder(messages); ; {
			var m message
			if decoder.Decode(&m) != nil {
				return
			}
			received <- m
		}
	}()
	testbed.Poll(d.t, "the monitor listens", func() bool {
		d.do("busctl", "--user", "call", "org.freedesktop.Notifications", "/org/freedesktop/Notifications",
			"org.freedesktop.Notifications", "GetServerInformation")
		return len(received) > 0
	})
	return func(title string) (asked, shown time.Time) {
		d.t.Helper()
		var call message
		for call.Member != "Notify" || len(call.Payload.Data) < 4 || call.Payload.Data[3] != title {
			call = testbed.Receive(d.t, received, "the notification "+title)
		}
		answer := testbed.Receive(d.t, received, "the server's answer")
		for answer.ReplyCookie != call.Cookie || answer.Destination != call.Sender {
			answer = testbed.Receive(d.t, received, "the server's answer")
		}
		return time.UnixMicro(call.Time), time.UnixMicro(answer.Time)
	}
}

// picture saves a picture of the display in the directory CORRAL_PICTURES, if that is set.
func (d *desk) picture() {
	d.t.Helper()
	dir := os.Getenv("CORRAL_PICTURES")
	if dir == "" {
		return
	}
	file, err := os.CreateTemp(dir, d.t.Name()+"-*.png")
	require.NoError(d.t, err)
	_, err = file.WriteString(d.As(d.user, "import", "-display", ":7", "-window", "root", "png:-"))
	require.NoError(d.t, err)
	require.NoError(d.t, file.Close())
	d.t.Log(file.Name())
}

// TestTmuxMessage_InAttachedTerminal checks that an attached terminal shows a message about another
// session, with this system's tmux, and that no text from an agent is executed or expanded.
func TestTmuxMessage_InAttachedTerminal(t *testing.T) {
	onEach(t, func(t *testing.T, d *desk) {
		d.run("looks", "--", "sleep", "1000")
		d.do("tmux", "-f", "/dev/null", "new-session", "-d", "-x", "150", "-y", "24", "corralctl attach looks")
		screen := func() string { return d.do("tmux", "capture-pane", "-p") }
		testbed.Poll(t, "it is attached", func() bool { return strings.Contains(screen(), "[looks]") })
		const hostile = "#(touch pwned) #{pid} #S #[fg=red] %H:%M %% $(touch pwned) `id` ; \\; -t"
		d.run("asks", "--", "sh", "-c", `corralctl report waiting --reason question --message "$1"; exec sleep 1000`, "sh",
			hostile)
		want := "asks: has a question: " + strings.ReplaceAll(hostile, "#[", "# [")
		testbed.Poll(t, "the message", func() bool { return strings.Contains(screen(), want) })
		assert.Empty(t, d.do("find", "/home/ann", "-name", "pwned"))
		testbed.Poll(t, "it is gone by itself", func() bool { return strings.Contains(screen(), "[looks]") })
		d.do("tmux", "kill-server")
	})
}
