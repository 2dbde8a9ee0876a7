package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/testbed"
)

// loginManager stands in for logind: it gives out delay locks, or refuses them.
type loginManager struct {
	bus    *dbus.Conn
	file   *os.File // what it gives out as a lock
	refuse atomic.Bool
	down   atomic.Bool // what it says where it is asked
	asleep atomic.Bool // the same
	mute   atomic.Bool // it says nothing then
	looks  atomic.Int32
	asked  chan [4]string
}

const login1 = "org.freedesktop.login1"

func newLoginManager(t *testing.T) *loginManager {
	t.Helper()
	file, err := os.CreateTemp(testbed.Dir(t), "lock")
	require.NoError(t, err)
	t.Cleanup(func() { _ = file.Close() })
	l := &loginManager{file: file, asked: make(chan [4]string, 16)}
	l.serve(t, testbed.Bus(t))
	return l
}

// serve has it on a bus.
func (l *loginManager) serve(t *testing.T, bus *dbus.Conn) {
	t.Helper()
	l.bus = bus
	const path = "/org/freedesktop/login1"
	require.NoError(t, bus.Export(l, path, login1+".Manager"))
	require.NoError(t, bus.ExportMethodTable(map[string]any{"Get": func(_, name string) (dbus.Variant, *dbus.Error) {
		l.looks.Add(1)
		if l.mute.Load() {
			return dbus.Variant{}, dbus.MakeFailedError(errors.New("no such property"))
		}
		if name == "PreparingForSleep" {
			return dbus.MakeVariant(l.asleep.Load()), nil
		}
		return dbus.MakeVariant(l.down.Load()), nil
	}}, path, "org.freedesktop.DBus.Properties"))
	reply, err := bus.RequestName(login1, dbus.NameFlagDoNotQueue)
	require.NoError(t, err)
	require.Equal(t, dbus.RequestNameReplyPrimaryOwner, reply)
}

// Inhibit is org.freedesktop.login1.Manager's.
func (l *loginManager) Inhibit(what, who, why, mode string) (dbus.UnixFD, *dbus.Error) {
	l.asked <- [4]string{what, who, why, mode}
	if l.refuse.Load() {
		return 0, dbus.MakeFailedError(errors.New("not allowed"))
	}
	fd, err := unix.FcntlInt(l.file.Fd(), unix.F_DUPFD_CLOEXEC, 0) // the connection closes it once it is sent
	if err != nil {
		return 0, dbus.MakeFailedError(err)
	}
	return dbus.UnixFD(fd), nil
}

func (l *loginManager) goingDown(t *testing.T, down bool) {
	t.Helper()
	l.down.Store(down)
	require.NoError(t, l.bus.Emit("/org/freedesktop/login1", login1+".Manager.PrepareForShutdown", down))
}

func (l *loginManager) sleeps(t *testing.T, asleep bool) {
	t.Helper()
	l.asleep.Store(asleep)
	require.NoError(t, l.bus.Emit("/org/freedesktop/login1", login1+".Manager.PrepareForSleep", asleep))
}

// shuttingDown reads the Manager's property.
func (d *corrald) shuttingDown(t *testing.T) (on bool) {
	t.Helper()
	var value dbus.Variant
	require.NoError(t, d.call(dbusapi.ManagerPath, "org.freedesktop.DBus.Properties.Get", []any{dbusapi.ManagerInterface, "ShuttingDown"}, &value))
	return value.Value().(bool)
}

// announced tells whether a signal tells that ShuttingDown is now this.
func announced(s *dbus.Signal, on bool) bool {
	if s.Path != dbusapi.ManagerPath || s.Name != "org.freedesktop.DBus.Properties.PropertiesChanged" || len(s.Body) < 2 {
		return false
	}
	changed, _ := s.Body[1].(map[string]dbus.Variant)
	return changed["ShuttingDown"].Value() == on
}

// holds tells whether the daemon has a lock.
func (l *loginManager) holds(d *corrald) bool {
	fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", d.process.Process.Pid))
	for _, fd := range fds {
		if target, _ := os.Readlink(fd); target == l.file.Name() {
			return true
		}
	}
	return false
}

