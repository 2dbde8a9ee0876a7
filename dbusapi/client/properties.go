package client

import (
	"context"
	"fmt"
	"reflect"

	"github.com/godbus/dbus/v5"
)

// Properties are the properties of an object as they came, by name.
type Properties map[string]dbus.Variant

func (c *Client) getAll(ctx context.Context, path dbus.ObjectPath, iface string) (Properties, error) {
	var p Properties
	err := c.call(ctx, path, "org.freedesktop.DBus.Properties.GetAll", callTimeout, []any{iface}, &p)
	return p, err
}

// Decode sets the fields of a struct, such as a Session or a Manager, whose names are those of
// properties. A property without a field is left out: the daemon may be newer. A field without a
// property keeps its value, so that what PropertiesChanged brings can be applied to a snapshot.
func (p Properties) Decode(target any) error {
	fields := reflect.ValueOf(target).Elem()
	for i := range fields.NumField() {
		name := fields.Type().Field(i).Name
		property, ok := p[name]
		if !ok {
			continue
		}
		if err := set(fields.Field(i), property.Value()); err != nil {
			return fmt.Errorf("cannot read property %q: %w", name, err)
		}
	}
	return nil
}

func set(field reflect.Value, value any) error {
	if v := reflect.ValueOf(value); v.IsValid() && v.Type() == field.Type() {
		field.Set(v)
		return nil
	}
	return dbus.Store([]any{value}, field.Addr().Interface())
}
