package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/testbed"
)

// nextNotification returns the next notification.
func nextNotification(t *testing.T, s *testbed.NotificationServer) testbed.Notification {
	t.Helper()
	return testbed.Receive(t, s.Shown, "a notification")
}

// assertNextClosed checks that this notification is the next one to be closed.
func assertNextClosed(t *testing.T, s *testbed.NotificationServer, n testbed.Notification) {
	t.Helper()
	assert.Equal(t, n.ID, testbed.Receive(t, s.Closed, "the closing of the notification"), n.Title)
}

// TestNotification_FollowsSessionUntilRemoval checks the notifications of a session from its
// failure to its removal.
func TestNotification_FollowsSessionUntilRemoval(t *testing.T) {
	d := startDaemon(t)
	server := testbed.StartNotificationServer(t, "actions", "body-markup", "inline-reply")
	s := d.run(t, "shop", "exit 3")
	n := nextNotification(t, server)
	assert.Equal(t, "shop: failed, exit 3", n.Title)
	assert.Equal(t, "command exited with code 3\n~, after less than 1s", n.Body)
	assert.EqualValues(t, 1, n.Urgency)
	assert.FileExists(t, "../../packaging/desktop/"+n.DesktopEntry+".desktop")
	assert.FileExists(t, "../../packaging/desktop/"+n.Icon+".svg")
	assert.Equal(t, []string{"default", "Open", "open", "Open", "restart", "Restart", "log", "Log"}, n.Actions)

	s.must("Acknowledge")
	assertNextClosed(t, server, n)

	server.Emit(t, "ActionInvoked", n.ID, "restart") // arrives after the notification was closed
	n = nextNotification(t, server)
	assert.Equal(t, "shop: failed, exit 3", n.Title)
	assert.Equal(t, 2, s.properties().number("NRuns"))
	assert.Zero(t, n.Replaces)

	server.Emit(t, "ActionInvoked", n.ID, "restart")
	again := nextNotification(t, server)
	if again.Replaces == n.ID { // the session failed again before the old notification was closed
		assert.Empty(t, server.Closed)
	} else {
		assertNextClosed(t, server, n)
	}
	assert.Equal(t, "shop: failed, exit 3", again.Title)
	assert.Len(t, server.Live(), 1)
	s.must("Remove", uint64(0))
	assertNextClosed(t, server, again)
}

// TestNotification_ReplyAnswersTheQuestion checks that a reply typed into a notification is sent to
// the agent, and closes the notification.
func TestNotification_ReplyAnswersTheQuestion(t *testing.T) {
	d := startDaemon(t)
	server := testbed.StartNotificationServer(t, "actions", "body-markup", "inline-reply")
	s := d.run(t, "asks", `stty -echo; `+reportCommand("waiting", "Reason", "question", "Message",
		"<b>red</b> & blue?")+`; read a; echo "$a" >`+d.dir+`/answer; exec sleep 1000`)
	n := nextNotification(t, server)
	assert.Equal(t, "asks: has a question", n.Title)
	assert.Equal(t, "&lt;b&gt;red&lt;/b&gt; &amp; blue?\n~", n.Body)
	assert.EqualValues(t, 1, n.Urgency)
	assert.Contains(t, n.Actions, "inline-reply")
	server.Emit(t, "NotificationReplied", n.ID, "the blue one; $HOME")
	assertNextClosed(t, server, n)
	waitFile(t, filepath.Join(d.dir, "answer"), "the blue one; $HOME\n")
	assert.Empty(t, s.properties().text("Attention"))
}

