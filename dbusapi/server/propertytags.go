package server

import (
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/propertysyntax"
	"github.com/corrald/corral/supervisor"
	"github.com/corrald/corral/supervisor/session"
)

// propertyFields are the fields of a structure that contain the values of properties.
type propertyFields []propertyField

type propertyField struct {
	property string
	index    int                     // of the field
	value    func(reflect.Value) any // converts its value to the type on the bus
}

// The fields of the properties of a session, from the tags of the structures.
var (
	snapshotFields, onDemandFields = fieldsOf(reflect.TypeFor[supervisor.Snapshot]())
	measuredFields, _              = fieldsOf(reflect.TypeFor[supervisor.Measurements]())
)

// fieldsOf returns the fields of a structure that have a tag `property:"NAME"`, and those with
// `property:"NAME,on-demand"`. It panics if a field's type has no conversion.
func fieldsOf(t reflect.Type) (published, onDemand propertyFields) {
	for i := range t.NumField() {
		tag, ok := t.Field(i).Tag.Lookup("property")
		if !ok {
			continue
		}
		name, isOnDemand := strings.CutSuffix(tag, ",on-demand")
		field := propertyField{name, i, conversion(t.Field(i).Type)}
		if isOnDemand {
			onDemand = append(onDemand, field)
		} else {
			published = append(published, field)
		}
	}
	return published, onDemand
}

// has reports whether one of the fields contains the value of the property.
func (f propertyFields) has(property string) bool {
	return slices.ContainsFunc(f, func(field propertyField) bool { return field.property == property })
}

// of returns the properties and their values in the structure that from points to.
func (f propertyFields) of(from any) iter.Seq2[string, any] {
	structure := reflect.ValueOf(from).Elem()
	return func(yield func(string, any) bool) {
		for _, field := range f {
			if !yield(field.property, field.value(structure.Field(field.index))) {
				return
			}
		}
	}
}

// changed returns the properties that differ in the structures that before and now point to, with
// their values in the latter, except those whose changes are not announced.
func (f propertyFields) changed(before, now any) properties {
	from, to := reflect.ValueOf(before).Elem(), reflect.ValueOf(now).Elem()
	different := properties{}
	for _, field := range f {
		value := field.value(to.Field(field.index))
		if published[field.property] != dbusapi.NotAnnounced &&
			!reflect.DeepEqual(field.value(from.Field(field.index)), value) {
			different[field.property] = value
		}
	}
	return different
}

// conversion returns the function that converts a field of a type of the supervisor to the type on
// the bus. A nil list or map is empty there. reflect.Value.Interface would allocate for each value.
func conversion(t reflect.Type) func(reflect.Value) any {
	switch reflect.Zero(t).Interface().(type) {
	case string:
		return func(v reflect.Value) any { return v.String() }
	case bool:
		return func(v reflect.Value) any { return v.Bool() }
	case int32:
		return func(v reflect.Value) any { return int32(v.Int()) }
	case uint32:
		return func(v reflect.Value) any { return uint32(v.Uint()) }
	case uint64:
		return func(v reflect.Value) any { return v.Uint() }
	case time.Duration:
		return func(v reflect.Value) any { return uint64(v.Int() / int64(time.Microsecond)) }
	case time.Time:
		return convertWith(usec)
	case []string:
		return convertWith(func(list []string) []string {
			if list == nil {
				return []string{}
			}
			return list
		})
	case []uint16:
		return convertWith(func(list []uint16) []uint16 {
			if list == nil {
				return []uint16{}
			}
			return list
		})
	case map[string]string:
		return convertWith(func(m map[string]string) map[string]string {
			if m == nil {
				return map[string]string{}
			}
			return m
		})
	case []session.RunSummary:
		return convertWith(runRows)
	case []session.Property:
		return convertWith(unitPropertyRows)
	}
	panic(fmt.Sprintf("no property has the type %s", t))
}

// convertWith returns a conversion that passes the field's value to convert.
func convertWith[From, To any](convert func(From) To) func(reflect.Value) any {
	return func(v reflect.Value) any { return convert(*v.Addr().Interface().(*From)) }
}

func runRows(runs []session.RunSummary) []dbusapi.RunRow {
	rows := make([]dbusapi.RunRow, 0, len(runs))
	for _, r := range runs {
		rows = append(rows, dbusapi.RunRow{
			ID: r.ID, Start: usec(r.Began), End: usec(r.Ended),
			Result: r.Result, Code: int32(r.Code), Status: int32(r.Status), Reason: r.Reason,
		})
	}
	return rows
}

// unitPropertyRows converts stored properties of a scope to the form that systemd expects. It omits
// those that it cannot decode.
func unitPropertyRows(saved []session.Property) []dbusapi.UnitProperty {
	all := []dbusapi.UnitProperty{}
	for _, p := range saved {
		if value, err := propertysyntax.Decode(p.Signature, p.Value); err == nil {
			all = append(all, dbusapi.UnitProperty{Name: p.Name, Value: value})
		}
	}
	return all
}

func usec(t time.Time) uint64 {
	if t.IsZero() {
		return 0
	}
	return uint64(t.UnixMicro())
}
