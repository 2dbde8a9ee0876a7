package main

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/internal/keys"
)

//go:generate sh -c "go run . completion bash >../../packaging/completions/corralctl.bash"
//go:generate sh -c "go run . completion zsh >../../packaging/completions/_corralctl"
//go:generate sh -c "go run . completion fish >../../packaging/completions/corralctl.fish"

// completionVerb prints a script that completes the command lines of corralctl in a shell. The
// script runs `corralctl __complete`, a command of cobra.
var completionVerb = verb{name: "completion", args: "bash|zsh|fish|powershell",
	summary: "Print the completion script of a shell", options: plainVerb(
		func(_ context.Context, c *ctl, args []string) error {
			if len(args) != 1 {
				return usagef("completion", "completion: expected one shell: bash, zsh, fish or powershell")
			}
			switch args[0] {
			case "bash":
				return c.commands.GenBashCompletionV2(c.out, true)
			case "zsh":
				return c.commands.GenZshCompletion(c.out)
			case "fish":
				return c.commands.GenFishCompletion(c.out, true)
			case "powershell":
				return c.commands.GenPowerShellCompletionWithDesc(c.out)
			}
			return usagef("completion", "invalid shell %q: expected bash, zsh, fish or powershell", args[0])
		})}

// How long a completion waits for corrald, and for other machines.
const (
	completeTimeout     = 500 * time.Millisecond
	completeHostTimeout = 3 * time.Second
)

// completeValues registers completions of arguments and option values with cobra, by the names that
// help uses for them. Words is the command line.
func (c *ctl) completeValues(words []string) {
	c.completeOptions(c.commands.PersistentFlags(), c.commands)
	if verb := c.verbOf(words); verb != nil {
		c.commands.PersistentFlags().VisitAll(func(option *pflag.Flag) {
			meaning, used := sharedMeaning(verb.Name(), option.Name)
			option.Usage, option.Hidden = cmp.Or(meaning, option.Usage), !used
		})
	}
	dashed := slices.Contains(words[:max(0, len(words)-1)], "--")
	arguments := func(cmd *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if cmd.Name() == runVerb.name && dashed {
			if len(args) == 0 && !strings.Contains(word, "/") {
				return matchingCompletions(word, choicesOf(programsInPath(word)...))
			}
			return nil, cobra.ShellCompDirectiveDefault // files
		}
		if cmd.Name() == trustVerb.name {
			return nil, cobra.ShellCompDirectiveFilterDirs
		}
		return matchingCompletions(word, c.argumentChoices(cmd.Context(), cmd, args, word))
	}
	for _, cmd := range c.commands.Commands() {
		c.completeOptions(cmd.LocalNonPersistentFlags(), cmd)
		cmd.ValidArgsFunction = arguments
	}
}

// verbOf returns the command of the first verb among the words but the last, nil if there is none.
func (c *ctl) verbOf(words []string) *cobra.Command {
	for _, word := range words[:max(0, len(words)-1)] {
		if verb, err := c.findVerb(word); err == nil {
			return verb
		}
	}
	return nil
}

// assignShortOptions returns the words with an equals sign before the value of each short option:
// cobra would take the 5 of -n5 for the option whose value is to be completed.
func (c *ctl) assignShortOptions(words []string) []string {
	words = slices.Clone(words)
	cmd := cmp.Or(c.verbOf(words), c.commands)
	for i, word := range words[:max(0, len(words)-1)] {
		if word == "--" {
			break
		}
		for j := 1; j < len(word)-1 && word[0] == '-' && word[1] != '-' && word[j] != '='; j++ {
			option := cmd.Flags().ShorthandLookup(word[j : j+1])
			if option == nil {
				option = c.commands.PersistentFlags().ShorthandLookup(word[j : j+1])
			}
			if option == nil || option.NoOptDefVal == "" {
				if option != nil && word[j+1] != '=' {
					words[i] = word[:j+1] + "=" + word[j+1:]
				}
				break
			}
		}
	}
	return words
}

