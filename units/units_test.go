package units

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/bus"
	"github.com/corrald/corral/internal/clock"
	"github.com/corrald/corral/internal/proc"
	"github.com/corrald/corral/internal/testbed"
)

func connect(t *testing.T) *Manager {
	t.Helper()
	m, err := Connect(t.Context(), os.Getenv("DBUS_SESSION_BUS_ADDRESS"), os.Getenv("XDG_RUNTIME_DIR"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = m.Close() })
	return m
}

// process starts a process that runs until the test kills it or ends.
func process(t *testing.T) int {
	t.Helper()
	cmd := exec.Command("sleep", "infinity")
	require.NoError(t, cmd.Start())
	reaped := make(chan struct{})
	go func() { _ = cmd.Wait(); close(reaped) }()
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-reaped })
	return cmd.Process.Pid
}

func property(name string, value any) Property {
	return Property{Name: name, Value: dbus.MakeVariant(value)}
}

// start starts a scope with one process, and removes both after the test.
func start(t *testing.T, m *Manager, name string, props ...Property) (pid int, started Started) {
	t.Helper()
	pid = process(t)
	started, err := m.Start(t.Context(), Scope{Name: name, PIDs: []int{pid}, Properties: props})
	require.NoError(t, err)
	clearAfterwards(t, name)
	return pid, started
}

func clearAfterwards(t *testing.T, name string) {
	t.Cleanup(func() {
		_ = exec.Command("systemctl", "--user", "kill", "--signal=SIGKILL", name).Run()
		_ = exec.Command("systemctl", "--user", "reset-failed", name).Run()
	})
}

func kill(t *testing.T, pid int) {
	t.Helper()
	require.NoError(t, unix.Kill(pid, unix.SIGKILL))
}

// next returns the next event other than Resync, since systemd may be reloaded at any time. It
// clears the InvocationID, which differs in each run.
func next(t *testing.T, m *Manager) Event {
	t.Helper()
	e, _ := nextOf(t, m)
	return e
}

// nextOf is like next, and also returns the InvocationID.
func nextOf(t *testing.T, m *Manager) (e Event, id string) {
	t.Helper()
	for {
		switch e := testbed.Receive(t, m.Events(), "event of systemd").(type) {
		case Ended:
			id, e.InvocationID = e.InvocationID, ""
			return e, id
		case StopRequested:
			id, e.InvocationID = e.InvocationID, ""
			return e, id
		case Stopping:
			id, e.InvocationID = e.InvocationID, ""
			return e, id
		case Resync:
		default:
			return e, ""
		}
	}
}

// runningUnit returns what List reports of a scope while it runs.
func runningUnit(name string, s Started) Unit {
	return Unit{
		Name: name, Active: "active", Result: "success",
		InvocationID: s.InvocationID, ControlGroup: s.ControlGroup,
	}
}

// show returns a property of a unit, as systemctl prints it.
func show(t *testing.T, name, property string) string {
	t.Helper()
	return testbed.Systemctl(t, "show", "--value", "--property="+property, name)
}

func TestStartScope_MovesProcessIntoScope(t *testing.T) {
	m := connect(t)
	const name = "app-corral-claude-shop.scope"
	pid, started := start(t, m, name, property("Description", "claude in a shop"))
	group, err := proc.Cgroup(pid)
	require.NoError(t, err)
	assert.Equal(t, group, started.ControlGroup, "the process is in the scope when Start returns")
	assert.True(t, strings.HasSuffix(group, "/"+name))
	assert.Equal(t, show(t, name, "InvocationID"), started.InvocationID)
	assert.Equal(t, "claude in a shop", show(t, name, "Description"))
	kill(t, pid)
	assert.Equal(t, Ended{Name: name, Result: "success"}, next(t, m), "a scope does not report an exit status")
}

func TestEnded_IsSentAfterLastProcessExits(t *testing.T) {
	m := connect(t)
	const name = "app-corral-last.scope"
	first, second := process(t), process(t)
	_, err := m.Start(t.Context(), Scope{Name: name, PIDs: []int{first, second}})
	require.NoError(t, err)
	clearAfterwards(t, name)
	other, _ := start(t, m, "app-corral-other.scope")
	kill(t, first)
	testbed.WaitExit(t, first)
	kill(t, other)
	assert.Equal(t, Ended{Name: "app-corral-other.scope", Result: "success"}, next(t, m),
		"the exit of the first process is not an event")
	kill(t, second)
	assert.Equal(t, Ended{Name: name, Result: "success"}, next(t, m))
}

