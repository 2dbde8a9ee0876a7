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

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/testbed"
	"github.com/corrald/corral/supervisor"
)

// sessions are those that a person does something with.
type sessions struct {
	did  chan string
	fail error
}

func (s *sessions) do(what string, args ...any) error {
	s.did <- fmt.Sprint(append([]any{what}, args...)...)
	return s.fail
}
func (s *sessions) Resume(_ context.Context, id string) error  { return s.do("resume ", id) }
func (s *sessions) Restart(_ context.Context, id string) error { return s.do("restart ", id) }
func (s *sessions) AnswerPermission(_ context.Context, id string, answer supervisor.Answer) error {
	return s.do("answer ", id, fmt.Sprintf(" deny=%v since %d", answer.Deny, answer.Since.UnixMicro()))
}

func (s *sessions) Acknowledge(_ context.Context, id string) error { return s.do("acknowledge ", id) }
func (s *sessions) AcknowledgeState(_ context.Context, id string) error {
	return s.do("acknowledge the state of ", id)
}
func (s *sessions) Send(_ context.Context, id, text string, how supervisor.Input) error {
	return s.do("send ", id, " ", text, " ", how.Enter, how.IfWaiting)
}

// stage is a Notifier and what it does.
type stage struct {
	*Notifier
	*sessions
	t    *testing.T
	file string
	said chan error

	hooks    *hooks
	messages chan string
	change   []func(*Settings)
}

