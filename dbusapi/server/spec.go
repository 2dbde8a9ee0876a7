package server

import (
	"fmt"
	"strings"

	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/propertysyntax"
	"github.com/corrald/corral/supervisor"
	"github.com/corrald/corral/supervisor/session"
)

// reservedProperties are the unit properties that clients cannot set, because the supervision of
// the scope depends on them.
var reservedProperties = map[string]bool{
	"PIDs": true, "PIDFDs": true, "Controller": true, "KillMode": true, "CollectMode": true,
}

// specKeys contains the keys of a spec with the functions that set them. An unknown key is an error
// unless it begins with x-.
var specKeys = map[string]func(*supervisor.Spec, dbus.Variant) error{
	"Id":                typedField(func(s *supervisor.Spec) *string { return &s.ID }),
	"Description":       typedField(func(s *supervisor.Spec) *string { return &s.Description }),
	"WorkingDirectory":  typedField(func(s *supervisor.Spec) *string { return &s.WorkingDirectory }),
	"Prompt":            typedField(func(s *supervisor.Spec) *string { return &s.Prompt }),
	"Sandbox":           typedField(func(s *supervisor.Spec) *string { return &s.Sandbox }),
	"OnLogin":           typedField(func(s *supervisor.Spec) *string { return &s.OnLogin }),
	"ConversationId":    typedField(func(s *supervisor.Spec) *string { return &s.ConversationID }),
	"ForkedFrom":        typedField(func(s *supervisor.Spec) *string { return &s.ForkedFrom }),
	"Command":           typedField(func(s *supervisor.Spec) *[]string { return &s.Command }),
	"Arguments":         typedField(func(s *supervisor.Spec) *[]string { return &s.Arguments }),
	"Environment":       typedField(func(s *supervisor.Spec) *[]string { return &s.Environment }),
	"CallerEnvironment": typedField(func(s *supervisor.Spec) *[]string { return &s.CallerEnvironment }),
	"Labels":            typedField(func(s *supervisor.Spec) *map[string]string { return &s.Labels }),
	"Now":               typedField(func(s *supervisor.Spec) *bool { return &s.Now }),
	"Exclusive":         typedField(func(s *supervisor.Spec) *bool { return &s.Exclusive }),
	"Start": func(s *supervisor.Spec, v dbus.Variant) error {
		var start bool
		err := store(v, &start)
		s.NoStart = !start
		return err
	},
	"Ports": func(s *supervisor.Spec, v dbus.Variant) error {
		s.Ports = new(uint32)
		return store(v, s.Ports)
	},
	"Setup": func(s *supervisor.Spec, v dbus.Variant) error {
		var setup bool
		err := store(v, &setup)
		s.NoSetup = !setup
		return err
	},
	"UnitProperties": unitProperties,
	"Worktree": func(s *supervisor.Spec, v dbus.Variant) error {
		s.Worktree = new(string)
		return store(v, s.Worktree)
	},
}

// parseSpec converts a spec that a client has sent.
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
				return spec, newError(dbusapi.InvalidArgs, fmt.Sprintf("%s in the spec %v", key, err))
			}
		case !strings.HasPrefix(key, "x-"):
			return spec, newError(dbusapi.InvalidArgs, fmt.Sprintf("unknown key in the spec: %.64q", key))
		}
	}
	return spec, nil
}

// typedField returns a function that sets a field to the value of a variant. It returns an error if
// the variant has another type than the field.
func typedField[T any](field func(*supervisor.Spec) *T) func(*supervisor.Spec, dbus.Variant) error {
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

// readProperties converts unit properties that a client has sent to the form in which they are
// stored.
func readProperties(props []dbusapi.UnitProperty) ([]session.Property, error) {
	var properties []session.Property
	for _, p := range props {
		if p.Name == "" || reservedProperties[p.Name] {
			return nil, fmt.Errorf("contains property %.64q, which a client cannot set", p.Name)
		}
		signature, value, err := propertysyntax.Encode(p.Value)
		if err != nil {
			return nil, fmt.Errorf("contains property %.64q: %w", p.Name, err)
		}
		properties = append(properties, session.Property{Name: p.Name, Signature: signature, Value: value})
	}
	return properties, nil
}
