package client

import (
	"fmt"
	"reflect"

	"github.com/godbus/dbus/v5"
)

// Properties are the properties of an object as received, by name.
type Properties map[string]dbus.Variant

const getAll = "org.freedesktop.DBus.Properties.GetAll"

// Decode stores each property in the field of the same name of the struct that target points to,
// such as a Session or a Manager. Properties without a field are ignored, because the daemon may be
// newer. Fields without a property keep their values, so that the contents of PropertiesChanged can
// be applied to a snapshot.
func (p Properties) Decode(target any) error {
	fields := reflect.ValueOf(target).Elem()
	for i := range fields.NumField() {
		name := fields.Type().Field(i).Name
		property, ok := p[name]
		if !ok {
			continue
		}
		if err := setField(fields.Field(i), property.Value()); err != nil {
			return fmt.Errorf("cannot read property %q: %w", name, err)
		}
	}
	return nil
}

func setField(field reflect.Value, value any) error {
	if v := reflect.ValueOf(value); v.IsValid() && v.Type() == field.Type() {
		field.Set(v)
		return nil
	}
	return dbus.Store([]any{value}, field.Addr().Interface())
}
