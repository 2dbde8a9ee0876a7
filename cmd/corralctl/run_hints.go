package main

import (
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/internal/config"
)

// The functions below explain mistakes of users who do not know yet that -- comes before a command,
// and before the arguments of an agent.

// isProgram returns whether a word is the name of a program in PATH on this machine.
func (c *ctl) isProgram(word string) bool {
	_, err := exec.LookPath(word)
	return !c.isRemote() && err == nil
}

// isAgent returns whether a word is the name of an agent, according to the definitions on this
// machine.
func (c *ctl) isAgent(word string) bool {
	if c.isRemote() {
		return false
	}
	agents, _ := config.LoadAgents(configDirs())
	_, is := agents.Find(word)
	return is
}

// warnOfNewAccount prints a warning if an account is not set up, and a similar one is: its name may
// be misspelt. Any other account that is not set up exists as well once it is used.
func (c *ctl) warnOfNewAccount(agent string) {
	template, _, isInstance := config.CutInstance(agent)
	if !isInstance || c.isRemote() {
		return
	}
	agents, _ := config.LoadAgents(configDirs())
	known := agents.Known(localSpecifiers())
	if slices.Contains(known, agent) {
		return
	}
	accounts := slices.DeleteFunc(known, func(name string) bool { return !strings.HasPrefix(name, template+"@") })
	if near := nearestWord(agent, accounts); near != "" {
		c.warn(fmt.Sprintf("account %q is not set up, did you mean %q?", agent, near), "corralctl agents")
	}
}

// withDashes returns the command line of run with -- before the argument at an index.
func (c *ctl) withDashes(index int) string {
	words := slices.DeleteFunc(slices.Insert(slices.Clone(c.args), index, " "),
		func(word string) bool { return word == "--" })
	words[slices.Index(words, " ")] = "--"
	return "corralctl run " + wording.ShellWords(words)
}

// argumentIndex returns the index of an argument on the command line of run, starting the search at
// from. It skips values of options.
func (c *ctl) argumentIndex(word string, from int, options *pflag.FlagSet) int {
	for i := from; i < len(c.args); i++ {
		if c.args[i] != word {
			continue
		}
		if i > 0 && strings.HasPrefix(c.args[i-1], "-") && !strings.Contains(c.args[i-1], "=") {
			option := options.Lookup(strings.TrimLeft(c.args[i-1], "-"))
			if name := strings.TrimLeft(c.args[i-1], "-"); option == nil && len(name) == 1 {
				option = options.ShorthandLookup(name)
			}
			if option != nil && option.NoOptDefVal == "" {
				continue
			}
		}
		return i
	}
	return from
}

// tooManyWordsError returns the error for several arguments of run without --.
func (c *ctl) tooManyWordsError(args []string, options *pflag.FlagSet) error {
	first := c.argumentIndex(args[0], 0, options)
	switch {
	case c.isAgent(args[0]) || !c.isProgram(args[0]) && c.isRemote():
	case c.isProgram(args[0]):
		return &failure{exitUsage, fmt.Sprintf("%q is not an agent; a command follows --", args[0]), c.withDashes(first)}
	default:
		return &failure{exitUsage, fmt.Sprintf("%q is neither an agent nor a program in PATH", args[0]), "corralctl agents"}
	}
	return &failure{
		code:    exitUsage,
		message: fmt.Sprintf("run: expected one AGENT, not %s; its arguments follow --", wording.Plural(len(args), "word")),
		hint:    c.withDashes(c.argumentIndex(args[1], first+1, options)),
	}
}

// runOptionError is optionError for run. If the unknown option follows an agent or a program, it
// suggests to insert --.
func (c *ctl) runOptionError(options *pflag.FlagSet, err error) error {
	failed := optionError("run", options, err)
	var f *failure
	var unknown *pflag.NotExistError
	before := options.Args()
	if !errors.As(err, &unknown) || !errors.As(failed, &f) || len(before) == 0 {
		return failed
	}
	// an option of run was misspelled
	if unknown.GetSpecifiedShortnames() == "" && f.hint != "corralctl help run" {
		return failed
	}
	first := c.argumentIndex(before[0], 0, options)
	if !c.isAgent(before[0]) {
		if c.isProgram(before[0]) {
			f.hint = c.withDashes(first)
		}
		return f
	}
	word := "--" + unknown.GetSpecifiedName()
	if letters := unknown.GetSpecifiedShortnames(); letters != "" {
		word = "-" + letters
	}
	for i := first + 1; i < len(c.args); i++ {
		if name, _, _ := strings.Cut(c.args[i], "="); name == word || len(before) > 1 && c.args[i] == before[1] {
			f.hint = c.withDashes(i)
			return f
		}
	}
	return f
}
