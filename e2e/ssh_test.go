//go:build e2e

package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSSH_ControlsAnotherMachine uses corralctl -H on a laptop, over a real sshd on another
// machine.
func TestSSH_ControlsAnotherMachine(t *testing.T) {
	t.Parallel()
	hosts := newHosts(t, host{name: "laptop"}, host{name: "desk"})
	laptop, d := hosts[0], hosts[1]
	remote := func(args ...string) string {
		t.Helper()
		return laptop.do(append([]string{"corralctl", "-H", "desk"}, args...)...)
	}
	fails := func(args ...string) (string, int) {
		return laptop.try(append([]string{"corralctl", "-H", "desk"}, args...)...)
	}

	monitor := laptop.Command("ann", "corralctl", "-H", "desk", "monitor", "--format=json")
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
		remote("run", "--dir", "/tmp", "--id", "far", "--", "sh", "-c", "echo here I am; exec cat"))
	assert.Regexp(t, `^far sh running .* /tmp$`, remote("list", "--no-legend"))
	assert.Equal(t, "running", d.do("corralctl", "is-active", "far"))
	// On the machine itself, root reaches her without ssh.
	assert.Equal(t, "running\n", d.Run("corralctl", "-M", "ann@", "is-active", "far"))
	assert.Contains(t, d.Run("corralctl", "-M", "ann@", "logs", "far"), "here I am")
	assert.Contains(t, remote("status", "far"), "here I am")
	remote("send", "far", "a word from afar")
	assert.Contains(t, remote("logs", "far"), "here I am")
	out, code := fails("stop", "fra")
	assert.Equal(t, 4, code)
	assert.Equal(t, "corralctl: cannot stop \"fra\": no such session\nhint: corralctl --host=desk stop far", out)

	// Attaching needs a terminal on the remote side: tmux provides the local one, and ssh creates the
	// remote one.
	laptop.do("tmux", "-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", "corralctl -H desk attach far")
	screen := func() string { return laptop.do("tmux", "capture-pane", "-p") }
	for deadline := time.Now().Add(30 * time.Second); !strings.Contains(screen(), "here I am"); {
		require.True(t, time.Now().Before(deadline), screen())
	}
	laptop.do("tmux", "send-keys", "typed from afar", "Enter")
	for deadline := time.Now().Add(30 * time.Second); !strings.Contains(d.do("corralctl", "peek", "far"),
		"typed from afar"); {
		require.True(t, time.Now().Before(deadline), screen())
	}
	laptop.do("tmux", "kill-server")
	assert.Equal(t, "running", remote("is-active", "far"), "who leaves ends nothing")

	remote("stop", "far")
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
	out, code = laptop.try("corralctl", "-H", "nobody@desk", "list")
	assert.Equal(t, 5, code, out)
}
