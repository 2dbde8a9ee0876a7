package logind

import (
	"context"
	"os"
	"slices"

	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/internal/bus"
)

const (
	sessionInterface = "org.freedesktop.login1.Session"
	sessionsPath     = path + "/session"
)

// loginSession has the properties of a login session that show whether its user is present: see
// org.freedesktop.login1(5).
type loginSession struct {
	State         string // online, active or closing
	Type          string // such as wayland, x11, mir or tty
	Class         string // such as user, greeter or lock-screen
	Remote        bool
	Active        bool
	IdleHint      bool
	IdleSinceHint uint64 // 0 if IdleHint was never changed
	LockedHint    bool
}

// showsPresence reports whether the user is at the seat of this session: it is a local graphical
// session in the foreground, neither idle nor locked. The desktop sets both hints. Some desktops
// set none of them, so the absence of a hint counts only after the desktop has once changed
// IdleHint. For a session on a terminal the login manager announces no change.
func (s loginSession) showsPresence() bool {
	return slices.Contains([]string{"wayland", "x11", "mir"}, s.Type) && s.Class == "user" && !s.Remote &&
		s.Active && s.State == "active" && !s.IdleHint && s.IdleSinceHint != 0 && !s.LockedHint
}

// subscribeToPresence subscribes to all signals after which the user may be present, or absent.
func (m *Manager) subscribeToPresence(ctx context.Context) error {
	for _, member := range []string{"SessionNew", "SessionRemoved"} {
		err := m.conn.AddMatchSignalContext(ctx,
			dbus.WithMatchSender(name), dbus.WithMatchInterface(manager), dbus.WithMatchMember(member))
		if err != nil {
			return err
		}
	}
	return m.conn.AddMatchSignalContext(ctx, dbus.WithMatchSender(name), dbus.WithMatchInterface(bus.Properties),
		dbus.WithMatchMember("PropertiesChanged"), dbus.WithMatchPathNamespace(sessionsPath),
		dbus.WithMatchArg(0, sessionInterface))
}

// isAboutPresence reports whether a signal of the login manager may change whether the user is
// present.
func isAboutPresence(s *dbus.Signal) bool {
	switch s.Name {
	case manager + ".SessionNew", manager + ".SessionRemoved", bus.Properties + ".PropertiesChanged":
		return true
	}
	return false
}

// queryPresence reads the user's sessions. Without a login manager nobody is known to be present.
func (m *Manager) queryPresence(ctx context.Context) bool {
	var sessions []struct {
		ID   string
		UID  uint32
		User string
		Seat string
		Path dbus.ObjectPath
	}
	call := m.conn.Object(name, path).CallWithContext(ctx, manager+".ListSessions", dbus.FlagNoAutoStart)
	if call.Store(&sessions) != nil {
		return false
	}
	for _, s := range sessions {
		if s.UID == uint32(os.Getuid()) && m.readSession(ctx, s.Path).showsPresence() {
			return true
		}
	}
	return false
}

// readSession reads a session. The zero value stands for one that has ended.
func (m *Manager) readSession(ctx context.Context, path dbus.ObjectPath) (s loginSession) {
	var all map[string]dbus.Variant
	call := m.conn.Object(name, path).
		CallWithContext(ctx, bus.Properties+".GetAll", dbus.FlagNoAutoStart, sessionInterface)
	if call.Store(&all) != nil {
		return loginSession{}
	}
	for property, field := range map[string]any{
		"State": &s.State, "Type": &s.Type, "Class": &s.Class, "Remote": &s.Remote, "Active": &s.Active,
		"IdleHint": &s.IdleHint, "IdleSinceHint": &s.IdleSinceHint, "LockedHint": &s.LockedHint,
	} {
		if all[property].Store(field) != nil {
			return loginSession{}
		}
	}
	return s
}

// Present returns a channel with values that state whether the user is present at a seat of this
// machine: first the current value, and then the value after each event that may have changed it.
// The channel is never closed.
func (m *Manager) Present() <-chan bool { return m.present }
