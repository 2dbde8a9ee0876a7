package testbed

import (
	"slices"
	"sync"
	"testing"

	"github.com/godbus/dbus/v5"
)

const (
	notifications     = "org.freedesktop.Notifications"
	notificationsPath = dbus.ObjectPath("/org/freedesktop/Notifications")
)

// Notification is what a server of desktop notifications was asked to show.
type Notification struct {
	ID           uint32 // that it was given
	Replaces     uint32
	Title        string
	Body         string
	Actions      []string // keys and labels in turn
	Urgency      byte
	Icon         string
	DesktopEntry string // of the desktop, that it comes from
}

// NotificationServer is a server of desktop notifications that does what no real one does when
// asked: it hangs, crashes, refuses, and answers in the wrong order. It shows nothing.
type NotificationServer struct {
	Shown  chan Notification // each that was asked for
	Closed chan uint32       // each that was asked to be closed

	conn *dbus.Conn
	name string
	can  []string

	mu     sync.Mutex
	before func(n Notification) *dbus.Error
	next   uint32
	live   []uint32
}

// StartNotificationServer starts such a server with these capabilities, on the private bus. It is
// gone after the test, if not before.
func StartNotificationServer(t testing.TB, can ...string) *NotificationServer {
	t.Helper()
	return StartNamedNotificationServer(t, "corral-test", can...)
}

// StartNamedNotificationServer is Notifications for a server that says it is another one.
func StartNamedNotificationServer(t testing.TB, name string, can ...string) *NotificationServer {
	t.Helper()
	const many = 4096 // more than a test sends
	s := &NotificationServer{Shown: make(chan Notification, many), Closed: make(chan uint32, many), conn: Bus(t), name: name, can: can, next: 1}
	if err := s.conn.Export(notificationMethods{s}, notificationsPath, notifications); err != nil {
		t.Fatal(err)
	}
	reply, err := s.conn.RequestName(notifications, dbus.NameFlagDoNotQueue)
	if err != nil || reply != dbus.RequestNameReplyPrimaryOwner {
		t.Fatalf("cannot own %s: %v, %v", notifications, reply, err)
	}
	t.Cleanup(s.Crash)
	return s
}

// OnNotify has f called before each notification is taken: it may wait, send signals, or refuse it.
func (s *NotificationServer) OnNotify(f func(n Notification) *dbus.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = f
}

// Crash takes the server off the bus, with whatever it was asked.
func (s *NotificationServer) Crash() { _ = s.conn.Close() }

// Dismiss tells that a notification was closed, for one of the specification's reasons.
func (s *NotificationServer) Dismiss(t testing.TB, id, reason uint32) {
	t.Helper()
	s.mu.Lock()
	s.live = slices.DeleteFunc(s.live, func(l uint32) bool { return l == id })
	s.mu.Unlock()
	s.Emit(t, "NotificationClosed", id, reason)
}

// Emit sends a signal of the server's.
func (s *NotificationServer) Emit(t testing.TB, name string, args ...any) {
	t.Helper()
	if err := s.conn.Emit(notificationsPath, notifications+"."+name, args...); err != nil {
		t.Error(err)
	}
}

// Live returns the numbers of those that are shown.
func (s *NotificationServer) Live() []uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.live)
}

// notificationMethods are what is called on the bus.
type notificationMethods struct{ s *NotificationServer }

// GetCapabilities implements the specification's method, as the others do.
func (m notificationMethods) GetCapabilities() ([]string, *dbus.Error) {
	return append([]string{"body"}, m.s.can...), nil
}

// GetServerInformation tells the server's name.
func (m notificationMethods) GetServerInformation() (name, vendor, version, spec string, err *dbus.Error) {
	return m.s.name, "test", "1", "1.2", nil
}

// Notify takes a notification.
func (m notificationMethods) Notify(_ string, replaces uint32, icon, title, body string, actions []string, hints map[string]dbus.Variant, _ int32) (uint32, *dbus.Error) {
	s := m.s
	s.mu.Lock()
	before := s.before
	n := Notification{ID: replaces, Replaces: replaces, Title: title, Body: body, Actions: actions, Icon: icon}
	n.DesktopEntry, _ = hints["desktop-entry"].Value().(string)
	if n.Urgency, _ = hints["urgency"].Value().(byte); !slices.Contains(s.live, replaces) {
		n.ID = s.next
		s.next++
	}
	s.mu.Unlock()
	if before != nil {
		if err := before(n); err != nil {
			return 0, err
		}
	}
	s.mu.Lock()
	if !slices.Contains(s.live, n.ID) {
		s.live = append(s.live, n.ID)
	}
	s.mu.Unlock()
	s.Shown <- n
	return n.ID, nil
}

// CloseNotification takes one away.
func (m notificationMethods) CloseNotification(id uint32) *dbus.Error {
	s := m.s
	s.mu.Lock()
	s.live = slices.DeleteFunc(s.live, func(l uint32) bool { return l == id })
	s.mu.Unlock()
	s.Closed <- id
	_ = s.conn.Emit(notificationsPath, notifications+".NotificationClosed", id, uint32(3))
	return nil
}