func TestStartScope_UnknownProperty(t *testing.T) {
	m := connect(t)
	const name = "app-corral-probe.scope"
	t.Run("an optional property is omitted, also in later starts", func(t *testing.T) {
		pid := process(t)
		_, err := m.Start(t.Context(), Scope{
			Name: name, PIDs: []int{pid}, Properties: []Property{property("Description", "kept")},
			Optional: []Property{property("Frobnicate", true), property("TimeoutStopUSec", uint64(7e6)),
				property("Defenestrate", "x")},
		})
		require.NoError(t, err)
		clearAfterwards(t, name)
		assert.Equal(t, "kept", show(t, name, "Description"))
		assert.Equal(t, "7s", show(t, name, "TimeoutStopUSec"), "known properties are set")
		var unknown map[string]bool
		require.NoError(t, m.runOnLoop(t.Context(), func(ws *watches) { unknown = maps.Clone(ws.unsupported) }))
		assert.Equal(t, map[string]bool{"Frobnicate": true, "Defenestrate": true}, unknown)
		kill(t, pid)
		assert.Equal(t, Ended{Name: name, Result: "success"}, next(t, m))
	})
	t.Run("any other property is an error that names it", func(t *testing.T) {
		_, err := m.Start(t.Context(),
			Scope{Name: name, PIDs: []int{process(t)}, Properties: []Property{property("Frobnicate", true)}})
		require.ErrorContains(t, err, "Frobnicate")
		require.ErrorContains(t, err, name)
		units, err := m.List(t.Context(), name)
		require.NoError(t, err)
		assert.Empty(t, units)
	})
}

func TestStartScope_FailsForExitedProcess(t *testing.T) {
	m := connect(t)
	cmd := exec.Command("true")
	require.NoError(t, cmd.Run())
	_, err := m.Start(t.Context(), Scope{Name: "app-corral-gone.scope", PIDs: []int{cmd.Process.Pid}})
	require.Error(t, err)
	units, err := m.List(t.Context(), "app-corral-gone.scope")
	require.NoError(t, err)
	assert.Empty(t, units)
}

// TestRuntimeMax_EndsScopeWithTimeout covers the whole end of a scope: systemd requests the stop,
// waits, kills the processes, and keeps the failed unit until the next start under that name resets
// it.
func TestRuntimeMax_EndsScopeWithTimeout(t *testing.T) {
	m := connect(t)
	const name = "app-corral-time.scope"
	pid, _ := start(t, m, name, property("RuntimeMaxUSec", uint64(50_000)), property("TimeoutStopUSec", uint64(300_000)))
	assert.Equal(t, StopRequested{Name: name}, next(t, m))
	cause, err := m.StopCause(t.Context(), name)
	require.NoError(t, err)
	assert.Equal(t, "timeout", cause.Result, "the reason of the stop")
	assert.InDelta(t, clock.Monotonic(), cause.Since, float64(testbed.Timeout), "and its time")
	testbed.WaitExit(t, pid)
	assert.Equal(t, Ended{Name: name, Result: "timeout"}, next(t, m))

	units, err := m.List(t.Context(), "app-corral-*.scope")
	require.NoError(t, err)
	require.Len(t, units, 1)
	assert.Equal(t, Unit{Name: name, Active: "failed", Result: "timeout", InvocationID: units[0].InvocationID,
		TimedOutAt: units[0].TimedOutAt}, units[0])
	assert.InDelta(t, clock.Monotonic(), units[0].TimedOutAt, float64(testbed.Timeout), "the time of the timeout")
	assert.Len(t, units[0].InvocationID, 32)

	again, started := start(t, m, name)
	kill(t, again)
	e, id := nextOf(t, m)
	assert.Equal(t, Ended{Name: name, Result: "success"}, e, "the result of the second scope, not of the first")
	assert.Equal(t, started.InvocationID, id)
}

