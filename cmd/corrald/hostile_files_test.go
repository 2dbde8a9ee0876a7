package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/testbed"
)

// obstruction is something that another process of the user can put in the place of a file.
type obstruction struct {
	name      string
	put       func(t *testing.T, path string, content []byte) // content is the file's previous content
	ownError  string                                          // the error for a file in Corral's own directories
	userError string                                          // the error for a file of the user's, "" if it is accepted
}

var obstructions = []obstruction{
	{"FIFO", func(t *testing.T, path string, _ []byte) { require.NoError(t, syscall.Mkfifo(path, 0o600)) },
		"is a FIFO", "is a FIFO"},
	{"directory", func(t *testing.T, path string, _ []byte) { require.NoError(t, os.MkdirAll(path+"/full", 0o700)) },
		"is a directory", "is a directory"},
	{"socket", func(t *testing.T, path string, _ []byte) {
		fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		require.NoError(t, err)
		require.NoError(t, syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}))
		require.NoError(t, syscall.Close(fd))
	}, "is a socket", "is a socket"},
	{"link to a device without an end", linkTo("/dev/zero"), "is a symbolic link", "is a device"},
	{"link to a terminal", linkTo("/dev/tty"), "is a symbolic link", "is a device"},
	{"dangling link", linkTo("/nonexistent/file"), "is a symbolic link", "no such file"},
	{"live link", func(t *testing.T, path string, content []byte) {
		elsewhere := filepath.Join(testbed.Dir(t), "f")
		require.NoError(t, os.WriteFile(elsewhere, content, 0o600))
		require.NoError(t, os.Symlink(elsewhere, path))
	}, "is a symbolic link", ""},
	{"sparse file of 1 GiB", func(t *testing.T, path string, _ []byte) {
		require.NoError(t, os.WriteFile(path, nil, 0o600))
		require.NoError(t, os.Truncate(path, 1<<30))
	}, "is larger than", "is larger than"},
}

func linkTo(target string) func(*testing.T, string, []byte) {
	return func(t *testing.T, path string, _ []byte) { require.NoError(t, os.Symlink(target, path)) }
}

// replace replaces the file at path, whatever is there.
func (h obstruction) replace(t *testing.T, path string) {
	t.Helper()
	var content []byte
	if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() && info.Size() < 1<<20 {
		content = []byte(readFile(t, path))
	}
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	h.put(t, path+"-", content)
	testbed.Poll(t, "it is in the place of "+path, func() bool {
		// rename(2) does not replace a file by a directory, so the file is removed first. A running
		// daemon may recreate it in between, so this is repeated.
		return os.Rename(path+"-", path) == nil || os.RemoveAll(path) != nil
	})
}

// sessionFiles are the files that the daemon reads for a session, by the id of the session in which
// the test replaces the file.
var sessionFiles = map[string]func(d *corrald, id string) string{
	"record":      func(d *corrald, id string) string { return d.stateDir(id) + "/session.json" },
	"previous":    func(d *corrald, id string) string { return d.stateDir(id) + "/session.json.prev" },
	"exit":        func(d *corrald, id string) string { return d.stateDir(id) + "/exit_status" },
	"log":         func(d *corrald, id string) string { return d.stateDir(id) + "/output.log" },
	"older-log":   func(d *corrald, id string) string { return d.stateDir(id) + "/output.log.1" },
	"sizes":       func(d *corrald, id string) string { return d.stateDir(id) + "/output.sizes" },
	"times":       func(d *corrald, id string) string { return d.stateDir(id) + "/output.times" },
	"environment": func(d *corrald, id string) string { return d.stateDir(id) + "/environment" },
	"other-exit":  func(d *corrald, id string) string { return d.runtimeDir(id) + "/exit_status" },
	"socket":      func(d *corrald, id string) string { return d.runtimeDir(id) + "/shim.sock" },
}

// commonFiles are the files that the daemon reads for all sessions, at the latest when it starts.
func (d *corrald) commonFiles() []string {
	return []string{
		d.dir + "/state/corral/lock",
		d.dir + "/state/corral/notifications.json",
		filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "corral/.login"),
		filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "corral/.tmux.conf"),
		d.dir + "/.local/share/corral/worktrees/.shop.making",
		d.dir + "/config/corral/corral.conf",
		d.dir + "/config/corral/corral.conf.d/more.conf",
		d.dir + "/config/corral/agents/other.agent",
		d.dir + "/config/corral/agents/command.agent.d/more.conf",
	}
}

