package main

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/testbed"
)

// gpu is a machine with a corrald, on the bus of the test bed, and without a notification server.
// Laptops reach it by a program named ssh, which runs what the real one would run there.
type gpu struct {
	*storyRun
	t        *testing.T
	programs testbed.Binaries
	runtime  string
	stop     func() // stops corrald
}

func newGPU(t *testing.T) *gpu {
	t.Helper()
	g := &gpu{t: t, programs: testbed.Programs(t), storyRun: &storyRun{home: testbed.Dir(t)},
		runtime: os.Getenv("XDG_RUNTIME_DIR")}
	require.NoError(t, os.MkdirAll(g.home, 0o700))
	g.environment = append(os.Environ(), "PATH="+filepath.Dir(g.programs.Corralctl)+":/usr/local/bin:/usr/bin:/bin",
		"HOME="+g.home, "XDG_STATE_HOME="+g.home+"/state", "XDG_CONFIG_HOME="+g.home+"/config")
	g.launch(g.programs.Corrald)
	t.Cleanup(func() {
		_ = exec.Command("systemctl", "--user", "stop", "app-corral-*.scope").Run()
		g.stop()
	})
	return g
}

// launch starts a corrald, which runs until stop is called.
func (g *gpu) launch(program string) {
	g.t.Helper()
	daemon := exec.Command(program)
	daemon.Env = g.environment
	var journal bytes.Buffer
	daemon.Stdout, daemon.Stderr = &journal, &journal
	require.NoError(g.t, daemon.Start())
	g.stop = sync.OnceFunc(func() {
		_ = daemon.Process.Kill()
		_ = daemon.Wait()
		if g.t.Failed() {
			g.t.Logf("corrald:\n%s", journal.String())
		}
	})
	bus := testbed.Bus(g.t)
	testbed.Poll(g.t, "corrald on the bus", func() bool {
		var running bool
		err := bus.BusObject().Call("org.freedesktop.DBus.NameHasOwner", 0, dbusapi.BusName).Store(&running)
		return err == nil && running
	})
}

// corralctl runs corralctl on this machine.
func (g *gpu) corralctl(args ...string) string {
	g.t.Helper()
	command := exec.Command(g.programs.Corralctl, args...)
	command.Env, command.Dir = g.environment, g.home
	out, err := command.CombinedOutput()
	require.NoError(g.t, err, "corralctl %v: %s", args, out)
	return strings.TrimSpace(string(out))
}

// run starts a session that runs a shell command.
func (g *gpu) run(id, script string) {
	g.t.Helper()
	g.corralctl("run", "--id", id, "--", "sh", "-c", script)
}

// awaitNotification waits until the property Notification of the session has this value.
func (g *gpu) awaitNotification(id, value string) {
	g.t.Helper()
	testbed.Poll(g.t, id+" is "+value, func() bool {
		return g.corralctl("show", "--value", "-P", "Notification", id) == value
	})
}

// laptop is a machine with a desktop and no corrald, which shows the notifications of a gpu.
type laptop struct {
	t           *testing.T
	program     string // corralctl
	dir         string
	environment []string
	bus         *dbus.Conn // its session bus, and its system bus
	server      *testbed.NotificationServer
	notifier    *exec.Cmd
	log         chan string
}

