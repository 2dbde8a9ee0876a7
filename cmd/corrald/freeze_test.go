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

// patient is a session that catches SIGTERM, says so in a file, and ends with 0.
func (d *corrald) patient(t *testing.T, id string) *subject {
	t.Helper()
	s := d.run(t, id, `trap 'echo saved >`+d.dir+`/`+id+`-saved; exit 0' TERM; echo ready >`+d.dir+`/`+id+`-ready; while :; do sleep 1000 & wait; done`)
	s.file(id + "-ready")
	return s
}

func (s *subject) frozen() bool {
	s.t.Helper()
	frozen, _ := proc.Frozen(s.facts().text("ControlGroup"))
	return frozen
}

func (s *subject) becomeFrozen(want bool) {
	s.t.Helper()
	s.wait("frozen or thawed as it should be", func(f facts) bool { return f.yes("Frozen") == want })
}

// TestFreeze_StopsTheSessionUntilThaw: by us or by anybody else, it is told, and nothing runs in
// between.
func TestFreeze_StopsTheSessionUntilThaw(t *testing.T) {
	d := startDaemon(t)
	s := d.patient(t, "shop")
	assert.False(t, s.facts().yes("Frozen"))
	mark := d.heard.mark()
	s.must("Freeze")
	assert.True(t, s.frozen())
	assert.True(t, s.facts().yes("Frozen"))
	d.await(t, mark, "Frozen", func(signal *dbus.Signal) bool {
		if signal.Name != propertiesChanged || signal.Path != dbusapi.SessionPath("shop") {
			return false
		}
		changed, _ := signal.Body[1].(map[string]dbus.Variant)
		frozen, _ := changed["Frozen"].Value().(bool)
		return frozen
	})
	s.is(outcome{"running", "", 0, 0, "", "active"})
	refused(t, s.do("SendInput", "text", uint64(1)), dbusapi.InvalidState, "shop", "frozen", "thaw")
	refused(t, s.do("Capture", uint32(1), uint64(0)), dbusapi.InvalidState, "frozen")
	refused(t, s.do("GetAttachCommand"), dbusapi.InvalidState, "frozen")
	refused(t, s.do("Resume"), dbusapi.InvalidState, "shop")
	assert.Less(t, s.facts()["TasksCurrent"].Value().(uint64), ^uint64(0), "it can be measured")
	s.must("Freeze")
	require.NoError(t, d.manager("ThawSession", []any{"shop"}))
	assert.False(t, s.frozen())
	assert.False(t, s.facts().yes("Frozen"))
	s.must("SendInput", "text", uint64(1))

	testbed.Systemctl(t, "freeze", s.unit())
	s.becomeFrozen(true)
	testbed.Systemctl(t, "thaw", s.unit())
	s.becomeFrozen(false)
	require.NoError(t, d.manager("FreezeSession", []any{"shop"}))
	refused(t, d.manager("FreezeSession", []any{"nobody"}), dbusapi.NoSuchSession, "nobody")
	created := d.create(t, "created", spec{"Command": []string{"true"}, "Start": false})
	refused(t, created.do("Freeze"), dbusapi.InvalidState, "created")
	refused(t, created.do("Thaw"), dbusapi.InvalidState, "created")
}

// TestFreeze_IsUndoneBeforeAStop: whatever ends it lets it go on first, and it saves.
func TestFreeze_IsUndoneBeforeAStop(t *testing.T) {
	d := startDaemon(t)
	for _, c := range []struct {
		name string
		end  func(s *subject) error
		want outcome
	}{
		{"stop", func(s *subject) error { return s.do("Stop", uint64(0)) }, outcome{"stopped", "success", 1, 0, "", "active"}},
		{"suspend", func(s *subject) error { return s.do("Suspend") }, outcome{"suspended", "success", 1, 0, "", "suspended"}},
		{"restart", func(s *subject) error { return s.do("Restart") }, outcome{"running", "", 0, 0, "", "active"}},
		{"systemctl", func(s *subject) error {
			return exec.CommandContext(s.t.Context(), "systemctl", "--user", "stop", s.unit()).Run()
		}, outcome{"stopped", "success", 1, 0, "its scope was stopped", "active"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := d.patient(t, c.name)
			s.must("Freeze")
			require.NoError(t, c.end(s))
			s.ends(c.want)
			s.file(c.name + "-saved")
			assert.False(t, s.facts().yes("Frozen"))
		})
	}
	s := d.patient(t, "removed")
	s.must("Freeze")
	s.must("Remove", dbusapi.RemoveForce)
	assert.Equal(t, "saved\n", string(testbed.WaitFile(t, d.dir+"/removed-saved", func(b []byte) bool { return len(b) > 0 })))
	assert.NotContains(t, d.ids(t), "removed")
}

