package main

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"

	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi/client"
)

func (c *ctl) wantsJSON() bool { return c.json != "" && c.json != "off" }

// prettyJSON tells whether JSON is laid out for people: where that was asked for, and on a terminal
// where nothing was.
func (c *ctl) prettyJSON() bool { return c.json == "pretty" || c.json == "auto" && c.outTTY != nil }

// printJSON writes a value as JSON; without a style named, pretty on a terminal. Nothing in it acts
// on a terminal, wherever it is shown in the end.
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
	_, err := c.out.Write(wording.PrintableJSON(nullUnset(text.Bytes())))
	return err
}

// unsetNumbers are the numbers of a session that may be unknown, by their keys, with the value that
// stands for this on the bus.
var unsetNumbers = map[string]uint64{
	"MemoryCurrent": math.MaxUint64, "MemoryPeak": math.MaxUint64, "CPUUsageNSec": math.MaxUint64, "TasksCurrent": math.MaxUint64,
	"TotalRuntimeUSec": math.MaxUint64, "ExecMainCPUUsageNSec": math.MaxUint64, "ExecMainMaxRSS": math.MaxUint64, "LastActivityTimestamp": 0,
}

// nullUnset has null in JSON where a number is not known. What it looks for cannot be within a
// string: a quote is escaped there.
func nullUnset(text []byte) []byte {
	for key, unset := range unsetNumbers {
		for _, colon := range []string{":", ": "} {
			for _, end := range []string{",", "}", "\n"} {
				before := `"` + key + `"` + colon
				text = bytes.ReplaceAll(text, []byte(before+strconv.FormatUint(unset, 10)+end), []byte(before+"null"+end))
			}
		}
	}
	return text
}

// plainValues turns properties as they came from the bus into values for JSON.
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

// unitPropertyValues are unit properties by their names.
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
	case [][]any:
		if v == nil {
			return []any{}
		}
	}
	return value
}
