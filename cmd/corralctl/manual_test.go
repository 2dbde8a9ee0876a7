package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	manualTerm   = regexp.MustCompile(`^\*\*([a-z-]+)\*\*`)
	manualOption = regexp.MustCompile(`\*\*--([a-z-]+)\*\*`)
)

// manual reads corralctl(1). It returns the text of each verb, and that of OPTIONS.
func manual(t *testing.T) (verbs map[string]string, options string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/man/corralctl.1.md")
	require.NoError(t, err)
	verbs = map[string]string{}
	for section := range strings.SplitSeq(string(page), "\n# ") {
		title, text, _ := strings.Cut(section, "\n")
		if title == "OPTIONS" {
			options = text
		}
		if !strings.HasPrefix(title, "VERBS ") {
			continue
		}
		var verb string
		for line := range strings.Lines(text) {
			if m := manualTerm.FindStringSubmatch(line); m != nil {
				verb = m[1]
			}
			verbs[verb] += line
		}
	}
	delete(verbs, "")
	return verbs, options
}

// TestManual_ListsAllVerbsAndOptions: the manual has exactly the verbs and options that help has.
func TestManual_ListsAllVerbsAndOptions(t *testing.T) {
	verbs, options := manual(t)
	var global []string
	c, _ := capture(t)
	c.commands = c.newCommands()
	c.commands.PersistentFlags().VisitAll(func(f *pflag.Flag) { global = append(global, f.Name) })
	assert.ElementsMatch(t, global, optionsIn(options))
	for _, group := range verbGroups() {
		for _, v := range group.verbs {
			if v.summary == "" {
				continue
			}
			text, ok := verbs[v.name]
			delete(verbs, v.name)
			if !assert.True(t, ok, "corralctl(1) does not have %s", v.name) {
				continue
			}
			own := pflag.NewFlagSet(v.name, pflag.ContinueOnError)
			v.options(own)
			own.VisitAll(func(f *pflag.Flag) {
				assert.Contains(t, text, "**--"+f.Name+"**", "%s in corralctl(1)", v.name)
				if f.Shorthand != "" {
					assert.Contains(t, text, "**-"+f.Shorthand+"**", "%s in corralctl(1)", v.name)
				}
			})
			for _, name := range optionsIn(text) {
				assert.True(t, own.Lookup(name) != nil || c.commands.PersistentFlags().Lookup(name) != nil,
					"corralctl(1) has %s --%s", v.name, name)
			}
		}
	}
	assert.Empty(t, verbs, "in corralctl(1) alone")
}

func optionsIn(text string) []string {
	var names []string
	for _, m := range manualOption.FindAllStringSubmatch(text, -1) {
		names = append(names, m[1])
	}
	return names
}

// TestExamples_AreValidCommands: the help of each verb has an example, and corralctl accepts each
// example.
func TestExamples_AreValidCommands(t *testing.T) {
	for _, group := range verbGroups() {
		for _, v := range group.verbs {
			if v.summary == "" {
				continue
			}
			lines := examples[v.name]
			assert.NotEmpty(t, lines, "%s has no example", v.name)
			assert.True(t, strings.Contains(strings.Join(lines, "\n"), "corralctl "+v.name) || v.name == "list", "%s", v.name)
			for _, line := range lines {
				command, about, _ := strings.Cut(line, "  # ")
				assert.NotEmpty(t, about, "%s: %s", v.name, line)
				own := pflag.NewFlagSet(v.name, pflag.ContinueOnError)
				new(globals).register(own)
				v.options(own)
				_, arguments, found := strings.Cut(command, "corralctl "+v.name)
				if arguments, _, _ = strings.Cut(arguments, " | "); found {
					arguments, _, _ = strings.Cut(arguments, ";")
					assert.NoError(t, own.Parse(strings.Fields(arguments)), line)
				}
			}
		}
	}
	c, _ := capture(t)
	c.commands = c.newCommands()
	for name := range examples {
		if name == "corralctl" {
			continue
		}
		_, err := c.findVerb(name)
		assert.NoError(t, err)
	}
}

// TestHelp_FitsAScreen: with the prompt, the help of each verb fits a terminal of 80 columns and 24
// lines. That of corralctl fits its width. Help agents prints a page for agents below that of the
// verb.
func TestHelp_FitsAScreen(t *testing.T) {
	all, _ := capture(t)
	all.commands = all.newCommands()
	for _, v := range append(all.verbChoices(), choice{}) {
		c, output := capture(t)
		require.NoError(t, c.dispatch(t.Context(), strings.Fields("help "+v.word)))
		text := output()
		if v.word == agentsVerb.name {
			var found bool
			text, found = strings.CutSuffix(text, "\n"+agentHelp)
			assert.True(t, found)
		}
		lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
		if v.word != "" {
			assert.LessOrEqual(t, len(lines), helpHeight, "%s:\n%s", v.word, strings.Join(lines, "\n"))
		}
		for _, line := range lines {
			assert.LessOrEqual(t, utf8.RuneCountInString(line), helpWidth, "%s: %s", v.word, line)
		}
		c, output = capture(t)
		if v.word != "" {
			require.NoError(t, c.dispatch(t.Context(), []string{v.word, "--help"}))
			assert.Equal(t, strings.Join(lines, "\n")+"\n", output())
		}
	}
}

// TestHelp_ExplainsSharedOptions: sharedOptions only has existing verbs and options.
func TestHelp_ExplainsSharedOptions(t *testing.T) {
	c, output := capture(t)
	c.commands = c.newCommands()
	for verb, meanings := range sharedOptions {
		cmd, err := c.findVerb(verb)
		require.NoError(t, err)
		for option := range meanings {
			assert.NotNil(t, c.commands.PersistentFlags().Lookup(option), "%s --%s", verb, option)
			assert.Nil(t, cmd.LocalNonPersistentFlags().Lookup(option), "%s --%s", verb, option)
		}
	}
	for _, v := range c.verbChoices() {
		assert.Contains(t, sharedOptions, v.word)
	}
	require.NoError(t, c.dispatch(t.Context(), []string{"help", "edit"}))
	assert.Contains(t, output(), "-l, --full  edit the whole file")
	require.NoError(t, c.dispatch(t.Context(), []string{"help", "options"}))
	text := output()
	c.commands.PersistentFlags().VisitAll(func(option *pflag.Flag) { assert.Contains(t, text, "--"+option.Name) })
}
