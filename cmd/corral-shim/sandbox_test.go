package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/internal/proc"
	"github.com/corrald/corral/internal/shimwire"
)

// inSandbox makes the session's agent run in a sandbox of bubblewrap that sees the file system as
// it is.
func (ts *testSession) inSandbox() *testSession {
	ts.t.Helper()
	bwrap, err := exec.LookPath("bwrap")
	require.NoError(ts.t, err, "install bubblewrap")
	prefix := []string{
		bwrap, "--unshare-user", "--unshare-pid", "--as-pid-1", "--dev-bind", "/", "/", "--proc", "/proc",
		"--", ts.shim, "confined",
	}
	ts.spec.SandboxArgs = len(prefix)
	ts.spec.Args = slices.Concat(prefix, ts.spec.Args)
	return ts
}

// inBoth runs a test twice: with an agent outside of a sandbox, and in one.
func inBoth(t *testing.T, test func(t *testing.T, place func(*testSession) *testSession)) {
	t.Run("without sandbox", func(t *testing.T) {
		test(t, func(ts *testSession) *testSession { return ts })
	})
	t.Run("in a sandbox", func(t *testing.T) { test(t, (*testSession).inSandbox) })
}

// TestSandbox_SignalsAndTerminal: what comes through the terminal reaches the agent alone, and its
// processes are those that the shim sees outside of the PID namespace.
func TestSandbox_SignalsAndTerminal(t *testing.T) {
	ts := newTestSession(t, "bash", "-c", `trap 'echo interrupted' INT; trap 'echo hung up; exit 9' HUP
		sizes & echo "its group: $(($(ps -o tpgid= -p $$) == $$)), first: $(ps -o comm= -p 1)"; while :; do sleep 0.1; done`).inSandbox()
	s := ts.startShim()
	d := ts.connect()
	s.waitFor("its group: 1, first: corral-shim")
	s.waitFor("size 30 100 800 480")
	s.setSize(40, 90)
	require.NoError(t, s.cmd.Process.Signal(unix.SIGWINCH))
	s.waitFor("size 40 90 720 640")
	s.typeKeys("\x03")
	s.waitFor("interrupted")
	stat, err := proc.Stat(d.hello.AgentPID)
	require.NoError(t, err)
	assert.Equal(t, d.hello.AgentStart, stat.Start)
	a := agent{pid: d.hello.AgentPID, pidfd: -1}
	a.signal(int(s.master.Fd()), unix.SIGHUP)
	require.NoError(t, unix.Kill(d.hello.AgentPID, unix.SIGHUP))
	assert.Equal(t, 9, s.wait())
}

// TestSandbox_HasProcessIDsOfItsOwn: agents take a lock file with the ID of a process that exists,
// or with their own, for one that is in use.
func TestSandbox_HasProcessIDsOfItsOwn(t *testing.T) {
	seen := map[string]bool{}
	for range 4 {
		s := newTestSession(t, "sh", "-c", "echo id $$.").inSandbox().startShim()
		require.Zero(t, s.wait())
		_, id, _ := strings.Cut(s.log(), "id ")
		id, _, _ = strings.Cut(id, ".")
		assert.Greater(t, len(id), 2, "%q is one of the first", id)
		assert.False(t, seen[id], "%q was used before", id)
		seen[id] = true
	}
}

// TestSandbox_EndsWithItsAgent: when the agent exits, the kernel kills what it has left.
func TestSandbox_EndsWithItsAgent(t *testing.T) {
	ts := newTestSession(t, "sh", "-c", `trap '' HUP TERM; setsid sleep 86399 & exit 3`).inSandbox()
	s := ts.startShim()
	assert.Equal(t, 3, s.wait())
	assert.Empty(t, processesWith(t, "sleep\x0086399"))
}