func newStage(t *testing.T, change ...func(*Settings)) *stage {
	t.Helper()
	s := &stage{
		sessions: &sessions{did: make(chan string, 64)}, t: t, file: filepath.Join(t.TempDir(), "notifications.json"), said: make(chan error, 64),
		hooks: &hooks{}, messages: make(chan string, 64), change: change,
	}
	s.launch()
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// launch starts a Notifier; where there was one, in its place.
func (s *stage) launch(published ...*supervisor.Snapshot) {
	s.t.Helper()
	if s.Notifier != nil {
		require.NoError(s.t, s.Close())
	}
	s.Notifier = New(Options{
		Address: os.Getenv("DBUS_SESSION_BUS_ADDRESS"), File: s.file, Settings: settings(s.change...),
		Sessions: func() Sessions { return s.sessions }, IsWatched: func(context.Context, string) bool { return false },
		OpenTerminal: func(_ context.Context, args ...string) error { return s.do("corralctl ", args) },
		Announce:     func(bool) {}, LogError: func(err error) { s.said <- err },
		ShowMessage: func(_ context.Context, id, text string) { s.messages <- id + " <- " + text },
		Hooks:       s.hooks.options(),
	})
	for _, n := range published {
		s.publish(n)
	}
	s.Begin()
}

func (s *stage) publish(n *supervisor.Snapshot) { s.Publish([]supervisor.Change{{New: n}}, nil) }

func (s *stage) shown(server *testbed.NotificationServer) testbed.Notification {
	s.t.Helper()
	return testbed.Receive(s.t, server.Shown, "a notification")
}

func now() time.Time { return time.Now().Add(-time.Second) }

// A server that hangs holds nobody up; what has changed meanwhile is not shown any more, and the
// next server is asked.
func TestNotificationServer_HangingDelaysNothingElse(t *testing.T) {
	s := newStage(t)
	server := testbed.StartNotificationServer(t)
	hanging, release := make(chan struct{}, 1), make(chan struct{})
	server.OnNotify(func(testbed.Notification) *dbus.Error {
		hanging <- struct{}{}
		<-release
		return nil
	})
	s.publish(failed("shop", now()))
	testbed.Receive(t, hanging, "the call")
	for i := range 3000 { // more than any queue holds
		s.publish(asking(fmt.Sprint("s", i%1000), "question", "x", now()))
	}
	s.publish(asking("shop", "", "", now()))
	require.NoError(t, s.SetEnabled(false))
	require.NoError(t, s.SetEnabled(true))
	s.publish(failed("late", now()))
	server.Crash()
	next := testbed.StartNotificationServer(t)
	n := s.shown(next)
	assert.Equal(t, "late: failed, exit 3", n.Title)
	close(release)
	s.publish(failed("later", now()))
	assert.Equal(t, "later: failed, exit 3", s.shown(next).Title)
}

// An answer that comes late is still one: what it was about is closed if it does not hold any more.
func TestNotificationServer_LateReplyIsUsed(t *testing.T) {
	s := newStage(t)
	server := testbed.StartNotificationServer(t)
	called, release := make(chan struct{}, 1), make(chan struct{})
	server.OnNotify(func(testbed.Notification) *dbus.Error {
		called <- struct{}{}
		<-release
		return nil
	})
	s.publish(failed("shop", now()))
	testbed.Receive(t, called, "the call")
	s.publish(asking("shop", "", "", now()))
	close(release)
	n := s.shown(server)
	assert.Equal(t, n.ID, testbed.Receive(t, server.Closed, "that it is closed"))
}

// Signals about a notification may come before the answer that tells its number, and an action
// after the notification is closed.
func TestNotificationServer_MaySendSignalsBeforeItsReply(t *testing.T) {
	s := newStage(t)
	server := testbed.StartNotificationServer(t, "actions", "inline-reply")
	server.OnNotify(func(n testbed.Notification) *dbus.Error {
		server.Emit(t, "NotificationClosed", n.ID, uint32(2))
		server.Emit(t, "ActionInvoked", n.ID, "restart")
		server.Emit(t, "ActionInvoked", n.ID, 7)
		server.Emit(t, "ActionInvoked", "restart")
		server.Emit(t, "ActionInvoked", n.ID+100, "restart")
		return nil
	})
	s.publish(failed("shop", now()))
	n := s.shown(server)
	assert.ElementsMatch(t, []string{"acknowledge the state of shop", "restart shop"},
		[]string{testbed.Receive(t, s.did, "that a person has closed it"), testbed.Receive(t, s.did, "the action")})
	server.OnNotify(nil)

	forge(t, n.ID)
	for action, did := range map[string]string{"resume": "resume shop", "default": "corralctl [attach shop]", "open": "corralctl [attach shop]"} {
		server.Emit(t, "ActionInvoked", n.ID, action)
		assert.Equal(t, did, testbed.Receive(t, s.did, "the action"))
	}
	server.Emit(t, "ActionInvoked", n.ID, "log")
	assert.Equal(t, "corralctl [logs shop]", testbed.Receive(t, s.did, "the action"))
	assert.Equal(t, "acknowledge shop", testbed.Receive(t, s.did, "that it was seen"))
	server.Emit(t, "NotificationReplied", n.ID, "yes")
	assert.Equal(t, "send shop yes true true", testbed.Receive(t, s.did, "the answer"))
	assert.Empty(t, server.Shown, "what was closed by hand does not come back")
	s.publish(failed("other", now()))
	assert.Equal(t, "other: failed, exit 3", s.shown(server).Title)
}

// TestAct_AnswersThePermissionOfItsNotice, and says why it was not done.
func TestAct_AnswersThePermissionOfItsNotice(t *testing.T) {
	s := newStage(t, func(s *Settings) {
		s.Agents = map[string]config.Agent{"claude": {ApproveKeys: []string{"1"}, DenyKeys: []string{"Escape"}}}
	})
	s.fail = errors.New(`session "shop" does not wait for a permission: its agent is working`)
	server := testbed.StartNotificationServer(t, "actions")
	asked := now()
	s.publish(asking("shop", "permission", "Run make?", asked))
	n := s.shown(server)
	approve, deny := fmt.Sprint("approve@", asked.UnixMicro()), fmt.Sprint("deny@", asked.UnixMicro())
	assert.Equal(t, []string{"default", "Open", "open", "Open", approve, "Approve", deny, "Deny", "log", "Log"}, n.Actions)
	server.Emit(t, "ActionInvoked", n.ID, deny)
	assert.Equal(t, fmt.Sprintf("answer shop deny=true since %d", asked.UnixMicro()), testbed.Receive(t, s.did, "the answer"))
	assert.Equal(t, "shop: action failed", s.shown(server).Title)
	server.Emit(t, "ActionInvoked", n.ID, approve)
	assert.Equal(t, fmt.Sprintf("answer shop deny=false since %d", asked.UnixMicro()), testbed.Receive(t, s.did, "the answer"))
	failure := s.shown(server)
	assert.Equal(t, "shop: action failed", failure.Title)
	assert.Contains(t, failure.Body, "its agent is working")
}

// forge sends everything that a notification server says about a notification, from another
// connection, to every connection of this process. What is heard afterwards comes after that.
func forge(t *testing.T, id uint32) {
	t.Helper()
	stranger := testbed.Bus(t)
	var names []string
	require.NoError(t, stranger.BusObject().Call(busName+".ListNames", 0).Store(&names))
	for _, to := range names {
		var pid uint32
		err := stranger.BusObject().Call(busName+".GetConnectionUnixProcessID", 0, to).Store(&pid)
		if err != nil || int(pid) != os.Getpid() || to[0] != ':' || to == stranger.Names()[0] {
			continue
		}
		for range 2 {
			testbed.SendSignal(t, stranger, to, serverPath, serverName+".ActionInvoked", id, "resume")
			testbed.SendSignal(t, stranger, to, serverPath, serverName+".NotificationReplied", id, "yes")
			testbed.SendSignal(t, stranger, to, serverPath, serverName+".NotificationClosed", id, uint32(2))
			testbed.SendSignal(t, stranger, to, "/org/freedesktop/DBus", busName+".NameOwnerChanged", serverName, "", stranger.Names()[0])
		}
	}
}

// TestSignals_FromOtherClientsAreDropped: a person's click, an answer and a dismissal come from the
// server alone, and the bus alone reports another server.
func TestSignals_FromOtherClientsAreDropped(t *testing.T) {
	s := newStage(t)
	server := testbed.StartNotificationServer(t, "actions", "inline-reply")
	s.publish(failed("shop", now()))
	n := s.shown(server)
	forge(t, n.ID)
	server.Emit(t, "ActionInvoked", n.ID, "restart")
	assert.Equal(t, "restart shop", testbed.Receive(t, s.did, "the action"))
	assert.Empty(t, s.did)
	s.publish(asking("shop", "", "", now()))
	assert.Equal(t, n.ID, testbed.Receive(t, server.Closed, "that it is closed"), "it is still there, and the server still the same")
	assert.Empty(t, server.Shown)
}

// KDE's server refuses what comes too often; what is refused is tried again, and given up only
// after a while.
func TestNotificationServer_RefusalIsRetried(t *testing.T) {
	s := newStage(t)
	server := testbed.StartNotificationServer(t)
	var calls atomic.Int32
	server.OnNotify(func(n testbed.Notification) *dbus.Error {
		if n.Title == "shop: failed, exit 3" && calls.Add(1) < 2 {
			return dbus.NewError(serverName+".Error.ExcessNotificationGeneration", []any{"too much"})
		}
		return nil
	})
	s.publish(failed("shop", now()))
	s.publish(failed("forum", now()))
	assert.Equal(t, "forum: failed, exit 3", s.shown(server).Title, "the other one is not held up")
	assert.Equal(t, "shop: failed, exit 3", s.shown(server).Title)
	assert.Empty(t, s.said)
}

// What was on the screen of a server that is gone is shown by the next one; what a person has
// closed is not.
func TestNotificationServer_RestartedShowsOpenNoticesAgain(t *testing.T) {
	s := newStage(t)
	server := testbed.StartNotificationServer(t)
	s.publish(failed("shop", now()))
	s.shown(server)
	s.publish(failed("read", now()))
	read := s.shown(server).ID
	server.Emit(t, "ActionInvoked", read, "resume") // which is done once the number is known that it was given
	assert.Equal(t, "resume read", testbed.Receive(t, s.did, "the action"))
	server.Dismiss(t, read, 2)
	assert.Equal(t, "acknowledge the state of read", testbed.Receive(t, s.did, "that a person has closed it"))
	server.Crash()
	next := testbed.StartNotificationServer(t)
	assert.Equal(t, "shop: failed, exit 3", s.shown(next).Title)
	s.publish(failed("more", now()))
	assert.Equal(t, "more: failed, exit 3", s.shown(next).Title)
}

// TestNotice_ClosedByAPersonIsAcknowledged, each session of a summary; one that has expired was
// not.
func TestNotice_ClosedByAPersonIsAcknowledged(t *testing.T) {
	s := newStage(t)
	server := testbed.StartNotificationServer(t)
	s.publish(failed("expires", now()))
	server.Dismiss(t, s.shown(server).ID, 1)
	s.publish(failed("dismissed", now()))
	server.Dismiss(t, s.shown(server).ID, 2)
	assert.Equal(t, "acknowledge the state of dismissed", testbed.Receive(t, s.did, "that a person has closed it"))
}

// A daemon goes on with what the one before it has on the screen. GNOME's server has taken that
// away.
func TestNotifier_RestartedAdoptsShownNotices(t *testing.T) {
	for name, again := range map[string]bool{"dunst": false, "gnome-shell": true} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			server := testbed.StartNamedNotificationServer(t, name)
			shop := failed("shop", now())
			s.publish(shop)
			n := s.shown(server)
			s.launch(shop)
			if again {
				n = s.shown(server)
			}
			s.publish(failed("new", now()))
			assert.Equal(t, "new: failed, exit 3", s.shown(server).Title)
			s.publish(asking("shop", "", "", now()))
			assert.Equal(t, n.ID, testbed.Receive(t, server.Closed, "that it is closed"))
		})
	}
}