// TestIrregularFile_OfASessionBlocksNothing replaces each file that Corral reads by each kind of
// irregular or oversized file. All calls must be answered, the next daemon must start, no session
// may be lost or ended, and each session can be stopped and removed.
func TestIrregularFile_OfASessionBlocksNothing(t *testing.T) {
	for _, h := range obstructions {
		t.Run(h.name, func(t *testing.T) {
			d := startDaemon(t)
			replaced := map[string]*testSession{}
			for id := range sessionFiles {
				replaced[id] = d.run(t, id, "echo hello; exec sleep 1000")
			}
			innocent := d.run(t, "innocent", "echo hello; exec sleep 1000")
			agents := map[string]int{"innocent": innocent.waitState("running").number("MainPID")}
			for id, s := range replaced {
				agents[id] = s.waitState("running").number("MainPID")
				waitFile(t, d.stateDir(id)+"/output.log", "hello")
			}
			replace := func() {
				for id, path := range sessionFiles {
					h.replace(t, path(d, id))
				}
			}
			check := func() {
				t.Helper()
				for id, s := range replaced {
					p := s.waitState("running")
					assert.Equal(t, agents[id], p.number("MainPID"), id)
					s.assertFilesRead(h)
				}
				assert.Equal(t, agents["innocent"], innocent.waitState("running").number("MainPID"))
				innocent.assertFilesRead(obstruction{})
			}
			replace()
			check()

			d.kill(syscall.SIGKILL)
			replace()
			for _, path := range d.commonFiles() {
				h.replace(t, path)
			}
			d.launch()
			assert.Len(t, d.ids(t), len(sessionFiles)+1)
			check()
			assert.Contains(t, d.log.String(), filepath.Join(d.stateDir("record"), "session.json")+" "+h.ownError,
				"the log names the record that was set aside")
			d.assertPeakBelow(t, 128<<20)

			d.bus = testbed.Bus(t) // a second client, which does not wait for the calls of the first
			for _, s := range append(slices.Collect(maps.Values(replaced)), innocent) {
				s.must("Stop", uint64(time.Second.Microseconds()))
				assert.Equal(t, "stopped", s.waitState("stopped").text("State"), s.id)
				s.must("Remove", uint64(0))
			}
			assert.Empty(t, d.ids(t))
		})
	}
}

// callError calls a method of the session, ignores its results, and returns its error.
func (s *testSession) callError(method string) error {
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	call := s.bus.Object(dbusapi.BusName, dbusapi.SessionPath(s.id)).
		CallWithContext(ctx, dbusapi.SessionInterface+"."+method, 0)
	if call.Err == nil && len(call.Body) == 1 {
		if fd, is := call.Body[0].(dbus.UnixFD); is {
			_ = syscall.Close(int(fd))
		}
	}
	return call.Err
}

// assertFilesRead calls the methods that read the session's files. The error for a file that cannot
// be read has to contain its path and its type.
func (s *testSession) assertFilesRead(h obstruction) {
	s.t.Helper()
	for method, row := range map[string]struct{ of, file string }{
		"OpenLog": {"log", "output.log"}, "GetEnvironment": {"environment", "environment"},
	} {
		err := s.callError(method)
		if s.id != row.of || h.name == "" || method == "OpenLog" && strings.HasPrefix(h.name, "sparse") {
			assert.NoError(s.t, err, "%s of session %s", method, s.id)
		} else {
			assertRefused(s.t, err, dbusapi.InvalidState, filepath.Join(s.stateDir(s.id), row.file)+" "+h.ownError)
		}
	}
}

// assertPeakBelow checks that the daemon's peak memory was below a limit.
func (d *corrald) assertPeakBelow(t *testing.T, bytes int) {
	t.Helper()
	for line := range strings.Lines(readFile(t, fmt.Sprintf("/proc/%d/status", d.process.Process.Pid))) {
		if text, is := strings.CutPrefix(line, "VmHWM:"); is {
			kib, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(text), " kB"))
			require.NoError(t, err)
			assert.Less(t, kib<<10, bytes)
			return
		}
	}
	t.Fatal("/proc/PID/status has no VmHWM")
}