// TestDelayLock: it is held while agents live and at no other time; before the machine sleeps it is
// given up, and taken again after that; before the machine goes down they are all suspended, and
// then it is given up. If the machine then stays up, they are resumed.
func TestDelayLock(t *testing.T) {
	l := newLoginManager(t)
	d := startDaemon(t)
	require.Equal(t, 0, d.kill(syscall.SIGTERM))
	d.env = append(d.env, "DBUS_SYSTEM_BUS_ADDRESS="+os.Getenv("DBUS_SESSION_BUS_ADDRESS"))
	d.launch()
	held := func(want bool, what string) {
		t.Helper()
		testbed.Poll(t, what, func() bool { return l.holds(d) == want })
	}
	assert.Empty(t, l.asked, "there is nobody to wait for")
	one, two := d.polite(t, "one"), d.polite(t, "two")
	assert.Equal(t, [4]string{"shutdown:sleep", "corrald", "Agents save their work", "delay"}, testbed.Receive(t, l.asked, "a question for a lock"))
	held(true, "a lock while agents live")
	one.must("Stop", uint64(0))
	held(true, "one agent still lives")
	two.must("Stop", uint64(0))
	held(false, "no lock without agents")

	one.must("Start")
	testbed.Receive(t, l.asked, "a question for a lock")
	held(true, "a lock again")
	require.Equal(t, -1, d.kill(syscall.SIGKILL))
	d.launch()
	testbed.Receive(t, l.asked, "a question for a lock")
	held(true, "a lock for agents that were taken over")

	l.sleeps(t, true)
	held(false, "no lock that would keep the machine awake")
	one.is(outcome{"running", "", 0, 0, "", "active"})
	l.sleeps(t, false)
	testbed.Receive(t, l.asked, "a question for a lock")
	held(true, "a lock for the next time")

	require.NoError(t, os.Remove(d.dir+"/one"))
	l.goingDown(t, true)
	held(false, "the lock is given up")
	one.is(outcome{"suspended", "success", 1, 0, "the machine was shut down", "suspended"})
	assert.Equal(t, "TERM\n", one.file("one"))

	assert.True(t, d.shuttingDown(t))
	_, err := d.tryCreate(t, "late", spec{"Command": []string{"sleep", "1000"}})
	require.ErrorContains(t, err, "the machine is shutting down")
	require.ErrorContains(t, one.do("Start"), "the machine is shutting down")
	nruns := one.facts().number("NRuns")
	two.is(outcome{"stopped", "success", 1, 0, "", "active"})

	mark := d.heard.mark()
	l.goingDown(t, false) // somebody has changed their mind
	d.await(t, mark, "word that nothing is shut down", func(s *dbus.Signal) bool { return announced(s, false) })
	one.become("running") // as it was, without anybody's doing
	assert.Equal(t, nruns+1, one.facts().number("NRuns"))
	assert.Equal(t, 1, two.facts().number("NRuns"), "what was stopped before is left alone")
	assert.False(t, d.shuttingDown(t))
	testbed.Receive(t, l.asked, "a question for a lock")
	held(true, "a lock after a shutdown that did not come")
	assert.Empty(t, l.asked)

	one.must("Stop", uint64(0))
	held(false, "no lock without agents")
	l.refuse.Store(true)
	one.must("Start")
	testbed.Receive(t, l.asked, "a question for a lock")
	one.is(outcome{"running", "", 0, 0, "", "active"})
	assert.False(t, l.holds(d))
	assert.NotContains(t, d.log.String(), "lock", "a refusal is nobody's trouble")
}

// TestDelayLock_IsRetakenOnANewSystemBus: the daemon comes back to it, with its lock, and learns
// what was said meanwhile: that the machine is not shut down after all, or is.
func TestDelayLock_IsRetakenOnANewSystemBus(t *testing.T) {
	l := newLoginManager(t)
	d := startDaemon(t)
	require.Equal(t, 0, d.kill(syscall.SIGTERM))
	address := "unix:path=" + filepath.Join(testbed.Dir(t), "system_bus_socket")
	d.env = append(d.env, "DBUS_SYSTEM_BUS_ADDRESS="+address)
	restart := l.ownBus(t, address)
	restart()
	d.launch()
	agent := d.polite(t, "agent")
	held := func(want bool, what string) {
		t.Helper()
		testbed.Poll(t, what, func() bool { return l.holds(d) == want })
	}
	held(true, "a lock while an agent lives")

	restart()
	testbed.Receive(t, l.asked, "the first question for a lock")
	testbed.Receive(t, l.asked, "a question for a lock on the new bus")
	held(true, "a lock again")
	agent.is(outcome{"running", "", 0, 0, "", "active"})

	l.goingDown(t, true)
	agent.become("suspended")
	held(false, "the lock is given up")
	l.down.Store(false) // which nobody hears
	restart()
	agent.become("running")
	held(true, "a lock after a shutdown that did not come")

	l.down.Store(true)
	restart()
	agent.become("suspended")
	assert.True(t, d.shuttingDown(t))

	l.mute.Store(true)
	before := l.looks.Load()
	restart()
	testbed.Poll(t, "it is asked again", func() bool { return l.looks.Load() > before })
	l.goingDown(t, true) // as it was all the time: nobody has said anything else
	assert.True(t, d.shuttingDown(t))
	assert.Equal(t, "suspended", agent.facts().text("State"))
}

