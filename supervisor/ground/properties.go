package ground

import (
	"context"
	"errors"
	"fmt"

	"github.com/corrald/corral/internal/unitproperty"
	"github.com/corrald/corral/supervisor"
	"github.com/corrald/corral/supervisor/session"
	"github.com/corrald/corral/units"
)

// SetProperties changes properties of the scope with this InvocationID, all or none of them; without one it only finds out whether a scope could be
// started with them.
func (g *Ground) SetProperties(ctx context.Context, invocationID string, properties []session.Property) error {
	props := make([]units.Property, 0, len(properties))
	for _, p := range properties {
		value, err := unitproperty.Decode(p.Signature, p.Value)
		if err != nil {
			return err
		}
		props = append(props, units.Property{Name: p.Name, Value: value})
	}
	err := units.ErrNoScope
	if invocationID != "" {
		err = g.Units.SetProperties(ctx, invocationID, props)
	}
	live := !errors.Is(err, units.ErrNoScope)
	if !live {
		err = g.Units.CheckProperties(ctx, props)
	}
	var refused *units.PropertyError
	if !errors.As(err, &refused) {
		return err
	}
	return &supervisor.Error{Kind: supervisor.Invalid, Text: g.whyRefused(ctx, props, refused, live)}
}

// whyRefused says what is wrong with a property, as exactly as can be found out.
func (g *Ground) whyRefused(ctx context.Context, props []units.Property, refused *units.PropertyError, live bool) string {
	for _, p := range props {
		if live && p.Name == refused.Name && g.Units.CheckProperties(ctx, []units.Property{p}) == nil {
			return fmt.Sprintf("unit property %s cannot be changed while the session runs", p.Name)
		}
	}
	return fmt.Sprintf("systemd rejected unit property %s: %s", refused.Name, refused.Text)
}
