package effects

import (
	"bufio"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/testbed"
	"github.com/corrald/corral/supervisor"
)

// careless takes the place of a tmux server that has lost a SIGCHLD: it prints a line for each
// SIGCHLD, and reaps its child at the third one.
const careless = `
import os, signal
def count(*_):
    global left
    left -= 1
    if left == 0:
        os.wait()
    os.write(1, b"SIGCHLD\n" if left else b"reaped\n")
left = 3
signal.signal(signal.SIGCHLD, count)
if os.fork() == 0:
    os._exit(0)
while True:
    signal.pause()
`

func TestReapTmux_SignalsUntilTheZombieIsReaped(t *testing.T) {
	cmd := exec.Command("python3", "-c", careless)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	lines := make(chan string)
	go func() {
		for out := bufio.NewScanner(stdout); out.Scan(); {
			lines <- out.Text()
		}
	}()
	require.Equal(t, "SIGCHLD", testbed.Receive(t, lines, "the exit of the child"))
	server := tmuxServer{process: process(t, cmd.Process.Pid), wait: minReapWait}
	zombie, child := server.children()
	require.True(t, zombie && child)
	x := &Executor{reaping: make(chan tmuxServer)}
	go x.reap()
	x.reapTmux(supervisor.Target{Tmux: server.process})
	require.Equal(t, "SIGCHLD", testbed.Receive(t, lines, "the first signal"))
	require.Equal(t, "reaped", testbed.Receive(t, lines, "the second signal"))
	assert.True(t, server.isReaped())
}

// TestIsReaped_GivesUp: a program in another pane of the server may run for as long as it likes.
func TestIsReaped_GivesUp(t *testing.T) {
	cmd := exec.Command("sh", "-c", "sleep infinity & echo $!; wait")
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	child, err := strconv.Atoi(strings.TrimSpace(line))
	require.NoError(t, err)
	defer func() { // the shell exits, too
		_ = unix.Kill(child, unix.SIGKILL)
		_ = cmd.Wait()
	}()
	server := tmuxServer{process: process(t, cmd.Process.Pid), wait: minReapWait}
	examinations := 1
	for ; !server.isReaped(); server.wait *= 2 {
		examinations++
	}
	assert.Equal(t, 9, examinations)
}
