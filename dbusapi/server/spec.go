package server

import (
	"fmt"
	"strings"

	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/unitproperty"
	"github.com/corrald/corral/supervisor"
	"github.com/corrald/corral/supervisor/session"
)

// ours are the unit properties that a client cannot have: the supervision of the scope stands on
// them.
var ours = map[string]bool{"PIDs": true, "PIDFDs": true, "Controller": true, "KillMode": true, "CollectMode": true}

// specKeys are the keys of a spec, each with what it sets. An unknown one is an error, unless it
// begins with x-.
var specKeys = map[string]func(*supervisor.Spec, dbus.Variant) error{
	"Id":                text(func(s *supervisor.Spec) *string { return &s.ID }),
	"Description":       text(func(s *supervisor.Spec) *string { return &s.Description }),
	"WorkingDirectory":  text(func(s *supervisor.Spec) *string { return &s.WorkingDirectory }),
	"Prompt":            text(func(s *supervisor.Spec) *string { return &s.Prompt }),
	"OnLogin":           text(func(s *supervisor.Spec) *string { return &s.OnLogin }),
	"ConversationId":    text(func(s *supervisor.Spec) *string { return &s.ConversationID }),
	"Command":           value(func(s *supervisor.Spec) *[]string { return &s.Command }),
	"Arguments":         value(func(s *supervisor.Spec) *[]string { return &s.Arguments }),
	"Environment":       value(func(s *supervisor.Spec) *[]string { return &s.Environment }),
	"CallerEnvironment": value(func(s *supervisor.Spec) *[]string { return &s.CallerEnvironment }),
	"Labels":            value(func(s *supervisor.Spec) *map[string]string { return &s.Labels }),
	"Exclusive":         value(func(s *supervisor.Spec) *bool { return &s.Exclusive }),
	"Start": func(s *supervisor.Spec, v dbus.Variant) error {
		var start bool
		err := store(v, &start)
		s.NoStart = !start
		return err
	},
	"UnitProperties": unitProperties,
	"Worktree": func(s *supervisor.Spec, v dbus.Variant) error {
		s.Worktree = new(string)
		return store(v, s.Worktree)
	},
}

// parseSpec reads a spec as it came over the bus.
func parseSpec(given map[string]dbus.Variant) (supervisor.Spec, error) {
	var spec supervisor.Spec
	for key, v := range given {
		set, known := specKeys[key]
		switch {
		case known:
			if err := set(&spec, v); err != nil {
				if _, done := err.(*dbus.Error); done { //nolint:errorlint // made here, never wrapped
					return spec, err
				}
				return spec, answer(dbusapi.InvalidArgs, fmt.Sprintf("%s in the spec %v", key, err))
			}
		case !strings.HasPrefix(key, "x-"):
			return spec, answer(dbusapi.InvalidArgs, fmt.Sprintf("unknown key in the spec: %.64q", key))
		}
	}
	return spec, nil
}

func text(field func(*supervisor.Spec) *string) func(*supervisor.Spec, dbus.Variant) error {
	return value(field)
}

// value sets a field to the variant's value, if it has the field's type and no other.
func value[T any](field func(*supervisor.Spec) *T) func(*supervisor.Spec, dbus.Variant) error {
	return func(s *supervisor.Spec, v dbus.Variant) error { return store(v, field(s)) }
}

func store[T any](v dbus.Variant, to *T) error {
	got, ok := v.Value().(T)
	if !ok {
		return fmt.Errorf("has type %q, expected %q", v.Signature().String(), dbus.SignatureOf(*to).String())
	}
	*to = got
	return nil
}

func unitProperties(s *supervisor.Spec, v dbus.Variant) error {
	if v.Signature().String() != "a(sv)" {
		return fmt.Errorf("has type %q, expected %q", v.Signature().String(), "a(sv)")
	}
	var props []dbusapi.UnitProperty
	if err := dbus.Store([]any{v.Value()}, &props); err != nil {
		return fmt.Errorf("cannot be read: %w", err)
	}
	var err error
	s.UnitProperties, err = readProperties(props)
	return err
}

// readProperties turns properties as they came over the bus into what can be kept.
func readProperties(props []dbusapi.UnitProperty) ([]session.Property, error) {
	var kept []session.Property
	for _, p := range props {
		if p.Name == "" || ours[p.Name] {
			return nil, fmt.Errorf("contains property %.64q, which a client cannot set", p.Name)
		}
		signature, value, err := unitproperty.Encode(p.Value)
		if err != nil {
			return nil, fmt.Errorf("contains property %.64q: %w", p.Name, err)
		}
		kept = append(kept, session.Property{Name: p.Name, Signature: signature, Value: value})
	}
	return kept, nil
}