// TestNotification_IsClosedByAttaching checks that a notification is closed when somebody attaches,
// and that none is shown while somebody is attached.
func TestNotification_IsClosedByAttaching(t *testing.T) {
	d := startDaemon(t)
	server := testbed.StartNotificationServer(t)
	pass, open := d.gate(t, "asking")
	s := d.run(t, "asks", reportCommand("waiting", "Reason", "question", "Message", "1")+"; "+pass+"; "+
		reportCommand("waiting", "Reason", "question", "Message", "2")+"; exec sleep 1000")
	n := nextNotification(t, server)
	assert.Empty(t, n.Actions, "the server does not support actions")
	detach := s.attach()
	assertNextClosed(t, server, n)
	open()
	s.wait("asking again", func(p properties) bool { return p.text("AttentionMessage") == "2" })
	d.run(t, "after", "exit 1")
	assert.Equal(t, "after: failed, exit 1", nextNotification(t, server).Title,
		"no notification of the attached session")
	detach()
}

// TestNotification_IsShownWhenTheTerminalLosesFocus checks that an attached terminal without the
// keyboard focus does not suppress notifications.
func TestNotification_IsShownWhenTheTerminalLosesFocus(t *testing.T) {
	d := startDaemon(t)
	server := testbed.StartNotificationServer(t)
	pass, open := d.gate(t, "asking")
	s := d.run(t, "asks", pass+"; "+reportCommand("waiting", "Reason", "question", "Message", "1")+"; exec sleep 1000")
	var argv, environment []string
	require.NoError(t, s.call(dbusapi.SessionPath(s.id), dbusapi.SessionInterface+".GetAttachCommand",
		nil, &argv, &environment))
	terminal := exec.Command("script", "-qec", strings.Join(argv, " "), "/dev/null")
	keys, err := terminal.StdinPipe()
	require.NoError(t, err)
	terminal.Env = append(slices.DeleteFunc(os.Environ(), func(e string) bool {
		return strings.HasPrefix(e, "TMUX")
	}), "TERM=xterm")
	require.NoError(t, terminal.Start())
	socket := filepath.Join(d.runtimeDir("asks"), "tmux")
	flags := func() string {
		out, _ := exec.Command("tmux", "-S", socket, "list-clients", "-F", "#{client_flags}").Output()
		return string(out)
	}
	testbed.Poll(t, "a terminal with the focus", func() bool { return strings.Contains(flags(), "focused") })
	_, err = keys.Write([]byte("\x1b[O")) // the sequence of a terminal that has lost the focus
	require.NoError(t, err)
	testbed.Poll(t, "a terminal without the focus", func() bool {
		return flags() != "" && !strings.Contains(flags(), "focused")
	})
	open()
	assert.Equal(t, "asks: has a question", nextNotification(t, server).Title)
	require.NoError(t, exec.Command("tmux", "-S", socket, "detach-client", "-s", "=asks").Run())
	require.NoError(t, terminal.Wait())
}

// TestNotification_SummarisesSessionsSuspendedByReboot checks that a reboot causes one notification
// for all sessions, with an action that resumes them.
func TestNotification_SummarisesSessionsSuspendedByReboot(t *testing.T) {
	d := startDaemon(t)
	server := testbed.StartNotificationServer(t, "actions")
	shop, forum := d.run(t, "shop", "exec sleep 1000"), d.run(t, "forum", "exec sleep 1000")
	mine := d.run(t, "mine", "exec sleep 1000")
	mine.must("Suspend")
	d.kill(syscall.SIGTERM)
	for _, s := range []*testSession{shop, forum} {
		unit := "app-corral-command-" + s.id + ".scope"
		testbed.Systemctl(t, "kill", "--signal=KILL", unit) // no exit is recorded, as after a power cut
		testbed.Poll(t, "the end of "+unit, func() bool {
			return exec.Command("systemctl", "--user", "--quiet", "is-active", unit).Run() != nil
		})
	}
	d.launch()
	n := nextNotification(t, server)
	assert.Equal(t, "2 sessions were suspended", n.Title)
	assert.Equal(t, "corrald was shut down\nforum, shop", n.Body)
	server.Emit(t, "ActionInvoked", n.ID, "resume-all")
	assertNextClosed(t, server, n)
	shop.waitState("running")
	forum.waitState("running")
	assert.Equal(t, "suspended", mine.properties().text("State"))
	assert.Empty(t, server.Shown)
}

