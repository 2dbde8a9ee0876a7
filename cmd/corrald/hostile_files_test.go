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

// hostile is something that another process of the user's puts in the place of a file.
type hostile struct {
	name string
	put  func(t *testing.T, path string, content []byte) // content is what was there
	own  string                                          // what is told of it in Corral's own directories
	any  string                                          // and where people keep files as they like; "" if it is taken
}

var hostiles = []hostile{
	{"FIFO", func(t *testing.T, path string, _ []byte) { require.NoError(t, syscall.Mkfifo(path, 0o600)) }, "is a FIFO", "is a FIFO"},
	{"directory", func(t *testing.T, path string, _ []byte) { require.NoError(t, os.MkdirAll(path+"/full", 0o700)) }, "is a directory", "is a directory"},
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

// instead puts it in the place of a file, whatever is there.
func (h hostile) instead(t *testing.T, path string) {
	t.Helper()
	var content []byte
	if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() && info.Size() < 1<<20 {
		content = []byte(readFile(t, path))
	}
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	h.put(t, path+"-", content)
	testbed.Poll(t, "it is in the place of "+path, func() bool {
		return os.Rename(path+"-", path) == nil || os.RemoveAll(path) != nil // a directory takes no file's place, and a daemon that lives writes what is missing
	})
}

// sessionFiles are the files that are read of a session, by the id of the session that each is
// replaced of.
var sessionFiles = map[string]func(d *corrald, id string) string{
	"record":      func(d *corrald, id string) string { return d.stateDir(id) + "/session.json" },
	"previous":    func(d *corrald, id string) string { return d.stateDir(id) + "/session.json.prev" },
	"exit":        func(d *corrald, id string) string { return d.stateDir(id) + "/exit_status" },
	"log":         func(d *corrald, id string) string { return d.stateDir(id) + "/output.log" },
	"older-log":   func(d *corrald, id string) string { return d.stateDir(id) + "/output.log.1" },
	"sizes":       func(d *corrald, id string) string { return d.stateDir(id) + "/output.sizes" },
	"environment": func(d *corrald, id string) string { return d.stateDir(id) + "/environment" },
	"other-exit":  func(d *corrald, id string) string { return d.runtimeDir(id) + "/exit_status" },
	"socket":      func(d *corrald, id string) string { return d.runtimeDir(id) + "/shim.sock" },
}

// commonFiles are read for all sessions, at the start at the latest.
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

// TestIrregularFile_OfASessionBlocksNothing: each file that Corral reads is replaced by each thing
// that is no file, or too large a one. All calls are answered, the next daemon starts, no session
// is lost or ended, and each can be stopped and removed.
func TestIrregularFile_OfASessionBlocksNothing(t *testing.T) {
	for _, h := range hostiles {
		t.Run(h.name, func(t *testing.T) {
			d := startDaemon(t)
			replaced := map[string]*subject{}
			for id := range sessionFiles {
				replaced[id] = d.run(t, id, "echo hello; exec sleep 1000")
			}
			innocent := d.run(t, "innocent", "echo hello; exec sleep 1000")
			agents := map[string]int{"innocent": innocent.become("running").number("MainPID")}
			for id, s := range replaced {
				agents[id] = s.become("running").number("MainPID")
				waitFile(t, d.stateDir(id)+"/output.log", "hello")
			}
			replace := func() {
				for id, path := range sessionFiles {
					h.instead(t, path(d, id))
				}
			}
			check := func() {
				t.Helper()
				for id, s := range replaced {
					f := s.become("running")
					assert.Equal(t, agents[id], f.number("MainPID"), id)
					s.looked(h)
				}
				assert.Equal(t, agents["innocent"], innocent.become("running").number("MainPID"))
				innocent.looked(hostile{})
			}
			replace()
			check()

			d.kill(syscall.SIGKILL)
			replace()
			for _, path := range d.commonFiles() {
				h.instead(t, path)
			}
			d.launch()
			assert.Len(t, d.ids(t), len(sessionFiles)+1)
			check()
			assert.Contains(t, d.log.String(), filepath.Join(d.stateDir("record"), "session.json")+" "+h.own, "the record that was set aside")
			d.peakBelow(t, 128<<20)

			d.bus = testbed.Bus(t) // another client, which waits for nothing that the first one has asked for
			for _, s := range append(slices.Collect(maps.Values(replaced)), innocent) {
				s.must("Stop", uint64(time.Second.Microseconds()))
				assert.Equal(t, "stopped", s.become("stopped").text("State"), s.id)
				s.must("Remove", uint64(0))
			}
			assert.Empty(t, d.ids(t))
		})
	}
}

// asked calls a method of the session, whatever it returns.
func (s *subject) asked(method string) error {
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	call := s.bus.Object(dbusapi.BusName, dbusapi.SessionPath(s.id)).CallWithContext(ctx, dbusapi.SessionInterface+"."+method, 0)
	if call.Err == nil && len(call.Body) == 1 {
		if fd, is := call.Body[0].(dbus.UnixFD); is {
			_ = syscall.Close(int(fd))
		}
	}
	return call.Err
}

// looked calls what reads the session's files. What cannot be read is told, by its path and what it
// is.
func (s *subject) looked(h hostile) {
	s.t.Helper()
	for method, row := range map[string]struct{ of, file string }{"OpenLog": {"log", "output.log"}, "GetEnvironment": {"environment", "environment"}} {
		err := s.asked(method)
		if s.id != row.of || h.name == "" || method == "OpenLog" && strings.HasPrefix(h.name, "sparse") {
			assert.NoError(s.t, err, "%s of session %s", method, s.id)
		} else {
			refused(s.t, err, dbusapi.InvalidState, filepath.Join(s.stateDir(s.id), row.file)+" "+h.own)
		}
	}
}

// peakBelow tells whether the daemon has never taken more memory.
func (d *corrald) peakBelow(t *testing.T, bytes int) {
	t.Helper()
	for line := range strings.Lines(readFile(t, fmt.Sprintf("/proc/%d/status", d.process.Process.Pid))) {
		if text, is := strings.CutPrefix(line, "VmHWM:"); is {
			kib, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(text), " kB"))
			require.NoError(t, err)
			assert.Less(t, kib<<10, bytes)
			return
		}
	}
	t.Fatal("the kernel does not tell of the peak")
}

