package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/testbed"
)

// TestRetention checks that expired sessions are removed automatically, at the time announced by
// ExpireTimestamp, but never a workspace, and that archived sessions are kept.
func TestRetention(t *testing.T) {
	const keep = 2 * time.Second
	d := startDaemon(t, "CompletedRetentionSec=2s", "FailedRetentionSec=2s", "UnseenRetentionSec=2s",
		"StoppedRetentionSec=2s", "SuspendedRetentionSec=2s")
	mark := d.signals.mark()
	work := testbed.Dir(t)
	require.NoError(t, os.WriteFile(filepath.Join(work, "uncommitted"), []byte("change"), 0o600))
	in := func(script string) spec {
		return spec{"Command": []string{"sh", "-c", script}, "WorkingDirectory": work}
	}
	archived := d.create(t, "archived", in("exit 0"))
	archived.waitState("completed")
	archived.must("Archive")
	live := d.create(t, "live", in("exec sleep 1000"))
	completed, failed := d.create(t, "completed", in("exit 0")), d.create(t, "failed", in("exit 3"))
	stopped, suspended := d.create(t, "stopped", in("exec sleep 1000")), d.create(t, "suspended", in("exec sleep 1000"))
	stopped.must("Stop", uint64(0))
	suspended.must("Suspend")

	announced := map[string]time.Time{}
	for s, state := range map[*testSession]string{
		completed: "completed", failed: "failed", stopped: "stopped", suspended: "suspended",
	} {
		p := s.waitState(state)
		announced[s.id] = p.time("ExpireTimestamp")
		assert.Equal(t, p.time("StateChangeTimestamp").Add(keep), announced[s.id], s.id)
	}
	for _, s := range []*testSession{live, archived} {
		assert.EqualValues(t, 0, s.properties()["ExpireTimestamp"].Value(), s.id)
	}
	for id, at := range announced {
		d.await(t, mark, "the removal of "+id, func(s *dbus.Signal) bool {
			return strings.HasSuffix(s.Name, ".SessionRemoved") && len(s.Body) > 0 && s.Body[0] == id
		})
		assert.False(t, time.Now().Before(at), "%s was removed too early", id)
		assert.NoDirExists(t, d.stateDir(id))
	}
	assert.ElementsMatch(t, []string{"archived", "live"}, d.ids(t))
	assert.Equal(t, "change", readFile(t, filepath.Join(work, "uncommitted")))
}

// TestRetention_ExpiresWhileTheDaemonIsAway checks that a session that expires while no daemon is
// running is removed soon after the next start, so that Clean finds nothing to remove.
func TestRetention_ExpiresWhileTheDaemonIsAway(t *testing.T) {
	d := startDaemon(t, "FailedRetentionSec=1s", "UnseenRetentionSec=1s")
	s := d.run(t, "failed", "exit 3")
	at := s.waitState("failed").time("ExpireTimestamp")
	require.Equal(t, 0, d.kill(syscall.SIGTERM))
	<-time.After(time.Until(at))
	d.launch()
	testbed.Poll(t, "the expired session is removed", func() bool { return len(d.ids(t)) == 0 })
	var cleaned []string
	require.NoError(t, d.manager("Clean", nil, &cleaned))
	assert.Empty(t, cleaned)
	assert.NoDirExists(t, d.stateDir("failed"))
}

// waitRemoved waits until the session was removed automatically.
func (d *corrald) waitRemoved(t *testing.T, mark int, id string) {
	t.Helper()
	d.await(t, mark, "the removal of "+id, func(s *dbus.Signal) bool {
		return strings.HasSuffix(s.Name, ".SessionRemoved") && len(s.Body) > 0 && s.Body[0] == id
	})
}

// TestRetention_KeepsFailedUntilAcknowledged checks that a failed session is kept for longer until
// it is acknowledged, and that ExpireTimestamp always shows when it is removed.
func TestRetention_KeepsFailedUntilAcknowledged(t *testing.T) {
	d := startDaemon(t, "FailedRetentionSec=1s", "UnseenRetentionSec=7d")
	mark := d.signals.mark()
	s := d.run(t, "shop", "exit 3")
	p := s.waitState("failed")
	assert.Equal(t, p.time("StateChangeTimestamp").Add(7*24*time.Hour), p.time("ExpireTimestamp"))
	before := time.Now()
	s.must("Acknowledge")
	expires := s.properties().time("ExpireTimestamp")
	assert.WithinRange(t, expires, before.Add(time.Second-time.Millisecond), time.Now().Add(time.Second))
	d.waitRemoved(t, mark, "shop")
	assert.False(t, time.Now().Before(expires))
}

// TestRetention_KeepsTimerAndEnabledSessions checks that sessions that a timer starts, and enabled
// ones, do not expire, and that ExpireTimestamp follows changes of both, also over a restart of the
// daemon.
func TestRetention_KeepsTimerAndEnabledSessions(t *testing.T) {
	dir := filepath.Join(os.Getenv("XDG_CONFIG_HOME"), "systemd", "user")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	for name, text := range map[string]string{
		"corral@.service": "[Service]\nExecStart=true\n", "corral@nightly.timer": "[Timer]\nOnCalendar=2100-01-01\n",
	} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		t.Cleanup(func() { _ = os.Remove(path) })
	}
	d := startDaemon(t, "CompletedRetentionSec=1s")
	mark := d.signals.mark()
	testbed.Systemctl(t, "daemon-reload")
	testbed.Systemctl(t, "start", "corral@nightly.timer")
	t.Cleanup(func() { _ = exec.Command("systemctl", "--user", "stop", "corral@nightly.timer").Run() })
	nightly := d.run(t, "nightly", "exit 0")
	enabled := d.create(t, "enabled", spec{"Command": []string{"true"}, "OnLogin": "start"})
	forever := func(s *testSession) {
		t.Helper()
		s.wait("without an expiry", func(p properties) bool {
			return p.text("State") == "completed" && p["ExpireTimestamp"].Value() == uint64(0)
		})
	}
	forever(nightly)
	forever(enabled)
	d.run(t, "plain", "exit 0")
	d.waitRemoved(t, mark, "plain")
	require.Equal(t, 0, d.kill(syscall.SIGTERM))
	d.launch()
	forever(nightly)
	assert.ElementsMatch(t, []string{"enabled", "nightly"}, d.ids(t))

	enabled.must("SetOnLogin", "ignore")
	d.waitRemoved(t, mark, "enabled")
	testbed.Systemctl(t, "stop", "corral@nightly.timer")
	testbed.Systemctl(t, "daemon-reload")
	d.waitRemoved(t, mark, "nightly")
}

// time returns a property that is a time in microseconds.
func (p properties) time(name string) time.Time {
	usec, _ := p[name].Value().(uint64)
	return time.UnixMicro(int64(usec))
}
