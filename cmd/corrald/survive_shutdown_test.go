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

// loginManager is a fake logind: it grants delay locks, or refuses them.
type loginManager struct {
	bus        *dbus.Conn
	file       *os.File // granted as a lock
	refuse     atomic.Bool
	down       atomic.Bool // the value of PreparingForShutdown
	asleep     atomic.Bool // the value of PreparingForSleep
	unreadable atomic.Bool // properties cannot be read
	reads      atomic.Int32
	requests   chan [4]string
}

const login1 = "org.freedesktop.login1"

func newLoginManager(t *testing.T) *loginManager {
	t.Helper()
	file, err := os.CreateTemp(testbed.Dir(t), "lock")
	require.NoError(t, err)
	t.Cleanup(func() { _ = file.Close() })
	l := &loginManager{file: file, requests: make(chan [4]string, 16)}
	l.serve(t, testbed.Bus(t))
	return l
}

// serve registers it on a bus.
func (l *loginManager) serve(t *testing.T, bus *dbus.Conn) {
	t.Helper()
	l.bus = bus
	const path = "/org/freedesktop/login1"
	require.NoError(t, bus.Export(l, path, login1+".Manager"))
	require.NoError(t, bus.ExportMethodTable(map[string]any{"Get": func(_, name string) (dbus.Variant, *dbus.Error) {
		l.reads.Add(1)
		if l.unreadable.Load() {
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

// Inhibit implements the method of org.freedesktop.login1.Manager.
func (l *loginManager) Inhibit(what, who, why, mode string) (dbus.UnixFD, *dbus.Error) {
	l.requests <- [4]string{what, who, why, mode}
	if l.refuse.Load() {
		return 0, dbus.MakeFailedError(errors.New("not allowed"))
	}
	fd, err := unix.FcntlInt(l.file.Fd(), unix.F_DUPFD_CLOEXEC, 0) // the connection closes it after sending
	if err != nil {
		return 0, dbus.MakeFailedError(err)
	}
	return dbus.UnixFD(fd), nil
}

func (l *loginManager) announceShutdown(t *testing.T, down bool) {
	t.Helper()
	l.down.Store(down)
	require.NoError(t, l.bus.Emit("/org/freedesktop/login1", login1+".Manager.PrepareForShutdown", down))
}

func (l *loginManager) announceSleep(t *testing.T, asleep bool) {
	t.Helper()
	l.asleep.Store(asleep)
	require.NoError(t, l.bus.Emit("/org/freedesktop/login1", login1+".Manager.PrepareForSleep", asleep))
}

// isShuttingDown returns the Manager's property ShuttingDown.
func (d *corrald) isShuttingDown(t *testing.T) (on bool) {
	t.Helper()
	var value dbus.Variant
	require.NoError(t, d.call(dbusapi.ManagerPath, "org.freedesktop.DBus.Properties.Get",
		[]any{dbusapi.ManagerInterface, "ShuttingDown"}, &value))
	return value.Value().(bool)
}

// isShutdownAnnouncement reports whether a signal announces this value of ShuttingDown.
func isShutdownAnnouncement(s *dbus.Signal, on bool) bool {
	if s.Path != dbusapi.ManagerPath || s.Name != "org.freedesktop.DBus.Properties.PropertiesChanged" || len(s.Body) < 2 {
		return false
	}
	changed, _ := s.Body[1].(map[string]dbus.Variant)
	return changed["ShuttingDown"].Value() == on
}

// isLockedBy reports whether the daemon holds a lock.
func (l *loginManager) isLockedBy(d *corrald) bool {
	fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", d.process.Process.Pid))
	for _, fd := range fds {
		if target, _ := os.Readlink(fd); target == l.file.Name() {
			return true
		}
	}
	return false
}

// TestDelayLock checks that the lock is held while agents run and at no other time. It is released
// before the machine sleeps and taken again afterwards. Before the machine shuts down all sessions
// are suspended, and then it is released; if the shutdown is canceled, the sessions are resumed.
func TestDelayLock(t *testing.T) {
	l := newLoginManager(t)
	d := startDaemon(t)
	require.Equal(t, 0, d.kill(syscall.SIGTERM))
	d.env = append(d.env, "DBUS_SYSTEM_BUS_ADDRESS="+os.Getenv("DBUS_SESSION_BUS_ADDRESS"))
	d.launch()
	held := func(want bool, what string) {
		t.Helper()
		testbed.Poll(t, what, func() bool { return l.isLockedBy(d) == want })
	}
	assert.Empty(t, l.requests, "no lock without agents")
	one, two := d.politeSession(t, "one"), d.politeSession(t, "two")
	assert.Equal(t, [4]string{"shutdown:sleep", "corrald", "Agents save their work", "delay"},
		testbed.Receive(t, l.requests, "a request for a lock"))
	held(true, "a lock while agents run")
	one.must("Stop", uint64(0))
	held(true, "one agent still lives")
	two.must("Stop", uint64(0))
	held(false, "no lock without agents")

	one.must("Start")
	testbed.Receive(t, l.requests, "a request for a lock")
	held(true, "a lock again")
	require.Equal(t, -1, d.kill(syscall.SIGKILL))
	d.launch()
	testbed.Receive(t, l.requests, "a request for a lock")
	held(true, "a lock for adopted agents")

	l.announceSleep(t, true)
	held(false, "no lock that would keep the machine awake")
	one.assertOutcome(outcome{"running", "", 0, 0, "", "active"})
	l.announceSleep(t, false)
	testbed.Receive(t, l.requests, "a request for a lock")
	held(true, "a lock for the next time")

	require.NoError(t, os.Remove(d.dir+"/one"))
	l.announceShutdown(t, true)
	held(false, "the lock is released")
	one.assertOutcome(outcome{"suspended", "success", 1, 0, "the machine was shut down", "suspended"})
	assert.Equal(t, "TERM\n", one.awaitFile("one"))

	assert.True(t, d.isShuttingDown(t))
	_, err := d.tryCreate(t, "late", spec{"Command": []string{"sleep", "1000"}})
	require.ErrorContains(t, err, "the machine is shutting down")
	require.ErrorContains(t, one.do("Start"), "the machine is shutting down")
	nruns := one.properties().number("NRuns")
	two.assertOutcome(outcome{"stopped", "success", 1, 0, "", "active"})

	mark := d.signals.mark()
	l.announceShutdown(t, false) // the shutdown is canceled
	d.await(t, mark, "the cancellation", func(s *dbus.Signal) bool {
		return isShutdownAnnouncement(s, false)
	})
	one.waitState("running") // resumed automatically
	assert.Equal(t, nruns+1, one.properties().number("NRuns"))
	assert.Equal(t, 1, two.properties().number("NRuns"), "a session that was stopped before is not resumed")
	assert.False(t, d.isShuttingDown(t))
	testbed.Receive(t, l.requests, "a request for a lock")
	held(true, "a lock after the canceled shutdown")
	assert.Empty(t, l.requests)

	one.must("Stop", uint64(0))
	held(false, "no lock without agents")
	l.refuse.Store(true)
	one.must("Start")
	testbed.Receive(t, l.requests, "a request for a lock")
	one.assertOutcome(outcome{"running", "", 0, 0, "", "active"})
	assert.False(t, l.isLockedBy(d))
	assert.NotContains(t, d.log.String(), "lock", "a refused lock is not logged")
}

// TestDelayLock_IsRetakenOnANewSystemBus restarts the system bus: the daemon reconnects, takes the
// lock, and learns what it missed, that a shutdown was canceled or announced.
func TestDelayLock_IsRetakenOnANewSystemBus(t *testing.T) {
	l := newLoginManager(t)
	d := startDaemon(t)
	require.Equal(t, 0, d.kill(syscall.SIGTERM))
	address := "unix:path=" + filepath.Join(testbed.Dir(t), "system_bus_socket")
	d.env = append(d.env, "DBUS_SYSTEM_BUS_ADDRESS="+address)
	restart := l.ownBus(t, address)
	restart()
	d.launch()
	agent := d.politeSession(t, "agent")
	held := func(want bool, what string) {
		t.Helper()
		testbed.Poll(t, what, func() bool { return l.isLockedBy(d) == want })
	}
	held(true, "a lock while an agent runs")

	restart()
	testbed.Receive(t, l.requests, "the first request for a lock")
	testbed.Receive(t, l.requests, "a request for a lock on the new bus")
	held(true, "a lock again")
	agent.assertOutcome(outcome{"running", "", 0, 0, "", "active"})

	l.announceShutdown(t, true)
	agent.waitState("suspended")
	held(false, "the lock is released")
	l.down.Store(false) // no signal reaches the daemon
	restart()
	agent.waitState("running")
	held(true, "a lock after the canceled shutdown")

	l.down.Store(true)
	restart()
	agent.waitState("suspended")
	assert.True(t, d.isShuttingDown(t))

	l.unreadable.Store(true)
	before := l.reads.Load()
	restart()
	testbed.Poll(t, "the daemon reads the properties again", func() bool { return l.reads.Load() > before })
	l.announceShutdown(t, true) // as before: nothing else was announced
	assert.True(t, d.isShuttingDown(t))
	assert.Equal(t, "suspended", agent.properties().text("State"))
}

// ownBus puts the login manager on a bus of its own. Each call of the returned function starts that
// bus anew.
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

// TestDelayLock_IsHeldThroughACanceledShutdown cancels a shutdown while agents exit: new runs can
// start at once, however long an agent takes to exit. The lock is held until it has exited, and
// then the suspended sessions are resumed. A second announcement in between has to be handled, too.
func TestDelayLock_IsHeldThroughACanceledShutdown(t *testing.T) {
	l := newLoginManager(t)
	d := startDaemon(t, "StopTimeoutSec=1h")
	require.Equal(t, 0, d.kill(syscall.SIGTERM))
	d.env = append(d.env, "DBUS_SYSTEM_BUS_ADDRESS="+os.Getenv("DBUS_SESSION_BUS_ADDRESS"))
	d.launch()
	pass, open := d.gate(t, "slow")
	slow := d.run(t, "slow",
		"trap 'echo asked >"+d.dir+"/asked; "+pass+"; exit 0' TERM; echo up >"+d.dir+"/up; while :; do sleep 0.1; done")
	slow.awaitFile("up")
	testbed.Receive(t, l.requests, "a request for a lock")
	testbed.Poll(t, "a lock", func() bool { return l.isLockedBy(d) })
	announce := func(down bool) {
		t.Helper()
		mark := d.signals.mark()
		l.announceShutdown(t, down)
		d.await(t, mark, fmt.Sprint("ShuttingDown is ", down), func(s *dbus.Signal) bool {
			return isShutdownAnnouncement(s, down)
		})
	}

	announce(true)
	slow.awaitFile("asked")
	_, err := d.tryCreate(t, "early", spec{"Command": []string{"sleep", "1000"}})
	require.ErrorContains(t, err, "the machine is shutting down")
	announce(false)
	other := d.politeSession(t, "other")
	slow.assertOutcome(outcome{"stopping", "", 0, 0, "", "active"})
	assert.True(t, l.isLockedBy(d), "one agent is exiting, another one runs")

	announce(true)
	other.waitState("suspended")
	slow.assertOutcome(outcome{"stopping", "", 0, 0, "", "active"})
	assert.True(t, l.isLockedBy(d), "one agent is still exiting")
	announce(false)
	other.waitState("running")
	for _, file := range []string{"up", "asked"} {
		require.NoError(t, os.Remove(d.dir+"/"+file))
	}
	open()
	slow.waitState("running")
	assert.Equal(t, 2, slow.properties().number("NRuns"))

	slow.awaitFile("up")
	announce(true)
	slow.awaitFile("asked")
	open()
	slow.waitState("suspended")
	other.waitState("suspended")
	testbed.Poll(t, "the lock is released", func() bool { return !l.isLockedBy(d) })
	assert.Empty(t, l.requests, "the lock was held all the time")
}
