package main

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/corrald/corral/cmd/corralctl/top"
	"github.com/corrald/corral/dbusapi/client"
)

var topVerb = verb{name: "top", summary: "Watch and control all sessions on a full screen", details: topDetails(), options: func(f *pflag.FlagSet) action {
	sort := f.String("sort", "attention", "order by `KEY`: "+strings.Join(top.Sortings(), ", "))
	return func(ctx context.Context, c *ctl, args []string) error {
		if len(args) > 0 {
			return usagef("top", "top takes no %q; press / in it to show only some sessions", args[0])
		}
		if !slices.Contains(top.Sortings(), *sort) {
			return usagef("top", "--sort takes one of %s, not %q", strings.Join(top.Sortings(), ", "), *sort)
		}
		if !c.onTerminal() {
			return &failure{exitFailed, "cannot show a full screen: this is no terminal", "corralctl monitor"}
		}
		if term := os.Getenv("TERM"); term == "dumb" || term == "" {
			return &failure{exitFailed, "cannot show a full screen: this terminal has none (TERM=" + term + ")", "corralctl monitor"}
		}
		bus, err := c.connect(ctx)
		if err == nil {
			err = top.Run(ctx, bus, c.topOptions(bus, *sort))
		}
		if err != nil {
			return c.cannot("show the sessions", "", err)
		}
		return nil
	}
}}

func topDetails() string {
	return `What needs a person is on top, and says why. CPU is of one processor, of the last second, with its recent past beside it; counters are those of
the session's control group, and a dash is one that the system does not give. Below is the screen of the selected session.

Keys:
` + top.Help()
}

func (c *ctl) topOptions(bus *client.Client, sort string) top.Options {
	host := c.host
	if host == "" {
		host, _ = os.Hostname()
	}
	return top.Options{
		Host: host, Remote: c.host != "", Archived: c.all, Sort: sort,
		AttachCommand: func(ctx context.Context, id string) (*exec.Cmd, error) {
			if c.host != "" {
				return exec.Command("ssh", "-t", "--", c.host, "corralctl", "attach", id), nil
			}
			if err := c.refuseOwn(ctx, bus, id, "attach to"); err != nil {
				return nil, err
			}
			argv, variables, err := bus.AttachCommand(ctx, id)
			if err != nil {
				why, _ := c.cannotAttach(ctx, bus, id, err)
				return nil, why
			}
			followAgent()
			_ = bus.Acknowledge(ctx, id) // as attach does
			command := exec.Command(argv[0], argv[1:]...)
			command.Env = attachEnvironment(os.Environ(), variables)
			return command, nil
		},
		Leftovers: func(group string) int { return leftovers(client.Session{ControlGroup: group}) },
		Explain: func(doing, id string, err error) string {
			return c.cannot(doing, id, err).message
		},
	}
}
