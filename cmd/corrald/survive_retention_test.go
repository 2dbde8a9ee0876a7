package main

import (
	"os"
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

// TestRetention: what has outlived its time is removed by itself, as ExpireTimestamp has announced, and never a workspace; what is archived stays.
func TestRetention(t *testing.T) {
	const keep = 2 * time.Second
	d := startDaemon(t, "CompletedRetentionSec=2s", "FailedRetentionSec=2s", "StoppedRetentionSec=2s", "SuspendedRetentionSec=2s")
	mark := d.heard.mark()
	work := testbed.Dir(t)
	require.NoError(t, os.WriteFile(filepath.Join(work, "uncommitted"), []byte("change"), 0o600))
	in := func(script string) spec {
		return spec{"Command": []string{"sh", "-c", script}, "WorkingDirectory": work}
	}
	archived := d.create(t, "archived", in("exit 0"))
	archived.become("completed")
	archived.must("Archive")
	live := d.create(t, "live", in("exec sleep 1000"))
	completed, failed := d.create(t, "completed", in("exit 0")), d.create(t, "failed", in("exit 3"))
	stopped, suspended := d.create(t, "stopped", in("exec sleep 1000")), d.create(t, "suspended", in("exec sleep 1000"))
	stopped.must("Stop", uint64(0))
	suspended.must("Suspend")

	announced := map[string]time.Time{}
	for s, state := range map[*subject]string{completed: "completed", failed: "failed", stopped: "stopped", suspended: "suspended"} {
		f := s.become(state)
		announced[s.id] = f.time("ExpireTimestamp")
		assert.Equal(t, f.time("StateChangeTimestamp").Add(keep), announced[s.id], s.id)
	}
	for _, s := range []*subject{live, archived} {
		assert.EqualValues(t, 0, s.facts()["ExpireTimestamp"].Value(), s.id)
	}
	for id, at := range announced {
		d.await(t, mark, "the removing of "+id, func(s *dbus.Signal) bool {
			return strings.HasSuffix(s.Name, ".SessionRemoved") && len(s.Body) > 0 && s.Body[0] == id
		})
		assert.False(t, time.Now().Before(at), "%s was removed too early", id)
		assert.NoDirExists(t, d.stateDir(id))
	}
	assert.ElementsMatch(t, []string{"archived", "live"}, d.ids(t))
	assert.Equal(t, "change", readFile(t, filepath.Join(work, "uncommitted")))
}

// TestRetentionWhileTheDaemonIsAway: what expires meanwhile is gone soon after its return, and Clean says nothing is left to do.
func TestRetentionWhileTheDaemonIsAway(t *testing.T) {
	d := startDaemon(t, "FailedRetentionSec=1s")
	s := d.run(t, "failed", "exit 3")
	at := s.become("failed").time("ExpireTimestamp")
	require.Equal(t, 0, d.kill(syscall.SIGTERM))
	<-time.After(time.Until(at))
	d.launch()
	testbed.Poll(t, "what has expired is gone", func() bool { return len(d.ids(t)) == 0 })
	var cleaned []string
	require.NoError(t, d.manager("Clean", nil, &cleaned))
	assert.Empty(t, cleaned)
	assert.NoDirExists(t, d.stateDir("failed"))
}

// time returns a property that is a time.
func (f facts) time(name string) time.Time {
	usec, _ := f[name].Value().(uint64)
	return time.UnixMicro(int64(usec))
}
