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

// takeWatches uses up the inotify watches of the test's user, whose systemd and daemon then have
// none left for a new session. The function that is returned gives them back.
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
	for range 64 { // one instance has one watch for each inode; systemd and the daemon may still need instances
		fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
		require.NoError(t, err)
		instances = append(instances, fd)
	}
	none := errors.New("no watches are left")
	err := filepath.WalkDir("/usr", func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // what cannot be read is no file to watch
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

// TestStop_EndsASessionThatSystemdDoesNotWatch: systemd had no inotify watch left for the scope's
// cgroup.events when the scope started, and never reports that the scope is empty. Sessions end all
// the same, by themselves and by each verb, with their exit codes, and their names can be used
// again.
func TestStop_EndsASessionThatSystemdDoesNotWatch(t *testing.T) {
	d := startDaemon(t)
	giveBack := takeWatches(t)
	ids := []string{"ends", "forced", "killed", "killed-away", "restarted", "stopped", "stopped-by-systemctl"}
	subjects := map[string]*subject{}
	for _, id := range ids {
		subjects[id] = d.create(t, id, d.witness(id))
		testbed.Poll(t, "the agent of "+id+" is there", func() bool { return len(d.executed(t, id)) == 1 })
	}
	told := d.hasProblems(t, len(ids))
	assert.Contains(t, told[0].Text, "fs.inotify.max_user_watches")

	subjects["stopped"].must("Stop", uint64(0))
	subjects["stopped"].is(outcome{"stopped", "success", 1, 7, "", "active"})

	giveBack() // systemd does not notice
	d.hasProblems(t, 0)
	lost := outcome{"failed", "session-lost", 0, 0, "tmux session no longer exists", "error"}
	killed := func(id string) {
		t.Helper()
		testbed.Systemctl(t, "kill", "--signal=KILL", subjects[id].unit())
	}
	unit := subjects["stopped-by-systemctl"].unit()
	stop := exec.CommandContext(t.Context(), "systemctl", "--user", "stop", unit) // it waits for TimeoutStopSec
	require.NoError(t, stop.Start())
	killed("killed")
	subjects["killed"].ends(lost)
	kill(t, d.agents(t, "ends", 1)[0], syscall.SIGUSR1)
	subjects["ends"].ends(outcome{"failed", "exit-code", 1, 9, "command exited with code 9", "error"})
	subjects["ends"].must("Start") // what is left of the run before is ended
	subjects["forced"].must("Remove", uint64(1))
	subjects["restarted"].must("Restart")
	require.NoError(t, stop.Wait())
	subjects["stopped-by-systemctl"].ends(outcome{"stopped", "success", 1, 7, "its scope was stopped", "active"})

	require.Equal(t, -1, d.kill(syscall.SIGKILL))
	killed("killed-away")
	d.launch()
	subjects["killed-away"].ends(lost)

	for _, id := range []string{"killed", "killed-away", "stopped", "stopped-by-systemctl"} {
		subjects[id].noScope()
		subjects[id].must("Start")
	}
	for _, id := range ids {
		if id != "forced" {
			subjects[id].is(outcome{"running", "", 0, 0, "", "active"})
			subjects[id].must("Remove", uint64(1))
		}
	}
	scopes := testbed.Systemctl(t, "list-units", "--all", "--plain", "--no-legend", "app-corral-*.scope")
	assert.Empty(t, strings.TrimSpace(scopes))
}