// newLaptop starts a laptop that follows the machine whose runtime directory this is.
func newLaptop(t *testing.T, host string) *laptop {
	t.Helper()
	l := &laptop{t: t, program: testbed.Programs(t).Corralctl, dir: testbed.Dir(t)}
	address := startBus(t, l.dir)
	pidFile := l.dir + "/ssh.pid" // is replaced, since a test may read it at any time
	ssh := "#!/bin/sh\nif [ -e '" + l.dir + "/down' ]; then echo 'ssh: no route to host' >&2; exit 255; fi\n" +
		"echo $$ >'" + pidFile + ".new'\nmv '" + pidFile + ".new' '" + pidFile + "'\n" +
		"while [ \"$1\" != -- ]; do shift; done; shift 2\n" +
		"export XDG_RUNTIME_DIR='" + host + "'\neval \"$*\"\n"
	require.NoError(t, os.MkdirAll(filepath.Join(l.dir, "bin"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(l.dir, "bin/ssh"), []byte(ssh), 0o700))
	l.environment = append(os.Environ(), "PATH="+l.dir+"/bin:/usr/bin:/bin", "HOME="+l.dir,
		"XDG_STATE_HOME="+l.dir+"/state", "XDG_CONFIG_HOME="+l.dir+"/config", "XDG_RUNTIME_DIR="+l.dir,
		"DBUS_SESSION_BUS_ADDRESS="+address, "DBUS_SYSTEM_BUS_ADDRESS="+address)
	there := os.Getenv("DBUS_SESSION_BUS_ADDRESS")
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", address)
	l.bus = testbed.Bus(t)
	l.server = testbed.StartNotificationServer(t, "actions", "inline-reply")
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", there)
	l.start()
	t.Cleanup(l.stop)
	return l
}

// startBus starts the bus of another machine in its runtime directory, and returns its address.
func startBus(t *testing.T, dir string) string {
	t.Helper()
	bus := exec.Command("dbus-daemon", "--session", "--nofork", "--nopidfile", "--syslog-only", "--print-address=1",
		"--address=unix:path="+dir+"/bus")
	out, err := bus.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, bus.Start())
	t.Cleanup(func() {
		_ = bus.Process.Kill()
		_ = bus.Wait()
	})
	_, err = bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	return "unix:path=" + dir + "/bus"
}

// start starts corralctl notify, and returns once it shows the notifications.
func (l *laptop) start() {
	l.t.Helper()
	l.notifier = exec.Command(l.program, "-H", "gpu", "notify")
	l.notifier.Env = l.environment
	stderr, err := l.notifier.StderrPipe()
	require.NoError(l.t, err)
	require.NoError(l.t, l.notifier.Start())
	l.log = make(chan string, 1000)
	go func() {
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			l.log <- lines.Text()
		}
		close(l.log)
	}()
	l.awaitLog("shows the notifications")
}

// awaitLog waits for a log line, the next one, that contains a text.
func (l *laptop) awaitLog(text string) {
	l.t.Helper()
	assert.Contains(l.t, testbed.Receive(l.t, l.log, text), text)
}

func (l *laptop) stop() {
	_ = l.notifier.Process.Signal(syscall.SIGTERM)
	require.NoError(l.t, l.notifier.Wait())
	for line := range l.log {
		l.t.Log(line)
	}
}

// disconnect ends the connection, and lets none be established until connect is called.
func (l *laptop) disconnect() {
	l.t.Helper()
	require.NoError(l.t, os.WriteFile(l.dir+"/down", nil, 0o600))
	require.NoError(l.t, syscall.Kill(l.ssh(), syscall.SIGKILL))
	l.awaitLog("cannot reach")
}

