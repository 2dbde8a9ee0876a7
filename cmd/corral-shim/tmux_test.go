package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/proc"
	"github.com/corrald/corral/internal/shimwire"
)

// tmux is a tmux server of the test, with the options that sessions have.
type tmux struct {
	*testSession
	socket string
	pid    int
}

// inTmux starts the session's shim in a new tmux server.
func (ts *testSession) inTmux() *tmux {
	ts.t.Helper()
	m := &tmux{testSession: ts, socket: filepath.Join(ts.dir, "run", "tmux")}
	m.start("run", ts.writeSpec())
	return m
}

// start starts a server with one pane that runs the shim with args.
func (m *tmux) start(args ...string) {
	m.t.Helper()
	conf := filepath.Join(m.dir, "tmux.conf")
	text := "set -s exit-empty off\nset -g remain-on-exit on\nset -g remain-on-exit-format ''\n" +
		"set -g default-terminal tmux-256color\nset -s escape-time 0\nset -g status off\n"
	require.NoError(m.t, os.WriteFile(conf, []byte(text), 0o600))
	m.call(append([]string{"-f", conf, "new-session", "-d", "-s", "agent", "-x", "90", "-y", "20", m.shim}, args...)...)
	pid, err := strconv.Atoi(m.call("display-message", "-p", "#{pid}"))
	require.NoError(m.t, err)
	m.pid = pid
	m.t.Cleanup(func() { _ = unix.Kill(pid, unix.SIGKILL) })
}

func (m *tmux) command(args ...string) *exec.Cmd {
	c := exec.Command("tmux", append([]string{"-S", m.socket}, args...)...)
	c.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "TERM=xterm-256color", "LANG=C.UTF-8", "HOME=" + m.dir}
	return c
}

// call runs a tmux command and returns what it prints.
func (m *tmux) call(args ...string) string {
	m.t.Helper()
	c := m.command(args...)
	var out, problem bytes.Buffer
	c.Stdout, c.Stderr = &out, &problem
	err := c.Run()
	require.NoError(m.t, err, "tmux %v: %s", args, problem.String())
	return strings.TrimSpace(out.String())
}

// attach attaches a terminal to the session, as a user does.
func (m *tmux) attach() *testTerminal {
	m.t.Helper()
	s := &testTerminal{testSession: m.testSession, fresh: make(chan struct{}, 1), done: make(chan struct{})}
	slave := s.openTerminal()
	s.cmd = m.command("attach-session")
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = slave, slave, slave
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(m.t, s.cmd.Start())
	require.NoError(m.t, slave.Close())
	go s.read()
	go func() { _ = s.cmd.Wait(); close(s.done) }()
	m.t.Cleanup(s.cleanup)
	return s
}

// waitForScreen waits until want accepts the content of the pane, without blank rows at its end,
// and returns it.
func (m *tmux) waitForScreen(want func(screen string) bool) string {
	m.t.Helper()
	end := time.Now().Add(deadline)
	for {
		screen := m.call("capture-pane", "-p")
		if want(screen) {
			return screen
		}
		require.True(m.t, time.Now().Before(end), "the pane shows: %s", screen)
	}
}

// waitForExitLine waits until the pane shows the exit line and returns the screen without it.
func (m *tmux) waitForExitLine(how string) string {
	m.t.Helper()
	line := shimwire.ExitLinePrefix + "agent " + how + ". Restart or log: corralctl attach shop"
	screen := m.waitForScreen(func(screen string) bool { return strings.HasSuffix(screen, line) })
	return strings.TrimSuffix(screen, line)
}

// waitForExit waits until a process has exited that is not a child of the test.
func waitForExit(t *testing.T, pid int) {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err == unix.ESRCH {
		return
	}
	require.NoError(t, err)
	defer func() { _ = unix.Close(fd) }()
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for end := time.Now().Add(deadline); ; {
		n, err := unix.Poll(p, int(max(time.Until(end).Milliseconds(), 0)))
		if err == unix.EINTR {
			continue
		}
		require.NoError(t, err)
		require.Equal(t, 1, n, "process %d does not end", pid)
		return
	}
}

