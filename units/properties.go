package units

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/godbus/dbus/v5"
)

// PropertyError tells that systemd does not take a property: it does not know it, not in a scope or
// not in one that runs, or not this value.
type PropertyError struct {
	Name string
	Text string // by systemd
}

func (e *PropertyError) Error() string { return fmt.Sprintf("cannot set %s: %s", e.Name, e.Text) }

// ErrNoScope is returned where the scope that was meant is not there any more.
var ErrNoScope = errors.New("no such scope")

// SetProperties changes properties of a scope that runs, until it ends, all or none of them. What
// systemd says that it has taken is read back. The scope is named by its InvocationID: by its name
// systemd would change the next one, or leave a drop-in file for it. Errors: ErrNoScope, and a
// *PropertyError for the first property that systemd does not take.
func (m *Manager) SetProperties(ctx context.Context, invocationID string, props []Property) error {
	path := unitPath(invocationID)
	set := func(props []Property) error { return m.call(ctx, path, unitIface+".SetProperties", true, props).Err }
	err := set(props)
	switch {
	case hasName(err, "org.freedesktop.systemd1.NoUnitForInvocationID") || isGone(err):
		return ErrNoScope
	case err != nil:
		return fmt.Errorf("cannot set properties of a scope: %w", blame(err, props, set))
	}
	return m.readBack(ctx, path, props)
}

// CheckProperties finds out whether a scope could be started with the properties, and starts none.
// Errors: see SetProperties.
func (m *Manager) CheckProperties(ctx context.Context, props []Property) error {
	start := m.tryStart(ctx)
	err := start(append(props[:len(props):len(props)], unknownToAll))
	if err == nil || isAbout(err, unknownToAll) {
		return nil
	}
	return fmt.Errorf("cannot use properties: %w", blame(err, props, start))
}

// tryStart returns what asks systemd for a scope with some properties. With unknownToAll among them
// none is started.
func (m *Manager) tryStart(ctx context.Context) func([]Property) error {
	return func(props []Property) error {
		return m.call(ctx, systemdPath, managerIface+".StartTransientUnit", "app-corral-check.scope", "fail", props, []auxUnit{}).Err
	}
}

// whichProperty finds out which property a start was refused for with err, where that does not name
// one.
func (m *Manager) whichProperty(ctx context.Context, err error, props []Property) error {
	if slices.ContainsFunc(props, func(p Property) bool { return isAbout(err, p) }) {
		return err
	}
	return blame(err, props, m.tryStart(ctx))
}

// unknownToAll is a property that no systemd knows. What stands before it in a call is looked at
// before it, and then nothing of the call is done: if the error is about this one, the others are
// well.
var unknownToAll = Property{"X-Corral-Nothing", dbus.MakeVariant(true)}

// isAbout tells whether systemd's answer names the property. Most do, but not those about a value
// of a wrong type.
func isAbout(err error, p Property) bool {
	var e dbus.Error
	return errors.As(err, &e) && strings.Contains(e.Error(), p.Name)
}

// blame finds out which of the properties systemd does not take, where its answer to all of them
// was err.
func blame(err error, props []Property, try func([]Property) error) error {
	var e dbus.Error
	if !errors.As(err, &e) || isAway(err) {
		return err
	}
	for _, p := range props {
		if alone := try([]Property{p, unknownToAll}); errors.As(alone, &e) && !isAbout(alone, unknownToAll) {
			return &PropertyError{p.Name, e.Error()}
		}
	}
	return err
}

// readBack compares what was set with what systemd has, where that can be: lists are added to, and
// some properties are read under another name.
func (m *Manager) readBack(ctx context.Context, path dbus.ObjectPath, props []Property) error {
	var has map[string]dbus.Variant
	if err := m.read(ctx, path, propertiesIface+".GetAll", scopeIface).Store(&has); err != nil {
		return fmt.Errorf("cannot read the properties of a scope: %w", err)
	}
	last := make(map[string]dbus.Variant, len(props))
	for _, p := range props {
		last[p.Name] = p.Value
	}
	for property, want := range last {
		if got, there := has[property]; there && got.Signature() == want.Signature() && !sameValue(got.Value(), want.Value()) {
			return &PropertyError{property, fmt.Sprintf("it was set to %v and is %v", want, got)}
		}
	}
	return nil
}

func sameValue(got, want any) bool {
	if mask, ok := got.([]byte); ok { // systemd fills it up
		wanted, _ := want.([]byte)
		return bytes.Equal(bytes.TrimRight(mask, "\x00"), bytes.TrimRight(wanted, "\x00"))
	}
	if kind := reflect.TypeOf(got).Kind(); kind == reflect.Slice || kind == reflect.Map {
		return true
	}
	return got == want
}
