package main

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi/client"
	"github.com/corrald/corral/internal/version"
)

var helpVerb = verb{name: "help", args: "[VERB]", summary: "Print help", options: plainVerb(func(_ context.Context, c *ctl, args []string) error {
	cmd := c.commands
	if len(args) > 0 {
		var err error
		if cmd, err = c.findVerb(args[0]); err != nil {
			return err
		}
	}
	c.printHelp(cmd)
	return nil
})}

// printHelp prints the help of corralctl, or of one of its verbs.
func (c *ctl) printHelp(cmd *cobra.Command) {
	if cmd.HasParent() {
		c.verbHelp(cmd)
		return
	}
	fmt.Fprintf(c.out, "corralctl [OPTIONS…] VERB …\n\nControl coding agents that run under systemd. Without a verb: list.\n")
	for _, group := range cmd.Groups() {
		fmt.Fprintf(c.out, "\n%s\n", c.paint(wording.Bold, group.Title))
		for _, v := range cmd.Commands() {
			if v.GroupID == group.ID && !v.Hidden {
				fmt.Fprintf(c.out, "  %-31s %s\n", shortArgs(v.Use), v.Short)
			}
		}
	}
	fmt.Fprintf(c.out, "\n%s\n%s", c.paint(wording.Bold, "Options:"), optionHelp(cmd.PersistentFlags()))
	fmt.Fprintf(c.out, "\nAn ID may be the beginning of one, or a pattern such as 'fix-*'.\nExit codes: 0 done, 1 refused or failed, 2 usage, 4 no such session, 5 corrald cannot be reached.\nMore: corralctl help VERB, man corralctl\n")
}

// shortArgs are a verb's arguments where there is a line for all of it.
func shortArgs(args string) string {
	short, _, _ := strings.Cut(args, " |")
	return short
}

func (c *ctl) verbHelp(cmd *cobra.Command) {
	for _, args := range strings.Split(strings.TrimPrefix(cmd.Use, cmd.Name()), " | ") {
		fmt.Fprintln(c.out, strings.TrimSpace("corralctl "+cmd.Name()+" "+strings.TrimPrefix(strings.TrimSpace(args), cmd.Name()+" ")))
	}
	fmt.Fprintf(c.out, "\n%s.\n", cmd.Short)
	if cmd.Long != "" {
		fmt.Fprintf(c.out, "\n%s", cmd.Long)
	}
	if own := cmd.LocalNonPersistentFlags(); own.HasFlags() {
		fmt.Fprintf(c.out, "\n%s\n%s", c.paint(wording.Bold, "Options:"), optionHelp(own))
	}
	fmt.Fprintf(c.out, "\n%s\n%s", c.paint(wording.Bold, "Options of every verb:"), optionHelp(cmd.InheritedFlags()))
	if lines := examples[cmd.Name()]; len(lines) > 0 {
		fmt.Fprintf(c.out, "\n%s\n", c.paint(wording.Bold, "Examples:"))
		c.printExamples(lines)
	}
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
