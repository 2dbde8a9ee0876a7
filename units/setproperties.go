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

	"github.com/corrald/corral/internal/bus"
)

// PropertyError reports a property that systemd rejects: it does not know the property, does not
// accept it for a scope or for a running scope, or does not accept the value.
type PropertyError struct {
	Name string
	Text string // systemd's error message
}

func (e *PropertyError) Error() string { return fmt.Sprintf("cannot set %s: %s", e.Name, e.Text) }

// ErrNoScope is returned if the scope no longer exists.
var ErrNoScope = errors.New("no such scope")

// SetProperties changes properties of a running scope until it ends, either all or none of them,
// and reads back what systemd has stored. The scope is identified by its InvocationID: with its
// name, systemd would change the next scope of that name or leave a drop-in file for it. Errors:
// ErrNoScope, and a *PropertyError for the first property that systemd rejects.
func (m *Manager) SetProperties(ctx context.Context, invocationID string, props []Property) error {
	set := func(props []Property) error {
		return m.callMethod(ctx, unitPath(invocationID), bus.SystemdUnit+".SetProperties", true, props)
	}
	err := set(props)
	switch {
	case bus.HasErrorName(err, bus.SystemdName+".NoUnitForInvocationID") || isGone(err):
		return ErrNoScope
	case err != nil:
		return fmt.Errorf("cannot set properties of a scope: %w", findRejected(err, props, set))
	}
	return m.readBack(ctx, invocationID, props)
}

// CheckProperties checks that a scope could be started with the properties, without starting one.
// Errors: see SetProperties.
func (m *Manager) CheckProperties(ctx context.Context, props []Property) error {
	start := m.startCheck(ctx)
	err := start(append(slices.Clip(props), sentinelProperty))
	if err == nil || namesProperty(err, sentinelProperty) {
		return nil
	}
	return fmt.Errorf("cannot use properties: %w", findRejected(err, props, start))
}

// startCheck returns a function that requests a scope with the given properties. If
// sentinelProperty is among them, systemd rejects the request and starts none.
func (m *Manager) startCheck(ctx context.Context) func([]Property) error {
	return func(props []Property) error {
		_, err := m.requestStart(ctx, "app-corral-check.scope", props)
		return err
	}
}

// findRejectedInStart returns an error that names the property for which systemd rejected a start,
// if err does not name one itself.
func (m *Manager) findRejectedInStart(ctx context.Context, err error, props []Property) error {
	if slices.ContainsFunc(props, func(p Property) bool { return namesProperty(err, p) }) {
		return err
	}
	return findRejected(err, props, m.startCheck(ctx))
}

// sentinelProperty is a property that no version of systemd knows. systemd checks the properties of
// a call in order, and does nothing at all if it rejects one: if the error names this one, all
// properties before it are valid.
var sentinelProperty = Property{Name: "X-Corral-Nothing", Value: dbus.MakeVariant(true)}

// namesProperty reports whether systemd's error message names the property. Most messages do, but
// not those about a value of the wrong type.
func namesProperty(err error, p Property) bool {
	var e dbus.Error
	return errors.As(err, &e) && strings.Contains(e.Error(), p.Name)
}

// findRejected returns a *PropertyError for the property that systemd rejects, given the error err
// for all of them. The function try makes a call with some of the properties.
func findRejected(err error, props []Property, try func([]Property) error) error {
	var e dbus.Error
	if !errors.As(err, &e) || isAway(err) {
		return err
	}
	for _, p := range props {
		if alone := try([]Property{p, sentinelProperty}); errors.As(alone, &e) && !namesProperty(alone, sentinelProperty) {
			return &PropertyError{p.Name, e.Error()}
		}
	}
	return err
}

// readBack compares the properties with what systemd has stored, as far as possible: lists are
// appended to, and some properties are read under another name than they are set.
func (m *Manager) readBack(ctx context.Context, invocationID string, props []Property) error {
	has, err := m.properties(ctx, invocationID, "Scope")
	if err != nil {
		return err
	}
	last := make(map[string]dbus.Variant, len(props))
	for _, p := range props {
		last[p.Name] = p.Value
	}
	for property, want := range last {
		got, ok := has[property]
		if ok && dbus.SignatureOf(got) == want.Signature() && !sameValue(got, want.Value()) {
			return &PropertyError{property, fmt.Sprintf("it was set to %v and is %v", want, got)}
		}
	}
	return nil
}

func sameValue(got, want any) bool {
	if mask, ok := got.([]byte); ok { // systemd pads the mask with zero bytes
		wanted, _ := want.([]byte)
		return bytes.Equal(bytes.TrimRight(mask, "\x00"), bytes.TrimRight(wanted, "\x00"))
	}
	if kind := reflect.TypeOf(got).Kind(); kind == reflect.Slice || kind == reflect.Map {
		return true
	}
	return got == want
}