// What a person has asked for and could not be done is told where it was asked for.
func TestAct_FailureIsShownAsANotice(t *testing.T) {
	s := newStage(t)
	s.fail = errors.New("cannot restart \"shop\": its workspace is <gone>")
	server := testbed.StartNotificationServer(t, "actions")
	s.publish(failed("shop", now()))
	server.Emit(t, "ActionInvoked", s.shown(server).ID, "restart")
	n := s.shown(server)
	assert.Equal(t, "shop: action failed", n.Title)
	assert.Equal(t, "cannot restart \"shop\": its workspace is <gone>", n.Body, "as it is, for a server that reads no markup")
	server.Dismiss(t, n.ID, 2)
}

// Of the sessions that a reboot has suspended one is resumed by hand, and one is removed: the
// others are what there is to be resumed.
func TestResumeAll_SkipsResumedAndRemovedSessions(t *testing.T) {
	s := newStage(t)
	server := testbed.StartNotificationServer(t, "actions")
	suspended := map[string]*supervisor.Snapshot{}
	for _, id := range []string{"a", "b", "c", "d"} {
		suspended[id] = &supervisor.Snapshot{ID: id, State: "suspended", Reason: "the machine went down", Interrupted: true, StateChanged: now()}
		s.publish(suspended[id])
	}
	s.LoggedIn()
	n := s.shown(server)
	require.Equal(t, "4 sessions were suspended", n.Title)
	s.publish(in(suspended["a"], func(n *supervisor.Snapshot) { n.State, n.Interrupted = "running", false }))
	s.Publish([]supervisor.Change{{Old: suspended["c"]}}, nil)
	s.publish(failed("shop", now()))
	assert.Equal(t, "shop: failed, exit 3", s.shown(server).Title, "all of that was heard")
	server.Emit(t, "ActionInvoked", n.ID, "resume-all")
	assert.Equal(t, "resume b", testbed.Receive(t, s.did, "the action"))
	assert.Equal(t, "resume d", testbed.Receive(t, s.did, "the action"))
	server.Emit(t, "ActionInvoked", n.ID, "show-all")
	assert.Equal(t, "corralctl [top]", testbed.Receive(t, s.did, "nothing else before"))
}

