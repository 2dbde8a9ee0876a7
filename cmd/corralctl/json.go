package main

import (
	"bytes"
	"encoding/json"

	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi/client"
)

func (c *ctl) wantsJSON() bool { return c.json != "" && c.json != "off" }

// prettyJSON tells whether JSON is laid out for people: where that was asked for, and on a terminal where nothing was.
func (c *ctl) prettyJSON() bool { return c.json == "pretty" || c.json == "auto" && c.outTTY != nil }

// printJSON writes a value as JSON; without a style named, pretty on a terminal. Nothing in it acts on a terminal, wherever it is shown in the end.
func (c *ctl) printJSON(value any) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if c.prettyJSON() {
		encoder.SetIndent("", "  ")
	}
	if err := encoder.Encode(value); err != nil {
		return err
	}
	_, err := c.out.Write(wording.PrintableJSON(text.Bytes()))
	return err
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
