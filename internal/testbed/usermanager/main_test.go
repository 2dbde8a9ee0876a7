package main_test

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/testbed"
)

// These tests run outside of a test bed, because they check what a test bed leaves on the machine.

func TestUserManager_PassesStatusAndStreams(t *testing.T) {
	program := build(t)
	for _, row := range []struct {
		name, script, input, output string
		status                      int
	}{
		{"success, with input", "cat", "as it is\n", "as it is\n", 0},
		{"a status", "exit 7", "", "", 7},
		{"a signal", "kill -KILL $$", "", "", 128 + 9},
		{"background processes do not delay it", "sleep 1000 & exit 3", "", "", 3},
	} {
		t.Run(row.name, func(t *testing.T) {
			var output bytes.Buffer
			cmd := exec.Command(program, "--", "sh", "-c", row.script)
			cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(row.input), &output, &output
			_ = cmd.Run()
			assert.Equal(t, row.status, cmd.ProcessState.ExitCode())
			assert.Equal(t, row.output, output.String())
		})
	}
	assert.Equal(t, 127, statusOf(t, exec.Command(program, "--", "no-such-command")))
	assert.Equal(t, 126, statusOf(t, exec.Command(program, "--", "/etc")), "a directory")
	assert.Equal(t, 2, statusOf(t, exec.Command(program)))
}

func TestUserManager_LeavesNothingBehind(t *testing.T) {
	r := start(t, build(t),
		"setsid sleep 1000 & systemd-run --user --quiet sleep 1000; mkdir -m 0 $HOME/locked; echo up; read line; exit 5")
	require.NoError(t, r.stdin.Close())
	_ = r.cmd.Wait()
	assert.Equal(t, 5, r.cmd.ProcessState.ExitCode())
	assert.NoDirExists(t, r.dir)
	assert.NoDirExists(t, r.cgroup)
}

func TestUserManager_CleansUpAfterKill(t *testing.T) {
	program := build(t)
	r := start(t, program, "setsid sleep 1000 & systemd-run --user --quiet sleep 1000; echo up; read line")
	running := processesOf(t, r.cgroup)
	require.GreaterOrEqual(t, len(running), 5, "keeper, manager, bus, and the two that sleep")
	require.NoError(t, r.cmd.Process.Kill())
	_ = r.cmd.Wait()
	for _, pid := range running {
		testbed.WaitExit(t, pid)
	}
	require.NoError(t, exec.Command(program, "--", "true").Run())
	assert.NoDirExists(t, r.dir)
	assert.NoDirExists(t, r.cgroup)
}

func TestUserManagers_AreIsolated(t *testing.T) {
	program := build(t)
	const script = "systemd-run --user --quiet --unit=mine sleep 1000; echo up; read line; " +
		"systemctl --user show -P Id 'mine*'; systemctl --user stop mine"
	one, two := start(t, program, script), start(t, program, script)
	assert.NotEqual(t, one.dir, two.dir)
	for _, r := range []*run{one, two} { // if they shared a manager, the second would find no unit
		require.NoError(t, r.stdin.Close())
		output, err := io.ReadAll(r.stdout)
		require.NoError(t, err)
		require.NoError(t, r.cmd.Wait())
		assert.Equal(t, "mine.service\n", string(output))
	}
}

func TestUserManager_ForwardsSignals(t *testing.T) {
	r := start(t, build(t), "trap 'exit 9' TERM; echo up; while :; do sleep 1000 & wait; done")
	require.NoError(t, r.cmd.Process.Signal(unix.SIGTERM))
	_ = r.cmd.Wait()
	assert.Equal(t, 9, r.cmd.ProcessState.ExitCode())
}

// Root's home, where root may have cloned to, is closed to the user that the command runs as.
func TestWorkingDirectory_IsAccessibleBelowPrivateOne(t *testing.T) {
	closed := t.TempDir()
	tree := filepath.Join(closed, "a tree", "closed too")
	require.NoError(t, os.MkdirAll(filepath.Join(tree, "scripts"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(closed, "secret"), nil, 0o644))
	for name, text := range map[string]string{"go.mod": "module x\n", "scripts/x.sh": "echo ran\n", "file": "text\n"} {
		require.NoError(t, os.WriteFile(filepath.Join(tree, name), []byte(text), 0o644))
	}
	require.NoError(t, os.Symlink("file", filepath.Join(tree, "link")))
	require.NoError(t, os.Chmod(closed, 0o700))
	require.NoError(t, os.Chmod(tree, 0o700))
	cmd := exec.Command(build(t), "--", "sh", "-c", `bash "$PWD/x.sh"; cat ../link "$PWD/../file"; cd ../../..; ls; ls "$1"; test -w "$1/a tree/closed too/file" || echo read-only`, "sh", closed)
	cmd.Dir = filepath.Join(tree, "scripts")
	output, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", output)
	assert.Contains(t, string(output), "ran\ntext\ntext\na tree\n")
	if os.Geteuid() == 0 { // otherwise the command runs as the owner of the files
		assert.Equal(t, "ran\ntext\ntext\na tree\na tree\nread-only\n", string(output))
	}
	info, err := os.Stat(tree)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o700), info.Mode().Perm())
}

func build(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "usermanager")
	output, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput()
	require.NoError(t, err, string(output))
	return program
}

func statusOf(t *testing.T, cmd *exec.Cmd) int {
	t.Helper()
	_ = cmd.Run()
	return cmd.ProcessState.ExitCode()
}

// run is a user manager whose command has printed "up".
type run struct {
	cmd         *exec.Cmd
	stdin       io.Closer
	stdout      io.Reader
	dir, cgroup string
}

func start(t *testing.T, program, script string) *run {
	t.Helper()
	cmd := exec.Command(program, "--", "sh", "-c", "dirname $XDG_RUNTIME_DIR; "+script)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Signal(unix.SIGKILL) })
	lines := bufio.NewReader(stdout)
	dir, err := lines.ReadString('\n')
	require.NoError(t, err)
	up, err := lines.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "up\n", up)
	r := &run{cmd: cmd, stdin: stdin, stdout: lines, dir: strings.TrimSpace(dir)}
	cgroup, err := os.ReadFile(filepath.Join(r.dir, "cgroup"))
	require.NoError(t, err)
	r.cgroup = string(cgroup)
	require.DirExists(t, r.cgroup)
	return r
}

// processesOf returns the processes in a cgroup and below it.
func processesOf(t *testing.T, cgroup string) []int {
	t.Helper()
	var pids []int
	require.NoError(t, filepath.WalkDir(cgroup, func(path string, _ os.DirEntry, err error) error {
		if filepath.Base(path) != "cgroup.procs" {
			return err
		}
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, field := range strings.Fields(string(content)) {
			pid, err := strconv.Atoi(field)
			require.NoError(t, err)
			pids = append(pids, pid)
		}
		return nil
	}))
	return pids
}
