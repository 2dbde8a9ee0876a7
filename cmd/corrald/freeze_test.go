package main

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/proc"
	"github.com/corrald/corral/internal/testbed"
)

// savingSession starts a session whose agent catches SIGTERM, writes a file, and exits with 0.
func (d *corrald) savingSession(t *testing.T, id string) *testSession {
	t.Helper()
	s := d.run(t, id,
		`trap 'echo saved >`+d.dir+`/`+id+`-saved; exit 0' TERM; echo ready >`+d.dir+`/`+id+`-ready; `+
			`while :; do sleep 1000 & wait; done`)
	s.awaitFile(id + "-ready")
	return s
}

func (s *testSession) isFrozen() bool {
	s.t.Helper()
	frozen, _ := proc.Frozen(s.properties().text("ControlGroup"))
	return frozen
}

func (s *testSession) waitFrozen(want bool) {
	s.t.Helper()
	s.wait("in the expected frozen state", func(p properties) bool { return p.isTrue("Frozen") == want })
}

// TestFreeze_StopsTheSessionUntilThaw freezes and thaws a session, by Corral and by systemctl: both
// are reported, and nothing runs in between.
func TestFreeze_StopsTheSessionUntilThaw(t *testing.T) {
	d := startDaemon(t)
	s := d.savingSession(t, "shop")
	assert.False(t, s.properties().isTrue("Frozen"))
	mark := d.signals.mark()
	s.must("Freeze")
	assert.True(t, s.isFrozen())
	assert.True(t, s.properties().isTrue("Frozen"))
	d.await(t, mark, "Frozen", func(signal *dbus.Signal) bool {
		if signal.Name != propertiesChanged || signal.Path != dbusapi.SessionPath("shop") {
			return false
		}
		changed, _ := signal.Body[1].(map[string]dbus.Variant)
		frozen, _ := changed["Frozen"].Value().(bool)
		return frozen
	})
	s.assertOutcome(outcome{"running", "", 0, 0, "", "active"})
	assertRefused(t, s.do("SendInput", "text", uint64(1)), dbusapi.InvalidState, "shop", "frozen", "thaw")
	assertRefused(t, s.do("Capture", uint32(1), uint64(0)), dbusapi.InvalidState, "frozen")
	assertRefused(t, s.do("GetAttachCommand"), dbusapi.InvalidState, "frozen")
	assertRefused(t, s.do("Resume"), dbusapi.InvalidState, "shop")
	assert.Less(t, s.properties()["TasksCurrent"].Value().(uint64), ^uint64(0), "the number of tasks is known")
	s.must("Freeze")
	require.NoError(t, d.manager("ThawSession", []any{"shop"}))
	assert.False(t, s.isFrozen())
	assert.False(t, s.properties().isTrue("Frozen"))
	s.must("SendInput", "text", uint64(1))

	testbed.Systemctl(t, "freeze", s.unit())
	s.waitFrozen(true)
	testbed.Systemctl(t, "thaw", s.unit())
	s.waitFrozen(false)
	require.NoError(t, d.manager("FreezeSession", []any{"shop"}))
	assertRefused(t, d.manager("FreezeSession", []any{"nobody"}), dbusapi.NoSuchSession, "nobody")
	created := d.create(t, "created", spec{"Command": []string{"true"}, "Start": false})
	assertRefused(t, created.do("Freeze"), dbusapi.InvalidState, "created")
	assertRefused(t, created.do("Thaw"), dbusapi.InvalidState, "created")
}

// TestFreeze_IsUndoneBeforeAStop checks that a frozen session is thawed before it is ended, so that
// its agent can save its work.
func TestFreeze_IsUndoneBeforeAStop(t *testing.T) {
	d := startDaemon(t)
	for _, c := range []struct {
		name string
		end  func(s *testSession) error
		want outcome
	}{
		{"stop", func(s *testSession) error { return s.do("Stop", uint64(0)) },
			outcome{"stopped", "success", 1, 0, "", "active"}},
		{"suspend", func(s *testSession) error { return s.do("Suspend") },
			outcome{"suspended", "success", 1, 0, "", "suspended"}},
		{"restart", func(s *testSession) error { return s.do("Restart") }, outcome{"running", "", 0, 0, "", "active"}},
		{"systemctl", func(s *testSession) error {
			return exec.CommandContext(s.t.Context(), "systemctl", "--user", "stop", s.unit()).Run()
		}, outcome{"stopped", "success", 1, 0, "its scope was stopped", "active"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := d.savingSession(t, c.name)
			s.must("Freeze")
			require.NoError(t, c.end(s))
			s.waitOutcome(c.want)
			s.awaitFile(c.name + "-saved")
			assert.False(t, s.properties().isTrue("Frozen"))
		})
	}
	s := d.savingSession(t, "removed")
	s.must("Freeze")
	s.must("Remove", dbusapi.RemoveForce)
	assert.Equal(t, "saved\n", string(testbed.WaitFile(t, d.dir+"/removed-saved", func(b []byte) bool {
		return len(b) > 0
	})))
	assert.NotContains(t, d.ids(t), "removed")
}