// TestNotification_OmitsUserActions checks that the user is not notified of what the user did.
func TestNotification_OmitsUserActions(t *testing.T) {
	d := startDaemon(t)
	server := testbed.StartNotificationServer(t)
	stopped, killed := d.run(t, "stopped", "exec sleep 1000"), d.run(t, "killed", "exec sleep 1000")
	stopped.must("Stop", uint64(0))
	killed.must("Kill", "agent", int32(syscall.SIGKILL))
	killed.waitState("failed")
	d.create(t, "typo", spec{"Command": []string{"/no/such/program"}, "Start": false})
	require.Error(t, d.manager("StartSession", []any{"typo"}))
	d.run(t, "short", "exit 0").waitState("completed")
	d.run(t, "after", "exit 1")
	assert.Equal(t, "after: failed, exit 1", nextNotification(t, server).Title)
	assert.Empty(t, server.Shown)
}

// TestNotification_IsKeptUntilAServerAppears checks that a notification waits for a notification
// server, over a restart of the daemon, and that a second server does not show it again.
func TestNotification_IsKeptUntilAServerAppears(t *testing.T) {
	d := startDaemon(t)
	s := d.run(t, "shop", "exit 3")
	s.wait("failed", func(p properties) bool { return p.text("Attention") == "failed" })
	d.kill(syscall.SIGKILL)
	d.launch()
	server := testbed.StartNotificationServer(t)
	n := nextNotification(t, server)
	assert.Equal(t, "shop: failed, exit 3", n.Title)
	d.kill(syscall.SIGTERM)
	d.launch()
	d.run(t, "after", "exit 1")
	assert.Equal(t, "after: failed, exit 1", nextNotification(t, server).Title, "and not the earlier one again")
	s.must("Acknowledge")
	assertNextClosed(t, server, n)
	server.Crash()
	next := testbed.StartNotificationServer(t)
	assert.Equal(t, "after: failed, exit 1", nextNotification(t, next).Title, "the next server shows it")
}

// TestNotification_CanBeDisabled disables notifications on the bus (over restarts of the daemon),
// in the configuration, for an agent and for a session.
func TestNotification_CanBeDisabled(t *testing.T) {
	d := startDaemon(t)
	server := testbed.StartNotificationServer(t)
	set := func(value any) error {
		return d.call(dbusapi.ManagerPath, "org.freedesktop.DBus.Properties.Set",
			[]any{dbusapi.ManagerInterface, "Notifications", dbus.MakeVariant(value)})
	}
	on := func() bool {
		var value bool
		require.NoError(t, d.call(dbusapi.ManagerPath, "org.freedesktop.DBus.Properties.Get",
			[]any{dbusapi.ManagerInterface, "Notifications"}, &value))
		return value
	}
	assert.True(t, on())
	assertRefused(t, set("no"), dbusapi.InvalidArgs, "Notifications")
	d.run(t, "one", "exit 1")
	n := nextNotification(t, server)
	mark := d.signals.mark()
	require.NoError(t, set(false))
	assertNextClosed(t, server, n)
	d.await(t, mark, "the change of Notifications", func(signal *dbus.Signal) bool {
		return signal.Name == propertiesChanged && signal.Path == dbusapi.ManagerPath &&
			strings.Contains(bodyText(signal), "Notifications")
	})
	d.kill(syscall.SIGKILL)
	d.launch()
	assert.False(t, on())
	d.run(t, "two", "exit 1").waitState("failed")
	require.NoError(t, set(true))

	d.defineAgent(t, "quiet", "Command=sh -c 'exit 2'", "Notify=stale")
	require.NoError(t, d.createAs("quiet", "three"))
	d.create(t, "four", spec{"Command": []string{"sh", "-c", "exit 2"},
		"Labels": map[string]string{"notify": "completed waiting"}}).waitState("failed")
	(&testSession{d, t, "three"}).waitState("failed")
	d.run(t, "five", "exit 5")
	assert.Equal(t, "five: failed, exit 5", nextNotification(t, server).Title, "no notification of the others")

	d.write("config/corral/corral.conf", "[Corral]\nNotifications=no\n")
	require.NoError(t, d.manager("Reload", nil))
	assert.False(t, on())
}