// TestSandbox_Losses kills each of the processes between the shim and the agent.
func TestSandbox_Losses(t *testing.T) {
	for _, c := range []struct {
		name       string
		ancestor   int // of the agent: 1 is the confined shim, 2 bubblewrap
		signal     unix.Signal
		code       exitstatus.Code
		value      int
		stillThere bool // the agent continues, and is ended by "exit 5"
	}{
		{"the confined shim is killed", 1, unix.SIGKILL, exitstatus.Killed, 9, false},
		{"the confined shim is terminated", 1, unix.SIGTERM, exitstatus.Exited, 5, true},
		{"the confined shim is hung up", 1, unix.SIGHUP, exitstatus.Exited, 5, true},
		{"bubblewrap is killed", 2, unix.SIGKILL, exitstatus.Exited, 5, true},
		{"bubblewrap is terminated", 2, unix.SIGTERM, exitstatus.Exited, 5, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ts := newTestSession(t, "sh", "-c", "read line; echo got $line; exit 5").inSandbox()
			s := ts.startShim()
			pid := ts.connect().hello.AgentPID
			for range c.ancestor {
				stat, err := proc.Stat(pid)
				require.NoError(t, err)
				pid = stat.Parent
			}
			require.NoError(t, unix.Kill(pid, c.signal))
			if c.stillThere {
				s.typeKeys("on\n")
				s.waitFor("got on")
			}
			s.wait()
			st := s.status()
			assert.Equal(t, c.code, st.Code)
			assert.Equal(t, c.value, st.Value)
		})
	}
}

// TestSandbox_LosesItsShim: the agent continues without its shim, as outside of a sandbox.
func TestSandbox_LosesItsShim(t *testing.T) {
	ts := newTestSession(t, "sh", "-c", "trap '' HUP; while sleep 0.05; do echo on >>alive; done").inSandbox()
	s := ts.startShim()
	agent := ts.connect().hello.AgentPID
	path := filepath.Join(ts.spec.Dir, "alive")
	waitForFile(t, path)
	require.NoError(t, s.cmd.Process.Kill())
	s.wait()
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		after, err := os.ReadFile(path)
		return err == nil && len(after) > len(before)
	}, deadline, 10*time.Millisecond)
	require.NoError(t, unix.Kill(agent, unix.SIGKILL))
	require.Eventually(t, func() bool { return unix.Kill(agent, 0) != nil }, deadline, 10*time.Millisecond)
}

// TestSandbox_IsNotSetUp: then the agent is not started.
func TestSandbox_IsNotSetUp(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*testSession)
		want   string
	}{
		{"bubblewrap refuses", func(ts *testSession) {
			ts.spec.Args = slices.Insert(ts.spec.Args, 1, "--bind", "/no/such", "/mnt")
			ts.spec.SandboxArgs += 3
		}, "cannot set up the sandbox: bwrap: Can't find source path /no/such: No such file or directory"},
		{"bubblewrap is missing", func(ts *testSession) {
			ts.spec.Args[0] = "/no/such"
		}, "cannot set up the sandbox: /no/such: no such file or directory"},
		{"the confined shim is missing", func(ts *testSession) {
			ts.spec.Args[ts.spec.SandboxArgs-2] = "/no/such"
		}, "cannot set up the sandbox: bwrap: execvp /no/such: No such file or directory"},
		{"a command without end of options", func(ts *testSession) {
			ts.spec.Args[slices.Index(ts.spec.Args, "--")] = "x"
		}, "cannot set up the sandbox: its command has no end of options"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ts := newTestSession(t, "touch", "started").inSandbox()
			c.change(ts)
			s := ts.startShim()
			assert.Equal(t, exitFailure, s.wait())
			st := s.status()
			assert.Equal(t, exitstatus.NotStarted, st.Code)
			assert.Equal(t, c.want, st.Error)
			assert.NoFileExists(t, filepath.Join(ts.spec.Dir, "started"))
		})
	}
}

