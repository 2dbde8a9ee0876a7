package main

import (
	"os"
	"os/exec"
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

// problems returns the daemon's problems.
func (d *corrald) problems(t *testing.T) []dbusapi.Problem {
	t.Helper()
	var all []dbusapi.Problem
	require.NoError(t, d.call(dbusapi.ManagerPath, "org.freedesktop.DBus.Properties.Get",
		[]any{dbusapi.ManagerInterface, "Problems"}, &all))
	return all
}

// waitProblems waits until the daemon has this many problems, and returns them.
func (d *corrald) waitProblems(t *testing.T, n int) []dbusapi.Problem {
	t.Helper()
	for {
		mark := d.signals.mark()
		all := d.problems(t)
		if len(all) == n {
			return all
		}
		d.await(t, mark, "a change of Problems", func(s *dbus.Signal) bool {
			return s.Path == dbusapi.ManagerPath && s.Name == "org.freedesktop.DBus.Properties.PropertiesChanged"
		})
	}
}

// TestStateDirectory_ReadOnlyLosesNoExit makes the state directories of running sessions read-only:
// every exit is reported with its code, also by the daemon that follows the one that could not save
// it, the journal and Problems name the cause, and once the directories are writable again
// everything is saved automatically.
func TestStateDirectory_ReadOnlyLosesNoExit(t *testing.T) {
	d := startDaemon(t)
	ids := []string{"lives", "ends", "ends-unseen"}
	for _, id := range ids {
		d.create(t, id, d.witness(id))
		d.waitAgents(t, id, 1)
	}
	readOnly := func(id string, mode os.FileMode) {
		t.Helper()
		require.NoError(t, os.Chmod(d.stateDir(id), mode))
	}
	for _, id := range ids {
		readOnly(id, 0o500)
	}
	nine := outcome{"failed", "exit-code", 1, 9, "command exited with code 9", "error"}
	kill(t, d.waitAgents(t, "ends", 1)[0], syscall.SIGUSR1)
	d.session(t, "ends").waitOutcome(nine)
	assert.NoFileExists(t, d.stateDir("ends")+"/exit_status")
	problems := d.waitProblems(t, 1)
	assert.Equal(t, "ends", problems[0].Session)
	assert.Contains(t, problems[0].Text, "permission denied; restore write permission there")
	assert.Equal(t, 1, strings.Count(d.log.String(), "error: the session is not saved: cannot save"), "logged once")
	d.session(t, "lives").assertOutcome(outcome{"running", "", 0, 0, "", "active"})

	d.kill(syscall.SIGKILL)
	kill(t, d.waitAgents(t, "ends-unseen", 1)[0], syscall.SIGUSR1)
	testbed.WaitFile(t, d.runtimeDir("ends-unseen")+"/exit_status", nil)
	d.launch()
	for _, id := range []string{"ends", "ends-unseen"} {
		d.session(t, id).assertOutcome(nine)
	}
	pid := d.waitAgents(t, "lives", 1)[0]
	assert.Equal(t, pid, d.session(t, "lives").properties().number("MainPID"))
	d.waitProblems(t, 2)

	for _, id := range ids {
		readOnly(id, 0o700)
	}
	d.waitProblems(t, 0)
	for _, id := range []string{"ends", "ends-unseen"} {
		assert.FileExists(t, d.stateDir(id)+"/exit_status", "the record is in the state directory")
		assert.NoFileExists(t, d.runtimeDir(id)+"/exit_status")
	}
	d.kill(syscall.SIGKILL)
	d.launch()
	for _, id := range []string{"ends", "ends-unseen"} {
		d.session(t, id).assertOutcome(nine)
	}
	assert.Equal(t, pid, d.session(t, "lives").properties().number("MainPID"))
}

// TestInotify_WithoutInstancesSessionsStartAndEnd starts the daemon when no inotify instance is
// left: the daemon and sessions start, sessions end with their exit codes, and everything is
// watched once an instance is available.
func TestInotify_WithoutInstancesSessionsStartAndEnd(t *testing.T) {
	d := startDaemon(t)
	d.create(t, "lives", d.witness("lives"))
	pid := d.waitAgents(t, "lives", 1)[0]
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
	assert.Contains(t, d.waitProblems(t, 1)[0].Text, "fs.inotify.max_user_instances")
	assert.Equal(t, pid, d.session(t, "lives").properties().number("MainPID"))
	d.run(t, "starts", "exit 3").waitOutcome(outcome{"failed", "exit-code", 1, 3, "command exited with code 3", "error"})
	kill(t, pid, syscall.SIGUSR1)
	d.session(t, "lives").waitOutcome(outcome{"failed", "exit-code", 1, 9, "command exited with code 9", "error"})
	assert.Equal(t, 1, strings.Count(d.log.String(), "error: changes of files are reported late: "), "logged once")
	giveBack()
	d.waitProblems(t, 0)
	work := testbed.Dir(t)
	s := d.create(t, "watched", spec{"Command": []string{"sleep", "1000"}, "WorkingDirectory": filepath.Clean(work)})
	require.NoError(t, os.Remove(work))
	s.waitOutcome(outcome{"orphaned", "", 0, 0, `workspace "` + work + `" is gone`, "error"})
}

// TestRecords_DamagedOrEditedAreReported checks that each such record is reported in Problems and
// in the journal, and affects no other session.
func TestRecords_DamagedOrEditedAreReported(t *testing.T) {
	d := startDaemon(t)
	ids := []string{"damaged", "edited", "healthy", "huge", "newer", "pipe"}
	for _, id := range ids {
		s := d.create(t, id, spec{"Command": []string{"true"}, "Start": false})
		require.NoError(t, s.call(dbusapi.SessionPath(id), "org.freedesktop.DBus.Properties.Get",
			[]any{dbusapi.SessionInterface, "State"}, new(string)))
	}
	require.Equal(t, 0, d.kill(syscall.SIGTERM))
	record := func(id string) string { return d.stateDir(id) + "/session.json" }
	edit := func(id, old, now string) {
		t.Helper()
		text := readFile(t, record(id))
		require.Contains(t, text, old)
		require.NoError(t, os.WriteFile(record(id), []byte(strings.Replace(text, old, now, 1)), 0o600))
	}
	require.NoError(t, os.WriteFile(record("damaged"), make([]byte, 1000), 0o600))
	edit("edited", `"checksum"`, `"was"`)
	require.NoError(t, os.Truncate(record("huge"), 100<<20))
	edit("newer", `"schema": 1`, `"schema": 99`)
	require.NoError(t, os.Remove(record("pipe")))
	require.NoError(t, unix.Mkfifo(record("pipe"), 0o600))
	d.launch()
	texts := map[string]string{}
	for _, p := range d.problems(t) {
		texts[p.Session] = p.Text
	}
	assert.ElementsMatch(t, []string{"edited", "healthy", "newer"}, d.ids(t))
	assert.Len(t, texts, 5)
	for id, words := range map[string]string{
		"damaged": "there is no previous one", "edited": "was edited", "huge": "is larger than", "newer": "newer Corral",
		"pipe": "is a FIFO, expected a regular file",
	} {
		assert.Contains(t, texts[id], words)
		assert.Contains(t, d.log.String(), texts[id])
	}
	for _, id := range []string{"damaged", "huge", "pipe"} {
		require.NoError(t, os.RemoveAll(d.stateDir(id)))
	}
	d.session(t, "newer").must("Remove", uint64(0))
	d.session(t, "edited").must("Start")
	d.waitProblems(t, 0)
}

// TestInotify_WithoutWatchesSessionsStartAndEnd runs the daemon in a user namespace, which has its
// own limit of inotify watches: sessions start and end as usual, only later, and everything is
// watched once watches are available.
func TestInotify_WithoutWatchesSessionsStartAndEnd(t *testing.T) {
	d := startDaemon(t)
	require.Equal(t, 0, d.kill(syscall.SIGTERM))
	more := d.dir + "/more"
	require.NoError(t, unix.Mkfifo(more, 0o600))
	limit := "/proc/sys/user/max_inotify_watches"
	mark := d.signals.mark()
	d.process = exec.Command("unshare", "--user", "--map-current-user", "--keep-caps", "sh", "-ec",
		`echo 0 >`+limit+`; { read a <"$1"; echo 100000 >`+limit+`; } & exec "$0"`, testbed.Programs(t).Corrald, more)
	d.process.Env = d.env
	d.process.Stdout, d.process.Stderr = d.log, d.log
	require.NoError(t, d.process.Start())
	d.await(t, mark, "corrald on the bus", func(s *dbus.Signal) bool {
		return isOwnerChange(s) && len(s.Body) == 3 && s.Body[2] != ""
	})

	s := d.create(t, "shop", d.witness("shop"))
	problems := d.waitProblems(t, 1)
	assert.Equal(t, "shop", problems[0].Session)
	assert.Contains(t, problems[0].Text, "fs.inotify.max_user_watches")
	kill(t, d.waitAgents(t, "shop", 1)[0], syscall.SIGUSR1)
	s.waitOutcome(outcome{"failed", "exit-code", 1, 9, "command exited with code 9", "error"})

	work := testbed.Dir(t)
	s = d.create(t, "watched", spec{"Command": []string{"sleep", "1000"}, "WorkingDirectory": work})
	d.waitProblems(t, 2)
	require.NoError(t, os.WriteFile(more, []byte("\n"), 0o600))
	d.waitProblems(t, 0)
	require.NoError(t, os.Remove(work))
	s.waitOutcome(outcome{"orphaned", "", 0, 0, `workspace "` + work + `" is gone`, "error"})
}
