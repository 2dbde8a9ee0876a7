package testbed_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/testbed"
)

func TestMain(m *testing.M) { testbed.Main(m) }

func TestManager_AnswersOnBus(t *testing.T) {
	assert.Equal(t, "running", testbed.Systemctl(t, "is-system-running"))
	state, err := testbed.Bus(t).Object("org.freedesktop.systemd1", "/org/freedesktop/systemd1").
		GetProperty("org.freedesktop.systemd1.Manager.SystemState")
	require.NoError(t, err)
	assert.Equal(t, "running", state.Value())
}

func TestEnvironment_IsInOnePrivateDirectory(t *testing.T) {
	home := os.Getenv("HOME")
	for _, name := range []string{"HOME", "XDG_RUNTIME_DIR", "TMPDIR"} {
		info, err := os.Stat(os.Getenv(name))
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o700), info.Mode().Perm(), name)
		assert.Equal(t, filepath.Dir(home), filepath.Dir(os.Getenv(name)), name)
	}
	for _, name := range []string{"XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"} {
		assert.True(t, strings.HasPrefix(os.Getenv(name), home+"/"), name)
	}
	longest := filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "corral", strings.Repeat("i", 64), "shim.sock")
	assert.LessOrEqual(t, len(longest), 107, "a socket's path")
	assert.NotZero(t, os.Getuid())
}

func TestScope_HasItsOwnCgroup(t *testing.T) {
	cmd := exec.Command("systemd-run", "--user", "--scope", "--quiet", "--unit=animal.scope", "sh", "-c",
		"cat /proc/self/cgroup; echo end; read line")
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	assert.Contains(t, readUntil(t, bufio.NewScanner(stdout), "end"), "/app.slice/animal.scope")
	assert.Equal(t, "active", testbed.Systemctl(t, "is-active", "animal.scope"))
	require.NoError(t, stdin.Close())
	testbed.WaitExit(t, cmd.Process.Pid)
	_ = cmd.Wait()
}

func TestBus_CanBeRestarted(t *testing.T) {
	conn := testbed.Bus(t)
	testbed.Systemctl(t, "restart", "dbus.service")
	<-conn.Context().Done()
	assert.Equal(t, "active", testbed.Systemctl(t, "is-active", "dbus.socket", "dbus.service")[:6])
	testbed.Poll(t, "systemd is on the new bus", func() bool {
		return exec.Command("busctl", "--user", "status", "org.freedesktop.systemd1").Run() == nil
	})
}

func TestPrograms_AreBuilt(t *testing.T) {
	programs := testbed.Programs(t)
	for _, path := range []string{programs.Corrald, programs.Corralctl, programs.Shim} {
		_, err := exec.LookPath(path)
		assert.NoError(t, err)
	}
}

// TestTestbed_Nests runs test beds inside this one, as an ordinary user with a user manager, which
// is what the tests are here.
func TestTestbed_Nests(t *testing.T) {
	own := testbed.Systemctl(t, "show", "--property=ControlGroup", "--value", "init.scope")
	var nests [2]*nest
	for i := range nests {
		nests[i] = startNest(t)
	}
	for i, n := range nests {
		testbed.Systemctl(t, "is-active", "dbus.service")
		report := readUntil(t, n.output, "waiting")
		assert.Contains(t, report, "state running\n")
		assert.Contains(t, report, "units nest.scope\n", "sees its own unit and not that of its neighbour %d", i)
		assert.NotContains(t, report, "runtime "+os.Getenv("XDG_RUNTIME_DIR")+"\n")
		assert.NotContains(t, report, "cgroup "+own+"\n")
		n.dir = filepath.Dir(field(report, "runtime"))
		n.marker = filepath.Join(n.dir, "marker")
		require.NoError(t, os.WriteFile(n.marker, nil, 0o600))
	}
	assert.NotEqual(t, nests[0].dir, nests[1].dir)

	t.Run("ends with nothing left", func(t *testing.T) {
		require.NoError(t, nests[0].stdin.Close())
		require.NoError(t, nests[0].cmd.Wait())
		assert.NoFileExists(t, nests[0].marker)
	})
	t.Run("is killed, and swept by the next", func(t *testing.T) {
		cgroup, err := os.ReadFile(filepath.Join(nests[1].dir, "cgroup"))
		require.NoError(t, err)
		require.DirExists(t, string(cgroup))
		require.NoError(t, nests[1].cmd.Process.Kill())
		_ = nests[1].cmd.Wait()
		testbed.Poll(t, "the killed one's processes are gone", func() bool {
			_, err := os.Stat(string(cgroup))
			return err != nil
		})
		next := startNest(t)
		readUntil(t, next.output, "waiting")
		require.NoError(t, next.stdin.Close())
		require.NoError(t, next.cmd.Wait())
		assert.NoFileExists(t, nests[1].marker)
	})
}