// TestSandbox_IsKilledForAForbiddenFile, however the agent creates it.
func TestSandbox_IsKilledForAForbiddenFile(t *testing.T) {
	for name, script := range map[string]string{
		"created":           "echo x >forbidden; sleep 100",
		"renamed":           "echo x >other; mv other forbidden; sleep 100",
		"a link":            "ln -s /etc forbidden; sleep 100",
		"and exits at once": "echo x >forbidden",
		"among many files": `python3 -c 'import os
open("f", "w")
for i in range(10000): os.rename("f", "g"); os.rename("g", "f")
open("forbidden", "w"); os.execvp("sleep", ["sleep", "100"])'`,
		"in the background": "(sleep 0.1; echo x >forbidden; sleep 100) & sleep 100",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ts := newTestSession(t, "sh", "-c", script).inSandbox()
			ts.spec.Forbidden = filepath.Join(ts.spec.Dir, "forbidden")
			s := ts.startShim()
			assert.Equal(t, 137, s.wait())
			st := s.status()
			assert.Equal(t, exitstatus.Killed, st.Code)
			assert.Equal(t, "command was killed by SIGKILL: it created "+strconv.Quote(ts.spec.Forbidden)+
				", with which it could leave its sandbox", st.Error)
			_, err := os.Lstat(ts.spec.Forbidden)
			require.ErrorIs(t, err, os.ErrNotExist)
		})
	}
}

// TestConfined_IsRunByTheShimAlone: without its socket, the agent does not run.
func TestConfined_IsRunByTheShimAlone(t *testing.T) {
	ts := newTestSession(t, "")
	touched := filepath.Join(ts.dir, "touched")
	text, err := exec.Command(ts.shim, "confined", "touch", touched).CombinedOutput()
	require.Error(t, err)
	assert.Equal(t, "corral-shim: confined is only for corral-shim run\n", string(text))
	assert.NoFileExists(t, touched)
}

// TestSandbox_DoesNotReachAbstractSockets of processes outside.
func TestSandbox_DoesNotReachAbstractSockets(t *testing.T) {
	if _, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION); e != 0 {
		t.Log("this kernel has no Landlock: they are reached")
		return
	}
	name := "corral-test-" + strconv.Itoa(os.Getpid())
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer func() { _ = unix.Close(fd) }()
	require.NoError(t, unix.Bind(fd, &unix.SockaddrUnix{Name: "@" + name}))
	require.NoError(t, unix.Listen(fd, 8))
	inBoth(t, func(t *testing.T, place func(*testSession) *testSession) {
		ts := place(newTestSession(t, "python3", "-c", `
import socket
s = socket.socket(socket.AF_UNIX)
try:
    s.connect("\0`+name+`")
    print("connected")
except PermissionError:
    print("denied")`))
		s := ts.startShim()
		require.Zero(t, s.wait())
		want := "connected"
		if ts.spec.SandboxArgs > 0 {
			want = "denied"
		}
		assert.Contains(t, s.log(), want)
	})
}

// TestSandbox_LeavesReportsForTheDaemon: hooks reach the socket for sd_notify(3) alone.
func TestSandbox_LeavesReportsForTheDaemon(t *testing.T) {
	ts := newTestSession(t, "sh", "-c", `systemd-notify --status=ignored '`+shimwire.ReportVariable+
		`={"activity":"waiting"}'; systemd-notify --ready; echo ready; read a`).inSandbox().withNotify()
	ts.spec.OnlyHooks, ts.spec.Prompt = true, "go"
	s := ts.startShim()
	report := filepath.Join(ts.dir, "run", shimwire.ReportName)
	waitForFile(t, report)
	text, err := os.ReadFile(report)
	require.NoError(t, err)
	assert.JSONEq(t, `{"activity":"waiting"}`, string(text))
	assert.Zero(t, s.wait(), "READY=1 is not waited for")
}

// processesWith returns the ids of the processes whose arguments contain a text.
func processesWith(t *testing.T, text string) (pids []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	for _, path := range all {
		if b, err := os.ReadFile(path); err == nil && strings.Contains(string(b), text) {
			pids = append(pids, path)
		}
	}
	return pids
}
