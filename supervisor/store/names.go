package store

import (
	"reflect"
	"strings"

	"github.com/corrald/corral/supervisor/session"
)

// knownNames returns the JSON names of a session's fields.
func knownNames() []string {
	t := reflect.TypeFor[session.Session]()
	var names []string
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}
