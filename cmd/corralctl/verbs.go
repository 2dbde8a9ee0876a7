package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// verb is a subcommand of corralctl, from which a command of cobra is built. A verb without a
// summary is hidden from help and completion.
type verb struct {
	name    string
	args    string // "" if it takes none
	summary string
	useless string // why arguments are useless to it, for the error; "" if that is obvious
	// shown by its help below the summary, "" for nothing; ends with a newline
	details string
	pages   bool // long output goes through the pager
	lenient bool // errors are printed, but the exit code is 0

	// onOptionError returns the error for an invalid option; nil for optionError.
	onOptionError func(c *ctl, options *pflag.FlagSet, err error) error

	// options adds the verb's own options to the set and returns the action, which runs after they
	// have been read.
	options func(*pflag.FlagSet) action
}

// action runs a verb with its arguments.
type action func(ctx context.Context, c *ctl, args []string) error

// plainVerb is the options function of a verb without options of its own.
func plainVerb(act action) func(*pflag.FlagSet) action {
	return func(*pflag.FlagSet) action { return act }
}

// verbGroup is a section of the help.
type verbGroup struct {
	title string
	verbs []verb
}

// verbGroups returns all verbs in the order of the help.
func verbGroups() []verbGroup {
	return []verbGroup{
		{"Sessions", []verb{listVerb, topVerb, runVerb, attachVerb, openVerb, sendVerb, sendKeysVerb, approveVerb, denyVerb,
			peekVerb, logsVerb, diffVerb, statusVerb, whyVerb, showVerb, waitVerb, monitorVerb, notifyVerb}},
		{"Lifecycle", []verb{
			startVerb, stopVerb, restartVerb, resumeVerb, continueVerb, suspendVerb, freezeVerb, thawVerb, killVerb,
			archiveVerb, removeVerb, cleanVerb,
		}},
		{"Settings", []verb{enableVerb, disableVerb, setPropertyVerb, describeVerb, labelVerb, ackVerb}},
		{"For scripts", []verb{isActiveVerb, isFailedVerb, isWaitingVerb, reportVerb, mcpVerb}},
		{"Corral", []verb{agentsVerb, catVerb, editVerb, trustVerb, lingerVerb, doctorVerb, reloadVerb, versionVerb,
			completionVerb, helpVerb, asUnitVerb}},
	}
}

// foreignVerbs maps names from other programs to verbs of corralctl.
var foreignVerbs = map[string]string{
	"ls": "list", "ps": "list", "list-units": "list", "list-sessions": "list", "new": "run", "create": "run",
	"remove": "rm", "delete": "rm",
	"tail": "logs", "journal": "logs", "capture": "peek", "keys": "send-keys", "exec": "send", "accept": "approve",
	"allow": "approve", "reject": "deny", "shell": "attach", "join": "attach", "terminate": "stop",
	"kill-session": "rm", "pause": "freeze", "unpause": "thaw", "daemon-reload": "reload", "check": "doctor",
}

// newCommands returns corralctl as a command of cobra, with a subcommand for each verb.
func (c *ctl) newCommands() *cobra.Command {
	cobra.EnableCommandSorting = false // keep the order of verbGroups
	root := &cobra.Command{
		Use: "corralctl", SilenceErrors: true, SilenceUsage: true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
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
				root.SetHelpCommand(cmd) // instead of cobra's own
			}
			root.AddCommand(cmd)
		}
	}
	return root
}

// command returns a verb as a command of cobra.
func (c *ctl) command(v verb) *cobra.Command {
	cmd := &cobra.Command{Use: strings.TrimSpace(v.name + " " + v.args), Short: v.summary, Long: v.details,
		Hidden: v.summary == ""}
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

// unknownVerb returns the error for an unknown verb. Its hint is the verb that was probably meant.
func (c *ctl) unknownVerb(name string) error {
	f := &failure{code: exitUsage, message: fmt.Sprintf("unknown verb %q", name), hint: "corralctl help"}
	if near := cmp.Or(foreignVerbs[name], c.nearestVerb(name)); near != "" {
		f.hint = "corralctl " + near
	}
	return f
}

// nearestVerb returns the verb that was probably meant: it begins with name or is spelled like it.
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
