package store

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"

	"github.com/corrald/corral/supervisor/session"
)

// extras holds the fields of a record that this version does not know, at every level: those of the
// session, and those of each run by its id, because a run moves within the record. Unknown fields
// of entries in a list of unit properties are not kept: such a list is replaced as a whole, and its
// entries have no identity.
type extras struct {
	session object
	runs    map[string]object // by id
}

type object = map[string]any

var (
	sessionType = reflect.TypeFor[session.Session]()
	runType     = reflect.TypeFor[session.Run]()
)

// extrasOf returns the unknown fields of a session in JSON.
func extrasOf(body []byte) (extras, error) {
	all, err := parse(body)
	if err != nil {
		return extras{}, err
	}
	more := extras{runs: map[string]object{}}
	for _, run := range runsOf(all) {
		if id, ok := run["id"].(string); ok {
			if o := unknownFields(runType, run); len(o) > 0 {
				more.runs[id] = o
			}
		}
	}
	delete(all, "run")
	more.session = unknownFields(sessionType, all)
	return more, nil
}

// addTo returns the session in JSON with the unknown fields added again.
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
			restoreFields(run, x.runs[id], runType)
		}
	}
	restoreFields(all, x.session, sessionType)
	return json.Marshal(all)
}

// parse decodes an object. Numbers keep the form in which they are written.
func parse(body []byte) (object, error) {
	var all object
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	return all, d.Decode(&all)
}

// runsOf returns the runs of a session: the past ones and the last one.
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

// unknownFields returns the members of an object that are not fields of t, also of nested structs.
func unknownFields(t reflect.Type, o object) object {
	more := object{}
	for name, value := range o {
		field, known := fieldOf(t, name)
		inner, isObject := value.(object)
		switch {
		case !known:
			more[name] = value
		case isObject && field.Kind() == reflect.Struct:
			if o := unknownFields(field, inner); len(o) > 0 {
				more[name] = o
			}
		}
	}
	return more
}

// restoreFields adds what unknownFields returned, except to nested objects that are no longer
// there.
func restoreFields(o, more object, t reflect.Type) {
	for name, value := range more {
		if field, known := fieldOf(t, name); known {
			inner, exists := o[name].(object)
			if values, isObject := value.(object); exists && isObject {
				restoreFields(inner, values, field)
			}
			continue
		}
		o[name] = value
	}
}

// fieldOf finds a field of t by its name in JSON, as encoding/json does, and returns its type.
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