// TestFreeze_DelaysSignalsExceptSIGKILL: those that it can answer wait for the thaw, SIGKILL does
// not, and its exit is recorded.
func TestFreeze_DelaysSignalsExceptSIGKILL(t *testing.T) {
	d := startDaemon(t)
	s := d.patient(t, "shop")
	s.must("Freeze")
	s.must("Kill", "agent", int32(syscall.SIGTERM))
	assert.True(t, s.frozen())
	s.must("Thaw")
	s.become("completed")
	s.file("shop-saved")

	killed := d.patient(t, "killed")
	killed.must("Freeze")
	killed.must("Kill", "leftovers", int32(syscall.SIGKILL))
	assert.True(t, killed.frozen(), "it is the leftovers that end")
	killed.must("Kill", "agent", int32(syscall.SIGKILL))
	killed.ends(outcome{"failed", "signal", 2, 9, "command was killed by SIGKILL", "error"})
}

// TestFreeze_SurvivesDaemonRestart: however that ends, what was frozen is, and is found to be.
func TestFreeze_SurvivesDaemonRestart(t *testing.T) {
	for name, signal := range map[string]syscall.Signal{"restarted": syscall.SIGTERM, "killed": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			d := startDaemon(t)
			s, other := d.patient(t, "shop"), d.patient(t, "other")
			s.must("Freeze")
			d.kill(signal)
			testbed.Systemctl(t, "freeze", other.unit())
			d.launch()
			for _, s := range []*subject{s, other} {
				s.become("running")
				assert.True(t, s.facts().yes("Frozen"))
				assert.True(t, s.facts().yes("AgentAlive"))
			}
			other.must("Thaw")
			other.must("SendInput", "text", uint64(1))
			s.must("Stop", uint64(0))
			s.ends(outcome{"stopped", "success", 1, 0, "", "active"})
			s.file("shop-saved")
		})
	}
}

// TestUnitProperties: set live and for later starts; all of them or none.
func TestUnitProperties(t *testing.T) {
	d := startDaemon(t)
	s := d.patient(t, "shop")
	show := func(property string) string {
		return strings.TrimSpace(testbed.Systemctl(t, "show", "--value", "--property="+property, s.unit()))
	}
	set := func(properties ...property) error { return s.do("SetUnitProperties", properties) }
	require.NoError(t, set(property{"TasksMax", uint64(77)}, property{"CPUWeight", uint64(30)}))
	assert.Equal(t, "77", show("TasksMax"))
	for name, bad := range map[string]property{
		"unknown": {"Frobnicate", uint64(1)}, "out of range": {"CPUWeight", uint64(1e9)}, "another type": {"CPUWeight", "much"}, "ours": {"KillMode", "none"},
		"not of a scope": {"ExecStart", "true"}, "no name": {"", "x"},
	} {
		refused(t, set(property{"TasksMax", uint64(66)}, bad), dbusapi.InvalidArgs, bad.Name)
		assert.Equal(t, "77", show("TasksMax"), name)
	}
	refused(t, set(property{"RuntimeMaxUSec", uint64(3600e6)}), dbusapi.InvalidArgs, "RuntimeMaxUSec", "cannot be changed while the session runs")
	refused(t, d.call(dbusapi.SessionPath("nobody"), dbusapi.SessionInterface+".SetUnitProperties", []any{[]property{}}), dbusapi.UnknownObject)

	s.must("Restart")
	assert.Equal(t, "77", show("TasksMax"), "it was kept")
	assert.Equal(t, "30", show("CPUWeight"))
	s.must("Stop", uint64(0))
	refused(t, set(property{"TasksMax", uint64(55)}, property{"Frobnicate", uint64(1)}), dbusapi.InvalidArgs, "Frobnicate")
	require.NoError(t, set(property{"TasksMax", uint64(44)}, property{"RuntimeMaxUSec", uint64(3600e6)}), "of what does not run, more can be set")
	d.kill(syscall.SIGTERM)
	d.launch()
	s.must("Start")
	assert.Equal(t, "44", show("TasksMax"))
	assert.Equal(t, "1h", show("RuntimeMaxUSec"))
	assert.Equal(t, "30", show("CPUWeight"))
	entries, _ := os.ReadDir(os.Getenv("XDG_RUNTIME_DIR") + "/systemd/user.control")
	assert.Empty(t, entries, "systemd has no drop-in that outlives the scope")
}
