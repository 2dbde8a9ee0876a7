package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// completeTimeout bounds how long a person who pressed Tab waits for the daemon.
const completeTimeout = 500 * time.Millisecond

// completeVerb is what the shells' completions ask, packaging/completions: the words of a command line after the program's name, up to the one that is to
// be completed. It prints what that one may be, a line each, with a tab and a description. Instead there may be :directory, :file or :command, which the
// shell can complete itself. It is set by init, because it completes verbs, of which it is one.
var completeVerb = verb{name: "__complete", args: "-- WORD…"}

func init() {
	completeVerb.options = plainVerb(func(ctx context.Context, c *ctl, words []string) error {
		ctx, cancel := context.WithTimeout(ctx, completeTimeout)
		defer cancel()
		if len(words) == 0 {
			words = []string{""}
		}
		for _, choice := range newCompletion(c, words).choices(ctx) {
			if choice.about == "" {
				c.print("%s\n", choice.word)
				continue
			}
			c.print("%s", choice.word)
			fmt.Fprint(c.out, "\t")
			c.print("%s\n", choice.about)
		}
		return nil
	})
}

// choice is one thing that a word may become.
type choice struct{ word, about string }

func only(words ...string) []choice {
	choices := make([]choice, len(words))
	for i, word := range words {
		choices[i].word = word
	}
	return choices
}

// completion is a command line that is being written.
type completion struct {
	ctl     *ctl
	current string         // the word to complete
	verb    *verb          // nil: there is none yet
	options *pflag.FlagSet // that may be given here
	pending *pflag.Flag    // the option whose value current is
	args    []string       // of the verb, before current
	dash    int            // how many of them were before "--", -1 if there is none
}

// newCompletion reads the words before the last one as corralctl would, and passes over what is wrong with them.
func newCompletion(c *ctl, words []string) *completion {
	p := &completion{ctl: c, current: words[len(words)-1], dash: -1, options: globalFlags()}
	for _, word := range words[:len(words)-1] {
		p.take(word)
	}
	return p
}

func (p *completion) take(word string) {
	switch {
	case p.pending != nil:
		_ = p.options.Set(p.pending.Name, word)
		p.pending = nil
	case p.dash >= 0:
		p.args = append(p.args, word)
	case word == "--" && p.verb != nil:
		p.dash = len(p.args)
	case strings.HasPrefix(word, "--"):
		name, value, assigned := strings.Cut(word[2:], "=")
		switch f := p.options.Lookup(name); {
		case f == nil:
		case assigned:
			_ = p.options.Set(name, value)
		case f.NoOptDefVal == "":
			p.pending = f
		}
	case strings.HasPrefix(word, "-") && word != "-":
		p.takeShort(word[1:])
	case p.verb == nil:
		p.begin(word)
	default:
		p.args = append(p.args, word)
	}
}

// takeShort reads options of one letter: those after one that takes a value are the value.
func (p *completion) takeShort(letters string) {
	for i := range letters {
		f := p.options.ShorthandLookup(letters[i : i+1])
		if f == nil || f.NoOptDefVal != "" {
			continue
		}
		if i == len(letters)-1 {
			p.pending = f
		} else {
			_ = p.options.Set(f.Name, strings.TrimPrefix(letters[i+1:], "="))
		}
		return
	}
}

func (p *completion) begin(name string) {
	for _, group := range verbGroups() {
		for _, v := range group.verbs {
			if v.name == name {
				p.verb = &v
				v.options(p.options)
				return
			}
		}
	}
	p.verb = &verb{name: name}
}

// choices are what the current word may be: those that begin as it does.
func (p *completion) choices(ctx context.Context) []choice {
	name, value, assigned := strings.Cut(p.current, "=")
	var option *pflag.Flag
	if p.pending == nil && p.dash < 0 && strings.HasPrefix(name, "--") && assigned {
		option = p.options.Lookup(name[2:])
	}
	switch {
	case p.pending != nil:
		return matching(p.current, p.listed(p.current, p.values(p.pending), p.pending))
	case option != nil:
		choices := p.listed(value, p.values(option), option)
		for i, c := range choices {
			if !strings.HasPrefix(c.word, ":") {
				choices[i].word = name + "=" + c.word
			}
		}
		return matching(p.current, choices)
	case strings.HasPrefix(p.current, "-") && p.dash < 0:
		return matching(p.current, p.optionNames())
	case p.verb == nil:
		return matching(p.current, verbNames())
	}
	return matching(p.current, p.arguments(ctx))
}

// matching leaves what begins with prefix; what the shell is to complete stays.
func matching(prefix string, choices []choice) []choice {
	return slices.DeleteFunc(choices, func(c choice) bool { return !strings.HasPrefix(c.word, prefix) && !strings.HasPrefix(c.word, ":") })
}

// listed puts in front of each choice what is there of a list: "failed,st" becomes "failed,stale".
func (p *completion) listed(value string, choices []choice, option *pflag.Flag) []choice {
	i := strings.LastIndex(value, ",")
	if i < 0 || option.Value.Type() != "stringSlice" {
		return choices
	}
	before := value[:i+1]
	given := strings.Split(before, ",")
	choices = slices.DeleteFunc(choices, func(c choice) bool { return slices.Contains(given, c.word) })
	for j := range choices {
		choices[j].word = before + choices[j].word
	}
	return choices
}

func verbNames() []choice {
	var names []choice
	for _, group := range verbGroups() {
		for _, v := range group.verbs {
			if v.summary != "" {
				names = append(names, choice{v.name, v.summary})
			}
		}
	}
	return names
}

// optionNames are the options that may come now, each with what it is for.
func (p *completion) optionNames() []choice {
	var names []choice
	p.options.VisitAll(func(f *pflag.Flag) {
		value, about := pflag.UnquoteUsage(f)
		name := "--" + f.Name
		if value != "" && f.NoOptDefVal == "" {
			name += "="
		}
		names = append(names, choice{name, about})
	})
	return names
}

var literals = regexp.MustCompile(`^[a-z]+(\|[a-z]+)+$`)

// arguments are what the verb takes at this place, by the words that its help has for them.
func (p *completion) arguments(ctx context.Context) []choice {
	if p.verb.name == runVerb.name && p.dash >= 0 {
		if len(p.args) == 0 {
			return only(":command")
		}
		return only(":file")
	}
	words := strings.Fields(shortArgs(*p.verb))
	place := len(p.args)
	if place >= len(words) {
		if len(words) == 0 || !strings.Contains(words[len(words)-1], "…") {
			return nil
		}
		place = len(words) - 1
	}
	kind := strings.Trim(words[place], "[]…")
	switch {
	case literals.MatchString(kind):
		return only(strings.Split(kind, "|")...)
	case kind == "ID" || kind == "PATTERN":
		return p.ids(ctx)
	case kind == "AGENT":
		return p.without(agentNames())
	case kind == "VERB":
		return verbNames()
	case kind == "NAME=VALUE":
		return unitPropertyNames()
	}
	return nil
}

// without leaves out what the command line has already.
func (p *completion) without(choices []choice) []choice {
	return slices.DeleteFunc(choices, func(c choice) bool { return slices.Contains(p.args, c.word) })
}
