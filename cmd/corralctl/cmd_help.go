package main

import (
	"cmp"
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

var helpVerb = verb{
	name: "help", args: "[VERB|options]", summary: "Print help",
	options: plainVerb(func(_ context.Context, c *ctl, args []string) error {
		cmd := c.commands
		switch {
		case len(args) == 0:
		case args[0] == "options":
			c.printSection("Options of every verb", flagHelp(cmd.PersistentFlags(), nil))
			return nil
		default:
			var err error
			if cmd, err = c.findVerb(args[0]); err != nil {
				return err
			}
		}
		c.printHelp(cmd)
		if cmd.Name() == agentsVerb.name {
			fmt.Fprint(c.out, "\n", agentHelp)
		}
		return nil
	}),
}

// The help of each verb fits a terminal of 24 lines, together with the shell's prompt.
const (
	helpWidth  = 80
	helpHeight = 23
)

// printHelp prints the help of corralctl, or of one of its verbs.
func (c *ctl) printHelp(cmd *cobra.Command) {
	if cmd.HasParent() {
		c.printVerbHelp(cmd)
		return
	}
	fmt.Fprint(c.out, "corralctl [OPTIONS…] [VERB …]\n\nSupervise coding agents under systemd. Without a verb: list.\n")
	for _, group := range cmd.Groups() {
		var lines strings.Builder
		for _, v := range cmd.Commands() {
			if v.GroupID == group.ID && !v.Hidden {
				fmt.Fprintf(&lines, "  %-12s  %s\n", v.Name(), v.Short)
			}
		}
		fmt.Fprintln(c.out)
		c.printSection(group.Title, lines.String())
	}
	fmt.Fprintln(c.out)
	c.printSection("Options", flagHelp(cmd.PersistentFlags(), nil))
	fmt.Fprintln(c.out)
	c.printSection("Examples", c.examplesHelp(examples["corralctl"]))
	fmt.Fprint(c.out, `
ID is a session's, any unambiguous prefix of it, or a pattern such as 'fix-*'.

Exit codes: 0 done, 1 refused or failed, 2 usage, 3 session not live (status,
is-active), 4 no such session, 5 corrald cannot be reached. wait and run --wait
exit with the agent's exit code.

More: corralctl help VERB, man corralctl
`)
}

// printSection prints one section of the help.
func (c *ctl) printSection(title, lines string) {
	fmt.Fprintf(c.out, "%s\n%s", c.paint(wording.Bold, title+":"), lines)
}

// printVerbHelp prints the help of a verb, with as many examples as the screen has room for. If
// there is not even room for the options, empty lines between the sections are omitted.
func (c *ctl) printVerbHelp(cmd *cobra.Command) {
	var text strings.Builder
	for _, args := range strings.Split(strings.TrimPrefix(cmd.Use, cmd.Name()), " | ") {
		args = strings.TrimPrefix(strings.TrimSpace(args), cmd.Name()+" ")
		fmt.Fprintln(&text, strings.TrimSpace("corralctl "+cmd.Name()+" "+args))
	}
	fmt.Fprintf(&text, "  %s.\n", cmd.Short)
	if cmd.Long != "" {
		fmt.Fprintf(&text, "\n%s", reflow(cmd.Long))
	}
	options := c.optionsHelp(cmd)
	lines, separator := examples[cmd.Name()], "\n"
	room := helpHeight - strings.Count(text.String()+options, "\n") - 4
	if room < 0 {
		separator = ""
	}
	fmt.Fprint(c.out, text.String(), separator)
	c.printSection("Options", options)
	lines = lines[:min(len(lines), max(room, 0))]
	if len(lines) > 0 {
		fmt.Fprint(c.out, separator)
		c.printSection("Examples", c.examplesHelp(lines))
	}
}

// rareOption is the annotation of an option that the help of its verb only names, because it has no
// room for another line.
const rareOption = "rare"

// optionsHelp describes the verb's own options, except for rare ones, then the global options that
// have a special meaning for it, with that meaning. It only names the other global options, and
// omits those without effect on it.
func (c *ctl) optionsHelp(cmd *cobra.Command) string {
	options := pflag.NewFlagSet("", pflag.ContinueOnError)
	options.SortFlags = false
	var also, rare []string
	cmd.LocalNonPersistentFlags().VisitAll(func(option *pflag.Flag) {
		if _, is := option.Annotations[rareOption]; is {
			rare = append(rare, "--"+option.Name)
		} else {
			options.AddFlag(option)
		}
	})
	cmd.InheritedFlags().VisitAll(func(option *pflag.Flag) {
		meaning, used := sharedMeaning(cmd.Name(), option.Name)
		switch {
		case meaning != "":
			options.AddFlag(option)
		case option.Name == "help":
		case used && option.Shorthand != "":
			also = append(also, "-"+option.Shorthand)
		case used:
			also = append(also, "--"+option.Name)
		}
	})
	lines := flagHelp(options, func(name string) string {
		meaning, _ := sharedMeaning(cmd.Name(), name)
		return meaning
	})
	if len(rare) > 0 {
		lines += fmt.Sprintf("  %s: see man corralctl\n", strings.Join(rare, ", "))
	}
	if len(also) == 0 {
		return lines
	}
	return lines + fmt.Sprintf("  %s: see corralctl help options\n", strings.Join(also, ", "))
}

// examplesHelp returns the commands, each with its description beside it.
func (c *ctl) examplesHelp(examples []string) string {
	width := 0
	for _, example := range examples {
		command, _, _ := strings.Cut(example, "  # ")
		width = max(width, utf8.RuneCountInString(command))
	}
	var lines strings.Builder
	for _, example := range examples {
		command, about, _ := strings.Cut(example, "  # ")
		fmt.Fprintf(&lines, "  %-*s  %s\n", width, command, c.paint(wording.Dim, "# "+about))
	}
	return lines.String()
}

// flagHelp describes each option. The text in backquotes in an option's usage names its value. What
// meaning returns replaces the usage, unless it is "".
func flagHelp(f *pflag.FlagSet, meaning func(name string) string) string {
	var names, usages []string
	width := 0
	f.VisitAll(func(option *pflag.Flag) {
		value, usage := pflag.UnquoteUsage(option)
		if meaning != nil {
			usage = cmp.Or(meaning(option.Name), usage)
		}
		name := "    --" + option.Name
		if option.Shorthand != "" {
			name = "-" + option.Shorthand + ", --" + option.Name
		}
		switch {
		case value != "" && option.NoOptDefVal != "":
			name += "[=" + value + "]"
		case value != "":
			name += " " + value
		}
		names, usages = append(names, name), append(usages, usage)
		width = max(width, utf8.RuneCountInString(name))
	})
	var lines strings.Builder
	for i, name := range names {
		for _, part := range wrapText(usages[i], helpWidth-width-4) {
			fmt.Fprintf(&lines, "  %-*s  %s\n", width, name, part)
			name = ""
		}
	}
	return lines.String()
}

// reflow wraps the paragraphs of a text for the screen. Lines that begin with a blank stay as they
// are.
func reflow(text string) string {
	var lines, paragraph []string
	end := func() {
		if len(paragraph) > 0 {
			lines, paragraph = append(lines, wrapText(strings.Join(paragraph, " "), helpWidth)...), nil
		}
	}
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		if line != "" && line[0] != ' ' && !strings.HasSuffix(line, ":") {
			paragraph = append(paragraph, line)
			continue
		}
		end()
		lines = append(lines, line)
	}
	end()
	return strings.Join(lines, "\n") + "\n"
}

