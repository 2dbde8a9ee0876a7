package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Status is a definition's section [Status]: how it can be told what the agent does, and when it
// wants a person.
type Status struct {
	Sources      []string      // who is heard, the strongest first; nil for StatusSources
	TitleReady   string        // regular expressions of the terminal's title while the agent has nothing to do,
	TitleWorking string        // while it works,
	TitleBlocked string        // and while it waits for a person; "" where no title says so
	SetupPattern string        // regular expression of a line of the screen that asks for something before the agent can begin; "" for none
	ReadyTimeout time.Duration // how long an agent that says nothing has until its screen is looked at for that
}

// StatusSources are the sources that can be told in Sources=, and what they are if it is not given.
// They are the words of the AttentionSource property, less its last one, output, which is there in
// any case.
var StatusSources = []string{"osc7501", "report", "notify", "title", "bell"}

// defaultReadyTimeout is enough for a program that starts on a machine with much to do. A person
// who waits for its dialog does so no longer than this.
const defaultReadyTimeout = 10 * time.Second

func (l *agentLoader) setStatus(a assignment) error {
	status := &l.agent.Status
	switch a.section + "." + a.key {
	case "Status.Sources":
		return l.setSources(a)
	case "Status.TitleReady":
		return setValue(&status.TitleReady, a.key, a.value, "", pattern)
	case "Status.TitleWorking":
		return setValue(&status.TitleWorking, a.key, a.value, "", pattern)
	case "Status.TitleBlocked":
		return setValue(&status.TitleBlocked, a.key, a.value, "", pattern)
	case "Status.SetupPattern":
		return setValue(&status.SetupPattern, a.key, a.value, "", pattern)
	case "Status.ReadyTimeoutSec":
		return setValue(&status.ReadyTimeout, a.key, a.value, defaultReadyTimeout, finiteSpan)
	default:
		return fmt.Errorf("unknown key %s= in section [%s]", a.key, a.section)
	}
}

// setSources adds sources behind those that are there, each of them once.
func (l *agentLoader) setSources(a assignment) error {
	sources := strings.Fields(a.value)
	if len(sources) == 0 {
		l.agent.Status.Sources = nil
	}
	for _, source := range sources {
		switch {
		case !slices.Contains(StatusSources, source):
			l.warnings = append(l.warnings, a.warn("Sources=: unknown source %q: expected %s", source, strings.Join(StatusSources, ", ")))
		case !slices.Contains(l.agent.Status.Sources, source):
			l.agent.Status.Sources = append(l.agent.Status.Sources, source)
		}
	}
	return nil
}

// pattern reads a regular expression.
func pattern(s string) (string, error) {
	_, err := regexp.Compile(s)
	return s, err
}