// TestStopCause_StopTimeoutIsNotRuntimeMax: a stop that takes too long also has the Result timeout.
func TestStopCause_StopTimeoutIsNotRuntimeMax(t *testing.T) {
	m := connect(t)
	const name = "app-corral-slow.scope"
	pid, _ := start(t, m, name, property("TimeoutStopUSec", uint64(100_000)))
	stop := exec.CommandContext(t.Context(), "systemctl", "--user", "stop", name)
	require.NoError(t, stop.Start())
	assert.Equal(t, StopRequested{Name: name}, next(t, m))
	testbed.WaitExit(t, pid)
	assert.Equal(t, Ended{Name: name, Result: "timeout"}, next(t, m))
	_ = stop.Wait()
	cause, err := m.StopCause(t.Context(), name)
	require.NoError(t, err)
	assert.Equal(t, "success", cause.Result)
	clearAfterwards(t, name)
}

func TestStartScope_FailsForRunningScopeName(t *testing.T) {
	m := connect(t)
	const name = "app-corral-taken.scope"
	pid, _ := start(t, m, name)
	_, err := m.Start(t.Context(), Scope{Name: name, PIDs: []int{process(t)}})
	require.ErrorContains(t, err, name)
	group, err := proc.Cgroup(pid)
	require.NoError(t, err)
	assert.True(t, strings.HasSuffix(group, "/"+name), "the running scope is unchanged")
}

func TestStopRequested_LeavesKillingToTheDaemon(t *testing.T) {
	m := connect(t)
	const name = "app-corral-stop.scope"
	pid, _ := start(t, m, name)
	stopped := make(chan error, 1)
	go func() { stopped <- exec.CommandContext(t.Context(), "systemctl", "--user", "stop", name).Run() }()
	assert.Equal(t, StopRequested{Name: name}, next(t, m))
	state, err := m.State(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "running", state, "only the scope is being stopped")
	require.NoError(t, m.Kill(t.Context(), name, unix.SIGTERM))
	testbed.WaitExit(t, pid)
	assert.Equal(t, Ended{Name: name, Result: "success"}, next(t, m))
	require.NoError(t, testbed.Receive(t, stopped, "end of systemctl stop"))
}

// TestList_ReportsWaitingStopJob: the stop job of a scope may wait for that of another unit, as the
// jobs of Corral's scopes wait for that of corrald.service.
func TestList_ReportsWaitingStopJob(t *testing.T) {
	m := connect(t)
	const name, other = "app-corral-held.scope", "corral-test-held.service"
	require.NoError(t, exec.CommandContext(t.Context(), "systemd-run", "--user", "--quiet", "--collect", "--unit="+other,
		"--property=TimeoutStopSec=infinity",
		"sh", "-c", `trap "" TERM; while :; do sleep 1000; done`).Run())
	t.Cleanup(func() { _ = exec.Command("systemctl", "--user", "kill", "--signal=KILL", other).Run() })
	pid, _ := start(t, m, name, property("Before", []string{other}))
	testbed.Systemctl(t, "stop", "--no-block", other, name)
	testbed.Poll(t, "the scope's stop job waits", func() bool {
		units, err := m.List(t.Context(), name)
		require.NoError(t, err)
		require.Len(t, units, 1)
		return units[0].HasStopJob && units[0].Active == "active"
	})
	kill(t, pid)
	assert.Equal(t, Ended{Name: name, Result: "success"}, next(t, m))
}

func TestUnwatch_EndsEventsOfScope(t *testing.T) {
	m := connect(t)
	forgotten, _ := start(t, m, "app-corral-forgotten.scope")
	watched, _ := start(t, m, "app-corral-watched.scope")
	require.NoError(t, m.Unwatch(t.Context(), "app-corral-forgotten.scope"))
	require.NoError(t, m.Unwatch(t.Context(), "app-corral-never.scope"))
	kill(t, forgotten)
	testbed.WaitExit(t, forgotten)
	testbed.Poll(t, "the scope is gone",
		func() bool { return show(t, "app-corral-forgotten.scope", "ActiveState") == "inactive" })
	kill(t, watched)
	assert.Equal(t, Ended{Name: "app-corral-watched.scope", Result: "success"}, next(t, m))
}

func TestWatch_ReportsEndOfExistingScope(t *testing.T) {
	const name = "app-corral-there.scope"
	first := connect(t)
	pid, started := start(t, first, name)
	require.NoError(t, first.Close())
	m := connect(t)
	require.NoError(t, m.Watch(t.Context(), name))
	require.NoError(t, m.Watch(t.Context(), name))
	units, err := m.List(t.Context(), "app-corral-*.scope")
	require.NoError(t, err)
	assert.Equal(t, []Unit{runningUnit(name, started)}, units)
	kill(t, pid)
	assert.Equal(t, Ended{Name: name, Result: "success"}, next(t, m))
}