// wrapText breaks a text into lines of at most width characters, between words.
func wrapText(text string, width int) []string {
	lines := []string{""}
	for word := range strings.FieldsSeq(text) {
		last := &lines[len(lines)-1]
		switch {
		case *last == "":
			*last = word
		case utf8.RuneCountInString(*last)+1+utf8.RuneCountInString(word) <= width:
			*last += " " + word
		default:
			lines = append(lines, word)
		}
	}
	return lines
}

var versionVerb = verb{
	name: "version", summary: "Print the versions of corralctl and corrald",
	options: plainVerb(func(ctx context.Context, c *ctl, _ []string) error {
		var manager client.Manager
		bus, err := c.connect(ctx)
		if err == nil {
			manager, err = bus.Manager(ctx)
		}
		if err != nil && (c.isRemote() || c.hasTimedOut()) { // a daemon that does not run has no version
			return err
		}
		if c.wantsJSON() {
			return c.printJSON(versionValue{version.Version, manager.Version})
		}
		if err := printVersion(c); err != nil {
			return err
		}
		switch {
		case c.isUnanswered(err):
			c.print("corrald does not answer\n")
		case manager.Version == "":
			c.print("corrald is not running\n")
		default:
			c.print("corrald %s\n", manager.Version)
		}
		return nil
	}),
}

func printVersion(c *ctl) error {
	c.print("corralctl %s\n", version.Version)
	return nil
}
