//go:build e2e

package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/testbed/machine"
)

// TestSSH_ControlsAnotherMachine uses corralctl -H over a real sshd, which here is on the same
// machine and reached by another user.
func TestSSH_ControlsAnotherMachine(t *testing.T) {
	d := newDesk(t, machine.Debian(t, "trixie", "openssh-server", "openssh-client"))
	d.User("bob")
	d.Run("sh", "-c", "mkdir -p /run/sshd && ssh-keygen -A && systemctl restart ssh")
	// Bob has no Corral of his own running; he has a key for ann's account.
	d.As("bob", "sh", "-c", "mkdir -m 700 ~/.ssh && ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/id_ed25519")
	d.As("bob", "sh", "-c", `printf 'Host desk\n HostName 127.0.0.1\n User ann\n StrictHostKeyChecking accept-new\n BatchMode yes\n LogLevel ERROR\n' >~/.ssh/config`)
	key := d.As("bob", "cat", "/home/bob/.ssh/id_ed25519.pub")
	d.do("sh", "-c", `mkdir -m 700 ~/.ssh && printf '%s\n' "$1" >~/.ssh/authorized_keys && chmod 600 ~/.ssh/authorized_keys`, "sh", strings.TrimSpace(key))

	bob := func(args ...string) string {
		t.Helper()
		return strings.TrimSpace(d.As("bob", append([]string{"corralctl", "-H", "desk"}, args...)...))
	}
	fails := func(args ...string) (string, int) {
		cmd := d.Command("bob", append([]string{"corralctl", "-H", "desk"}, args...)...)
		out, _ := cmd.CombinedOutput()
		return strings.TrimSpace(string(out)), cmd.ProcessState.ExitCode()
	}

	monitor := d.Command("bob", "corralctl", "-H", "desk", "monitor", "--format=json")
	events, err := monitor.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, monitor.Start())
	lines := make(chan string, 1000)
	go func() {
		defer close(lines)
		text := make([]byte, 64<<10)
		rest := ""
		for {
			n, err := events.Read(text)
			parts := strings.Split(rest+string(text[:n]), "\n")
			for _, line := range parts[:len(parts)-1] {
				lines <- line
			}
			if rest = parts[len(parts)-1]; err != nil {
				return
			}
		}
	}()

	assert.Equal(t, "Started session far (app-corral-command-far.scope).",
		bob("run", "--dir", "/tmp", "--id", "far", "--", "sh", "-c", "echo here I am; exec cat"))
	assert.Regexp(t, `^far sh running .* /tmp$`, bob("list", "--no-legend"))
	assert.Equal(t, "running", d.do("corralctl", "is-active", "far"), "it runs as ann")
	d.t.Log(bob("status", "far"))
	assert.Contains(t, bob("status", "far"), "here I am")
	bob("send", "far", "a word from bob")
	assert.Contains(t, bob("logs", "far"), "here I am")
	out, code := fails("stop", "fra")
	assert.Equal(t, 4, code)
	assert.Equal(t, "corralctl: cannot stop \"fra\": no such session\nhint: corralctl --host=desk stop far", out)

	// Attaching needs a terminal on the remote side: tmux provides the local one, and ssh creates the
	// remote one.
	d.As("bob", "tmux", "-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", "corralctl -H desk attach far")
	screen := func() string { return d.As("bob", "tmux", "capture-pane", "-p") }
	for deadline := time.Now().Add(30 * time.Second); !strings.Contains(screen(), "here I am"); {
		require.True(t, time.Now().Before(deadline), screen())
	}
	d.As("bob", "tmux", "send-keys", "typed from afar", "Enter")
	for deadline := time.Now().Add(30 * time.Second); !strings.Contains(d.do("corralctl", "peek", "far"),
		"typed from afar"); {
		require.True(t, time.Now().Before(deadline), screen())
	}
	d.As("bob", "tmux", "kill-server")
	assert.Equal(t, "running", bob("is-active", "far"), "who leaves ends nothing")

	bob("stop", "far")
	var received []string
	for line := range lines {
		received = append(received, line)
		if strings.Contains(line, `"State":"stopped"`) {
			break
		}
	}
	assert.Contains(t, strings.Join(received, "\n"), `"Id":"far"`)
	require.NoError(t, monitor.Process.Kill())
	_ = monitor.Wait()
	out, code = fails("-H", "nobody@desk", "list")
	assert.Equal(t, 5, code, out)
}