// ssh returns the PID of the last ssh.
func (l *laptop) ssh() int {
	l.t.Helper()
	text, err := os.ReadFile(l.dir + "/ssh.pid")
	require.NoError(l.t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	require.NoError(l.t, err)
	return pid
}

func (l *laptop) connect() {
	l.t.Helper()
	require.NoError(l.t, os.Remove(l.dir+"/down"))
	l.awaitLog("shows the notifications")
}

// next returns the next notification.
func (l *laptop) next() testbed.Notification {
	l.t.Helper()
	return testbed.Receive(l.t, l.server.Shown, "a notification")
}

// awaitClosed waits until this notification is closed.
func (l *laptop) awaitClosed(n testbed.Notification) {
	l.t.Helper()
	assert.Equal(l.t, n.ID, testbed.Receive(l.t, l.server.Closed, "the closing of the notification"), n.Title)
}

// TestNotify_ShowsAndAnswers: what sessions of the other machine need appears here, can be answered
// here, and disappears when it is answered or acknowledged there.
func TestNotify_ShowsAndAnswers(t *testing.T) {
	g := newGPU(t)
	l := newLaptop(t, g.runtime)
	g.run("shop", "exit 3")
	n := l.next()
	assert.Equal(t, "gpu: shop: failed, exit 3", n.Title)
	assert.Equal(t, []string{"default", "Open", "open", "Open", "restart", "Restart", "log", "Log"}, n.Actions)
	g.awaitNotification("shop", "shown")
	g.corralctl("ack", "shop")
	l.awaitClosed(n)

	g.run("asks", "stty -echo; corralctl report waiting --message='red or blue?'; read a; "+
		"echo \"$a\" >answer; exec sleep 1000")
	n = l.next()
	assert.Equal(t, "gpu: asks: has a question", n.Title)
	assert.Contains(t, n.Body, "red or blue?")
	l.server.Emit(t, "NotificationReplied", n.ID, "blue")
	l.awaitClosed(n)
	testbed.WaitFile(t, filepath.Join(g.home, "answer"), func(text []byte) bool { return string(text) == "blue\n" })

	g.run("dismissed", "corralctl report waiting --message=?; exec sleep 1000")
	question := l.next()
	l.server.Dismiss(t, question.ID, 2)
	g.run("again", "exit 4")
	n = l.next()
	l.server.Emit(t, "ActionInvoked", n.ID, "restart")
	n = l.next()
	assert.Equal(t, "gpu: again: failed, exit 4", n.Title)
	l.server.Dismiss(t, n.ID, 2)
	testbed.Poll(t, "a dismissed failure is acknowledged", func() bool {
		return g.corralctl("show", "--value", "-P", "Attention", "again") == ""
	})
	assert.Equal(t, "no", g.corralctl("show", "--value", "-P", "AttentionAcknowledged", "dismissed"),
		"but no question")
	l.server.Emit(t, "ActionInvoked", n.ID, "open")
	assert.Equal(t, "gpu: again: action failed", l.next().Title, "there is no systemd that could open a window")
}

// TestNotify_MissesAndRepeatsNothing cuts the connection, restarts corrald and the notifier, and
// has a second laptop connect later.
func TestNotify_MissesAndRepeatsNothing(t *testing.T) {
	g := newGPU(t)
	l := newLaptop(t, g.runtime)
	g.run("before", "exit 1")
	assert.Equal(t, "gpu: before: failed, exit 1", l.next().Title)
	g.awaitNotification("before", "shown")

	l.disconnect()
	g.run("gap", "exit 2")
	g.awaitNotification("gap", "pending")
	l.connect()
	assert.Equal(t, "gpu: gap: failed, exit 2", l.next().Title)
	g.awaitNotification("gap", "shown")

	g.stop()
	l.awaitLog("corrald does not run")
	g.launch(g.programs.Corrald)
	l.awaitLog("shows the notifications")
	g.run("restarted", "exit 3")
	assert.Equal(t, "gpu: restarted: failed, exit 3", l.next().Title)

	l.stop()
	g.run("stopped", "exit 4")
	g.awaitNotification("stopped", "pending")
	l.start()
	assert.Equal(t, "gpu: stopped: failed, exit 4", l.next().Title)
	g.awaitNotification("stopped", "shown")

	second := newLaptop(t, g.runtime)
	g.run("both", "exit 5")
	assert.Equal(t, "gpu: both: failed, exit 5", l.next().Title)
	assert.Equal(t, "gpu: both: failed, exit 5", second.next().Title, "it is not known where the person is")

	l.disconnect()
	second.disconnect()
	g.run("one", "exit 6")
	g.awaitNotification("one", "pending")
	second.connect()
	assert.Equal(t, "gpu: one: failed, exit 6", second.next().Title)
	g.awaitNotification("one", "shown")
	l.connect()
	g.run("last", "exit 7")
	assert.Equal(t, "gpu: last: failed, exit 7", l.next().Title, "and not what the other one has shown")
	assert.Equal(t, "gpu: last: failed, exit 7", second.next().Title)
	assert.Len(t, l.server.Live(), 6)
}

// TestNotify_AnswersThePermissionOnTheScreen: Approve and Deny answer the request that the
// notification is about, and no later one.
func TestNotify_AnswersThePermissionOnTheScreen(t *testing.T) {
	g := newGPU(t)
	l := newLaptop(t, g.runtime)
	l.stop()
	for _, home := range []string{g.home, l.dir} {
		require.NoError(t, os.MkdirAll(home+"/config/corral/agents", 0o700))
		require.NoError(t, os.WriteFile(home+"/config/corral/agents/asker.agent", []byte("[Agent]\nApproveKeys=y\n"+
			"DenyKeys=n\nCommand=sh -c 'stty raw -echo; for i in 1 2; do corralctl report waiting --reason permission "+
			"--message $i; head -c 1 >$i; corralctl report working; done; exec sleep 1000'\n"), 0o600))
	}
	l.start()
	g.corralctl("reload")
	g.corralctl("run", "--id", "shop", "asker")
	first := l.next()
	assert.Equal(t, "gpu: shop: asks for permission", first.Title)
	key := func(n testbed.Notification, name string) string {
		i := slices.IndexFunc(n.Actions, func(a string) bool { return strings.HasPrefix(a, name+"@") })
		require.NotEqual(t, -1, i, n.Actions)
		return n.Actions[i]
	}
	approve := key(first, "approve")
	l.server.Emit(t, "ActionInvoked", first.ID, approve)
	second := l.next()
	assert.Contains(t, second.Body, "2")
	l.server.Emit(t, "ActionInvoked", second.ID, approve)
	failure := l.next()
	assert.Equal(t, `session "shop" does not ask for this permission any more`, failure.Body)
	l.server.Emit(t, "ActionInvoked", second.ID, key(second, "deny"))
	for file, want := range map[string]string{"1": "y", "2": "n"} {
		testbed.WaitFile(t, filepath.Join(g.home, file), func(text []byte) bool { return string(text) == want })
	}
}

// TestNotify_ReconnectsAfterSleep: a connection from before the sleep may be dead, and is not
// waited for. That is not an outage.
func TestNotify_ReconnectsAfterSleep(t *testing.T) {
	g := newGPU(t)
	l := newLaptop(t, g.runtime)
	l.stop()
	get := func(string, string) (dbus.Variant, *dbus.Error) { return dbus.MakeVariant(false), nil }
	require.NoError(t, l.bus.ExportMethodTable(map[string]any{"Get": get}, "/org/freedesktop/login1",
		"org.freedesktop.DBus.Properties"))
	_, err := l.bus.RequestName("org.freedesktop.login1", dbus.NameFlagDoNotQueue)
	require.NoError(t, err)
	l.start()
	before := l.ssh()
	testbed.Poll(t, "another connection", func() bool {
		// corralctl may not have subscribed to logind yet.
		require.NoError(t, l.bus.Emit("/org/freedesktop/login1", "org.freedesktop.login1.Manager.PrepareForSleep", false))
		return l.ssh() != before
	})
	g.run("shop", "exit 3")
	assert.Equal(t, "gpu: shop: failed, exit 3", l.next().Title)
	assert.Empty(t, l.log)
}

// TestNotify_IsOffWithTheNotificationsOfThisMachine: the corrald of the laptop turns them off, for
// the gpu as well.
func TestNotify_IsOffWithTheNotificationsOfThisMachine(t *testing.T) {
	g := newGPU(t)
	l := newLaptop(t, g.runtime)
	g.run("one", "exit 1")
	n := l.next()
	off := map[string]dbus.Variant{"Notifications": dbus.MakeVariant(false)}
	getAll := func(string) (map[string]dbus.Variant, *dbus.Error) { return off, nil }
	require.NoError(t, l.bus.ExportMethodTable(map[string]any{"GetAll": getAll}, dbusapi.ManagerPath,
		"org.freedesktop.DBus.Properties"))
	_, err := l.bus.RequestName(dbusapi.BusName, dbus.NameFlagDoNotQueue)
	require.NoError(t, err)
	l.awaitClosed(n)
	require.NoError(t, l.bus.Emit(dbusapi.ManagerPath, "org.freedesktop.DBus.Properties.PropertiesChanged",
		dbusapi.ManagerInterface, map[string]dbus.Variant{"Notifications": dbus.MakeVariant(true)}, []string{}))
	g.run("two", "exit 2")
	assert.Equal(t, "gpu: two: failed, exit 2", l.next().Title, "and not the other one again")
}