// TestIrregularFile_OfAnAgentBlocksNothing checks that an irregular EnvironmentFile= fails the
// start of its agent, with an error that names the file's type, and that an irregular conversation
// file does not prevent a resume. Both files may be symbolic links.
func TestIrregularFile_OfAnAgentBlocksNothing(t *testing.T) {
	d := startDaemon(t)
	d.defineScript("talker", talker, talkerScript)
	d.write("config/corral/agents/fed.agent", "[Agent]\nCommand=sleep 1000\n[Environment]\nEnvironmentFile=%h/variables\n")
	require.NoError(t, d.manager("Reload", nil))
	for n, h := range obstructions {
		t.Run(h.name, func(t *testing.T) {
			d.write("variables", "A=b\n")
			h.replace(t, d.dir+"/variables")
			fed, err := d.createWithAgent(t, "fed", fmt.Sprintf("fed-%d", n), nil)
			if h.userError == "" {
				require.NoError(t, err)
				fed.waitState("running")
			} else {
				assertRefused(t, err, dbusapi.StartFailed, d.dir+"/variables", h.userError)
			}
			require.NoError(t, os.RemoveAll(d.dir+"/variables"))

			s, err := d.createWithAgent(t, "talker", fmt.Sprintf("talk-%d", n), nil)
			require.NoError(t, err)
			s.sendLine("hello")
			s.awaitFile(s.id + ".read")
			h.replace(t, d.dir+"/talks/shop/"+s.properties().text("ConversationId")+".jsonl")
			s.must("Stop", uint64(0))
			s.must("Resume")
			assert.Equal(t, h.userError == "", s.properties().isTrue("Resumed"))
		})
	}
	d.assertPeakBelow(t, 128<<20)
}

// TestOpenLog_OfAFIFODoesNotBlockStop has an agent replace its log by a FIFO, which a client opens:
// the session can still be ended.
func TestOpenLog_OfAFIFODoesNotBlockStop(t *testing.T) {
	d := startDaemon(t)
	other := testbed.Bus(t)
	for id, end := range map[string]func(s *testSession){
		"stopped": func(s *testSession) { s.must("Stop", uint64(time.Second.Microseconds())) },
		"killed":  func(s *testSession) { s.must("Kill", "all", int32(syscall.SIGKILL)); s.waitState("failed") },
		"removed": func(s *testSession) { s.must("Remove", dbusapi.RemoveForce) },
	} {
		s := d.run(t, id, `cd "`+d.stateDir(id)+`"; rm -f output.log; mkfifo output.log; exec sleep 1000`)
		s.waitState("running")
		testbed.Poll(t, "the log is a FIFO", func() bool {
			info, err := os.Lstat(d.stateDir(id) + "/output.log")
			return err == nil && info.Mode()&os.ModeNamedPipe != 0
		})
		opened := make(chan *dbus.Call, 1)
		other.Object(dbusapi.BusName, dbusapi.SessionPath(id)).Go(dbusapi.SessionInterface+".OpenLog", 0, opened)
		end(s)
		assertRefused(t, testbed.Receive(t, opened, "answer").Err, dbusapi.InvalidState)
	}
	assert.Equal(t, []string{"killed", "stopped"}, slices.Sorted(slices.Values(d.ids(t))))
}

// TestStart_FIFOsAsEnvironmentRecordsBlockNothing replaces the environment records of as many
// sessions as can start at the same time.
func TestStart_FIFOsAsEnvironmentRecordsBlockNothing(t *testing.T) {
	d := startDaemon(t)
	const startsAtATime = 16
	done := make(chan *dbus.Call, startsAtATime)
	for n := range startsAtATime {
		s := d.create(t, fmt.Sprintf("evil-%d", n), spec{"Command": []string{"sleep", "1000"}, "Start": false})
		require.NoError(t, syscall.Mkfifo(s.stateDir(s.id)+"/environment", 0o600))
		d.bus.Object(dbusapi.BusName, dbusapi.SessionPath(s.id)).Go(dbusapi.SessionInterface+".Start", 0, done)
	}
	innocent := d.run(t, "innocent", "exec sleep 1000")
	innocent.waitState("running")
	for range startsAtATime {
		require.NoError(t, testbed.Receive(t, done, "answer").Err)
	}
	assert.NoError(t, (&testSession{d, t, "evil-0"}).callError("GetEnvironment"), "the record was created again")
}

// TestStart_DoesNotWriteEnvironmentRecordThroughLinks puts symbolic links at the record's name and
// at the names of its temporary files.
func TestStart_DoesNotWriteEnvironmentRecordThroughLinks(t *testing.T) {
	d := startDaemon(t)
	d.write("precious", "mine")
	s := d.create(t, "shop", spec{"Command": []string{"sleep", "1000"}, "Start": false})
	for _, name := range []string{"environment", "environment.new", ".environment.new"} {
		require.NoError(t, os.Symlink(d.dir+"/precious", s.stateDir(s.id)+"/"+name))
	}
	s.must("Start")
	assert.Equal(t, "mine", readFile(t, d.dir+"/precious"))
	require.NoError(t, s.callError("GetEnvironment"))
}
