package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/testbed"
)

func TestMain(m *testing.M) { testbed.Main(m) }

// patience is how long a test waits for what should happen soon.
const patience = testbed.Timeout

// corrald is a daemon with a state of its own, on the test bed's bus, and a client of it. There is
// one at a time: it owns the bus name.
type corrald struct {
	t       *testing.T
	dir     string // its home
	program string
	env     []string
	process *exec.Cmd
	log     *logText
	bus     *dbus.Conn
	heard   *hearing
}

// startDaemon starts a corrald for this test, with these lines in its corral.conf. At the end it is
// stopped, with all that is left of its sessions.
func startDaemon(t *testing.T, conf ...string) *corrald {
	t.Helper()
	return startProgram(t, testbed.Programs(t).Corrald, conf...)
}

// startProgram is startDaemon for a certain build of it.
func startProgram(t *testing.T, program string, conf ...string) *corrald {
	t.Helper()
	dir := testbed.Dir(t)
	d := &corrald{t: t, dir: dir, program: program, log: &logText{}, bus: testbed.Bus(t), heard: newHearing()}
	d.env = append(os.Environ(), "HOME="+dir, "XDG_STATE_HOME="+filepath.Join(dir, "state"), "XDG_CONFIG_HOME="+filepath.Join(dir, "config"),
		"CORRAL_SHIM="+testbed.Programs(t).Shim, "GORACE=atexit_sleep_ms=0")
	d.write("config/corral/corral.conf", "[Corral]\n"+strings.Join(conf, "\n")+"\n")
	d.listen()
	t.Cleanup(d.end)
	d.launch()
	return d
}

// write writes a file below the daemon's home.
func (d *corrald) write(name, content string) {
	d.t.Helper()
	path := filepath.Join(d.dir, name)
	require.NoError(d.t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(d.t, os.WriteFile(path, []byte(content), 0o600))
}

// listen has the bus tell us of everything that corrald says, whichever process that is, and of its
// coming and going.
func (d *corrald) listen() {
	d.t.Helper()
	signals := make(chan *dbus.Signal, 1024)
	d.bus.Signal(signals)
	require.NoError(d.t, d.bus.AddMatchSignal(dbus.WithMatchSender(dbusapi.BusName)))
	require.NoError(d.t, d.bus.AddMatchSignal(dbus.WithMatchMember("NameOwnerChanged"), dbus.WithMatchArg(0, dbusapi.BusName)))
	go d.heard.take(signals)
}

// launch starts the process and waits until it answers under its name.
func (d *corrald) launch() {
	d.t.Helper()
	mark := d.heard.mark()
	d.process = exec.Command(d.program)
	d.process.Env = d.env
	d.process.Stdout, d.process.Stderr = d.log, d.log
	require.NoError(d.t, d.process.Start())
	d.await(d.t, mark, "corrald on the bus", func(s *dbus.Signal) bool {
		return nameOwner(s) && len(s.Body) == 3 && s.Body[2] != ""
	})
}

// kill sends the process a signal and waits until it has ended and is gone from the bus. It returns
// its exit code, -1 when a signal ended it.
func (d *corrald) kill(signal syscall.Signal) int {
	d.t.Helper()
	require.NoError(d.t, d.process.Process.Signal(signal))
	err := d.process.Wait()
	var exit *exec.ExitError
	require.True(d.t, err == nil || errors.As(err, &exit), "waiting for corrald: %v", err)
	code := d.process.ProcessState.ExitCode()
	d.process = nil
	for {
		mark := d.heard.mark()
		var owned bool
		require.NoError(d.t, d.bus.BusObject().Call("org.freedesktop.DBus.NameHasOwner", 0, dbusapi.BusName).Store(&owned))
		if !owned {
			return code
		}
		d.await(d.t, mark, "corrald's leaving the bus", nameOwner)
	}
}

// nameOwner tells whether a signal tells of a new owner of corrald's bus name, or of none.
func nameOwner(s *dbus.Signal) bool { return s.Name == "org.freedesktop.DBus.NameOwnerChanged" }

// end stops what the test has begun.
func (d *corrald) end() {
	scopes, err := exec.Command("systemctl", "--user", "list-units", "--plain", "--no-legend", "app-corral-*.scope").Output()
	if err == nil && len(scopes) > 0 {
		_ = exec.Command("systemctl", "--user", "kill", "--signal=KILL", "app-corral-*.scope").Run()
	}
	code := 0
	if d.process != nil {
		_ = d.process.Process.Signal(syscall.SIGTERM)
		_ = d.process.Wait()
		code = d.process.ProcessState.ExitCode()
	}
	_ = exec.Command("systemctl", "--user", "reset-failed", "app-corral-*.scope").Run()
	if code != 0 {
		d.t.Errorf("corrald ended with %d", code)
	}
	if text := d.log.String(); strings.Contains(text, "DATA RACE") || crashed.MatchString(text) {
		d.t.Errorf("corrald has a race or a panic")
	}
	if d.t.Failed() {
		d.t.Logf("corrald said:\n%s", d.log)
	}
}

// call calls a method and stores what it answers.
func (d *corrald) call(path dbus.ObjectPath, method string, args []any, results ...any) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return d.bus.Object(dbusapi.BusName, path).CallWithContext(ctx, method, 0, args...).Store(results...)
}

// manager calls a method of the Manager.
func (d *corrald) manager(method string, args []any, results ...any) error {
	return d.call(dbusapi.ManagerPath, dbusapi.ManagerInterface+"."+method, args, results...)
}

// ids returns the ids of all sessions.
func (d *corrald) ids(t *testing.T) []string {
	t.Helper()
	var rows []dbusapi.SessionRow
	require.NoError(t, d.manager("ListSessions", nil, &rows))
	ids := []string{}
	for _, row := range rows {
		ids = append(ids, row.ID)
	}
	return ids
}

// stateDir and runtimeDir are the directories of a session.
func (d *corrald) stateDir(id string) string {
	return filepath.Join(d.dir, "state/corral/sessions", id)
}

func (d *corrald) runtimeDir(id string) string {
	return filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "corral", id)
}

// logText is what a daemon has said, for those that read while it is written.
type logText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// written waits until a file ends with text, and the clock that the times of files are taken from
// has gone on: it goes in steps of some milliseconds.
func written(t *testing.T, path, text string) {
	t.Helper()
	testbed.WaitFile(t, path, func(content []byte) bool { return strings.HasSuffix(string(content), text) })
	info, err := os.Stat(path)
	require.NoError(t, err)
	testbed.Poll(t, "the clock goes on", func() bool { return time.Since(info.ModTime()) > 20*time.Millisecond })
}
