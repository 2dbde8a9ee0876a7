package transient

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/bus"
	"github.com/corrald/corral/internal/proc"
	"github.com/corrald/corral/internal/testbed"
)

func TestMain(m *testing.M) { testbed.Main(m) }

// connect returns a connection that is not shared.
func connect(t *testing.T) *dbus.Conn {
	t.Helper()
	conn, err := bus.Dial(t.Context(), os.Getenv("DBUS_SESSION_BUS_ADDRESS"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func shell(script string, args ...string) Service {
	return Service{
		Kind: "test", Name: "a program/of §ours", Description: "A test", Slice: "app.slice",
		Argv: append([]string{"/bin/sh", "-c", script, "sh"}, args...),
	}
}

// waitGone waits until systemd has none of our units any more.
func waitGone(t *testing.T) {
	t.Helper()
	testbed.Poll(t, "no unit is left", func() bool {
		return testbed.Systemctl(t, "list-units", "--all", "--plain", "--no-legend", "corral-test-*") == ""
	})
}

// TestRun_PassesArgumentsAndInput: a program receives its arguments and its input unchanged, and
// leaves nothing behind.
func TestRun_PassesArgumentsAndInput(t *testing.T) {
	out := filepath.Join(testbed.Dir(t), "out")
	started := false
	input := strings.Repeat("all of it, $HOME\n", 100_000) // more than the capacity of a pipe
	conn := connect(t)
	s := shell(`wc -c > "$1"; printf %s "$2" >> "$1"; grep ^0:: /proc/self/cgroup >> "$1"; sleep 1000 &`, out, "$HOME %h")
	err := Run(t.Context(), conn, s, []byte(input), time.Minute, func() { started = true })
	require.NoError(t, err)
	assert.True(t, started)
	content, err := os.ReadFile(out)
	require.NoError(t, err)
	want := fmt.Sprintf(`^%d\n\$HOME %%h.*/app\.slice/corral-test-a_program_of__ours-\w{8}\.service\n$`, len(input))
	assert.Regexp(t, want, string(content))
	require.NoError(t, conn.Close())
	waitGone(t)
}

// TestRun_ReportsFailures: the error contains the unit, the result and the status.
func TestRun_ReportsFailures(t *testing.T) {
	for name, c := range map[string]struct {
		service Service
		limit   time.Duration
		want    Failure
	}{
		"it fails":     {shell("exit 7"), time.Minute, Failure{Result: "exit-code", Status: 7}},
		"it is killed": {shell("kill -9 $$"), time.Minute, Failure{Result: "signal", Status: 9}},
		"it hangs":     {shell("exec sleep 1000"), 50 * time.Millisecond, Failure{Result: "timeout", Status: 15}},
		"it is not there": {Service{Kind: "test", Slice: "app.slice", Argv: []string{"/no/such/program"}}, time.Minute,
			Failure{Result: "exit-code", Status: 203}},
	} {
		t.Run(name, func(t *testing.T) {
			conn := connect(t)
			err := Run(t.Context(), conn, c.service, nil, c.limit, func() {})
			var failure *Failure
			require.ErrorAs(t, err, &failure)
			assert.Regexp(t, `^corral-test-.*\.service$`, failure.Unit)
			failure.Unit = ""
			assert.Equal(t, c.want, *failure)
			require.NoError(t, conn.Close())
			waitGone(t)
		})
	}
}

// TestStart: Start returns once the program was executed, and leaves it running.
func TestStart(t *testing.T) {
	conn := connect(t)
	unit, err := Start(t.Context(), conn, shell("exec sleep 1000"))
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	assert.Equal(t, "active", testbed.Systemctl(t, "is-active", unit))
	testbed.Systemctl(t, "stop", unit)
	waitGone(t)
	conn = connect(t)
	_, err = Start(t.Context(), conn, Service{Kind: "test", Slice: "app.slice", Argv: []string{"/no/such/program"}})
	require.ErrorContains(t, err, `cannot run "/no/such/program": its start job ended with "failed"`)
	require.NoError(t, conn.Close())
	waitGone(t)
}

// TestOutput: output can be read while the program runs, and all of its processes are killed when
// the output is closed.
func TestOutput(t *testing.T) {
	conn := connect(t)
	s := shell(`echo "$X $0"; setsid sleep 1000 & read line; tty >/dev/null </dev/tty || echo no terminal; exec sleep 1000`)
	s.Argv[0], s.Path, s.Environment = "-sh", "/bin/sh", []string{"X=printed"}
	s.Argv = s.Argv[:3]
	out, err := Output(t.Context(), conn, s, time.Minute)
	require.NoError(t, err)
	lines := bufio.NewReader(out)
	for _, want := range []string{"printed -sh\n", "no terminal\n"} {
		line, err := lines.ReadString('\n')
		require.NoError(t, err)
		assert.Equal(t, want, line)
	}
	require.NoError(t, out.Close())
	waitGone(t)
}

// TestOutput_EndsWithTheProgram: the output ends with the program, even if that leaves processes
// running, and with the context.
func TestOutput_EndsWithTheProgram(t *testing.T) {
	conn := connect(t)
	out, err := Output(t.Context(), conn, shell("setsid sleep 1000 & echo over"), time.Minute)
	require.NoError(t, err)
	text, err := io.ReadAll(out)
	require.NoError(t, err)
	assert.Equal(t, "over\n", string(text))
	require.NoError(t, out.Close())

	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	out, err = Output(ctx, conn, shell("exec sleep 1000"), time.Minute)
	require.NoError(t, err)
	_, err = io.ReadAll(out)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.NoError(t, out.Close())
	waitGone(t)
	out, err = Output(t.Context(), conn,
		Service{Kind: "test", Name: "none", Slice: "app.slice", Argv: []string{"/nonexistent"}}, time.Minute)
	require.NoError(t, err)
	text, err = io.ReadAll(out)
	require.NoError(t, err)
	assert.Empty(t, text)
	require.NoError(t, out.Close())
}

// TestRun_IgnoresForgedSignals: the end of the start job is accepted only from systemd, not from
// another connection that knows the job.
func TestRun_IgnoresForgedSignals(t *testing.T) {
	conn, other := connect(t), testbed.Bus(t)
	end := filepath.Join(testbed.Dir(t), "end")
	s := shell(`while ! [ -e "$1" ]; do sleep 0.01; done; exit 7`, end)
	err := Run(t.Context(), conn, s, nil, time.Minute, func() {
		line := strings.Fields(testbed.Systemctl(t, "list-jobs", "--plain", "--no-legend", "corral-test-*"))
		require.NotEmpty(t, line)
		id, err := strconv.ParseUint(line[0], 10, 32)
		require.NoError(t, err)
		testbed.SendSignal(t, other, conn.Names()[0], bus.SystemdPath, bus.SystemdManager+".JobRemoved",
			uint32(id), dbus.ObjectPath(fmt.Sprint(bus.SystemdPath, "/job/", id)), line[1], "done")
		require.NoError(t, os.WriteFile(end, nil, 0o600))
	})
	var failure *Failure
	require.ErrorAs(t, err, &failure)
	assert.EqualValues(t, 7, failure.Status)
	require.NoError(t, conn.Close())
	waitGone(t)
}

// TestCapture: Capture returns the program's output, and all of the program's processes have exited
// by then, even if they ignore SIGTERM.
func TestCapture(t *testing.T) {
	conn := connect(t)
	dir := testbed.Dir(t)
	s := shell(`(trap "" TERM HUP; echo in the background >"$1/begun"; exec setsid sleep 1000) & until [ -s "$1/begun" ]; do :; done; cat; grep ^0:: /proc/self/cgroup`, dir)
	s.Properties = []Property{
		{"TasksMax", dbus.MakeVariant(uint64(64))}, {"MemoryMaxScale", dbus.MakeVariant(uint32(1 << 31))},
	}
	out, err := Capture(t.Context(), conn, s, []byte("given\n"), time.Minute)
	require.NoError(t, err)
	given, cgroup, _ := strings.Cut(string(out), "\n")
	assert.Equal(t, "given", given)
	root, err := proc.CgroupRoot()
	require.NoError(t, err)
	assert.NoDirExists(t, root+strings.TrimSpace(strings.TrimPrefix(cgroup, "0::")),
		"systemd removes the control group once it is empty")
	require.NoError(t, conn.Close())
	waitGone(t)
}

// TestCapture_EndsTheProgram: when the time limit expires or the caller cancels, the program
// receives SIGTERM first, and has exited when Capture returns.
func TestCapture_EndsTheProgram(t *testing.T) {
	const script = `trap 'echo asked >"$1/asked"; exit 0' TERM; (trap "" TERM; exec setsid sleep 1000) & echo "$$" >"$1/begun"; sleep 1000 & wait $!`
	t.Run("its time is over", func(t *testing.T) {
		dir := testbed.Dir(t)
		conn := connect(t)
		_, err := Capture(t.Context(), conn, shell(script, dir), nil, 200*time.Millisecond)
		var failure *Failure
		require.ErrorAs(t, err, &failure)
		assert.Equal(t, "timeout", failure.Result)
		require.NoError(t, conn.Close())
	})
	t.Run("the caller cancels", func(t *testing.T) {
		dir := testbed.Dir(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan error, 1)
		conn := connect(t)
		go func() { _, err := Capture(ctx, conn, shell(script, dir), nil, time.Minute); ended <- err }()
		testbed.Poll(t, "it runs", func() bool { return exists(dir + "/begun") })
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
		assert.FileExists(t, dir+"/asked")
		assert.Empty(t, testbed.Systemctl(t, "list-units",
			"--state=active,activating,deactivating", "--plain", "--no-legend", "corral-test-*"))
		require.NoError(t, conn.Close())
	})
	waitGone(t)
}

// TestCapture_ReturnsErrNotStarted: the error distinguishes a program that was never started.
func TestCapture_ReturnsErrNotStarted(t *testing.T) {
	s := shell("exit 0")
	s.Properties = []Property{{"NoSuchProperty", dbus.MakeVariant("")}}
	conn := connect(t)
	_, err := Capture(t.Context(), conn, s, nil, time.Minute)
	require.ErrorIs(t, err, ErrNotStarted)
	require.ErrorContains(t, err, "corral-test-")
	_, err = Capture(t.Context(), conn, Service{Kind: "test", Slice: "app.slice", Argv: []string{"/no/such/program"}}, nil,
		time.Minute)
	require.ErrorContains(t, err, "exited with code 203")
	require.NoError(t, conn.Close()) // systemd kept the unit until now
	waitGone(t)
}

// TestCapture_FailsWhenTheBusIsLost: the caller receives an error, and can stop the service over
// another connection.
func TestCapture_FailsWhenTheBusIsLost(t *testing.T) {
	dir := testbed.Dir(t)
	conn := connect(t)
	ended := make(chan error, 1)
	go func() {
		_, err := Capture(t.Context(), conn, shell(`echo >"$1/begun"; exec sleep 1000`, dir), nil, time.Minute)
		ended <- err
	}()
	testbed.Poll(t, "it runs", func() bool { return exists(dir + "/begun") })
	require.NoError(t, conn.Close())
	require.ErrorContains(t, <-ended, "the connection to the bus is lost")
	require.NoError(t, Stop(t.Context(), connect(t), "corral-test-*"))
	waitGone(t)
}

// TestStop: Stop waits for the end of all matching units, and returns at once if there are none.
func TestStop(t *testing.T) {
	conn := connect(t)
	for range 3 {
		_, err := Start(t.Context(), conn, shell("exec sleep 1000"))
		require.NoError(t, err)
	}
	require.NoError(t, Stop(t.Context(), conn, "corral-test-*"))
	assert.Empty(t, testbed.Systemctl(t, "list-units",
		"--state=active,activating,deactivating", "--plain", "--no-legend", "corral-test-*"))
	require.NoError(t, Stop(t.Context(), conn, "corral-test-*"))
	waitGone(t)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
