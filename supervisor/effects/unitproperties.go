package effects

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/internal/propertysyntax"
	"github.com/corrald/corral/internal/unitname"
	"github.com/corrald/corral/supervisor"
	"github.com/corrald/corral/supervisor/session"
	"github.com/corrald/corral/units"
)

// newScope returns the scope in which the plan's run is to be started, without processes.
func newScope(p supervisor.Plan) (units.Scope, error) {
	s := units.Scope{Name: p.Unit}
	props := map[string]dbus.Variant{}
	set := func(name string, value any) { props[name] = dbus.MakeVariant(value) }
	replace := func(name string, value dbus.Variant) {
		maps.DeleteFunc(props, func(earlier string, _ dbus.Variant) bool {
			return propertysyntax.SameLimit(earlier, name)
		})
		props[name] = value
	}
	set("Description", p.Description)
	set("Slice", unitname.Slice)
	set("Delegate", true) // so that a new tmux server can be started in it later
	set("TimeoutStopUSec", uint64(p.StopTimeout/time.Microsecond))
	// At logout, systemd stops the daemon before the scope, and the daemon saves its state.
	set("Before", []string{unitname.Daemon})
	set("Documentation", []string{"https://github.com/corrald/corral"}) // shown by systemctl status
	for _, line := range p.ScopeSettings {
		name, value, err := propertysyntax.Parse(line)
		if err != nil {
			return s, fmt.Errorf("cannot use the agent's [Scope]: %w", err)
		}
		replace(name, value)
	}
	for _, prop := range p.Properties {
		value, err := propertysyntax.Decode(prop.Signature, prop.Value)
		if err != nil {
			return s, err
		}
		replace(prop.Name, value)
	}
	if _, given := props["OOMPolicy"]; !given {
		// If a compiler runs out of memory, the agent must keep running (systemd 253; older versions do
		// this for each scope with Delegate).
		s.Optional = []units.Property{{Name: "OOMPolicy", Value: dbus.MakeVariant("continue")}}
	}
	for name, value := range props {
		s.Properties = append(s.Properties, units.Property{Name: name, Value: value})
	}
	return s, nil
}

// setProperties changes properties of the scope with this InvocationID, all or none of them.
// Without an InvocationID, or without such a scope, it only checks whether a scope could be started
// with them.
func (x *Executor) setProperties(ctx context.Context, e session.SetProperties) error {
	props := make([]units.Property, 0, len(e.Properties))
	for _, p := range e.Properties {
		value, err := propertysyntax.Decode(p.Signature, p.Value)
		if err != nil {
			return err
		}
		props = append(props, units.Property{Name: p.Name, Value: value})
	}
	err := units.ErrNoScope
	if e.InvocationID != "" {
		err = x.units.SetProperties(ctx, e.InvocationID, props)
	}
	live := !errors.Is(err, units.ErrNoScope)
	if !live {
		err = x.units.CheckProperties(ctx, props)
	}
	var refused *units.PropertyError
	if !errors.As(err, &refused) {
		return err
	}
	return &supervisor.Error{Kind: supervisor.Invalid, Text: x.rejectionText(ctx, props, refused, live)}
}

// rejectionText returns why systemd has rejected one of the properties, as exactly as that can be
// determined.
func (x *Executor) rejectionText(
	ctx context.Context, props []units.Property, refused *units.PropertyError, live bool,
) string {
	for _, p := range props {
		if live && p.Name == refused.Name && x.units.CheckProperties(ctx, []units.Property{p}) == nil {
			return fmt.Sprintf("unit property %s cannot be changed while the session runs", p.Name)
		}
	}
	return fmt.Sprintf("systemd rejected unit property %s: %s", refused.Name, refused.Text)
}
