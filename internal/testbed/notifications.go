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

// Notification is a desktop notification that the server was asked to show.
type Notification struct {
	ID           uint32 // assigned by the server
	Replaces     uint32
	Title        string
	Body         string
	Actions      []string // keys and labels alternate
	Urgency      byte
	Icon         string
	DesktopEntry string // hint desktop-entry
}

// NotificationServer is a desktop notification server that can fail in ways that no real one can be
// made to: it hangs, crashes, rejects calls, and replies in the wrong order. It displays nothing.
type NotificationServer struct {
	Shown  chan Notification // notifications that were sent
	Closed chan uint32       // ids of notifications that the client closed

	conn         *dbus.Conn
	name         string
	capabilities []string

	mu       sync.Mutex
	onNotify func(n Notification) *dbus.Error
	next     uint32
	live     []uint32
}

// StartNotificationServer starts a notification server with these capabilities on the private bus.
// It stops at the end of the test at the latest.
func StartNotificationServer(t testing.TB, can ...string) *NotificationServer {
	t.Helper()
	return StartNamedNotificationServer(t, "corral-test", can...)
}

// StartNamedNotificationServer is StartNotificationServer for a server that reports another name.
func StartNamedNotificationServer(t testing.TB, name string, can ...string) *NotificationServer {
	t.Helper()
	const many = 4096 // more than a test sends
	s := &NotificationServer{
		Shown: make(chan Notification, many), Closed: make(chan uint32, many), conn: Bus(t), name: name, capabilities: can,
		next: 1,
	}
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

// OnNotify sets a function that is called for each notification before it is accepted. It may wait,
// send signals, or reject the notification.
func (s *NotificationServer) OnNotify(f func(n Notification) *dbus.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onNotify = f
}

// Crash disconnects the server from the bus without answering pending calls.
func (s *NotificationServer) Crash() { _ = s.conn.Close() }

// Dismiss emits NotificationClosed with one of the specification's reasons.
func (s *NotificationServer) Dismiss(t testing.TB, id, reason uint32) {
	t.Helper()
	s.mu.Lock()
	s.live = slices.DeleteFunc(s.live, func(l uint32) bool { return l == id })
	s.mu.Unlock()
	s.Emit(t, "NotificationClosed", id, reason)
}

// Emit emits a signal of the server.
func (s *NotificationServer) Emit(t testing.TB, name string, args ...any) {
	t.Helper()
	if err := s.conn.Emit(notificationsPath, notifications+"."+name, args...); err != nil {
		t.Error(err)
	}
}

// Live returns the ids of the notifications that are open.
func (s *NotificationServer) Live() []uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.live)
}

// notificationMethods implements the server's D-Bus methods.
type notificationMethods struct{ s *NotificationServer }

// GetCapabilities implements the specification's method, as do the methods below.
func (m notificationMethods) GetCapabilities() ([]string, *dbus.Error) {
	return append([]string{"body"}, m.s.capabilities...), nil
}

// GetServerInformation returns the server's name.
func (m notificationMethods) GetServerInformation() (name, vendor, version, spec string, err *dbus.Error) {
	return m.s.name, "test", "1", "1.2", nil
}

// Notify accepts a notification.
func (m notificationMethods) Notify(
	_ string, replaces uint32, icon, title, body string, actions []string, hints map[string]dbus.Variant, _ int32,
) (uint32, *dbus.Error) {
	s := m.s
	s.mu.Lock()
	onNotify := s.onNotify
	n := Notification{ID: replaces, Replaces: replaces, Title: title, Body: body, Actions: actions, Icon: icon}
	n.DesktopEntry, _ = hints["desktop-entry"].Value().(string)
	if n.Urgency, _ = hints["urgency"].Value().(byte); !slices.Contains(s.live, replaces) {
		n.ID = s.next
		s.next++
	}
	s.mu.Unlock()
	if onNotify != nil {
		if err := onNotify(n); err != nil {
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

// CloseNotification closes a notification.
func (m notificationMethods) CloseNotification(id uint32) *dbus.Error {
	s := m.s
	s.mu.Lock()
	s.live = slices.DeleteFunc(s.live, func(l uint32) bool { return l == id })
	s.mu.Unlock()
	s.Closed <- id
	_ = s.conn.Emit(notificationsPath, notifications+".NotificationClosed", id, uint32(3))
	return nil
}