// nest is a test bed inside the test bed that runs TestReport.
type nest struct {
	cmd    *exec.Cmd
	stdin  interface{ Close() error }
	output *bufio.Scanner
	dir    string
	marker string // a file in dir, since another test bed may reuse the directory's name before the test checks it
}

func startNest(t *testing.T) *nest {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, "-test.run=^TestReport$")
	cmd.Env = append(slices.DeleteFunc(os.Environ(),
		func(entry string) bool { return strings.HasPrefix(entry, "CORRAL_TESTBED=") }), "REPORT=1")
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	return &nest{cmd: cmd, stdin: stdin, output: bufio.NewScanner(stdout)}
}

// TestReport is a helper process of TestTestbed_Nests and does nothing otherwise: it starts a unit,
// prints what it finds, and waits until its input is closed.
func TestReport(t *testing.T) {
	if os.Getenv("REPORT") == "" {
		return
	}
	unit := exec.Command("systemd-run", "--user", "--scope", "--quiet", "--unit=nest.scope", "sh", "-c",
		"echo; exec sleep infinity")
	started, err := unit.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, unit.Start())
	_, err = started.Read(make([]byte, 1))
	require.NoError(t, err)
	fmt.Println("state", testbed.Systemctl(t, "is-system-running"))
	fmt.Println("runtime", os.Getenv("XDG_RUNTIME_DIR"))
	fmt.Println("cgroup", testbed.Systemctl(t, "show", "--property=ControlGroup", "--value", "init.scope"))
	fmt.Println("units", strings.Fields(testbed.Systemctl(t, "list-units", "--plain", "--no-legend", "nest*"))[0])
	fmt.Println("waiting")
	_, _ = os.Stdin.Read(make([]byte, 1))
}

func TestWaitFile_DetectsRename(t *testing.T) {
	dir := testbed.Dir(t)
	path := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(path, []byte("old"), 0o600))
	go func() {
		_ = os.WriteFile(path+".new", []byte("new"), 0o600)
		_ = os.Rename(path+".new", path)
	}()
	content := testbed.WaitFile(t, path, func(content []byte) bool { return string(content) == "new" })
	assert.Equal(t, "new", string(content))
}

func TestReceive(t *testing.T) {
	values := make(chan int, 1)
	values <- 7
	assert.Equal(t, 7, testbed.Receive(t, values, "number"))
}

// readUntil returns the lines before the line last.
func readUntil(t *testing.T, lines *bufio.Scanner, last string) string {
	t.Helper()
	var read strings.Builder
	for lines.Scan() {
		if lines.Text() == last {
			return read.String()
		}
		read.WriteString(lines.Text() + "\n")
	}
	t.Fatalf("no line %q in:\n%s", last, read.String())
	return ""
}

// field returns the rest of the line that begins with name.
func field(report, name string) string {
	for line := range strings.Lines(report) {
		if value, found := strings.CutPrefix(line, name+" "); found {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
