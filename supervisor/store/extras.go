package store

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"

	"github.com/corrald/corral/supervisor/session"
)

// extras is what a record holds that this program has no names for, at every level: of the session itself, and of each run, which is known by its id
// wherever in the record it stands. What stands in a list of unit properties is not kept: such a list is replaced as a whole, and nothing says which
// entry is which.
type extras struct {
	session object
	runs    map[string]object
}

type object = map[string]any

var (
	sessionType = reflect.TypeFor[session.Session]()
	runType     = reflect.TypeFor[session.Run]()
)

func extrasOf(body []byte) (extras, error) {
	all, err := parse(body)
	if err != nil {
		return extras{}, err
	}
	more := extras{runs: map[string]object{}}
	for _, run := range runsOf(all) {
		if id, ok := run["id"].(string); ok {
			if o := unknown(runType, run); len(o) > 0 {
				more.runs[id] = o
			}
		}
	}
	delete(all, "run")
	more.session = unknown(sessionType, all)
	return more, nil
}

// addTo puts back into a record what was in it.
func (x extras) addTo(body []byte) ([]byte, error) {
	if len(x.session) == 0 && len(x.runs) == 0 {
		return body, nil
	}
	all, err := parse(body)
	if err != nil {
		return nil, err
	}
	for _, run := range runsOf(all) {
		if id, ok := run["id"].(string); ok {
			restore(run, x.runs[id], runType)
		}
	}
	restore(all, x.session, sessionType)
	return json.Marshal(all)
}

// parse keeps numbers as they are written.
func parse(body []byte) (object, error) {
	var all object
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	return all, d.Decode(&all)
}

// runsOf returns the objects of a record that are runs.
func runsOf(all object) []object {
	var runs []object
	past, _ := all["past"].([]any)
	for _, value := range append(past[:len(past):len(past)], all["run"]) {
		if run, ok := value.(object); ok {
			runs = append(runs, run)
		}
	}
	return runs
}

// unknown returns what of an object is not a field of t, also in the structs in it.
func unknown(t reflect.Type, o object) object {
	more := object{}
	for name, value := range o {
		field, known := fieldOf(t, name)
		inner, isObject := value.(object)
		switch {
		case !known:
			more[name] = value
		case isObject && field.Kind() == reflect.Struct:
			if o := unknown(field, inner); len(o) > 0 {
				more[name] = o
			}
		}
	}
	return more
}

// restore puts back what unknown returned, where the object that it was in is still there.
func restore(o, more object, t reflect.Type) {
	for name, value := range more {
		if field, known := fieldOf(t, name); known {
			inner, there := o[name].(object)
			if values, isObject := value.(object); there && isObject {
				restore(inner, values, field)
			}
			continue
		}
		o[name] = value
	}
}

// fieldOf finds a field by its name in JSON, as encoding/json does, and returns its type.
func fieldOf(t reflect.Type, name string) (reflect.Type, bool) {
	for i := range t.NumField() {
		f := t.Field(i)
		known, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if known == "" {
			known = f.Name
		}
		if !f.IsExported() || known == "-" || !strings.EqualFold(known, name) {
			continue
		}
		if f.Type.Kind() == reflect.Pointer {
			return f.Type.Elem(), true
		}
		return f.Type, true
	}
	return nil, false
}
