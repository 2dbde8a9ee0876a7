package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/godbus/dbus/v5"
	"github.com/spf13/pflag"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi/client"
)

var showVerb = verb{name: "show", args: "[ID…]", summary: "Show properties of sessions; without ID of corrald",
	pages: true,
	options: func(f *pflag.FlagSet) action {
		names := f.StringSliceP("property", "p", nil, "only the properties with these `NAMES`")
		bare := f.StringSliceP("value-of", "P", nil, "the same as -p `NAMES` --value")
		value := f.Bool("value", false, "print values without their names")
		return func(ctx context.Context, c *ctl, args []string) error {
			show := propertyPrinter{names: append(*names, *bare...), values: *value || len(*bare) > 0}
			if len(args) == 0 && !c.all {
				return c.showManager(ctx, show)
			}
			return c.showSessions(ctx, show, args)
		}
	}}

// propertyPrinter prints properties of a session or of corrald.
type propertyPrinter struct {
	names  []string // empty: all
	values bool
}

func (c *ctl) showManager(ctx context.Context, show propertyPrinter) error {
	bus, err := c.connect(ctx)
	if err != nil {
		return err
	}
	properties, err := bus.ManagerProperties(ctx)
	if err == nil {
		properties, err = show.selectNamed(properties)
	}
	if err != nil {
		return c.cannotShow("", err)
	}
	if c.wantsJSON() {
		return c.printJSON(plainValues(properties))
	}
	show.print(c, properties)
	return nil
}

func (c *ctl) showSessions(ctx context.Context, show propertyPrinter, words []string) error {
	ids, unresolved := c.resolve(ctx, words)
	all := []map[string]any{}
	var failed failures
	shown := false
	for _, id := range ids {
		properties, err := c.client.SessionProperties(ctx, id)
		if err == nil {
			properties, err = show.selectNamed(properties)
		}
		if err != nil {
			failed.add(c, c.cannotShow(id, err))
			continue
		}
		if c.wantsJSON() {
			all = append(all, plainValues(properties))
			continue
		}
		if shown {
			fmt.Fprintln(c.out)
		}
		show.print(c, properties)
		shown = true
	}
	if c.wantsJSON() && len(ids) > 0 {
		if err := c.printJSON(all); err != nil {
			return err
		}
	}
	return cmp.Or(unresolved, failed.first())
}

// selectNamed returns the properties with the names in s.names.
func (p propertyPrinter) selectNamed(properties client.Properties) (client.Properties, error) {
	if len(p.names) == 0 {
		return properties, nil
	}
	picked := client.Properties{}
	for _, name := range p.names {
		value, ok := properties[name]
		if !ok {
			return nil, &noPropertyError{name, slices.Sorted(maps.Keys(properties))}
		}
		picked[name] = value
	}
	return picked, nil
}

func (p propertyPrinter) print(c *ctl, properties client.Properties) {
	names := p.names
	if len(names) == 0 {
		names = slices.Sorted(maps.Keys(properties))
	}
	for _, name := range names {
		if !p.values {
			c.print("%s=", name)
		}
		c.print("%s\n", propertyText(properties[name].Value()))
	}
}

// propertyText formats a property's value on one line: numbers and times unchanged, lists quoted
// for a shell.
func propertyText(value any) string {
	switch v := value.(type) {
	case string:
		return v
	case bool:
		if v {
			return "yes"
		}
		return "no"
	case uint64:
		if !wording.IsAvailable(v) {
			return "[not set]"
		}
	case []string:
		return wording.ShellWords(v)
	case []uint16:
		return strings.Trim(fmt.Sprint(v), "[]")
	case map[string]string:
		var words []string
		for _, key := range slices.Sorted(maps.Keys(v)) {
			words = append(words, key+"="+v[key])
		}
		return wording.ShellWords(words)
	case [][]any:
		var entries []string
		for _, entry := range v {
			var words []string
			for _, field := range entry {
				words = append(words, propertyText(field))
			}
			entries = append(entries, strings.Join(words, ":"))
		}
		return wording.ShellWords(entries)
	case dbus.Variant:
		return propertyText(v.Value())
	}
	return fmt.Sprint(value)
}

// noPropertyError reports a name that no property has.
type noPropertyError struct {
	name  string
	known []string
}

func (e *noPropertyError) Error() string { return fmt.Sprintf("no property %q", e.name) }

// cannotShow describes why the properties of a session, or of corrald, are not shown.
func (c *ctl) cannotShow(id string, err error) *failure {
	f := c.cannot("show", id, err)
	var unknown *noPropertyError
	if errors.As(err, &unknown) {
		f.hint = strings.TrimSpace("corralctl show " + id)
		if near := nearestWord(unknown.name, unknown.known); near != "" {
			f.hint = strings.TrimSpace("corralctl show --property=" + near + " " + id)
		}
	}
	return f
}
