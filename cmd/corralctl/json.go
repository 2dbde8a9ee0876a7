package main

import (
	"encoding/json"

	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/dbusapi/client"
)

func (c *ctl) wantsJSON() bool { return c.json != "" && c.json != "off" }

// prettyJSON tells whether JSON is laid out for people: where that was asked for, and on a terminal where nothing was.
func (c *ctl) prettyJSON() bool { return c.json == "pretty" || c.json == "auto" && c.outTTY != nil }

// printJSON writes a value as JSON; without a style named, pretty on a terminal.
func (c *ctl) printJSON(value any) error {
	encoder := json.NewEncoder(c.out)
	encoder.SetEscapeHTML(false)
	if c.prettyJSON() {
		encoder.SetIndent("", "  ")
	}
	return encoder.Encode(value)
}

// plainValues turns properties as they came from the bus into values for JSON.
func plainValues(properties client.Properties) map[string]any {
	values := make(map[string]any, len(properties))
	for name, value := range properties {
		values[name] = plainValue(value.Value())
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
	case [][]any:
		if v == nil {
			return []any{}
		}
	}
	return value
}
