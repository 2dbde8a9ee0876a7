package notify

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/bus"
	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/testbed"
)

// fakeSessions records what notices do with sessions.
type fakeSessions struct {
	actions chan string
	err     atomic.Pointer[error] // returned by actions; nil for none
}

func (s *fakeSessions) record(what string, args ...any) error {
	s.actions <- fmt.Sprint(append([]any{what}, args...)...)
	if err := s.err.Load(); err != nil {
		return *err
	}
	return nil
}

// fail makes all further actions fail.
func (s *fakeSessions) fail(err error) { s.err.Store(&err) }

func (s *fakeSessions) Resume(_ context.Context, id string) error  { return s.record("resume ", id) }
func (s *fakeSessions) Restart(_ context.Context, id string) error { return s.record("restart ", id) }
func (s *fakeSessions) AnswerPermission(_ context.Context, id string, deny bool, since time.Time) error {
	return s.record("answer ", id, fmt.Sprintf(" deny=%v since %d", deny, since.UnixMicro()))
}

func (s *fakeSessions) Acknowledge(_ context.Context, id string) error {
	return s.record("acknowledge ", id)
}
func (s *fakeSessions) AcknowledgeState(_ context.Context, id string) error {
	return s.record("acknowledge the state of ", id)
}
func (s *fakeSessions) Reply(_ context.Context, id, text string) error {
	return s.record("reply ", id, " ", text)
}

// testNotifier is a Notifier with the results of its actions.
type testNotifier struct {
	*Notifier
	*fakeSessions
	t      *testing.T
	file   string
	errors chan error

	hooks    *fakeHooks
	messages chan string
	changes  []func(*Settings)

	published chan map[string]Notification
	confirmed chan string
}

