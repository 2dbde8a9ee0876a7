package setup

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/shimwire"
)

// here runs the step in this process.
func here(ctx context.Context, _ string, _ time.Duration, input []byte) ([]byte, error) {
	return RunStep(ctx, input), nil
}

// command returns a command for the shell, whose log is in a directory of its own.
func command(t *testing.T, script string) Command {
	t.Helper()
	return Command{
		Args: []string{"sh", "-c", script}, Environment: []string{"PATH=" + os.Getenv("PATH"), "A=b"}, Dir: t.TempDir(),
		Log: t.TempDir(), LogMax: 1 << 20, Limit: time.Minute,
	}
}

func (c Command) logged(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(c.Log, name))
	require.NoError(t, err)
	return string(text)
}

func TestRun_LogsTheOutputAsATerminalDoes(t *testing.T) {
	c := command(t, `pwd; echo "$A"; echo err >&2; env | wc -l`)
	c.Prefix = []string{"env", "B=c"}
	require.NoError(t, os.WriteFile(filepath.Join(c.Log, shimwire.LogName), []byte("before\r\n"), 0o600))
	require.NoError(t, Runner(here).Run(t.Context(), "shop", c))
	assert.Equal(t, "before\r\n"+c.Dir+"\r\nb\r\nerr\r\n4\r\n", c.logged(t, shimwire.LogName), "PATH, A, B and PWD")
}

func TestRun_ReportsHowTheCommandEnds(t *testing.T) {
	for script, want := range map[string]string{
		"echo one; printf '\\033[31mtwo\\t\\n\\n'; exit 3": `command "sh" exited with code 3: [31mtwo`,
		"printf 'no line end'; exit 1":                     `command "sh" exited with code 1: no line end`,
		"exit 2":                                           `command "sh" exited with code 2`,
		"kill -KILL $$":                                    `command "sh" was killed by SIGKILL`,
		"head -c 100000 /dev/zero | tr '\\0' x; echo; exit 1": `command "sh" exited with code 1: ` + strings.Repeat("x", 300),
	} {
		require.EqualError(t, Runner(here).Run(t.Context(), "shop", command(t, script)), want, script)
	}
	c := command(t, "")
	require.NoError(t, os.WriteFile(filepath.Join(c.Dir, "own"), []byte("#!/bin/sh\nexit 5\n"), 0o700))
	c.Args = []string{"./own"} // in the worktree
	require.EqualError(t, Runner(here).Run(t.Context(), "shop", c), `command "./own" exited with code 5`)
	c.Args = []string{"./nothing"}
	assert.EqualError(t, Runner(here).Run(t.Context(), "shop", c), `command "./nothing" not found`)
}

func TestRun_EndsTheCommandWithItsTimeLimit(t *testing.T) {
	c := command(t, "sleep 1000 & echo $! >pid; wait")
	c.Limit = 200 * time.Millisecond
	require.EqualError(t, Runner(here).Run(t.Context(), "shop", c), `command "sh" took longer than 200ms`)
	ctx, cancel := context.WithCancel(t.Context())
	c.Limit = time.Minute
	c.Args = []string{"sh", "-c", "kill -USR1 $PPID; exec sleep 1000"}
	begun := make(chan os.Signal, 1)
	signal.Notify(begun, syscall.SIGUSR1)
	defer signal.Stop(begun)
	go func() { <-begun; cancel() }()
	assert.EqualError(t, Runner(here).Run(ctx, "shop", c), `command "sh" was stopped`)
}

// TestRun_ExecutesACopyOfAScript: not the file that may have changed since it was read.
func TestRun_ExecutesACopyOfAScript(t *testing.T) {
	c := command(t, "")
	c.Args, c.ScriptDir = []string{".corral/setup"}, t.TempDir()+"/run"
	c.Script = []byte("#!/bin/sh\necho $0; pwd; exit 2\n")
	require.EqualError(t, Runner(here).Run(t.Context(), "shop", c), `command ".corral/setup" exited with code 2: `+c.Dir)
	assert.Regexp(t, "^"+c.ScriptDir+"/script-[0-9]+/setup\r\n"+c.Dir+"\r\n$", c.logged(t, shimwire.LogName))
	left, err := os.ReadDir(c.ScriptDir)
	require.NoError(t, err)
	assert.Empty(t, left)
	c.Script = []byte("no interpreter\n")
	assert.ErrorContains(t, Runner(here).Run(t.Context(), "shop", c), "exec format error")
}

// TestRun_KeepsTheLogWithinItsLimit: the end of the output is kept.
func TestRun_KeepsTheLogWithinItsLimit(t *testing.T) {
	c := command(t, "seq 100000; echo end")
	c.LogMax = 64 << 10
	require.NoError(t, Runner(here).Run(t.Context(), "shop", c))
	newer, older := c.logged(t, shimwire.LogName), c.logged(t, shimwire.OlderLogName)
	assert.LessOrEqual(t, len(newer)+len(older), 64<<10)
	assert.True(t, strings.HasSuffix(newer, "100000\r\nend\r\n"))
	assert.NotEmpty(t, older)
}

// TestRun_DoesNotBlockOnALogThatIsNoFile: an agent may have put a FIFO in its place.
func TestRun_DoesNotBlockOnALogThatIsNoFile(t *testing.T) {
	c := command(t, "exit 0")
	require.NoError(t, syscall.Mkfifo(filepath.Join(c.Log, shimwire.LogName), 0o600))
	assert.ErrorContains(t, Runner(here).Run(t.Context(), "shop", c), "cannot open the log of the session")
}
