package config

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/corrald/corral/dbusapi/word"
)

// Status is section [Status] of an agent's definition: the sources of the agent's activity and
// attention.
type Status struct {
	Sources      []string // Sources=: trusted sources in order of priority; nil for StatusSources
	TitleReady   string   // TitleReady=: regular expression for the terminal title of an agent without work,
	TitleWorking string   // TitleWorking=: of a working one,
	TitleBlocked string   // TitleBlocked=: and of one that waits for a person; "" if no title shows that
	// SetupPattern=: regular expression for a screen line that asks for something before the agent can
	// start; "" for none
	SetupPattern string
	// LimitPattern=: for a dialog on the screen about a usage limit; "" for none
	LimitPattern string
	// IdlePattern=: for the last line of the screen of an agent that has nothing to do; "" for none
	IdlePattern string
	// WorkingPattern=: for the last line of the screen of an agent that works; "" for none
	WorkingPattern string
	// RetryPattern=: for a screen line that shows that the agent tries again after a failure; ""
	// for none
	RetryPattern string
	// BackgroundPattern=: for the OSC 7501 message of an agent that reports that it works, although it
	// has finished its turn; "" for none
	BackgroundPattern string
	// ReadyTimeoutSec=: how long after output the screen is searched for these patterns
	ReadyTimeout time.Duration
}

// StatusSources are the values of Sources=, and its default. They are the values of the
// AttentionSource property, except for its last one, output, which always applies.
var StatusSources = []string{word.OSC7501, word.Report, word.Notify, word.Title, word.Bell}

// defaultReadyTimeout is long enough for an agent that reports a dialog itself after it has drawn
// it, also on a busy machine, and short enough for a person who watches.
const defaultReadyTimeout = 400 * time.Millisecond

// setSources appends sources that are not in the list yet.
func (l *agentLoader) setSources(a assignment) error {
	sources := strings.Fields(a.value)
	if len(sources) == 0 {
		l.agent.Status.Sources = nil
	}
	for _, source := range sources {
		switch {
		case !slices.Contains(StatusSources, source):
			l.warnings = append(l.warnings,
				a.warn("Sources=: unknown source %q: expected %s", source, strings.Join(StatusSources, ", ")))
		case !slices.Contains(l.agent.Status.Sources, source):
			l.agent.Status.Sources = append(l.agent.Status.Sources, source)
		}
	}
	return nil
}

// pattern checks a regular expression and returns it unchanged.
func pattern(s string) (string, error) {
	_, err := regexp.Compile(s)
	return s, err
}