// One summary is one notification, however fast a thousand sessions fail.
func TestSummary_CoversAThousandFailuresInOneNotice(t *testing.T) {
	s := newStage(t)
	server := testbed.StartNotificationServer(t, "actions")
	at := now()
	for i := range 1000 {
		s.publish(failed(fmt.Sprintf("s%03d", i), at))
	}
	for n := s.shown(server); n.Title != "1000 sessions need attention"; n = s.shown(server) {
		assert.Less(t, len(server.Live()), 2*maxAlone)
	}
	testbed.Poll(t, "one is left", func() bool { return len(server.Live()) == 1 })
	assert.Less(t, int(server.Live()[0]), 2*maxAlone)
	server.Emit(t, "ActionInvoked", server.Live()[0], "default")
	assert.Equal(t, "corralctl [top]", testbed.Receive(t, s.did, "the action"))
}

// What a click does has a button as well, but where there is a menu of everything, in which it
// would be twice.
func TestActionsFor_FitTheServer(t *testing.T) {
	actions := []Action{{Open, "Open"}, {ShowLog, "Log"}, {Reply, "Reply"}}
	for _, c := range []struct {
		server       string
		capabilities []string
		want         []string
	}{
		{"gnome-shell", []string{"body", "actions"}, []string{"default", "Open", "open", "Open", "log", "Log"}},
		{"Plasma", []string{"actions", "inline-reply"}, []string{"default", "Open", "open", "Open", "log", "Log", "inline-reply", "Reply"}},
		{"dunst", []string{"actions"}, []string{"default", "Open", "log", "Log"}},
		{"mako", []string{"actions"}, []string{"default", "Open", "log", "Log"}},
		{"Xfce Notify Daemon", []string{"actions"}, []string{"default", "Open", "log", "Log"}},
		{"notify-osd", []string{"body"}, []string{}},
	} {
		assert.Equal(t, c.want, actionsFor(actions, c.server, c.capabilities), c.server)
	}
}

