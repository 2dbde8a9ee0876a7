package bus

import (
	"context"
	"errors"
	"fmt"

	"github.com/godbus/dbus/v5"
)

const driver = "org.freedesktop.DBus"

// Owner is the connection that owns a well-known name. A signal counts only if that connection sent
// it: match rules filter what is broadcast, but the bus delivers every signal that is addressed to
// a connection, and anybody may address one to it. An Owner belongs to the goroutine that reads the
// signals.
type Owner struct {
	name   string
	unique string // its unique name, "" while nobody owns the name
}

// WatchOwner finds out who owns a well-known name, and has the bus report each new owner; it starts
// no service. The channel that receives the signals is registered with the connection before, and
// the connection's signal handler is the sequential one: whoever passes each signal to Update, and
// then asks Sent, never believes an earlier or a later owner.
func WatchOwner(ctx context.Context, conn *dbus.Conn, name string) (*Owner, error) {
	err := conn.AddMatchSignalContext(ctx, dbus.WithMatchSender(driver), dbus.WithMatchInterface(driver), dbus.WithMatchMember("NameOwnerChanged"),
		dbus.WithMatchArg(0, name))
	if err != nil {
		return nil, fmt.Errorf("cannot follow the owner of %q: %w", name, err)
	}
	o := &Owner{name: name}
	// The bus reports a change before this answer (then the answer says the same) or after it.
	err = conn.BusObject().CallWithContext(ctx, driver+".GetNameOwner", dbus.FlagNoAutoStart, name).Store(&o.unique)
	var answer dbus.Error
	if err != nil && (!errors.As(err, &answer) || answer.Name != driver+".Error.NameHasNoOwner") {
		return nil, fmt.Errorf("cannot find the owner of %q: %w", name, err)
	}
	return o, nil
}

// Update reports whether the bus itself reports with this signal who owns the name from now on, and
// takes note of it.
func (o *Owner) Update(s *dbus.Signal) bool {
	var name, before, now string
	if s.Sender != driver || s.Name != driver+".NameOwnerChanged" || dbus.Store(s.Body, &name, &before, &now) != nil || name != o.name {
		return false
	}
	o.unique = now
	return true
}

// Sent reports whether the owner of the name sent the signal.
func (o *Owner) Sent(s *dbus.Signal) bool { return o.unique != "" && s.Sender == o.unique }

// UniqueName returns the owner's unique name, "" if nobody owns the name.
func (o *Owner) UniqueName() string { return o.unique }