// TestWatch_ScopeThatHasEnded reads a property of the missing unit: systemd loads it for that, and
// reports then that it was removed.
func TestWatch_ScopeThatHasEnded(t *testing.T) {
	m := connect(t)
	require.NoError(t, m.Watch(t.Context(), "app-corral-ended.scope"))
	active, err := m.IsActive(t.Context(), "app-corral-ended.scope")
	require.NoError(t, err)
	assert.False(t, active)
	assert.Equal(t, Resync{}, testbed.Receive(t, m.Events(), "event of systemd"))
}

func TestKill_IgnoresMissingScope(t *testing.T) {
	m := connect(t)
	require.NoError(t, m.Kill(t.Context(), "app-corral-nowhere.scope", unix.SIGTERM))
	require.NoError(t, m.ResetFailed(t.Context(), "app-corral-nowhere.scope"))
	units, err := m.List(t.Context(), "app-corral-nowhere.scope")
	require.NoError(t, err)
	assert.Empty(t, units)
}

func TestReexec_KeepsWatches(t *testing.T) {
	m := connect(t)
	const name = "app-corral-reexec.scope"
	pid, _ := start(t, m, name)
	before, err := m.Incarnation(t.Context())
	require.NoError(t, err)
	began, err := m.StartTime(t.Context())
	require.NoError(t, err)
	assert.Less(t, began, clock.Monotonic())
	assert.NotZero(t, began)
	again := exec.CommandContext(t.Context(), "systemctl", "--user", "daemon-reexec")
	require.NoError(t, again.Start())
	for reexecuted := false; !reexecuted; {
		select {
		case e := <-m.Events():
			assert.Equal(t, Resync{}, e)
			reexecuted = true
		default:
		}
		now, err := m.Incarnation(t.Context())
		require.NoError(t, err, "systemd has left the bus for a moment")
		assert.Equal(t, before, now)
	}
	since, err := m.StartTime(t.Context())
	require.NoError(t, err)
	assert.Equal(t, began, since)
	_ = again.Wait() // systemctl may have lost the connection to systemd
	kill(t, pid)
	assert.Equal(t, Ended{Name: name, Result: "success"}, next(t, m), "the watch is still active")
	another, _ := start(t, m, name)
	kill(t, another)
	assert.Equal(t, Ended{Name: name, Result: "success"}, next(t, m), "a new watch can be added")
}

// TestStartScope_CancelsJobAfterTimeout: a drop-in can make a scope wait for another unit. After
// the timeout, the scope can be started again.
func TestStartScope_CancelsJobAfterTimeout(t *testing.T) {
	m := connect(t)
	const name, slow = "app-corral-waits.scope", "corral-test-slow.service"
	run := exec.CommandContext(t.Context(), "systemd-run", "--user", "--quiet", "--collect", "--no-block", "--unit="+slow,
		"--property=Type=oneshot", "sleep", "infinity")
	require.NoError(t, run.Run())
	t.Cleanup(func() { _ = exec.Command("systemctl", "--user", "stop", slow).Run() })
	clearAfterwards(t, name)
	scope := Scope{Name: name, PIDs: []int{process(t)}, Properties: []Property{property("After", []string{slow})}}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := m.Start(ctx, scope)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "its start job was not done in time")
	scope.Properties = nil
	_, err = m.Start(t.Context(), scope)
	require.NoError(t, err)
	kill(t, scope.PIDs[0])
	assert.Equal(t, Ended{Name: name, Result: "success"}, next(t, m))
}

func TestReload_SendsResync(t *testing.T) {
	m := connect(t)
	testbed.Systemctl(t, "daemon-reload")
	assert.Equal(t, Resync{}, testbed.Receive(t, m.Events(), "Resync"))
}