// TestDunst checks that dunst, a real notification server, shows and closes notifications, on a
// display without a screen.
func TestDunst(t *testing.T) {
	d := startDaemon(t)
	d.startDunst(t)
	s := d.run(t, "shop", "exit 3")
	displayed := func(count string) func() bool {
		return func() bool { return dunstctl(t, "count", "displayed") == count }
	}
	testbed.Poll(t, "the notification is displayed", displayed("1"))
	asks := d.run(t, "asks", reportCommand("waiting", "Reason", "permission", "Message",
		"May I <remove> /tmp/x & y?")+"; exec sleep 1000")
	testbed.Poll(t, "both are displayed", displayed("2"))
	d.screenshot(t, "import", "-window", "root", "png:-")
	asks.must("Acknowledge")
	testbed.Poll(t, "one is closed", displayed("1"))
	assert.Contains(t, dunstctl(t, "history"), "May I &lt;remove&gt; /tmp/x &amp; y?")
	_ = dunstctl(t, "action", "0") // the click: Open, which fails because there is no terminal emulator here
	s.must("Acknowledge")
	testbed.Poll(t, "only the failed action is displayed", displayed("1"))
	_ = dunstctl(t, "close-all")
	testbed.Poll(t, "nothing is displayed", displayed("0"))
}

// TestDunst_SummarisesTwentyFailures checks that twenty failures are summarised in one
// notification, which names the first of them, one per line.
func TestDunst_SummarisesTwentyFailures(t *testing.T) {
	d := startDaemon(t)
	d.startDunst(t)
	for i := range 20 {
		d.run(t, fmt.Sprintf("s%02d", i), "exit 3")
	}
	log := string(testbed.WaitFile(t, filepath.Join(d.dir, "dunst.log"), func(content []byte) bool {
		return strings.Contains(string(content), "20 sessions need attention\n")
	}))
	testbed.Poll(t, "one is displayed", func() bool { return dunstctl(t, "count", "displayed") == "1" })
	_, body, _ := strings.Cut(log, "20 sessions need attention\n")
	assert.Regexp(t, `^(s[0-9][0-9]: failed, exit 3\n){8}and 12 more\n`, body)
	d.screenshot(t, "import", "-window", "root", "png:-")
}

// TestNotificationOpen_ReportsATerminalThatFails checks that the failure names the command that
// shows its cause.
func TestNotificationOpen_ReportsATerminalThatFails(t *testing.T) {
	d := startDaemon(t, "Terminal=/bin/false")
	testbed.Systemctl(t, "set-environment", "DISPLAY=:99")
	t.Cleanup(func() { _ = exec.Command("systemctl", "--user", "unset-environment", "DISPLAY").Run() })
	server := testbed.StartNotificationServer(t, "actions")
	s := d.run(t, "shop", "exit 3")
	n := nextNotification(t, server)
	for _, action := range []string{"default", "log"} {
		server.Emit(t, "ActionInvoked", n.ID, action)
		failure := nextNotification(t, server)
		assert.Equal(t, "shop: action failed", failure.Title)
		assert.Regexp(t, `^cannot open a terminal window: .*; see: journalctl --user -u corral-window-shop-`, failure.Body)
	}
	assert.Equal(t, "failed", s.properties().text("Attention"), "the failure is not acknowledged")
}

func dunstctl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("dunstctl", args...).Output()
	require.NoError(t, err, args)
	return strings.TrimSpace(string(out))
}