// TestIrregularFile_OfAnAgentBlocksNothing: a file of variables keeps its agent from starting, with
// an error that says what it is; what may be a conversation keeps nothing from being resumed. Both
// may be links.
func TestIrregularFile_OfAnAgentBlocksNothing(t *testing.T) {
	d := startDaemon(t)
	d.defineScript("talker", talker, talkerScript)
	d.write("config/corral/agents/fed.agent", "[Agent]\nCommand=sleep 1000\n[Environment]\nEnvironmentFile=%h/variables\n")
	require.NoError(t, d.manager("Reload", nil))
	for n, h := range hostiles {
		t.Run(h.name, func(t *testing.T) {
			d.write("variables", "A=b\n")
			h.instead(t, d.dir+"/variables")
			fed, err := d.as(t, "fed", fmt.Sprintf("fed-%d", n), nil)
			if h.any == "" {
				require.NoError(t, err)
				fed.become("running")
			} else {
				refused(t, err, dbusapi.StartFailed, d.dir+"/variables", h.any)
			}
			require.NoError(t, os.RemoveAll(d.dir+"/variables"))

			s, err := d.as(t, "talker", fmt.Sprintf("talk-%d", n), nil)
			require.NoError(t, err)
			s.sayTo("hello")
			s.file(s.id + ".told")
			h.instead(t, d.dir+"/talks/shop/"+s.facts().text("ConversationId")+".jsonl")
			s.must("Stop", uint64(0))
			s.must("Resume")
			assert.Equal(t, h.any == "", s.facts().yes("Resumed"))
		})
	}
	d.peakBelow(t, 128<<20)
}

// TestOpenLog_OfAFIFODoesNotBlockStop: an agent makes its log a FIFO, and somebody looks at it.
func TestOpenLog_OfAFIFODoesNotBlockStop(t *testing.T) {
	d := startDaemon(t)
	other := testbed.Bus(t)
	for id, end := range map[string]func(s *subject){
		"stopped": func(s *subject) { s.must("Stop", uint64(time.Second.Microseconds())) },
		"killed":  func(s *subject) { s.must("Kill", "all", int32(syscall.SIGKILL)); s.become("failed") },
		"removed": func(s *subject) { s.must("Remove", dbusapi.RemoveForce) },
	} {
		s := d.run(t, id, `cd "`+d.stateDir(id)+`"; rm -f output.log; mkfifo output.log; exec sleep 1000`)
		s.become("running")
		testbed.Poll(t, "the log is a FIFO", func() bool {
			info, err := os.Lstat(d.stateDir(id) + "/output.log")
			return err == nil && info.Mode()&os.ModeNamedPipe != 0
		})
		opened := make(chan *dbus.Call, 1)
		other.Object(dbusapi.BusName, dbusapi.SessionPath(id)).Go(dbusapi.SessionInterface+".OpenLog", 0, opened)
		end(s)
		refused(t, testbed.Receive(t, opened, "answer").Err, dbusapi.InvalidState)
	}
	assert.Equal(t, []string{"killed", "stopped"}, slices.Sorted(slices.Values(d.ids(t))))
}

// TestStart_FIFOsAsEnvironmentRecordsBlockNothing: as many as starts may be under way at a time.
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
	innocent.become("running")
	for range startsAtATime {
		require.NoError(t, testbed.Receive(t, done, "answer").Err)
	}
	assert.NoError(t, (&subject{d, t, "evil-0"}).asked("GetEnvironment"), "the record was made anew")
}

// TestStart_DoesNotWriteEnvironmentRecordThroughLinks, neither at its own name nor at those that it
// had on its way there.
func TestStart_DoesNotWriteEnvironmentRecordThroughLinks(t *testing.T) {
	d := startDaemon(t)
	d.write("precious", "mine")
	s := d.create(t, "shop", spec{"Command": []string{"sleep", "1000"}, "Start": false})
	for _, name := range []string{"environment", "environment.new", ".environment.new"} {
		require.NoError(t, os.Symlink(d.dir+"/precious", s.stateDir(s.id)+"/"+name))
	}
	s.must("Start")
	assert.Equal(t, "mine", readFile(t, d.dir+"/precious"))
	require.NoError(t, s.asked("GetEnvironment"))
}