// ownBus has the login manager on a bus of its own, which begins to be there, anew and empty, when
// what is returned is called.
func (l *loginManager) ownBus(t *testing.T, address string) (restart func()) {
	t.Helper()
	var daemon *exec.Cmd
	end := func() {
		if daemon != nil {
			_ = daemon.Process.Kill()
			_ = daemon.Wait()
		}
	}
	t.Cleanup(end)
	return func() {
		t.Helper()
		end()
		_ = os.Remove(strings.TrimPrefix(address, "unix:path="))
		daemon = exec.Command("dbus-daemon", "--session", "--nofork", "--nopidfile", "--address="+address)
		require.NoError(t, daemon.Start())
		var bus *dbus.Conn
		testbed.Poll(t, "a bus", func() (is bool) {
			var err error
			bus, err = dbus.Connect(address)
			return err == nil
		})
		t.Cleanup(func() { _ = bus.Close() })
		l.serve(t, bus)
	}
}

// TestDelayLock_IsHeldThroughACancelledShutdown: runs may begin again at once, however long an
// agent takes to end; the lock is held until it has, and what was suspended is resumed after that.
// A shutdown that is announced once more meanwhile is heard, too.
func TestDelayLock_IsHeldThroughACancelledShutdown(t *testing.T) {
	l := newLoginManager(t)
	d := startDaemon(t, "StopTimeoutSec=1h")
	require.Equal(t, 0, d.kill(syscall.SIGTERM))
	d.env = append(d.env, "DBUS_SYSTEM_BUS_ADDRESS="+os.Getenv("DBUS_SESSION_BUS_ADDRESS"))
	d.launch()
	pass, open := d.gate(t, "slow")
	slow := d.run(t, "slow", "trap 'echo told >"+d.dir+"/told; "+pass+"; exit 0' TERM; echo up >"+d.dir+"/up; while :; do sleep 0.1; done")
	slow.file("up")
	testbed.Receive(t, l.asked, "a question for a lock")
	testbed.Poll(t, "a lock", func() bool { return l.holds(d) })
	announce := func(down bool) {
		t.Helper()
		mark := d.heard.mark()
		l.goingDown(t, down)
		d.await(t, mark, fmt.Sprint("ShuttingDown is ", down), func(s *dbus.Signal) bool { return announced(s, down) })
	}

	announce(true)
	slow.file("told")
	_, err := d.tryCreate(t, "early", spec{"Command": []string{"sleep", "1000"}})
	require.ErrorContains(t, err, "the machine is shutting down")
	announce(false)
	other := d.polite(t, "other")
	slow.is(outcome{"stopping", "", 0, 0, "", "active"})
	assert.True(t, l.holds(d), "one agent ends, another one runs")

	announce(true)
	other.become("suspended")
	slow.is(outcome{"stopping", "", 0, 0, "", "active"})
	assert.True(t, l.holds(d), "one agent still ends")
	announce(false)
	other.become("running")
	for _, file := range []string{"up", "told"} {
		require.NoError(t, os.Remove(d.dir+"/"+file))
	}
	open()
	slow.become("running")
	assert.Equal(t, 2, slow.facts().number("NRuns"))

	slow.file("up")
	announce(true)
	slow.file("told")
	open()
	slow.become("suspended")
	other.become("suspended")
	testbed.Poll(t, "the lock is given up", func() bool { return !l.holds(d) })
	assert.Empty(t, l.asked, "the lock was held all the time")
}
