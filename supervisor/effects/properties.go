package effects

import (
	"context"
	"errors"
	"fmt"

	"github.com/corrald/corral/internal/unitproperty"
	"github.com/corrald/corral/supervisor"
	"github.com/corrald/corral/supervisor/session"
	"github.com/corrald/corral/units"
)

// setProperties changes properties of the scope with this InvocationID, all or none of them.
// Without an InvocationID, or without such a scope, it only checks whether a scope could be started
// with them.
func (x *Executor) setProperties(ctx context.Context, e session.SetProperties) error {
	props := make([]units.Property, 0, len(e.Properties))
	for _, p := range e.Properties {
		value, err := unitproperty.Decode(p.Signature, p.Value)
		if err != nil {
			return err
		}
		props = append(props, units.Property{Name: p.Name, Value: value})
	}
	err := units.ErrNoScope
	if e.InvocationID != "" {
		err = x.Units.SetProperties(ctx, e.InvocationID, props)
	}
	live := !errors.Is(err, units.ErrNoScope)
	if !live {
		err = x.Units.CheckProperties(ctx, props)
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
		if live && p.Name == refused.Name && x.Units.CheckProperties(ctx, []units.Property{p}) == nil {
			return fmt.Sprintf("unit property %s cannot be changed while the session runs", p.Name)
		}
	}
	return fmt.Sprintf("systemd rejected unit property %s: %s", refused.Name, refused.Text)
}