// TestSignals_AreReceivedForWatchedScopesOnly: systemd sends signals about every unit of the user.
// Those that are not about a watched scope must not wake the daemon.
func TestSignals_AreReceivedForWatchedScopesOnly(t *testing.T) {
	m := connect(t)
	const name, ours = "app-corral-ours.scope", 12
	received := make(chan *dbus.Signal, 1000)
	m.conn.Signal(received)
	pid, _ := start(t, m, name)
	for range 5 {
		require.NoError(t, exec.CommandContext(t.Context(), "systemd-run", "--user", "--scope", "--quiet", "true").Run())
	}
	kill(t, pid)
	assert.Equal(t, Ended{Name: name, Result: "success"}, next(t, m))
	require.NoError(t, m.Unwatch(t.Context(), name))
	_, err := m.State(t.Context()) // the reply arrives after all earlier signals
	require.NoError(t, err)
	m.conn.RemoveSignal(received)
	close(received)
	n := 0
	for sig := range received {
		n++
		about := string(sig.Path) + " "
		for _, v := range sig.Body {
			if text, ok := v.(string); ok {
				about += text + " "
			}
		}
		assert.True(t, strings.Contains(about, name) || strings.Contains(about, "app_2dcorral_2dours_2escope"),
			"%s: %s", sig.Name, about)
	}
	assert.LessOrEqual(t, n, ours)
	t.Logf("%d signals for one scope's life", n)
}

func TestSignals_WithUnexpectedBodiesAreIgnored(t *testing.T) {
	ws := &watches{units: map[string]*watch{}, byPath: map[dbus.ObjectPath]*watch{}, unsupported: map[string]bool{}}
	w := &watch{name: "a.scope", path: "/a", startResult: make(chan string, 1), running: true}
	ws.units[w.name], ws.byPath[w.path] = w, w
	bodies := [][]any{nil, {1}, {"a.scope"}, {uint32(1), "/x", "a.scope"}, {uint32(1), dbus.ObjectPath("/x"), 3, 4},
		{"x", 3, []string{}}, {nil, nil, nil, nil}}
	for _, name := range []string{
		bus.SystemdManager + ".JobRemoved", bus.SystemdManager + ".Reloading", bus.Properties + ".PropertiesChanged",
		"x.y", "",
	} {
		for _, body := range bodies {
			for _, path := range []dbus.ObjectPath{"/a", "/b", ""} {
				for _, e := range ws.parseSignal(&dbus.Signal{Name: name, Path: path, Body: body}) {
					assert.IsType(t, Resync{}, e)
				}
			}
		}
	}
	assert.True(t, w.running)
}

func TestUnitPath(t *testing.T) {
	for name, want := range map[string]dbus.ObjectPath{
		"app-corral-a-1.scope": "/org/freedesktop/systemd1/unit/app_2dcorral_2da_2d1_2escope",
		"1a.scope":             "/org/freedesktop/systemd1/unit/_31a_2escope",
	} {
		assert.Equal(t, want, unitPath(name))
	}
}

// TestAbandon_LeavesTheStopToSystemd: a scope that is stopped before is left to this Manager, which
// Abandon reports; one that is stopped afterwards gets its SIGTERM from systemd, even though this
// Manager's connection is still on the bus.
func TestAbandon_LeavesTheStopToSystemd(t *testing.T) {
	m, other := connect(t), connect(t)
	const running, stopping, foreign = "app-corral-running.scope", "app-corral-stopping.scope", "app-corral-foreign.scope"
	start(t, m, running)
	pid, _ := start(t, m, stopping)
	start(t, other, foreign)
	stop := exec.CommandContext(t.Context(), "systemctl", "--user", "stop", stopping)
	require.NoError(t, stop.Start())
	assert.Equal(t, StopRequested{Name: stopping}, next(t, m))

	names := []string{running, stopping, foreign, "app-corral-absent.scope"}
	found, err := m.Abandon(t.Context(), names)
	require.NoError(t, err)
	assert.Equal(t, []string{stopping}, found)
	controller, err := m.get(t.Context(), foreign, "Scope", "Controller")
	require.NoError(t, err)
	assert.Equal(t, other.conn.Names()[0], controller)

	testbed.Systemctl(t, "stop", running)
	e := next(t, m)
	for ; e != (Ended{Name: running, Result: "success"}); e = next(t, m) {
		assert.NotEqual(t, StopRequested{Name: running}, e)
	}
	kill(t, pid)
	require.NoError(t, stop.Wait())
	found, err = m.Abandon(t.Context(), names)
	require.NoError(t, err)
	assert.Empty(t, found)
}

