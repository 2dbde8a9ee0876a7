package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// verb is one thing that corralctl does, from which the command of cobra's is built. A verb without
// a summary is hidden from help and completion.
type verb struct {
	name    string
	args    string
	summary string
	details string // what its own help says below the summary, "" for nothing; ends with a newline
	pages   bool   // long output goes through the pager
	lenient bool   // mistakes are told, and it exits with 0 all the same

	// onOptionError makes the error about an option that cannot be read; nil for optionError.
	onOptionError func(c *ctl, options *pflag.FlagSet, err error) error

	// options adds the verb's own options to the set, and returns what to do once they are read.
	options func(*pflag.FlagSet) action
}

// action does what a verb does, with its arguments.
type action func(ctx context.Context, c *ctl, args []string) error

// plainVerb is for a verb without options of its own.
func plainVerb(act action) func(*pflag.FlagSet) action {
	return func(*pflag.FlagSet) action { return act }
}

// withoutArguments is the action of a verb that takes no words after it.
func withoutArguments(name string, act action) action {
	return func(ctx context.Context, c *ctl, args []string) error {
		if len(args) > 0 {
			return usagef(name, "%s takes no arguments", name)
		}
		return act(ctx, c, args)
	}
}

// verbGroup is one paragraph of the help.
type verbGroup struct {
	title string
	verbs []verb
}

// verbGroups returns all verbs, in the order in which help shows them.
func verbGroups() []verbGroup {
	return []verbGroup{
		{"Sessions", []verb{listVerb, topVerb, runVerb, attachVerb, openVerb, sendVerb, sendKeysVerb, approveVerb, denyVerb, peekVerb, logsVerb, diffVerb, statusVerb, whyVerb, showVerb, waitVerb, monitorVerb}},
		{"Lifecycle", []verb{
			startVerb, stopVerb, restartVerb, resumeVerb, suspendVerb, freezeVerb, thawVerb, killVerb, archiveVerb, removeVerb, cleanVerb,
		}},
		{"Settings", []verb{enableVerb, disableVerb, setPropertyVerb, describeVerb, labelVerb, ackVerb}},
		{"For scripts", []verb{isActiveVerb, isFailedVerb, isWaitingVerb, reportVerb}},
		{"Corral", []verb{agentsVerb, catVerb, editVerb, lingerVerb, doctorVerb, reloadVerb, versionVerb, completionVerb, helpVerb, asUnitVerb}},
	}
}

// foreignVerbs are the words that other programs have for what a verb does.
var foreignVerbs = map[string]string{
	"ls": "list", "ps": "list", "list-units": "list", "list-sessions": "list", "new": "run", "create": "run", "remove": "rm", "delete": "rm",
	"tail": "logs", "journal": "logs", "capture": "peek", "keys": "send-keys", "exec": "send", "accept": "approve", "allow": "approve", "reject": "deny", "shell": "attach", "join": "attach", "terminate": "stop",
	"kill-session": "rm", "pause": "freeze", "unpause": "thaw", "daemon-reload": "reload", "check": "doctor",
}

// newCommands returns corralctl as a command of cobra's, with one below it for each verb.
func (c *ctl) newCommands() *cobra.Command {
	cobra.EnableCommandSorting = false // the order is that of help
	root := &cobra.Command{
		Use: "corralctl", SilenceErrors: true, SilenceUsage: true, CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		RunE: func(_ *cobra.Command, args []string) error {
			if c.version {
				return printVersion(c)
			}
			return c.unknownVerb(args[0])
		},
		Args: cobra.ArbitraryArgs,
	}
	root.SetOut(c.out)
	root.SetErr(c.err)
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) { c.printHelp(cmd) })
	root.Flags().SetInterspersed(false)
	c.register(root.PersistentFlags())
	for _, group := range verbGroups() {
		root.AddGroup(&cobra.Group{ID: group.title, Title: group.title})
		for _, v := range group.verbs {
			cmd := c.command(v)
			cmd.GroupID = group.title
			if v.name == helpVerb.name {
				root.SetHelpCommand(cmd) // in the place of cobra's own
			}
			root.AddCommand(cmd)
		}
	}
	return root
}

// parseCommand returns a verb as a command of cobra's.
func (c *ctl) command(v verb) *cobra.Command {
	cmd := &cobra.Command{Use: strings.TrimSpace(v.name + " " + v.args), Short: v.summary, Long: v.details, Hidden: v.summary == ""}
	act := v.options(cmd.Flags())
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		c.lenient = v.lenient
		if v.onOptionError != nil {
			return v.onOptionError(c, cmd.Flags(), err)
		}
		return optionError(v.name, cmd.Flags(), err)
	})
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return c.perform(cmd, v, act, args) }
	return cmd
}

// findVerb returns the command of a verb.
func (c *ctl) findVerb(name string) (*cobra.Command, error) {
	for _, cmd := range c.commands.Commands() {
		if cmd.Name() == name {
			return cmd, nil
		}
	}
	return nil, c.unknownVerb(name)
}

// unknownVerb is the error about a verb that does not exist, with the verb that was probably meant
// as its hint.
func (c *ctl) unknownVerb(name string) error {
	f := &failure{code: exitUsage, message: fmt.Sprintf("unknown verb %q", name), hint: "corralctl help"}
	if near := cmp.Or(foreignVerbs[name], c.nearestVerb(name)); near != "" {
		f.hint = "corralctl " + near
	}
	return f
}

// nearestVerb is the verb that was probably meant: it begins with name, or is spelled like it.
func (c *ctl) nearestVerb(name string) string {
	var names []string
	for _, cmd := range c.commands.Commands() {
		if len(name) >= 2 && strings.HasPrefix(cmd.Name(), name) {
			return cmd.Name()
		}
		names = append(names, cmd.Name())
	}
	return nearestWord(name, names)
}
