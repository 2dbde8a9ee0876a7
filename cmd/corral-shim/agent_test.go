package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/exitstatus"
)

func TestExitStatus_RecordsHowTheAgentEnded(t *testing.T) {
	rows := []struct {
		name   string
		script string
		code   exitstatus.Code
		value  int
		exit   int
	}{
		{"exits with 0", "exit 0", exitstatus.Exited, 0, 0},
		{"exits with 3", "exit 3", exitstatus.Exited, 3, 3},
		{"exits with 255", "exit 255", exitstatus.Exited, 255, 255},
		{"exits as a shell does after a signal", "exit 137", exitstatus.Exited, 137, 137},
		{"is killed", "kill -KILL $$", exitstatus.Killed, 9, 137},
		{"is terminated", "kill -TERM $$", exitstatus.Killed, 15, 143},
		{"is hung up", "kill -HUP $$", exitstatus.Killed, 1, 129},
		{"ends with a child that holds its terminal", "sleep 1000 & exit 4", exitstatus.Exited, 4, 4},
	}
	inBoth(t, func(t *testing.T, place func(*testSession) *testSession) {
		for _, c := range rows {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				before := time.Now().Add(-time.Microsecond)
				s := place(newTestSession(t, "sh", "-c", c.script)).startShim()
				assert.Equal(t, c.exit, s.wait())
				st := s.status()
				assert.Equal(t, c.code, st.Code)
				assert.Equal(t, c.value, st.Value)
				assert.Equal(t, "run-1", st.RunID)
				assert.Len(t, st.BootID, 36)
				assert.Positive(t, st.PID)
				assert.Positive(t, st.MaxRSS)
				assert.False(t, st.PaneClosed)
				assert.False(t, st.Started.Before(before.Truncate(time.Microsecond)))
				assert.False(t, st.Exited.Before(st.Started))
				assert.False(t, st.Exited.After(time.Now()))
				assert.NoFileExists(t, s.spec.Socket)
			})
		}
	})
}

func TestExitStatus_RecordsACoreDump(t *testing.T) {
	pattern, err := os.ReadFile("/proc/sys/kernel/core_pattern")
	require.NoError(t, err)
	inBoth(t, func(t *testing.T, place func(*testSession) *testSession) {
		s := place(newTestSession(t, "sh", "-c", "ulimit -c unlimited; kill -SEGV $$")).startShim()
		assert.Equal(t, 139, s.wait())
		st := s.status()
		assert.Equal(t, int(unix.SIGSEGV), st.Value)
		if !strings.HasPrefix(string(pattern), "|") { // a core handler may be configured not to store a dump
			assert.Equal(t, exitstatus.Dumped, st.Code)
		}
	})
}

func TestStartError_NamesTheCause(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	require.NoError(t, os.WriteFile(text, []byte("#!/bin/sh\n"), 0o600))
	lost := filepath.Join(dir, "lost")
	require.NoError(t, os.WriteFile(lost, []byte("#!/no/such/interpreter\n"), 0o700))
	rows := []struct {
		name string
		dir  string
		args []string
		want string
		exit int
	}{
		{"not in PATH", "/", []string{"no-such-command"}, `command "no-such-command" not found`, 127},
		{"no such file", "/", []string{"/no/such"}, `command "/no/such" not found`, 127},
		{"below a file", "/", []string{text + "/x"}, `command "` + text + `/x" not found`, 127},
		{"empty", "/", []string{""}, `command "" not found`, 127},
		{"shell characters", "/", []string{"echo a; echo b"}, `command "echo a; echo b" not found`, 127},
		{"not executable", "/", []string{text}, `command "` + text + `" is not executable`, 126},
		{"a directory", "/", []string{dir}, `command "` + dir + `" is not executable`, 126},
		{"no interpreter", "/", []string{lost}, `command "` + lost + `" needs an interpreter that does not exist`, 126},
		{"no workspace", "/no/such/dir", []string{"true"}, `workspace "/no/such/dir" does not exist`, 126},
		{"a file as workspace", text, []string{"true"}, `workspace "` + text + `" is not a directory`, 126},
		{"a NUL in an argument", "/", []string{"true", "a\x00b"}, `command "true" cannot be executed: invalid argument`, 126},
		{"too long", "/", []string{"true", strings.Repeat("x", 200_000)}, `command "true" cannot be executed: argument list too long`, 126},
	}
	inBoth(t, func(t *testing.T, place func(*testSession) *testSession) {
		for _, c := range rows {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				ts := place(newTestSession(t, c.args...))
				if ts.spec.SandboxArgs > 0 && slices.Contains([]string{"a NUL in an argument", "too long"}, c.name) {
					c.want, c.exit = strings.Replace(c.want, `command "true" cannot be executed`, "cannot set up the sandbox: "+ts.spec.Args[0], 1), exitFailure
				}
				ts.spec.Dir = c.dir
				s := ts.startShim()
				assert.Equal(t, c.exit, s.wait())
				st := s.status()
				assert.Equal(t, exitstatus.NotStarted, st.Code)
				assert.Equal(t, c.want, st.Error)
				s.waitFor(c.want)
				assert.Equal(t, []string{exitstatus.FileName}, ts.runtimeFiles())
			})
		}
	})
}

