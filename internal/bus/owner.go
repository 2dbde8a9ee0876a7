package bus

import (
	"context"
	"fmt"

	"github.com/godbus/dbus/v5"
)

// Owner tracks which connection owns a well-known name. A signal must be accepted only if that
// connection sent it: match rules filter broadcast signals, but the bus also delivers every signal
// that any process addresses to a connection. An Owner must be used only by the goroutine that
// reads the signals.
type Owner struct {
	name   string
	unique string // unique name of the owner, "" if there is none
}

// WatchOwner determines the owner of a well-known name, and subscribes to the bus's reports of new
// owners. It starts no service. The caller must have registered its signal channel with the
// connection before, and the connection must use the sequential signal handler. A caller that
// passes each signal to Update, and then checks it with Sent, never accepts a signal of an earlier
// or later owner.
func WatchOwner(ctx context.Context, conn *dbus.Conn, name string) (*Owner, error) {
	err := conn.AddMatchSignalContext(ctx, dbus.WithMatchSender(Name), dbus.WithMatchInterface(Name),
		dbus.WithMatchMember("NameOwnerChanged"), dbus.WithMatchArg(0, name))
	if err != nil {
		return nil, fmt.Errorf("cannot watch the owner of %q: %w", name, err)
	}
	o := &Owner{name: name}
	// If the owner changes before this reply, the reply contains the new owner; if it changes later,
	// Update receives the change.
	err = conn.BusObject().CallWithContext(ctx, Name+".GetNameOwner", dbus.FlagNoAutoStart, name).Store(&o.unique)
	if err != nil && !HasErrorName(err, ErrorPrefix+"NameHasNoOwner") {
		return nil, fmt.Errorf("cannot determine the owner of %q: %w", name, err)
	}
	return o, nil
}

// Update returns true if the signal is the bus driver's report of a new owner of the name, and
// stores the new owner.
func (o *Owner) Update(s *dbus.Signal) bool {
	var name, before, now string
	if s.Sender != Name || s.Name != Name+".NameOwnerChanged" ||
		dbus.Store(s.Body, &name, &before, &now) != nil || name != o.name {
		return false
	}
	o.unique = now
	return true
}

// Sent reports whether the owner of the name sent the signal.
func (o *Owner) Sent(s *dbus.Signal) bool { return o.unique != "" && s.Sender == o.unique }

// UniqueName returns the unique name of the owner, "" if there is none.
func (o *Owner) UniqueName() string { return o.unique }
