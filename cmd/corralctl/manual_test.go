package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	manualTerm   = regexp.MustCompile(`^\*\*([a-z-]+)\*\*`)
	manualOption = regexp.MustCompile(`\*\*--([a-z-]+)\*\*`)
)

// manual reads corralctl(1): what it says under each verb, and what under OPTIONS.
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

// The manual has every verb and every option that help has, and no others.
func TestTheManualIsWhole(t *testing.T) {
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
				assert.True(t, own.Lookup(name) != nil || c.commands.PersistentFlags().Lookup(name) != nil, "corralctl(1) has %s --%s", v.name, name)
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

// Each verb's help has an example, and each example is one that corralctl takes.
func TestExamples(t *testing.T) {
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
		_, err := c.findVerb(name)
		assert.NoError(t, err)
	}
}
