package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/dbusapi/client"
	"github.com/corrald/corral/internal/testbed"
)

func changed(id, state string) client.SessionChanged {
	return client.SessionChanged{ID: id, Properties: client.Properties{"State": dbus.MakeVariant(state)}}
}

func TestWait_EndsOnTheExpectedEvents(t *testing.T) {
	late := changed("shop", "failed")
	late.Properties["StateChangeTimestampMonotonic"] = dbus.MakeVariant(uint64(4))
	ends := func(id, state string) client.SessionChanged {
		e := changed(id, state)
		e.Properties["AgentAlive"] = dbus.MakeVariant(false)
		return e
	}
	for name, row := range map[string]struct {
		first  string // state
		until  []string
		events []client.Event
		over   bool
		code   int
	}{
		"the session ended before":              {first: "completed", over: true},
		"it was never started":                  {first: "created"},
		"it is stale, its agent may be running": {first: "stale"},
		"it ends": {first: "running",
			events: []client.Event{changed("shop", "stopping"), changed("shop", "stopped")}, over: true, code: 3},
		"another session ends": {first: "running", events: []client.Event{changed("api", "failed")}},
		"it is removed": {first: "running", events: []client.Event{client.SessionRemoved{ID: "shop"}},
			over: true, code: 4},
		"another session is removed": {first: "running", events: []client.Event{client.SessionRemoved{ID: "api"}}},
		"it is removed after its end": {first: "running",
			events: []client.Event{changed("shop", "completed"), client.SessionRemoved{ID: "shop"}}, over: true},
		"it reaches the state of --until": {first: "starting", until: []string{"running"},
			events: []client.Event{changed("shop", "running")}, over: true},
		"it fails, with --until=failed": {first: "running", until: []string{"failed"},
			events: []client.Event{changed("shop", "failed")}, over: true},
		"it ends in another state than --until": {first: "starting", until: []string{"running"},
			events: []client.Event{changed("shop", "completed")}, over: true, code: 1},
		"it reaches the activity of --until": {first: "running", until: []string{"waiting"},
			events: []client.Event{client.SessionChanged{ID: "shop",
				Properties: client.Properties{"Activity": dbus.MakeVariant("waiting")}}}, over: true},
		"irrelevant events": {first: "running",
			events: []client.Event{client.SessionNew{ID: "shop"}, client.DaemonGone{}}},
		"corrald shuts down and marks it as suspended": {first: "running",
			events: []client.Event{changed("shop", "suspended"), client.DaemonGone{}}},
		"the same, with --until=suspended": {first: "running", until: []string{"suspended"},
			events: []client.Event{changed("shop", "suspended")}},
		"suspended before a shutdown, with --until=suspended": {first: "running", until: []string{"suspended"},
			events: []client.Event{ends("shop", "suspended")}, over: true},
		"the next corrald finds it running": {first: "suspended",
			events: []client.Event{changed("shop", "running"), changed("shop", "completed")}, over: true},
		"an event from before it was read": {first: "running", events: []client.Event{late}},
	} {
		t.Run(name, func(t *testing.T) {
			w := &waiter{watch: &reconnectingWatch{}, until: row.until, results: map[string]error{},
				sessions: map[string]*client.Session{}}
			require.NoError(t, w.update(t.Context(),
				client.Session{Id: "shop", State: row.first, AgentAlive: true, StateChangeTimestampMonotonic: 5}))
			for _, event := range row.events {
				require.NoError(t, w.apply(t.Context(), event))
			}
			err, over := w.results["shop"]
			assert.Equal(t, row.over, over)
			code := 0
			var f *failure
			if errors.As(err, &f) {
				code = f.code
			}
			assert.Equal(t, row.code, code)
		})
	}
}

// TestWait_SurvivesDaemonAndBusRestarts: wait continues while corrald and the bus restart, and
// reports an exit that happened meanwhile.
func TestWait_SurvivesDaemonAndBusRestarts(t *testing.T) {
	u := newInstallation(t)
	fifo, printed := u.home+"/wait", u.home+"/printed"
	require.NoError(t, unix.Mkfifo(fifo, 0o600))
	output, err := os.Create(printed)
	require.NoError(t, err)
	defer func() { _ = output.Close() }()
	waits := exec.Command(testbed.Programs(t).Corralctl, "run", "--wait", "--id", "long", "--", "sh", "-c",
		"read line <"+fifo+"; exit 7")
	waits.Env, waits.Dir, waits.Stdout, waits.Stderr = u.environment, u.home, output, output
	require.NoError(t, waits.Start())
	has := func(text string) func([]byte) bool {
		return func(content []byte) bool { return strings.Contains(string(content), text) }
	}
	testbed.WaitFile(t, printed, has("Started session long"))
	testbed.Systemctl(t, "restart", "corrald.service")
	testbed.Systemctl(t, "kill", "--signal=KILL", "corrald.service")
	testbed.Systemctl(t, "restart", "corrald.service", "dbus.service")
	u.must("list") // the bus has been restarted
	testbed.Systemctl(t, "stop", "corrald.service")
	testbed.WaitFile(t, printed, has("corrald is not running; waiting for it"))
	writer, err := os.OpenFile(fifo, os.O_RDWR, 0)
	require.NoError(t, err)
	defer func() { _ = writer.Close() }()
	_, err = writer.WriteString("\n")
	require.NoError(t, err)
	testbed.WaitFile(t, u.home+"/state/corral/sessions/long/exit_status",
		func(content []byte) bool { return len(content) > 0 })
	testbed.Systemctl(t, "start", "corrald.service")
	_ = waits.Wait()
	if !assert.Equal(t, 7, waits.ProcessState.ExitCode()) {
		text, _ := os.ReadFile(printed)
		t.Logf("%s", text)
	}
}

// TestMonitor_SurvivesBusRestarts: monitor connects again, reports what has changed meanwhile, and
// does not start a corrald that was stopped.
func TestMonitor_SurvivesBusRestarts(t *testing.T) {
	u := newInstallation(t)
	printed := u.home + "/printed"
	output, err := os.Create(printed)
	require.NoError(t, err)
	defer func() { _ = output.Close() }()
	monitors := exec.Command(testbed.Programs(t).Corralctl, "monitor")
	monitors.Env, monitors.Dir, monitors.Stdout, monitors.Stderr = u.environment, u.home, output, output
	require.NoError(t, monitors.Start())
	defer func() {
		_ = monitors.Process.Kill()
		_ = monitors.Wait()
	}()
	has := func(text string) func([]byte) bool {
		return func(content []byte) bool { return strings.Contains(string(content), text) }
	}
	testbed.WaitFile(t, printed, has("Monitoring 0 sessions"))
	testbed.Systemctl(t, "restart", "corrald.service", "dbus.service")
	u.must("run", "--id", "between", "--", "true")
	testbed.WaitFile(t, printed, has("corrald is back"))
	testbed.WaitFile(t, printed, has("between"))
	testbed.Systemctl(t, "stop", "corrald.service")
	testbed.WaitFile(t, printed,
		func(content []byte) bool { return strings.Count(string(content), "corrald is not running") == 2 })
	bus, err := client.Connect(t.Context())
	require.NoError(t, err)
	defer func() { _ = bus.Close() }()
	running, err := bus.Running(t.Context())
	require.NoError(t, err)
	assert.False(t, running)
}

func TestWait_TimeoutHasItsOwnExitCode(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 0)
	defer cancel()
	var f *failure
	require.ErrorAs(t, new(ctl).waitError(ctx, "", ctx.Err()), &f)
	assert.Equal(t, failure{code: exitTimeout}, *f)
}
