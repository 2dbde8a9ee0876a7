package testbed

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/testbed/claim"
)

// Timeout limits how long a test waits for an event that should happen soon. It is not a
// performance requirement: machines that run tests may be slow and busy.
const Timeout = 30 * time.Second

func current(t testing.TB) *bed {
	t.Helper()
	if currentBed == nil {
		t.Fatal("testbed: no private user manager here: the package needs `func TestMain(m *testing.M) { testbed.Main(m) }`")
	}
	return currentBed
}

// Dir returns a new directory whose path is short enough for sockets, unlike those of t.TempDir. It
// is removed after the test.
func Dir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp(filepath.Join(current(t).Dir, "tmp"), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = claim.RemoveTree(dir) })
	return dir
}

// Systemctl runs `systemctl --user` with the arguments and returns its output without the last
// newline. The test fails if the command fails.
func Systemctl(t testing.TB, args ...string) string {
	t.Helper()
	current(t)
	output, err := exec.CommandContext(t.Context(), "systemctl", append([]string{"--user"}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("systemctl --user %s: %v\n%s", strings.Join(args, " "), err, output)
	}
	return strings.TrimSuffix(string(output), "\n")
}

// Bus returns a new connection to the private bus, closed after the test. It delivers signals in
// order, unless the options name another handler.
func Bus(t testing.TB, options ...dbus.ConnOption) *dbus.Conn {
	t.Helper()
	current(t)
	conn, err := dbus.Connect(os.Getenv("DBUS_SESSION_BUS_ADDRESS"),
		append([]dbus.ConnOption{dbus.WithSignalHandler(dbus.NewSequentialSignalHandler())}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// SendSignal sends a unicast signal to one connection, which match rules do not filter. It returns
// after the bus has received it.
func SendSignal(t testing.TB, from *dbus.Conn, to string, path dbus.ObjectPath, name string, body ...any) {
	t.Helper()
	dot := strings.LastIndexByte(name, '.')
	signal := &dbus.Message{Type: dbus.TypeSignal, Flags: dbus.FlagNoReplyExpected, Body: body,
		Headers: map[dbus.HeaderField]dbus.Variant{
			dbus.FieldDestination: dbus.MakeVariant(to), dbus.FieldPath: dbus.MakeVariant(path),
			dbus.FieldInterface: dbus.MakeVariant(name[:dot]), dbus.FieldMember: dbus.MakeVariant(name[dot+1:]),
		}}
	if len(body) > 0 {
		signal.Headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(body...))
	}
	if call := from.Send(signal, nil); call != nil && call.Err != nil {
		t.Fatalf("cannot send %s: %v", name, call.Err)
	}
	if err := from.BusObject().Call("org.freedesktop.DBus.Peer.Ping", 0).Err; err != nil {
		t.Fatalf("the bus does not answer: %v", err)
	}
}

// Receive returns the next value of a channel. The test fails if none arrives in time or the
// channel is closed.
func Receive[T any](t testing.TB, from <-chan T, what string) T {
	t.Helper()
	select {
	case value, open := <-from:
		if !open {
			t.Fatalf("the channel was closed while waiting for %s", what)
		}
		return value
	case <-time.After(Timeout):
		t.Fatalf("no %s within %v", what, Timeout)
	}
	panic("not reached")
}

// WaitFile waits until a file exists and accept returns true for its content, and returns the
// content. It checks after each inotify event of the directory, which has to exist. A nil accept
// accepts any content.
func WaitFile(t testing.TB, path string, accept func(content []byte) bool) []byte {
	t.Helper()
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = watcher.Close() }()
	if err := watcher.Add(filepath.Dir(path)); err != nil {
		t.Fatal(err)
	}
	deadline := time.After(Timeout)
	for {
		content, err := os.ReadFile(path)
		if err == nil && (accept == nil || accept(content)) {
			return content
		}
		select {
		case <-watcher.Events:
		case err := <-watcher.Errors: // after an overflow, check again
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				t.Fatalf("cannot watch %s: %v", path, err)
			}
		case <-deadline:
			t.Fatalf("%s did not become as expected within %v: %v\n%s", path, Timeout, err, content)
		}
	}
}

// WaitExit waits until a process has exited, which need not be a child.
func WaitExit(t testing.TB, pid int) {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err == unix.ESRCH {
		return
	}
	if err != nil {
		t.Fatalf("cannot watch process %d: %v", pid, err)
	}
	defer func() { _ = unix.Close(fd) }()
	for deadline := time.Now().Add(Timeout); ; {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}},
			max(0, int(time.Until(deadline).Milliseconds())))
		if n > 0 {
			return
		}
		if err != unix.EINTR {
			t.Fatalf("process %d did not end within %v (%v)", pid, Timeout, err)
		}
	}
}

// Poll calls done every 10 ms until it returns true. It is for conditions without an event: the
// screen of a terminal, the state of another program. For a file, a process, a D-Bus signal or a
// channel use the functions above.
func Poll(t testing.TB, what string, done func() bool) {
	t.Helper()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(Timeout); !done(); <-ticker.C {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, Timeout)
		}
	}
}
