package main

import (
	"encoding/json"
	"fmt"
	"strings"
)

// jsonType is the type of a property's value in JSON: as docs/reference/json.md names it, and as a
// JSON schema names it.
type jsonType struct{ name, schema string }

// jsonTypeOf returns the type in JSON of a D-Bus type.
func jsonTypeOf(dbusType string) jsonType {
	switch {
	case dbusType == "s":
		return jsonType{"text", "string"}
	case dbusType == "b":
		return jsonType{"bool", "boolean"}
	case strings.HasPrefix(dbusType, "a{"), dbusType == "a(sv)":
		return jsonType{"object", "object"}
	case strings.HasPrefix(dbusType, "a"):
		return jsonType{"list", "array"}
	}
	return jsonType{"number", "integer"}
}

// isInList reports whether the JSON output of the list verb has the property.
func isInList(p member) bool { return p.DBusType != "a(sv)" && p.DBusType != "a(sttsiis)" }

// describeJSON returns the page about the JSON output with the tables of the properties in it. Each
// table is between two comments.
func (c contract) describeJSON(page string) (string, error) {
	for _, table := range []struct {
		of         string
		properties []member
	}{{"a session", c.session}, {"the daemon", c.manager}} {
		begin, end := "<!-- generated: properties of "+table.of+" -->\n", "<!-- end -->\n"
		before, rest, found := strings.Cut(page, begin)
		_, after, closed := strings.Cut(rest, end)
		if !found || !closed {
			return "", fmt.Errorf("cannot find the table of the properties of %s in %s", table.of, jsonPage)
		}
		var rows strings.Builder
		rows.WriteString("| key | type | meaning |\n|---|---|---|\n")
		for _, p := range table.properties {
			if !isInList(p) {
				continue
			}
			kind := jsonTypeOf(p.DBusType).name
			if p.NotKnown != "" {
				kind += " or null"
			}
			fmt.Fprintf(&rows, "| `%s` | %s | %s |\n", p.Name, kind, tableCell(p.Comment))
		}
		page = before + begin + rows.String() + end + after
	}
	return page, nil
}

// jsonSchema returns a JSON schema of the objects that list and show print.
func (c contract) jsonSchema() (string, error) {
	type object = map[string]any
	definition := func(title string, properties []member) object {
		described, required := object{}, []string{}
		for _, p := range properties {
			var kind any = jsonTypeOf(p.DBusType).schema
			if p.NotKnown != "" {
				kind = []any{kind, "null"}
			}
			described[p.Name] = object{"type": kind, "description": p.Comment}
			if isInList(p) {
				required = append(required, p.Name)
			}
		}
		return object{"title": title, "type": "object", "properties": described, "required": required}
	}
	text, err := json.MarshalIndent(object{
		"$schema": "https://json-schema.org/draft/2020-12/schema",
		"title":   "JSON output of corralctl",
		"$defs": object{
			"session": definition("A session, as list and show print it", c.session),
			"daemon":  definition("The daemon, as show and status print it", c.manager),
		},
	}, "", "  ")
	return string(text) + "\n", err
}