// cleanup kills the remaining processes of a session at the end of its test.
func (d *daemon) cleanup() {
	for _, pid := range []int{d.hello.AgentPID, d.hello.ShimPID} {
		if _, err := proc.Stat(pid); err == nil {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}

func TestPane_ClosedOrLost(t *testing.T) {
	for _, c := range []struct {
		name   string
		by     func(m *tmux)
		closed bool
	}{
		{"kill-pane", func(m *tmux) { m.call("kill-pane", "-t", "agent") }, true},
		{"kill-window", func(m *tmux) { m.call("kill-window", "-t", "agent") }, true},
		{"kill-session", func(m *tmux) { m.call("kill-session", "-t", "agent") }, true},
		{"kill-server", func(m *tmux) { m.call("kill-server") }, false},
		{"SIGKILL to the server", func(m *tmux) { _ = unix.Kill(m.pid, unix.SIGKILL) }, false},
		{"SIGTERM to the server", func(m *tmux) { _ = unix.Kill(m.pid, unix.SIGTERM) }, false},
		{"SIGABRT to the server", func(m *tmux) { _ = unix.Kill(m.pid, unix.SIGABRT) }, false},
	} {
		for _, attached := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, attached %t", c.name, attached), func(t *testing.T) {
				t.Parallel()
				ts := newTestSession(t, "sh", "-c", `trap 'echo hung up; exit 12' HUP; echo ready; while read x; do echo "got $x"; [ "$x" = end ] && exit 14; done`)
				m := ts.inTmux()
				d := ts.connect()
				defer d.cleanup()
				if attached {
					m.attach().waitFor("ready")
				}
				c.by(m)
				if c.closed {
					d.expect(shimwire.PaneClosed)
					waitForExit(t, d.hello.ShimPID)
					st := ts.status()
					assert.True(t, st.PaneClosed)
					assert.Equal(t, 12, st.Value)
					assert.Contains(t, ts.log(), "hung up")
					return
				}
				d.expect(shimwire.PaneLost)
				waitForExit(t, m.pid)
				late := ts.connect()
				assert.False(t, late.hello.Pane)
				assert.Equal(t, d.hello.AgentPID, late.hello.AgentPID)
				assert.Empty(t, d.sendTextAndWait(1, "a line\nend\n", 0).Error)
				waitForExit(t, d.hello.ShimPID)
				assert.False(t, ts.status().PaneClosed)
				assert.Equal(t, 14, ts.status().Value)
				assert.Contains(t, ts.log(), "got a line\r\n")
				assert.Contains(t, ts.log(), "got end\r\n")
			})
		}
	}
}

// TestTmuxServer_DiesDuringOutput: the shim may notice that because a write fails, while it has
// output that still has to be logged.
func TestTmuxServer_DiesDuringOutput(t *testing.T) {
	for n := range 8 {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			ts := newTestSession(t, "sh", "-c", `trap '' HUP; i=0; while [ ! -e end ]; do i=$((i+1)); echo "line $i of many"; done; echo the last; exit 14`)
			ts.spec.LogMax = 1 << 20
			m := ts.inTmux()
			d := ts.connect()
			defer d.cleanup()
			require.NoError(t, unix.Kill(m.pid, unix.SIGKILL))
			d.expect(shimwire.PaneLost)
			late := ts.connect()
			assert.Equal(t, d.hello.AgentPID, late.hello.AgentPID, "the shim and its agent live")
			require.NoError(t, os.WriteFile(filepath.Join(ts.spec.Dir, "end"), nil, 0o600))
			waitForExit(t, d.hello.ShimPID)
			assert.Equal(t, 14, ts.status().Value)
			assert.Contains(t, ts.log(), "the last\r\n")
		})
	}
}

func TestPaneClosed_EscalatesToSIGTERM(t *testing.T) {
	t.Parallel()
	ts := newTestSession(t, "sh", "-c", `trap '' HUP; echo ready; while :; do sleep 1000; done`)
	m := ts.inTmux()
	d := ts.connect()
	defer d.cleanup()
	m.call("kill-session", "-t", "agent")
	d.expect(shimwire.PaneClosed)
	waitForExit(t, d.hello.ShimPID)
	st := ts.status()
	assert.True(t, st.PaneClosed)
	assert.Equal(t, int(unix.SIGTERM), st.Value)
}

func TestOutput_ContinuesWithoutTmux(t *testing.T) {
	ts := newTestSession(t, "sh", "-c", `echo ready; read x; seq 300000; exit 8`)
	ts.spec.LogMax = 16 << 20
	m := ts.inTmux()
	d := ts.connect()
	defer d.cleanup()
	require.NoError(t, unix.Kill(m.pid, unix.SIGKILL))
	d.expect(shimwire.PaneLost)
	d.sendText(1, "\n", 0)
	waitForExit(t, d.hello.ShimPID)
	assert.Equal(t, 8, ts.status().Value)
	assert.True(t, strings.HasSuffix(ts.log(), "\r\n299999\r\n300000\r\n"))
	assert.Equal(t, 1, strings.Count(ts.log(), "\r\n150000\r\n"))
}