// TestAbandonLost_AfterReexecWithoutBus: systemd then keeps a controller that no longer exists, and
// would kill the scope's processes without a SIGTERM.
func TestAbandonLost_AfterReexecWithoutBus(t *testing.T) {
	m := connect(t)
	start(t, m, "app-corral-lost.scope")
	testbed.Systemctl(t, "stop", "dbus.socket", "dbus.service")
	testbed.Systemctl(t, "daemon-reexec")
	testbed.Systemctl(t, "start", "dbus.socket", "dbus.service")
	var next *Manager
	testbed.Poll(t, "systemd is on the new bus", func() (connected bool) {
		var err error
		next, err = Connect(t.Context(), os.Getenv("DBUS_SESSION_BUS_ADDRESS"), os.Getenv("XDG_RUNTIME_DIR"))
		if err == nil {
			t.Cleanup(func() { _ = next.Close() })
		}
		return err == nil && next.conn.Names()[0] != m.conn.Names()[0] // a new bus starts its unique names from the beginning
	})
	start(t, next, "app-corral-ours.scope")
	names, err := next.AbandonLost(t.Context(), "app-corral-*.scope")
	require.NoError(t, err)
	assert.Equal(t, []string{"app-corral-lost.scope"}, names)
	for unit, want := range map[string]string{"app-corral-lost.scope": "", "app-corral-ours.scope": next.conn.Names()[0]} {
		controller, err := next.get(t.Context(), unit, "Scope", "Controller")
		require.NoError(t, err)
		assert.Equal(t, want, controller)
	}
	again, err := next.AbandonLost(t.Context(), "app-corral-*.scope")
	require.NoError(t, err)
	assert.Empty(t, again)
}

// TestSystemdConnection_ChangesWithAReexec: systemd has usually kept the controller of a scope that
// left the bus during a reexecution, and the changed id shows that scopes have to be examined.
func TestSystemdConnection_ChangesWithAReexec(t *testing.T) {
	m := connect(t)
	start(t, m, "app-corral-lost.scope")
	before, err := m.SystemdConnection(t.Context())
	require.NoError(t, err)
	next := connect(t)
	again, err := next.SystemdConnection(t.Context())
	require.NoError(t, err)
	assert.Equal(t, before, again)

	reexec := exec.CommandContext(t.Context(), "systemctl", "--user", "daemon-reexec")
	require.NoError(t, reexec.Start())
	_ = m.Close()
	require.NoError(t, reexec.Wait())
	testbed.Poll(t, "systemd is on the bus with another connection", func() bool {
		now, err := next.SystemdConnection(t.Context())
		return err == nil && now != before
	})
	_, err = next.AbandonLost(t.Context(), "app-corral-*.scope")
	require.NoError(t, err)
	controller, err := next.get(t.Context(), "app-corral-lost.scope", "Scope", "Controller")
	require.NoError(t, err)
	assert.Empty(t, controller)
}

// TestBusLoss_LeavesThePrivateSocket has to be the last test: it replaces the bus.
func TestBusLoss_LeavesThePrivateSocket(t *testing.T) {
	m := connect(t)
	pid, _ := start(t, m, "app-corral-lost.scope")
	testbed.Systemctl(t, "restart", "dbus.service")
	for open := true; open; {
		select {
		case _, open = <-m.Events():
		case <-time.After(testbed.Timeout):
			t.Fatal("Events was not closed")
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), testbed.Timeout)
	defer cancel()
	list, err := m.List(ctx, "app-corral-lost.scope")
	require.NoError(t, err, "systemd can be called without a bus")
	require.Len(t, list, 1)
	assert.Equal(t, "active", list[0].Active)
	_, err = m.Abandon(ctx, []string{"app-corral-lost.scope"})
	require.NoError(t, err)
	assert.Equal(t, "abandoned", testbed.Systemctl(t, "show", "--value", "--property=SubState", "app-corral-lost.scope"))
	state, err := m.State(ctx)
	require.NoError(t, err)
	assert.Equal(t, "running", state)
	require.NoError(t, m.Kill(ctx, "x.scope", unix.SIGTERM))
	require.ErrorIs(t, m.Watch(ctx, "x.scope"), ErrClosed)
	_, err = m.Start(ctx, Scope{Name: "x.scope", PIDs: []int{pid}})
	require.ErrorIs(t, err, ErrClosed)
	require.NoError(t, unix.Kill(pid, 0), "the scope is still running")
	testbed.Poll(t, "systemd is on the new bus", func() bool {
		again, err := Connect(ctx, os.Getenv("DBUS_SESSION_BUS_ADDRESS"), os.Getenv("XDG_RUNTIME_DIR"))
		if err == nil {
			_ = again.Close()
		}
		return err == nil
	})
}