// startDunst starts a display without a screen and dunst on it, until the test ends.
func (d *corrald) startDunst(t *testing.T) {
	t.Helper()
	x := exec.Command("Xvfb", "-displayfd", "1", "-screen", "0", "640x360x24", "-nolisten", "tcp")
	number, err := x.StdoutPipe()
	require.NoError(t, err)
	t.Cleanup(func() { stopProcess(x) })
	require.NoError(t, x.Start())
	line, err := bufio.NewReader(number).ReadString('\n')
	require.NoError(t, err)
	t.Setenv("DISPLAY", ":"+strings.TrimSpace(line))
	d.write("dunstrc",
		"[global]\nfont = DejaVu Sans 10\nmarkup = full\nformat = \"<b>%s</b>\\n%b\"\n"+
			"[log]\nsummary = \"*\"\nscript = "+filepath.Join(d.dir, "dunst-log")+"\n")
	script := "#!/bin/sh\nprintf '%s\\n%s\\n' \"$DUNST_SUMMARY\" \"$DUNST_BODY\" >>" +
		filepath.Join(d.dir, "dunst.log") + "\n"
	require.NoError(t, os.WriteFile(filepath.Join(d.dir, "dunst-log"), []byte(script), 0o700))
	dunst := exec.Command("dunst", "-conf", filepath.Join(d.dir, "dunstrc"))
	t.Cleanup(func() { stopProcess(dunst) })
	require.NoError(t, dunst.Start())
	d.waitNotificationServer(t)
}

func stopProcess(c *exec.Cmd) {
	if c.Process != nil {
		_ = c.Process.Signal(syscall.SIGTERM)
		_ = c.Wait()
	}
}

// TestNotification_FileOmitsMessages checks that the file of known notifications contains no text
// of an agent.
func TestNotification_FileOmitsMessages(t *testing.T) {
	d := startDaemon(t)
	server := testbed.StartNotificationServer(t)
	d.run(t, "asks", reportCommand("waiting", "Reason", "question", "Message", "the password?")+"; exec sleep 1000")
	nextNotification(t, server)
	d.kill(syscall.SIGTERM)
	content, err := os.ReadFile(filepath.Join(d.dir, "state/corral/notifications.json"))
	require.NoError(t, err)
	assert.True(t, json.Valid(content))
	assert.Contains(t, string(content), "asks")
	assert.NotContains(t, string(content), "password")
	d.launch()
}

// TestNotification_IsPublishedUntilSomebodyIsNotified checks the record of a session about its
// notification: what another machine has shown is recorded across a restart, and not shown on the
// desktop of this machine later.
func TestNotification_IsPublishedUntilSomebodyIsNotified(t *testing.T) {
	d := startDaemon(t)
	waitFor := func(s *testSession, value string) properties {
		return s.wait("its notification is "+value, func(p properties) bool { return p.text("Notification") == value })
	}
	far := d.run(t, "far", "exit 3")
	p := waitFor(far, "pending")
	since := p["AttentionTimestamp"].Value().(uint64)
	far.must("ConfirmNotification", since-1)
	far.must("ConfirmNotification", since)
	waitFor(far, "shown")
	near := d.run(t, "near", "exit 4")
	waitFor(near, "pending")
	d.kill(syscall.SIGKILL)
	d.launch()
	waitFor(far, "shown")
	waitFor(near, "pending")
	server := testbed.StartNotificationServer(t)
	assert.Equal(t, "near: failed, exit 4", nextNotification(t, server).Title)
	waitFor(near, "shown")
	far.must("Acknowledge")
	waitFor(far, "")
	far.must("Start")
	assert.Equal(t, "far: failed, exit 3", nextNotification(t, server).Title, "a new request")
	waitFor(far, "shown")
	server.Crash()
	next := testbed.StartNotificationServer(t)
	titles := []string{nextNotification(t, next).Title, nextNotification(t, next).Title}
	assert.ElementsMatch(t, []string{"near: failed, exit 4", "far: failed, exit 3"}, titles,
		"the next server of the same desktop shows them again")
	d.create(t, "quiet", spec{"Command": []string{"sh", "-c", "exit 2"}, "Labels": map[string]string{"notify": "no"}})
	waitFor((&testSession{d, t, "quiet"}), "")
}