// TestFreeze_DelaysSignalsExceptSIGKILL checks that signals that a process can catch wait for the
// thaw, while SIGKILL takes effect at once, and that the exit is recorded.
func TestFreeze_DelaysSignalsExceptSIGKILL(t *testing.T) {
	d := startDaemon(t)
	s := d.savingSession(t, "shop")
	s.must("Freeze")
	s.must("Kill", "agent", int32(syscall.SIGTERM))
	assert.True(t, s.isFrozen())
	s.must("Thaw")
	s.waitState("completed")
	s.awaitFile("shop-saved")

	killed := d.savingSession(t, "killed")
	killed.must("Freeze")
	killed.must("Kill", "leftovers", int32(syscall.SIGKILL))
	assert.True(t, killed.isFrozen(), "only leftover processes are killed")
	killed.must("Kill", "agent", int32(syscall.SIGKILL))
	killed.waitOutcome(outcome{"failed", "signal", 2, 9, "command was killed by SIGKILL", "error"})
}

// TestFreeze_SurvivesDaemonRestart checks that frozen sessions stay frozen, and are reported as
// frozen, after the daemon has exited or was killed.
func TestFreeze_SurvivesDaemonRestart(t *testing.T) {
	for name, signal := range map[string]syscall.Signal{"restarted": syscall.SIGTERM, "killed": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			d := startDaemon(t)
			s, other := d.savingSession(t, "shop"), d.savingSession(t, "other")
			s.must("Freeze")
			d.kill(signal)
			testbed.Systemctl(t, "freeze", other.unit())
			d.launch()
			for _, s := range []*testSession{s, other} {
				s.waitState("running")
				assert.True(t, s.properties().isTrue("Frozen"))
				assert.True(t, s.properties().isTrue("AgentAlive"))
			}
			other.must("Thaw")
			other.must("SendInput", "text", uint64(1))
			s.must("Stop", uint64(0))
			s.waitOutcome(outcome{"stopped", "success", 1, 0, "", "active"})
			s.awaitFile("shop-saved")
		})
	}
}

// TestUnitProperties sets properties on a running scope and for later starts: either all of them
// are set or none.
func TestUnitProperties(t *testing.T) {
	d := startDaemon(t)
	s := d.savingSession(t, "shop")
	show := func(property string) string {
		return strings.TrimSpace(testbed.Systemctl(t, "show", "--value", "--property="+property, s.unit()))
	}
	set := func(properties ...property) error { return s.do("SetUnitProperties", properties) }
	require.NoError(t, set(property{"TasksMax", uint64(77)}, property{"CPUWeight", uint64(30)}))
	assert.Equal(t, "77", show("TasksMax"))
	for name, bad := range map[string]property{
		"unknown": {"Frobnicate", uint64(1)}, "out of range": {"CPUWeight", uint64(1e9)},
		"another type": {"CPUWeight", "much"}, "ours": {"KillMode", "none"},
		"not of a scope": {"ExecStart", "true"}, "no name": {"", "x"},
	} {
		assertRefused(t, set(property{"TasksMax", uint64(66)}, bad), dbusapi.InvalidArgs, bad.Name)
		assert.Equal(t, "77", show("TasksMax"), name)
	}
	assertRefused(t, set(property{"RuntimeMaxUSec", uint64(3600e6)}), dbusapi.InvalidArgs, "RuntimeMaxUSec",
		"cannot be changed while the session runs")
	assertRefused(t, d.call(dbusapi.SessionPath("nobody"), dbusapi.SessionInterface+".SetUnitProperties",
		[]any{[]property{}}), dbusapi.UnknownObject)

	s.must("Restart")
	assert.Equal(t, "77", show("TasksMax"), "the property was kept")
	assert.Equal(t, "30", show("CPUWeight"))
	s.must("Stop", uint64(0))
	assertRefused(t, set(property{"TasksMax", uint64(55)}, property{"Frobnicate", uint64(1)}),
		dbusapi.InvalidArgs, "Frobnicate")
	require.NoError(t, set(property{"TasksMax", uint64(44)}, property{"RuntimeMaxUSec", uint64(3600e6)}),
		"more properties can be set while the session does not run")
	d.kill(syscall.SIGTERM)
	d.launch()
	s.must("Start")
	assert.Equal(t, "44", show("TasksMax"))
	assert.Equal(t, "1h", show("RuntimeMaxUSec"))
	assert.Equal(t, "30", show("CPUWeight"))
	entries, _ := os.ReadDir(os.Getenv("XDG_RUNTIME_DIR") + "/systemd/user.control")
	assert.Empty(t, entries, "systemd has written no drop-in that remains after the scope")
}
