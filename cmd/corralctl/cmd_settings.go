package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/dbusapi/client"
	"github.com/corrald/corral/dbusapi/word"
	"github.com/corrald/corral/internal/propertysyntax"
)

var enableVerb = verb{name: "enable", args: "ID…", summary: "Resume sessions at login",
	options: func(f *pflag.FlagSet) action {
		fresh := f.Bool("start", false, "start them afresh instead of resuming")
		return func(ctx context.Context, c *ctl, args []string) error {
			how, done := word.Resume, "resumed"
			if *fresh {
				how, done = word.Start, "started"
			}
			return c.setOnLogin(ctx, args, how, "Session %s will be "+done+" at login.\n")
		}
	}}

// setOnLogin sets what happens to sessions at login, and prints text, a format for the id, for
// each.
func (c *ctl) setOnLogin(ctx context.Context, words []string, how, text string) error {
	ids, err := c.tryEach(ctx, words, "",
		func(ctx context.Context, id string) error { return c.client.SetOnLogin(ctx, id, how) })
	slices.SortFunc(ids, wording.CompareNatural)
	for _, id := range ids {
		if !c.quiet {
			c.print(text, id)
		}
	}
	return err
}

var disableVerb = verb{name: "disable", args: "ID…", summary: "Do not resume sessions at login", options: plainVerb(
	func(ctx context.Context, c *ctl, args []string) error {
		return c.setOnLogin(ctx, args, word.Ignore, "Session %s will not be started at login.\n")
	})}

var ackVerb = verb{name: "ack", args: "ID…", summary: "Mark a session's request as seen", options: plainVerb(
	func(ctx context.Context, c *ctl, args []string) error {
		return c.forEach(ctx, args, "", func(ctx context.Context, id string) error { return c.client.Acknowledge(ctx, id) })
	})}

var describeVerb = verb{name: "describe", args: "ID TEXT", summary: "Set a session's description", options: plainVerb(
	func(ctx context.Context, c *ctl, args []string) error {
		if err := checkIDAndText("describe", args); err != nil {
			return err
		}
		if !isSendable(args[1]) {
			return usagef("describe", "the description is not valid UTF-8")
		}
		return c.forEach(ctx, args[:1], "",
			func(ctx context.Context, id string) error { return c.client.SetDescription(ctx, id, args[1]) })
	})}

var labelVerb = verb{name: "label", args: "ID [KEY=VALUE…] [KEY-…]",
	summary: "Set, remove (KEY-) or show labels of sessions", options: plainVerb(
		func(ctx context.Context, c *ctl, args []string) error {
			if len(args) == 0 {
				return usagef("label", "label: missing ID")
			}
			for _, change := range args[1:] {
				key, value, set := strings.Cut(change, "=")
				if !set && !strings.HasSuffix(change, "-") || key == "" || change == "-" {
					return usagef("label", "invalid label %q: expected KEY=VALUE or KEY-", change)
				}
				if err := checkLabel(key, value); err != nil {
					return usageError("label", err)
				}
			}
			if len(args) == 1 {
				return c.showLabels(ctx, args[0])
			}
			return c.forEach(ctx, args[:1], "", func(ctx context.Context, id string) error { return c.label(ctx, id, args[1:]) })
		})}

func (c *ctl) showLabels(ctx context.Context, word string) error {
	id, err := c.resolveOne(ctx, word)
	if err != nil {
		return err
	}
	s, err := c.client.Session(ctx, id)
	switch {
	case err != nil:
		return c.cannot("label", id, err)
	case c.wantsJSON():
		return c.printJSON(s.Labels)
	}
	for _, label := range wording.Labels(s.Labels) {
		c.print("%s\n", label)
	}
	return nil
}

func (c *ctl) label(ctx context.Context, id string, changes []string) error {
	s, err := c.client.Session(ctx, id)
	if err != nil {
		return err
	}
	labels := s.Labels
	if labels == nil {
		labels = map[string]string{}
	}
	for _, change := range changes {
		if key, value, ok := strings.Cut(change, "="); ok {
			labels[key] = value
		} else {
			delete(labels, strings.TrimSuffix(change, "-"))
		}
	}
	return c.client.SetLabels(ctx, id, labels)
}

var setPropertyVerb = verb{name: "set-property", args: "ID NAME=VALUE…",
	summary: "Set limits of a session, now and for later runs", options: plainVerb(
		func(ctx context.Context, c *ctl, args []string) error {
			if len(args) < 2 {
				return usagef("set-property", "set-property: expected ID and NAME=VALUE")
			}
			properties, err := unitProperties(args[1:])
			if err != nil {
				return usageError("set-property", err)
			}
			return c.forEach(ctx, args[:1], "",
				func(ctx context.Context, id string) error { return c.client.SetUnitProperties(ctx, id, properties) })
		})}

// unitProperties parses texts of the form NAME=VALUE.
func unitProperties(texts []string) ([]dbusapi.UnitProperty, error) {
	var properties []dbusapi.UnitProperty
	for _, text := range texts {
		name, value, err := propertysyntax.Parse(text)
		if err != nil {
			return nil, err
		}
		properties = append(properties, dbusapi.UnitProperty{Name: name, Value: value})
	}
	return properties, nil
}

var reloadVerb = verb{name: "reload", summary: "Reload the configuration of corrald",
	options: plainVerb(func(ctx context.Context, c *ctl, _ []string) error {
		bus, err := c.connect(ctx)
		if err != nil {
			return err
		}
		return bus.Reload(ctx)
	})}

var cleanVerb = verb{name: "clean", summary: "Remove ended sessions whose retention time has passed",
	options: func(f *pflag.FlagSet) action {
		dryRun := f.Bool("dry-run", false, "only print which sessions would be removed")
		return func(ctx context.Context, c *ctl, _ []string) error {
			bus, err := c.connect(ctx)
			if err != nil {
				return err
			}
			clean, text := bus.Clean, "Removed session %s.\n"
			if *dryRun {
				clean, text = func(ctx context.Context) ([]string, error) { return expired(ctx, bus) }, "Would remove session %s.\n"
			}
			ids, err := clean(ctx)
			if err != nil {
				return err
			}
			if c.wantsJSON() {
				return c.printJSON(append([]string{}, ids...))
			}
			if !c.quiet {
				for _, id := range ids {
					fmt.Fprintf(c.out, text, wording.Printable(id))
				}
			}
			return nil
		}
	}}

// expired returns the sessions that clean would remove.
func expired(ctx context.Context, bus *client.Client) ([]string, error) {
	sessions, err := bus.Sessions(ctx)
	if err != nil {
		return nil, err
	}
	var ids []string
	now := uint64(time.Now().UnixMicro())
	for _, s := range sessions {
		if s.ExpireTimestamp != 0 && s.ExpireTimestamp <= now {
			ids = append(ids, s.Id)
		}
	}
	return ids, nil
}
