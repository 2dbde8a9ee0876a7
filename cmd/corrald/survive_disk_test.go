package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/testbed"
)

// problems returns what the daemon says is wrong.
func (d *corrald) problems(t *testing.T) []dbusapi.Problem {
	t.Helper()
	var all []dbusapi.Problem
	require.NoError(t, d.call(dbusapi.ManagerPath, "org.freedesktop.DBus.Properties.Get", []any{dbusapi.ManagerInterface, "Problems"}, &all))
	return all
}

// hasProblems waits until the daemon has this many problems, and returns them.
func (d *corrald) hasProblems(t *testing.T, n int) []dbusapi.Problem {
	t.Helper()
	for {
		mark := d.heard.mark()
		if all := d.problems(t); len(all) == n {
			return all
		}
		d.await(t, mark, "another number of problems", func(s *dbus.Signal) bool {
			return s.Path == dbusapi.ManagerPath && s.Name == "org.freedesktop.DBus.Properties.PropertiesChanged"
		})
	}
}

// TestTheStateDirectoryCanNotBeWrittenTo any more, under sessions that run: every exit is told with its code, also to the daemon that comes after the one
// that could save nothing, the journal and Problems say what is wrong, and when it is over all is saved by itself.
func TestTheStateDirectoryCanNotBeWrittenTo(t *testing.T) {
	d := startDaemon(t)
	ids := []string{"lives", "ends", "ends-unseen"}
	for _, id := range ids {
		d.create(t, id, d.witness(id))
		d.agents(t, id, 1)
	}
	readOnly := func(id string, mode os.FileMode) {
		t.Helper()
		require.NoError(t, os.Chmod(d.stateDir(id), mode))
	}
	for _, id := range ids {
		readOnly(id, 0o500)
	}
	nine := outcome{"failed", "exit-code", 1, 9, "command exited with code 9", "error"}
	kill(t, d.agents(t, "ends", 1)[0], syscall.SIGUSR1)
	d.subject(t, "ends").ends(nine)
	assert.NoFileExists(t, d.stateDir("ends")+"/exit_status")
	told := d.hasProblems(t, 1)
	assert.Equal(t, "ends", told[0].Session)
	assert.Contains(t, told[0].Text, "permission denied; give yourself the right to write there again")
	assert.Equal(t, 1, strings.Count(d.log.String(), "error: cannot save session"), "said once")
	d.subject(t, "lives").is(outcome{"running", "", 0, 0, "", "active"})

	d.kill(syscall.SIGKILL)
	kill(t, d.agents(t, "ends-unseen", 1)[0], syscall.SIGUSR1)
	testbed.WaitFile(t, d.runtimeDir("ends-unseen")+"/exit_status", nil)
	d.launch()
	for _, id := range []string{"ends", "ends-unseen"} {
		d.subject(t, id).is(nine)
	}
	pid := d.agents(t, "lives", 1)[0]
	assert.Equal(t, pid, d.subject(t, "lives").facts().number("MainPID"))
	d.hasProblems(t, 2)

	for _, id := range ids {
		readOnly(id, 0o700)
	}
	d.hasProblems(t, 0)
	for _, id := range []string{"ends", "ends-unseen"} {
		assert.FileExists(t, d.stateDir(id)+"/exit_status", "it is where it belongs")
		assert.NoFileExists(t, d.runtimeDir(id)+"/exit_status")
	}
	d.kill(syscall.SIGKILL)
	d.launch()
	for _, id := range []string{"ends", "ends-unseen"} {
		d.subject(t, id).is(nine)
	}
	assert.Equal(t, pid, d.subject(t, "lives").facts().number("MainPID"))
}

// TestNoInotifyInstanceIsLeft when the daemon starts: it starts all the same, and so do sessions, which end with their codes; once there is one, all is well.
func TestNoInotifyInstanceIsLeft(t *testing.T) {
	d := startDaemon(t)
	d.create(t, "lives", d.witness("lives"))
	pid := d.agents(t, "lives", 1)[0]
	require.Equal(t, 0, d.kill(syscall.SIGTERM))
	var taken []int
	giveBack := func() {
		for _, fd := range taken {
			_ = unix.Close(fd)
		}
		taken = nil
	}
	t.Cleanup(giveBack)
	for {
		fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
		if err != nil {
			require.ErrorIs(t, err, unix.EMFILE)
			break
		}
		taken = append(taken, fd)
	}
	d.launch()
	assert.Contains(t, d.hasProblems(t, 1)[0].Text, "fs.inotify.max_user_instances")
	assert.Equal(t, pid, d.subject(t, "lives").facts().number("MainPID"))
	d.run(t, "starts", "exit 3").ends(outcome{"failed", "exit-code", 1, 3, "command exited with code 3", "error"})
	kill(t, pid, syscall.SIGUSR1)
	d.subject(t, "lives").ends(outcome{"failed", "exit-code", 1, 9, "command exited with code 9", "error"})
	assert.Equal(t, 1, strings.Count(d.log.String(), "error: cannot watch"), "said once")
	giveBack()
	d.hasProblems(t, 0)
	work := testbed.Dir(t)
	s := d.create(t, "watched", spec{"Command": []string{"sleep", "1000"}, "WorkingDirectory": filepath.Clean(work)})
	require.NoError(t, os.Remove(work))
	s.ends(outcome{"orphaned", "", 0, 0, `workspace "` + work + `" is gone`, "error"})
}