// TestBodyFor_FitsTheServer, and escapes markup where it is interpreted.
func TestBodyFor_FitsTheServer(t *testing.T) {
	s := newStage(t)
	server := testbed.StartNamedNotificationServer(t, "gnome-shell", "body-markup")
	s.publish(asking("shop", "question", "a & b?", now()))
	assert.Equal(t, "a &amp; b? · /srv/shop", s.shown(server).Body)
	for i := range 20 {
		s.publish(failed(fmt.Sprintf("b%02d", i), now()))
	}
	n := s.shown(server)
	for n.Title != "21 sessions need attention" { // the first ones may come alone
		n = s.shown(server)
	}
	assert.Contains(t, n.Body, "b01: failed, exit 3 · b02: failed, exit 3 · ")
	assert.True(t, strings.HasSuffix(n.Body, " · and 13 more"), n.Body)
	assert.Equal(t, "a & b\nc", bodyFor("a & b\nc", "Plasma", nil))
}

// A file that is damaged costs nothing but what it remembered.
func TestNotifier_IgnoresADamagedStateFile(t *testing.T) {
	s := newStage(t)
	require.NoError(t, s.Close())
	s.Notifier = nil
	require.NoError(t, os.WriteFile(s.file, []byte(`{"entries":{"x":null},"items":`), 0o600))
	s.launch(failed("shop", now()))
	require.ErrorContains(t, testbed.Receive(t, s.said, "what is wrong"), "notifications.json")
	assert.Equal(t, "shop: failed, exit 3", s.shown(testbed.StartNotificationServer(t)).Title)
}

// TestScreenState_ForgetsOldSendTimes: sessions come and go for as long as a server lives.
func TestScreenState_ForgetsOldSendTimes(t *testing.T) {
	s := newScreen(saved{})
	now := time.Now()
	for i := range 1000 {
		s.paced(fmt.Sprint("session ", i), now.Add(time.Duration(i)*gap/4))
	}
	assert.Len(t, s.sent, 4)
	at, wanted := s.due(Notice{Key: "session 999", Token: "x"})
	assert.True(t, wanted)
	assert.Equal(t, now.Add(999*gap/4).Add(gap), at)
}