// completeOptions registers completions of the values of options. Cobra shows the usage text, which
// is stripped of the backquotes around the name of the value.
func (c *ctl) completeOptions(options *pflag.FlagSet, cmd *cobra.Command) {
	options.VisitAll(func(option *pflag.Flag) {
		kind, usage := pflag.UnquoteUsage(option)
		option.Usage = usage
		_ = cmd.RegisterFlagCompletionFunc(option.Name,
			func(_ *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
				switch kind {
				case "DIRECTORY":
					return nil, cobra.ShellCompDirectiveFilterDirs
				case "SESSION":
					return matchingCompletions(word, c.sessionChoices(cmd.Context(), cmd, word))
				}
				return matchingCompletions(word, listChoices(word, optionChoices(kind, option, args), option))
			})
	})
}

// choice is one candidate for a word.
type choice struct{ word, description string }

func choicesOf(words ...string) []choice {
	choices := make([]choice, len(words))
	for i, word := range words {
		choices[i].word = word
	}
	return choices
}

// matchingCompletions returns the choices that begin with word. The shell adds no space after an
// equals sign, nor after the colon that follows a host.
func matchingCompletions(word string, choices []choice) ([]cobra.Completion, cobra.ShellCompDirective) {
	directive := cobra.ShellCompDirectiveNoFileComp
	var completions []cobra.Completion
	for _, choice := range choices {
		if !strings.HasPrefix(choice.word, word) {
			continue
		}
		completions = append(completions,
			cobra.CompletionWithDesc(wording.Printable(choice.word), wording.Printable(choice.description)))
		if strings.HasSuffix(choice.word, "=") || strings.HasSuffix(choice.word, ":") {
			directive |= cobra.ShellCompDirectiveNoSpace
		}
	}
	return completions, directive
}

// listChoices puts the complete elements of a list in front of each choice: "failed,st" becomes
// "failed,stale".
func listChoices(word string, choices []choice, option *pflag.Flag) []choice {
	i := strings.LastIndex(word, ",")
	if i < 0 || option.Value.Type() != "stringSlice" {
		return choices
	}
	before := word[:i+1]
	given := strings.Split(before, ",")
	choices = slices.DeleteFunc(choices, func(c choice) bool { return slices.Contains(given, c.word) })
	for j := range choices {
		choices[j].word = before + choices[j].word
	}
	return choices
}

func (c *ctl) verbChoices() []choice {
	var names []choice
	for _, cmd := range c.commands.Commands() {
		if !cmd.Hidden {
			names = append(names, choice{cmd.Name(), cmd.Short})
		}
	}
	return names
}

var alternatives = regexp.MustCompile(`^[a-z]+(\|[a-z]+)+$`)

// argumentChoices returns the candidates for the argument after args, by the name that help uses
// for it.
func (c *ctl) argumentChoices(ctx context.Context, cmd *cobra.Command, args []string, word string) []choice {
	usage, _, _ := strings.Cut(cmd.Use, " | ") // the first of several forms
	words := strings.Fields(usage)[1:]
	place := len(args)
	if place >= len(words) {
		if len(words) == 0 || !strings.Contains(words[len(words)-1], "…") {
			return nil
		}
		place = len(words) - 1
	}
	kind := strings.Trim(words[place], "[]…")
	switch {
	case alternatives.MatchString(kind):
		return choicesOf(strings.Split(kind, "|")...)
	case kind == "ID" || kind == "PATTERN":
		return excluding(c.sessionChoices(ctx, cmd, word), args)
	case kind == "AGENT":
		return excluding(agentChoices(), args)
	case kind == "KEY":
		return choicesOf(keys.Names()...)
	case kind == "VERB|options":
		return append(c.verbChoices(), choice{"options", "the options of every verb"})
	case kind == "NAME=VALUE":
		return unitPropertyChoices()
	}
	return nil
}

// excluding returns the choices that the command line does not have yet.
func excluding(choices []choice, given []string) []choice {
	return slices.DeleteFunc(choices, func(c choice) bool { return slices.Contains(given, c.word) })
}

// programsInPath returns the names of programs in PATH that begin with prefix.
func programsInPath(prefix string) []string {
	var names []string
	for _, directory := range filepath.SplitList(os.Getenv("PATH")) {
		entries, _ := os.ReadDir(directory)
		for _, entry := range entries {
			if !strings.HasPrefix(entry.Name(), prefix) {
				continue
			}
			if info, err := os.Stat(filepath.Join(directory, entry.Name())); err == nil && info.Mode().IsRegular() &&
				info.Mode()&0o111 != 0 {
				names = append(names, entry.Name())
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
