package main

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi/client"
	"github.com/corrald/corral/internal/version"
)

// helpVerb is set by init, because help is printed from the verbs, of which it is one.
var helpVerb = verb{name: "help", args: "[VERB]", summary: "Print help"}

func init() {
	helpVerb.options = plainVerb(func(_ context.Context, c *ctl, args []string) error { return printHelp(c, args) })
}

func printHelp(c *ctl, args []string) error {
	if len(args) > 0 {
		v, err := findVerb(args[0])
		if err != nil {
			return err
		}
		return verbHelp(c, v)
	}
	fmt.Fprintf(c.out, "corralctl [OPTIONS…] VERB …\n\nControl coding agents that run under systemd. Without a verb: list.\n")
	for _, group := range verbGroups() {
		fmt.Fprintf(c.out, "\n%s\n", c.paint(wording.Bold, group.title+":"))
		for _, v := range group.verbs {
			if v.summary != "" {
				fmt.Fprintf(c.out, "  %-31s %s\n", strings.TrimSpace(v.name+" "+shortArgs(v)), v.summary)
			}
		}
	}
	fmt.Fprintf(c.out, "\n%s\n%s", c.paint(wording.Bold, "Options:"), optionHelp(globalFlags()))
	fmt.Fprintf(c.out, "\nAn ID may be the beginning of one, or a pattern such as 'fix-*'.\nExit codes: 0 done, 1 refused or failed, 2 usage, 4 no such session, 5 corrald cannot be reached.\nMore: corralctl help VERB, man corralctl\n")
	return nil
}

// shortArgs are a verb's arguments where there is a line for all of it.
func shortArgs(v verb) string {
	short, _, _ := strings.Cut(v.args, " |")
	return short
}

func verbHelp(c *ctl, v verb) error {
	for _, args := range strings.Split(v.args, " | ") {
		fmt.Fprintln(c.out, strings.TrimSpace("corralctl "+v.name+" "+strings.TrimPrefix(args, v.name+" ")))
	}
	fmt.Fprintf(c.out, "\n%s.\n", v.summary)
	if v.details != "" {
		fmt.Fprintf(c.out, "\n%s", v.details)
	}
	own := pflag.NewFlagSet(v.name, pflag.ContinueOnError)
	v.options(own)
	if own.HasFlags() {
		fmt.Fprintf(c.out, "\n%s\n%s", c.paint(wording.Bold, "Options:"), optionHelp(own))
	}
	fmt.Fprintf(c.out, "\n%s\n%s", c.paint(wording.Bold, "Options of every verb:"), optionHelp(globalFlags()))
	if lines := examples[v.name]; len(lines) > 0 {
		fmt.Fprintf(c.out, "\n%s\n", c.paint(wording.Bold, "Examples:"))
		c.printExamples(lines)
	}
	return nil
}

// printExamples prints commands, each with what it does beside it.
func (c *ctl) printExamples(lines []string) {
	width := 0
	for _, line := range lines {
		command, _, _ := strings.Cut(line, "  # ")
		width = max(width, utf8.RuneCountInString(command))
	}
	for _, line := range lines {
		command, about, _ := strings.Cut(line, "  # ")
		fmt.Fprintf(c.out, "  %-*s  %s\n", width, command, c.paint(wording.Dim, "# "+about))
	}
}

// optionHelp is a line for each option. What stands in backquotes in an option's usage names its value.
func optionHelp(f *pflag.FlagSet) string {
	var lines strings.Builder
	f.VisitAll(func(option *pflag.Flag) {
		value, usage := pflag.UnquoteUsage(option)
		text := "    --" + option.Name
		if option.Shorthand != "" {
			text = "-" + option.Shorthand + ", --" + option.Name
		}
		switch {
		case value != "" && option.NoOptDefVal != "":
			text += "[=" + value + "]"
		case value != "":
			text += " " + value
		}
		fmt.Fprintf(&lines, "  %-26s %s\n", text, usage)
	})
	return lines.String()
}

// globalFlags is the set of global options, for their descriptions.
func globalFlags() *pflag.FlagSet {
	f := pflag.NewFlagSet("corralctl", pflag.ContinueOnError)
	new(globals).register(f)
	return f
}

var versionVerb = verb{name: "version", summary: "Print the versions of corralctl and of the corrald that runs", options: plainVerb(bareVerb("version",
	func(ctx context.Context, c *ctl, _ []string) error {
		var manager client.Manager
		bus, err := c.connect(ctx)
		if err == nil {
			manager, err = bus.Manager(ctx)
		}
		if err != nil && (c.host != "" || c.late()) { // of a daemon that is not there, there is no version
			return c.cannot("ask corrald for its version", "", err)
		}
		if c.wantsJSON() {
			return c.printJSON(versionValue{version.Version, manager.Version})
		}
		if err := printVersion(c); err != nil {
			return err
		}
		switch {
		case c.unanswered(err):
			c.print("corrald does not answer\n")
		case manager.Version == "":
			c.print("corrald is not running\n")
		default:
			c.print("corrald %s\n", manager.Version)
		}
		return nil
	}))}

func printVersion(c *ctl) error {
	c.print("corralctl %s\n", version.Version)
	return nil
}
