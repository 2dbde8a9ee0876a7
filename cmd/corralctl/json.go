package main

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/dbusapi/client"
)

func (c *ctl) wantsJSON() bool { return c.json != "" && c.json != "off" }

// prettyJSON returns whether JSON is indented: with --json=pretty, and on a terminal by default.
func (c *ctl) prettyJSON() bool { return c.json == "pretty" || c.json == "auto" && c.outTTY != nil }

// printJSON prints a value as JSON, indented on a terminal by default. All characters are escaped
// that a terminal would interpret.
func (c *ctl) printJSON(value any) error {
	text, err := encodeJSON(value, c.prettyJSON())
	if err != nil {
		return err
	}
	_, err = c.out.Write(text)
	return err
}

func encodeJSON(value any, pretty bool) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if pretty {
		encoder.SetIndent("", "  ")
	}
	err := encoder.Encode(value)
	return wording.PrintableJSON(nullUnset(text.Bytes())), err
}

// nullUnset replaces unknown numbers in JSON text by null. The pattern cannot match within a
// string, because quotes are escaped there.
func nullUnset(text []byte) []byte {
	for _, property := range dbusapi.SessionProperties {
		if !property.MayBeUnknown {
			continue
		}
		for _, colon := range []string{":", ": "} {
			for _, end := range []string{",", "}", "\n"} {
				before := `"` + property.Name + `"` + colon
				number := strconv.FormatUint(property.NotKnown, 10)
				text = bytes.ReplaceAll(text, []byte(before+number+end), []byte(before+"null"+end))
			}
		}
	}
	return text
}

// plainValues converts properties from the bus to values for JSON.
func plainValues(properties client.Properties) map[string]any {
	values := make(map[string]any, len(properties))
	for name, value := range properties {
		values[name] = plainValue(value.Value())
	}
	if rows, ok := properties["UnitProperties"].Value().([][]any); ok {
		values["UnitProperties"] = unitPropertyValues(rows)
	}
	return values
}

// unitPropertyValues returns unit properties by their names.
func unitPropertyValues(rows [][]any) map[string]any {
	values := make(map[string]any, len(rows))
	for _, row := range rows {
		if name, ok := row[0].(string); ok && len(row) == 2 {
			values[name] = plainValue(row[1])
		}
	}
	return values
}

func plainValue(value any) any {
	switch v := value.(type) {
	case dbus.Variant:
		return plainValue(v.Value())
	case []string:
		if v == nil {
			return []string{}
		}
	case []uint16:
		if v == nil {
			return []uint16{}
		}
	case [][]any:
		if v == nil {
			return []any{}
		}
	}
	return value
}
