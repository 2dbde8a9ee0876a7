package main

import (
	"errors"
	"io/fs"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/testbed"
)

// takeWatches uses up the inotify watches of the test's user, so that systemd and the daemon have
// none left for a new session. The returned function releases them.
func takeWatches(t *testing.T) (giveBack func()) {
	t.Helper()
	var instances []int
	giveBack = func() {
		for _, fd := range instances {
			_ = unix.Close(fd)
		}
		instances = nil
	}
	t.Cleanup(giveBack)
	// An instance has at most one watch per inode; the number leaves some instances for systemd and
	// the daemon.
	for range 64 {
		fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
		require.NoError(t, err)
		instances = append(instances, fd)
	}
	none := errors.New("no watches are left")
	err := filepath.WalkDir("/usr", func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // a file that cannot be read is not needed
		}
		for _, fd := range instances {
			switch _, err := unix.InotifyAddWatch(fd, path, unix.IN_DELETE_SELF|unix.IN_DONT_FOLLOW); {
			case errors.Is(err, unix.ENOSPC):
				return none
			case err != nil:
				return nil //nolint:nilerr // a file that cannot be watched
			}
		}
		return nil
	})
	require.ErrorIs(t, err, none, "there are fewer files than watches")
	return giveBack
}

// TestStop_EndsASessionThatSystemdDoesNotWatch checks sessions for whose cgroup.events systemd had
// no inotify watch left when the scope started: it never reports that the scope is empty. The
// sessions end all the same, by themselves and by each verb, with their exit codes, and their names
// can be used again.
func TestStop_EndsASessionThatSystemdDoesNotWatch(t *testing.T) {
	d := startDaemon(t)
	giveBack := takeWatches(t)
	ids := []string{"ends", "forced", "killed", "killed-away", "restarted", "stopped", "stopped-by-systemctl"}
	sessions := map[string]*testSession{}
	for _, id := range ids {
		sessions[id] = d.create(t, id, d.witness(id))
		testbed.Poll(t, "the agent of "+id+" is there", func() bool { return len(d.agentPIDs(t, id)) == 1 })
	}
	problems := d.waitProblems(t, len(ids))
	assert.Contains(t, problems[0].Text, "fs.inotify.max_user_watches")

	sessions["stopped"].must("Stop", uint64(0))
	sessions["stopped"].assertOutcome(outcome{"stopped", "success", 1, 7, "", "active"})

	giveBack() // systemd does not notice
	d.waitProblems(t, 0)
	lost := outcome{"failed", "session-lost", 0, 0, "tmux session no longer exists", "error"}
	killed := func(id string) {
		t.Helper()
		testbed.Systemctl(t, "kill", "--signal=KILL", sessions[id].unit())
	}
	unit := sessions["stopped-by-systemctl"].unit()
	stop := exec.CommandContext(t.Context(), "systemctl", "--user", "stop", unit) // it waits for TimeoutStopSec
	require.NoError(t, stop.Start())
	killed("killed")
	sessions["killed"].waitOutcome(lost)
	kill(t, d.waitAgents(t, "ends", 1)[0], syscall.SIGUSR1)
	sessions["ends"].waitOutcome(outcome{"failed", "exit-code", 1, 9, "command exited with code 9", "error"})
	sessions["ends"].must("Start") // processes left by the previous run are ended
	sessions["forced"].must("Remove", uint64(1))
	sessions["restarted"].must("Restart")
	require.NoError(t, stop.Wait())
	sessions["stopped-by-systemctl"].waitOutcome(outcome{"stopped", "success", 1, 7, "its scope was stopped", "active"})

	require.Equal(t, -1, d.kill(syscall.SIGKILL))
	killed("killed-away")
	d.launch()
	sessions["killed-away"].waitOutcome(lost)

	for _, id := range []string{"killed", "killed-away", "stopped", "stopped-by-systemctl"} {
		sessions[id].waitNoScope()
		sessions[id].must("Start")
	}
	for _, id := range ids {
		if id != "forced" {
			sessions[id].assertOutcome(outcome{"running", "", 0, 0, "", "active"})
			sessions[id].must("Remove", uint64(1))
		}
	}
	scopes := testbed.Systemctl(t, "list-units", "--all", "--plain", "--no-legend", "app-corral-*.scope")
	assert.Empty(t, strings.TrimSpace(scopes))
}