func newTestNotifier(t *testing.T, change ...func(*Settings)) *testNotifier {
	t.Helper()
	s := &testNotifier{
		fakeSessions: &fakeSessions{actions: make(chan string, 64)}, t: t,
		file: filepath.Join(t.TempDir(), "notifications.json"), errors: make(chan error, 64),
		hooks: &fakeHooks{}, messages: make(chan string, 64), changes: change,
		published: make(chan map[string]Notification, 8192), confirmed: make(chan string, 64),
	}
	s.restart()
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// restart starts a Notifier with the saved state, after closing the one before.
func (s *testNotifier) restart(published ...*Session) {
	s.t.Helper()
	if s.Notifier != nil {
		require.NoError(s.t, s.Close())
	}
	s.Notifier = New(Options{
		Address: os.Getenv("DBUS_SESSION_BUS_ADDRESS"), File: s.file, Settings: settings(s.changes...),
		Sessions: func() Sessions { return s.fakeSessions }, IsWatched: func(context.Context, string) bool { return false },
		OpenTerminal: func(_ context.Context, args ...string) error { return s.record("corralctl ", args) },
		Announce:     func(bool) {}, LogError: func(err error) { s.errors <- err },
		ShowMessage: func(_ context.Context, id, text string) { s.messages <- id + " <- " + text },
		Hooks:       s.hooks.options(),
		Publish:     func(changed map[string]Notification) { s.published <- changed },
		Confirm: func(_ context.Context, id string, since time.Time) {
			s.confirmed <- fmt.Sprint(id, " ", since.UnixMicro())
		},
	})
	for _, n := range published {
		s.publish(n)
	}
	s.Begin()
}

func (s *testNotifier) publish(n *Session) {
	s.Update([]Change{{ID: n.ID, Session: n}})
}

func (s *testNotifier) nextShown(server *testbed.NotificationServer) testbed.Notification {
	s.t.Helper()
	return testbed.Receive(s.t, server.Shown, "a notification")
}

func now() time.Time { return time.Now().Add(-time.Second) }

// A hanging server does not block the Notifier. Requests that end meanwhile are not shown later,
// and the next server is used once the hanging one has left the bus.
func TestNotificationServer_HangingDelaysNothingElse(t *testing.T) {
	s := newTestNotifier(t)
	server := testbed.StartNotificationServer(t)
	hanging, release := make(chan struct{}, 1), make(chan struct{})
	server.OnNotify(func(testbed.Notification) *dbus.Error {
		hanging <- struct{}{}
		<-release
		return nil
	})
	s.publish(failedSession("shop", now()))
	testbed.Receive(t, hanging, "the call")
	for i := range 3000 { // more than the length of any queue
		s.publish(askingSession(fmt.Sprint("s", i%1000), "question", "x", now()))
	}
	s.publish(askingSession("shop", "", "", now()))
	require.NoError(t, s.SetEnabled(false))
	require.NoError(t, s.SetEnabled(true))
	s.publish(failedSession("late", now()))
	server.Crash()
	next := testbed.StartNotificationServer(t)
	n := s.nextShown(next)
	assert.Equal(t, "late: failed, exit 3", n.Title)
	close(release)
	s.publish(failedSession("later", now()))
	assert.Equal(t, "later: failed, exit 3", s.nextShown(next).Title)
}

// A reply that comes late is valid: the Notifier closes the notice if it is obsolete by then.
func TestNotificationServer_LateReplyIsUsed(t *testing.T) {
	s := newTestNotifier(t)
	server := testbed.StartNotificationServer(t)
	called, release := make(chan struct{}, 1), make(chan struct{})
	server.OnNotify(func(testbed.Notification) *dbus.Error {
		called <- struct{}{}
		<-release
		return nil
	})
	s.publish(failedSession("shop", now()))
	testbed.Receive(t, called, "the call")
	s.publish(askingSession("shop", "", "", now()))
	close(release)
	n := s.nextShown(server)
	assert.Equal(t, n.ID, testbed.Receive(t, server.Closed, "that it is closed"))
}

// A server may send signals about a notification before the reply with its id, and report an action
// after the notification is closed.
func TestNotificationServer_MaySendSignalsBeforeItsReply(t *testing.T) {
	s := newTestNotifier(t)
	server := testbed.StartNotificationServer(t, "actions", "inline-reply")
	server.OnNotify(func(n testbed.Notification) *dbus.Error {
		server.Emit(t, "NotificationClosed", n.ID, uint32(2))
		server.Emit(t, "ActionInvoked", n.ID, "restart")
		server.Emit(t, "ActionInvoked", n.ID, 7)
		server.Emit(t, "ActionInvoked", "restart")
		server.Emit(t, "ActionInvoked", n.ID+100, "restart")
		return nil
	})
	s.publish(failedSession("shop", now()))
	n := s.nextShown(server)
	assert.ElementsMatch(t, []string{"acknowledge the state of shop", "restart shop"},
		[]string{testbed.Receive(t, s.actions, "that a person has closed it"), testbed.Receive(t, s.actions, "the action")})
	server.OnNotify(nil)

	forge(t, n.ID)
	for action, did := range map[string]string{
		"resume": "resume shop", "default": "corralctl [attach shop]", "open": "corralctl [attach shop]",
	} {
		server.Emit(t, "ActionInvoked", n.ID, action)
		assert.Equal(t, did, testbed.Receive(t, s.actions, "the action"))
	}
	server.Emit(t, "ActionInvoked", n.ID, "log")
	assert.Equal(t, "corralctl [logs shop]", testbed.Receive(t, s.actions, "the action"))
	assert.Equal(t, "acknowledge shop", testbed.Receive(t, s.actions, "the acknowledgement"))
	server.Emit(t, "NotificationReplied", n.ID, "yes")
	assert.Equal(t, "reply shop yes", testbed.Receive(t, s.actions, "the answer"))
	assert.Empty(t, server.Shown, "a dismissed notice is not shown again")
	s.publish(failedSession("other", now()))
	assert.Equal(t, "other: failed, exit 3", s.nextShown(server).Title)
}

// If the answer fails, a notice shows the error.
func TestAct_AnswersThePermissionOfItsNotice(t *testing.T) {
	s := newTestNotifier(t, func(s *Settings) {
		s.Agents = map[string]config.Agent{"claude": {ApproveKeys: []string{"1"}, DenyKeys: []string{"Escape"}}}
	})
	s.fail(errors.New(`session "shop" does not wait for a permission: its agent is working`))
	server := testbed.StartNotificationServer(t, "actions")
	asked := now()
	s.publish(askingSession("shop", "permission", "Run make?", asked))
	n := s.nextShown(server)
	approve, deny := fmt.Sprint("approve@", asked.UnixMicro()), fmt.Sprint("deny@", asked.UnixMicro())
	assert.Equal(t, []string{"default", "Open", "open", "Open", approve, "Approve", deny, "Deny", "log", "Log"}, n.Actions)
	server.Emit(t, "ActionInvoked", n.ID, deny)
	assert.Equal(t, fmt.Sprintf("answer shop deny=true since %d", asked.UnixMicro()),
		testbed.Receive(t, s.actions, "the answer"))
	assert.Equal(t, "shop: action failed", s.nextShown(server).Title)
	server.Emit(t, "ActionInvoked", n.ID, approve)
	assert.Equal(t, fmt.Sprintf("answer shop deny=false since %d", asked.UnixMicro()),
		testbed.Receive(t, s.actions, "the answer"))
	failure := s.nextShown(server)
	assert.Equal(t, "shop: action failed", failure.Title)
	assert.Contains(t, failure.Body, "its agent is working")
}

// forge sends every signal of a notification server about this notification, from another
// connection, to every connection of this process. Signals that the caller sends afterwards are
// received after the forged ones.
func forge(t *testing.T, id uint32) {
	t.Helper()
	other := testbed.Bus(t)
	var names []string
	require.NoError(t, other.BusObject().Call(bus.Name+".ListNames", 0).Store(&names))
	for _, to := range names {
		var pid uint32
		err := other.BusObject().Call(bus.Name+".GetConnectionUnixProcessID", 0, to).Store(&pid)
		if err != nil || int(pid) != os.Getpid() || to[0] != ':' || to == other.Names()[0] {
			continue
		}
		for range 2 {
			testbed.SendSignal(t, other, to, serverPath, serverName+".ActionInvoked", id, "resume")
			testbed.SendSignal(t, other, to, serverPath, serverName+".NotificationReplied", id, "yes")
			testbed.SendSignal(t, other, to, serverPath, serverName+".NotificationClosed", id, uint32(2))
			testbed.SendSignal(t, other, to, "/org/freedesktop/DBus", bus.Name+".NameOwnerChanged", serverName, "",
				other.Names()[0])
		}
	}
}

// Clicks, replies and dismissals are accepted from the server alone, and changes of the server from
// the bus alone.
func TestSignals_FromOtherClientsAreDropped(t *testing.T) {
	s := newTestNotifier(t)
	server := testbed.StartNotificationServer(t, "actions", "inline-reply")
	s.publish(failedSession("shop", now()))
	n := s.nextShown(server)
	forge(t, n.ID)
	server.Emit(t, "ActionInvoked", n.ID, "restart")
	assert.Equal(t, "restart shop", testbed.Receive(t, s.actions, "the action"))
	assert.Empty(t, s.actions)
	s.publish(askingSession("shop", "", "", now()))
	assert.Equal(t, n.ID, testbed.Receive(t, server.Closed, "that it is closed"),
		"the forged signals have changed neither the notice nor the server")
	assert.Empty(t, server.Shown)
}

// KDE's server refuses notifications that follow each other too fast. A refused one is tried again
// and given up only after a while.
func TestNotificationServer_RefusalIsRetried(t *testing.T) {
	s := newTestNotifier(t)
	server := testbed.StartNotificationServer(t)
	var calls atomic.Int32
	server.OnNotify(func(n testbed.Notification) *dbus.Error {
		if n.Title == "shop: failed, exit 3" && calls.Add(1) < 2 {
			return dbus.NewError(serverName+".Error.ExcessNotificationGeneration", []any{"too much"})
		}
		return nil
	})
	s.publish(failedSession("shop", now()))
	s.publish(failedSession("forum", now()))
	assert.Equal(t, "forum: failed, exit 3", s.nextShown(server).Title, "the other one is not delayed")
	assert.Equal(t, "shop: failed, exit 3", s.nextShown(server).Title)
	assert.Empty(t, s.errors)
}

// The next server shows the notices that were on the screen of the last one, but not those that a
// person has closed.
func TestNotificationServer_RestartedShowsOpenNoticesAgain(t *testing.T) {
	s := newTestNotifier(t)
	server := testbed.StartNotificationServer(t)
	s.publish(failedSession("shop", now()))
	s.nextShown(server)
	s.publish(failedSession("read", now()))
	read := s.nextShown(server).ID
	server.Emit(t, "ActionInvoked", read, "resume") // handled once its id is known
	assert.Equal(t, "resume read", testbed.Receive(t, s.actions, "the action"))
	server.Dismiss(t, read, 2)
	assert.Equal(t, "acknowledge the state of read", testbed.Receive(t, s.actions, "that a person has closed it"))
	server.Crash()
	next := testbed.StartNotificationServer(t)
	assert.Equal(t, "shop: failed, exit 3", s.nextShown(next).Title)
	s.publish(failedSession("more", now()))
	assert.Equal(t, "more: failed, exit 3", s.nextShown(next).Title)
}

// Closing a notice acknowledges the state of its sessions; an expired notice does not.
func TestNotice_ClosedByAPersonIsAcknowledged(t *testing.T) {
	s := newTestNotifier(t)
	server := testbed.StartNotificationServer(t)
	s.publish(failedSession("expires", now()))
	server.Dismiss(t, s.nextShown(server).ID, 1)
	s.publish(failedSession("dismissed", now()))
	server.Dismiss(t, s.nextShown(server).ID, 2)
	assert.Equal(t, "acknowledge the state of dismissed", testbed.Receive(t, s.actions, "that a person has closed it"))
}

// A restarted daemon adopts the notices that are on the screen. GNOME's server has removed them
// with the old daemon, so they are sent again.
func TestNotifier_RestartedAdoptsShownNotices(t *testing.T) {
	for name, again := range map[string]bool{"dunst": false, "gnome-shell": true} {
		t.Run(name, func(t *testing.T) {
			s := newTestNotifier(t)
			server := testbed.StartNamedNotificationServer(t, name)
			shop := failedSession("shop", now())
			s.publish(shop)
			n := s.nextShown(server)
			s.restart(shop)
			if again {
				n = s.nextShown(server)
			}
			s.publish(failedSession("new", now()))
			assert.Equal(t, "new: failed, exit 3", s.nextShown(server).Title)
			s.publish(askingSession("shop", "", "", now()))
			assert.Equal(t, n.ID, testbed.Receive(t, server.Closed, "that it is closed"))
		})
	}
}

func TestAct_FailureIsShownAsANotice(t *testing.T) {
	s := newTestNotifier(t)
	s.fail(errors.New("cannot restart \"shop\": its workspace is <gone>"))
	server := testbed.StartNotificationServer(t, "actions")
	s.publish(failedSession("shop", now()))
	server.Emit(t, "ActionInvoked", s.nextShown(server).ID, "restart")
	n := s.nextShown(server)
	assert.Equal(t, "shop: action failed", n.Title)
	assert.Equal(t, "cannot restart \"shop\": its workspace is <gone>", n.Body,
		"unescaped, because this server does not interpret markup")
	server.Dismiss(t, n.ID, 2)
}

func TestResumeAll_SkipsResumedAndRemovedSessions(t *testing.T) {
	s := newTestNotifier(t)
	server := testbed.StartNotificationServer(t, "actions")
	suspended := map[string]*Session{}
	for _, id := range []string{"a", "b", "c", "d"} {
		suspended[id] = &Session{
			ID: id, State: "suspended", Reason: "the machine went down", Interrupted: true, StateChanged: now(),
		}
		s.publish(suspended[id])
	}
	s.LoggedIn()
	n := s.nextShown(server)
	require.Equal(t, "4 sessions were suspended", n.Title)
	s.publish(modified(suspended["a"], func(n *Session) { n.State, n.Interrupted = "running", false }))
	s.Update([]Change{{ID: "c"}})
	s.publish(failedSession("shop", now()))
	assert.Equal(t, "shop: failed, exit 3", s.nextShown(server).Title, "the changes before were handled")
	server.Emit(t, "ActionInvoked", n.ID, "resume-all")
	assert.Equal(t, "resume b", testbed.Receive(t, s.actions, "the action"))
	assert.Equal(t, "resume d", testbed.Receive(t, s.actions, "the action"))
	server.Emit(t, "ActionInvoked", n.ID, "show-all")
	assert.Equal(t, "corralctl [top]", testbed.Receive(t, s.actions, "no other session was resumed"))
}

func TestSummary_CoversAThousandFailuresInOneNotice(t *testing.T) {
	s := newTestNotifier(t)
	server := testbed.StartNotificationServer(t, "actions")
	at := now()
	for i := range 1000 {
		s.publish(failedSession(fmt.Sprintf("s%03d", i), at))
	}
	for n := s.nextShown(server); n.Title != "1000 sessions need attention"; n = s.nextShown(server) {
		assert.Less(t, len(server.Live()), 2*burstLimit)
	}
	testbed.Poll(t, "one is left", func() bool { return len(server.Live()) == 1 })
	assert.Less(t, int(server.Live()[0]), 2*burstLimit)
	server.Emit(t, "ActionInvoked", server.Live()[0], "default")
	assert.Equal(t, "corralctl [top]", testbed.Receive(t, s.actions, "the action"))
}

// The action of a click on the notice has a button as well, unless the server shows a button for
// the click itself.
func TestActionsFor_FitTheServer(t *testing.T) {
	actions := []Action{{Open, "Open"}, {ShowLog, "Log"}, {Reply, "Reply"}}
	for _, c := range []struct {
		server       string
		capabilities []string
		want         []string
	}{
		{"gnome-shell", []string{"body", "actions"}, []string{"default", "Open", "open", "Open", "log", "Log"}},
		{"Plasma", []string{"actions", "inline-reply"},
			[]string{"default", "Open", "open", "Open", "log", "Log", "inline-reply", "Reply"}},
		{"dunst", []string{"actions"}, []string{"default", "Open", "log", "Log"}},
		{"mako", []string{"actions"}, []string{"default", "Open", "log", "Log"}},
		{"Xfce Notify Daemon", []string{"actions"}, []string{"default", "Open", "log", "Log"}},
		{"notify-osd", []string{"body"}, []string{}},
	} {
		assert.Equal(t, c.want, actionsFor(actions, c.server, c.capabilities), c.server)
	}
}

// The body separates lines for servers that join them, and is escaped for those that interpret
// markup.
func TestBodyFor_FitsTheServer(t *testing.T) {
	s := newTestNotifier(t)
	server := testbed.StartNamedNotificationServer(t, "gnome-shell", "body-markup")
	s.publish(askingSession("shop", "question", "a & b?", now()))
	assert.Equal(t, "a &amp; b? · /srv/shop", s.nextShown(server).Body)
	for i := range 20 {
		s.publish(failedSession(fmt.Sprintf("b%02d", i), now()))
	}
	n := s.nextShown(server)
	for n.Title != "21 sessions need attention" { // the first ones may have notices of their own
		n = s.nextShown(server)
	}
	assert.Contains(t, n.Body, "b01: failed, exit 3 · b02: failed, exit 3 · ")
	assert.True(t, strings.HasSuffix(n.Body, " · and 13 more"), n.Body)
	assert.Equal(t, "a & b\nc", bodyFor("a & b\nc", "Plasma", nil))
}

func TestNotifier_IgnoresADamagedStateFile(t *testing.T) {
	s := newTestNotifier(t)
	require.NoError(t, s.Close())
	s.Notifier = nil
	require.NoError(t, os.WriteFile(s.file, []byte(`{"entries":{"x":null},"items":`), 0o600))
	s.restart(failedSession("shop", now()))
	require.ErrorContains(t, testbed.Receive(t, s.errors, "the error"), "notifications.json")
	assert.Equal(t, "shop: failed, exit 3", s.nextShown(testbed.StartNotificationServer(t)).Title)
}

// Otherwise the records would grow with every session for as long as the server lives.
func TestScreenState_ForgetsOldSendTimes(t *testing.T) {
	s := newScreen(savedState{})
	now := time.Now()
	for i := range 1000 {
		s.recordSent(fmt.Sprint("session ", i), now.Add(time.Duration(i)*minInterval/4))
	}
	assert.Len(t, s.lastSent, 4)
	at, needed := s.sendTime(Notice{Key: "session 999", Token: "x"})
	assert.True(t, needed)
	assert.Equal(t, now.Add(999*minInterval/4).Add(minInterval), at)
}

// confirmation returns the call of Confirm for a session.
func (s *testNotifier) confirmation(id string, since time.Time) string {
	return fmt.Sprint(id, " ", since.UnixMicro())
}
