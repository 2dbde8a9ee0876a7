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

// patience is how long a test waits for something that should happen soon.
const patience = testbed.Timeout

// corrald is a daemon with a state directory of its own, on the test bed's bus, and a client of it.
// Only one runs at a time: it owns the bus name.
type corrald struct {
	t       *testing.T
	dir     string // its home
	program string
	env     []string
	process *exec.Cmd
	log     *logBuffer
	bus     *dbus.Conn
	signals *signalLog
}

// startDaemon starts a corrald with these lines in its corral.conf. When the test ends, the daemon
// is stopped and everything left of its sessions is killed.
func startDaemon(t *testing.T, conf ...string) *corrald {
	t.Helper()
	return startProgram(t, testbed.Programs(t).Corrald, conf...)
}

// startProgram is startDaemon for a given build of corrald.
func startProgram(t *testing.T, program string, conf ...string) *corrald {
	t.Helper()
	dir := testbed.Dir(t)
	signals := newSignalLog()
	d := &corrald{t: t, dir: dir, program: program, log: &logBuffer{}, signals: signals,
		bus: testbed.Bus(t, dbus.WithSignalHandler(signals))}
	d.env = append(os.Environ(), "HOME="+dir, "XDG_STATE_HOME="+filepath.Join(dir, "state"),
		"XDG_CONFIG_HOME="+filepath.Join(dir, "config"),
		"CORRAL_SHIM="+testbed.Programs(t).Shim, "GORACE=atexit_sleep_ms=0")
	d.write("config/corral/corral.conf", "[Corral]\n"+strings.Join(conf, "\n")+"\n")
	d.listen()
	t.Cleanup(d.stop)
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

// listen subscribes to all signals of corrald, whichever process owns its name, and to changes of
// that owner.
func (d *corrald) listen() {
	d.t.Helper()
	require.NoError(d.t, d.bus.AddMatchSignal(dbus.WithMatchSender(dbusapi.BusName)))
	require.NoError(d.t, d.bus.AddMatchSignal(dbus.WithMatchMember("NameOwnerChanged"),
		dbus.WithMatchArg(0, dbusapi.BusName)))
}

// launch starts the process and waits until it owns its bus name.
func (d *corrald) launch() {
	d.t.Helper()
	mark := d.signals.mark()
	d.process = exec.Command(d.program)
	d.process.Env = d.env
	d.process.Stdout, d.process.Stderr = d.log, d.log
	require.NoError(d.t, d.process.Start())
	d.await(d.t, mark, "corrald on the bus", func(s *dbus.Signal) bool {
		return isOwnerChange(s) && len(s.Body) == 3 && s.Body[2] != ""
	})
}

// kill sends the process a signal and waits until it has exited and has left the bus. It returns
// the exit code, -1 if a signal killed it.
func (d *corrald) kill(signal syscall.Signal) int {
	d.t.Helper()
	require.NoError(d.t, d.process.Process.Signal(signal))
	err := d.process.Wait()
	var exit *exec.ExitError
	require.True(d.t, err == nil || errors.As(err, &exit), "waiting for corrald: %v", err)
	code := d.process.ProcessState.ExitCode()
	d.process = nil
	for {
		mark := d.signals.mark()
		var owned bool
		require.NoError(d.t, d.bus.BusObject().Call("org.freedesktop.DBus.NameHasOwner", 0, dbusapi.BusName).Store(&owned))
		if !owned {
			return code
		}
		d.await(d.t, mark, "corrald leaving the bus", isOwnerChange)
	}
}

// isOwnerChange reports whether a signal announces a change of the owner of corrald's bus name.
func isOwnerChange(s *dbus.Signal) bool { return s.Name == "org.freedesktop.DBus.NameOwnerChanged" }

// stop stops the daemon and kills its sessions.
func (d *corrald) stop() {
	scopes, err := exec.Command("systemctl", "--user", "list-units", "--plain", "--no-legend", "app-corral-*.scope").
		Output()
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
		d.t.Errorf("corrald exited with %d", code)
	}
	if text := d.log.String(); strings.Contains(text, "DATA RACE") || crashed.MatchString(text) {
		d.t.Errorf("corrald has a race or a panic")
	}
	if d.t.Failed() {
		d.t.Logf("log of corrald:\n%s", d.log)
	}
}

// call calls a method and stores its results.
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

// logBuffer collects the output of a daemon. It can be read while the daemon writes.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// waitWritten waits until a file ends with text, and until file times differ from that of the file:
// the kernel's clock for file times advances in steps of some milliseconds.
func waitWritten(t *testing.T, path, text string) {
	t.Helper()
	testbed.WaitFile(t, path, func(content []byte) bool { return strings.HasSuffix(string(content), text) })
	info, err := os.Stat(path)
	require.NoError(t, err)
	testbed.Poll(t, "the clock for file times advances", func() bool {
		return time.Since(info.ModTime()) > 20*time.Millisecond
	})
}