func TestArguments_ReachTheAgentUnchanged(t *testing.T) {
	args := []string{"a b", `'"`, "$HOME `x` \\", "line\nline", "", "*", "ünï", "\xff"}
	script := `for a; do printf '<%s>' "$a"; done; printf '%s' "$OPT"; pwd`
	inBoth(t, func(t *testing.T, place func(*testSession) *testSession) {
		ts := place(newTestSession(t, append([]string{"sh", "-c", script, "sh"}, args...)...))
		ts.spec.Env = append(ts.spec.Env, "OPT=x y=z")
		s := ts.startShim()
		require.Equal(t, 0, s.wait())
		want := "<" + strings.Join(args, "><") + ">x y=z" + ts.spec.Dir + "\n"
		assert.Equal(t, strings.ReplaceAll(want, "\n", "\r\n"), s.log())
		assert.NoFileExists(t, filepath.Join(ts.dir, "run", "spec"))
	})
}

func TestExec_RunsScriptsWithoutInterpreterLine(t *testing.T) {
	ts := newTestSession(t, "./script", "x y")
	require.NoError(t, os.WriteFile(filepath.Join(ts.spec.Dir, "script"), []byte("echo \"got $1\"\nexit 5\n"), 0o700))
	s := ts.startShim()
	assert.Equal(t, 5, s.wait())
	assert.Contains(t, s.log(), "got x y")
}

func TestAgent_InheritsOnlyItsTerminalAndEnvironment(t *testing.T) {
	inBoth(t, func(t *testing.T, place func(*testSession) *testSession) {
		ts := place(newTestSession(t, "sh", "-c", "grep -E 'Sig(Blk|Ign)' /proc/self/status; "+
			"echo fds: $(ls /proc/self/fd); env; ps -o sid=,pid=,pgid=,tpgid= -p $$"))
		s := ts.startShim()
		require.Equal(t, 0, s.wait())
		log := s.log()
		assert.Contains(t, log, "SigBlk:\t0000000000000000")
		assert.Contains(t, log, "SigIgn:\t0000000000000000")
		assert.Contains(t, log, "fds: 0 1 2 3\r\n") // 3 is the descriptor of the directory that ls reads
		assert.NotContains(t, log, "HOME=")
	})
}

func TestAgent_StartsWithDefaultSignals(t *testing.T) {
	ts := newTestSession(t, "grep", "-E", "Sig(Blk|Ign)", "/proc/self/status")
	shim := ts.shim
	ts.shim = filepath.Join(ts.dir, "wrapper")
	script := "#!/bin/bash\ntrap '' HUP INT QUIT TERM TSTP TTIN TTOU PIPE USR1 CHLD\n" +
		"exec env --block-signal=USR2,WINCH " + shim + " \"$@\"\n"
	require.NoError(t, os.WriteFile(ts.shim, []byte(script), 0o700))
	s := ts.startShim()
	require.Equal(t, 0, s.wait())
	assert.Contains(t, s.log(), "SigBlk:\t0000000000000000")
	assert.Contains(t, s.log(), "SigIgn:\t0000000000000000")
}