func TestJoin_ShowsTheAgentInANewPane(t *testing.T) {
	ts := newTestSession(t, "sh", "-c", `printf '\033[?2004h\033[?1000h'; sizes & trap 'kill $!' EXIT; stty -echo; while read x; do echo "got $x"; [ "$x" = end ] && exit 21; done; exit 1`)
	first := ts.inTmux()
	d := ts.connect()
	defer d.cleanup()
	require.NoError(t, unix.Kill(first.pid, unix.SIGKILL))
	d.expect(shimwire.PaneLost)

	second := &tmux{testSession: ts, socket: filepath.Join(ts.dir, "run", "second")}
	second.start("join", ts.spec.Socket)
	eye := second.attach()
	eye.waitFor("size 30 100")
	eye.typeKeys("hello\n")
	eye.waitFor("got hello")
	mouse := second.call("display-message", "-p", "#{mouse_any_flag}#{mouse_button_flag}#{mouse_standard_flag}")
	assert.Equal(t, "1", mouse[2:])
	eye.setSize(40, 120)
	eye.waitFor("size 40 120")

	require.NoError(t, unix.Kill(second.pid, unix.SIGTERM))
	d.expect(shimwire.PaneLost)
	third := &tmux{testSession: ts, socket: filepath.Join(ts.dir, "run", "third")}
	third.start("join", ts.spec.Socket)
	eye = third.attach()
	eye.waitFor("size 30 100")
	assert.True(t, ts.connect().hello.Pane)
	eye.typeKeys("end\n")
	waitForExit(t, d.hello.ShimPID)
	assert.Equal(t, 21, ts.status().Value)
	third.waitForExitLine("exited with code 21")
}

func TestJoin_ReportsAClosedPane(t *testing.T) {
	ts := newTestSession(t, "sh", "-c", "trap 'exit 13' HUP; echo ready; while :; do read x; done")
	first := ts.inTmux()
	d := ts.connect()
	defer d.cleanup()
	require.NoError(t, unix.Kill(first.pid, unix.SIGKILL))
	d.expect(shimwire.PaneLost)
	second := &tmux{testSession: ts, socket: filepath.Join(ts.dir, "run", "second")}
	second.start("join", ts.spec.Socket)
	ts.awaitPane()
	second.call("kill-pane", "-t", "agent")
	d.expect(shimwire.PaneClosed)
	waitForExit(t, d.hello.ShimPID)
	assert.Equal(t, 13, ts.status().Value)
	assert.True(t, ts.status().PaneClosed)
}

func TestJoin_ReportsAKilledJoiner(t *testing.T) {
	ts := newTestSession(t, "sh", "-c", "echo ready; while :; do read x; done")
	first := ts.inTmux()
	d := ts.connect()
	defer d.cleanup()
	require.NoError(t, unix.Kill(first.pid, unix.SIGKILL))
	d.expect(shimwire.PaneLost)
	second := &tmux{testSession: ts, socket: filepath.Join(ts.dir, "run", "second")}
	second.start("join", ts.spec.Socket)
	ts.awaitPane()
	thin, err := strconv.Atoi(second.call("display-message", "-p", "#{pane_pid}"))
	require.NoError(t, err)
	require.NoError(t, unix.Kill(thin, unix.SIGKILL))
	d.expect(shimwire.PaneLost)
	assert.Empty(t, d.sendTextAndWait(1, "still there\n", 0).Error)
	assert.False(t, ts.connect().hello.Pane)
}

func TestJoin_FailsWithoutAShim(t *testing.T) {
	ts := newTestSession(t, "true")
	c := exec.Command(ts.shim, "join", ts.spec.Socket)
	out, err := c.CombinedOutput()
	require.Error(t, err)
	assert.Equal(t, exitFailure, c.ProcessState.ExitCode())
	assert.Equal(t, "corral-shim: cannot reach the agent: connect: no such file or directory\n", string(out))
}

// awaitPane waits until the shim has a pane again.
func (ts *testSession) awaitPane() {
	ts.t.Helper()
	end := time.Now().Add(deadline)
	for {
		d := ts.connect()
		d.close()
		if d.hello.Pane {
			return
		}
		require.True(ts.t, time.Now().Before(end))
	}
}
