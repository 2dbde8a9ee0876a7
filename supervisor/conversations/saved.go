package conversations

import (
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/environment"
	"github.com/corrald/corral/internal/safefile"
	"github.com/corrald/corral/supervisor/session"
)

// Variables returns the environment of the agent, with the source of each variable. It is a
// function because the result is rarely needed, and may require a login shell to run.
type Variables func() ([]environment.Variable, error)

// Continuation is what a run needs that is to continue a conversation, or to begin a copy of one.
type Continuation struct {
	Resume  []string // the command that continues it; nil for a run that begins a conversation
	Saved   Saved    // on which condition it was saved
	FreshID string   // id of the conversation begun if nothing was saved, "" if the agent chooses it

	// OtherID and OtherCommand are used if a file exists, but without the content: the file
	// prevents a new conversation with the same id, and OtherCommand begins one with OtherID.
	OtherID      string
	OtherCommand []string

	// Original is the conversation that a run copies if it begins one, with the condition on which
	// that was saved. It is nil if the run copies none, or if that cannot be determined.
	Original *Saved
}

// Choose returns the command that the run with this id executes: the one that continues the
// conversation if the agent has saved that, otherwise one that begins a conversation, usually
// fresh. NotFound is the event for that case, nil if the run continues the conversation. Choose
// reads files of the agent, and is not called on the event loop.
func (c Continuation) Choose(
	run string, fresh []string, variables Variables,
) (command []string, notFound *session.ConversationNotFound, err error) {
	begun := false
	if len(c.Resume) > 0 {
		var saved bool
		if saved, begun, err = c.Saved.check(variables); err != nil || saved {
			return c.Resume, nil, err
		}
		notFound = &session.ConversationNotFound{Run: run, ID: c.FreshID}
	}
	if c.Original != nil {
		if saved, _, err := c.Original.check(variables); err != nil {
			return nil, nil, err
		} else if !saved {
			return nil, nil, fmt.Errorf("cannot copy conversation %s: it was not saved", c.Original.Values.Conversation)
		}
	}
	if begun && c.OtherID != "" {
		notFound.ID = c.OtherID
		return c.OtherCommand, notFound, nil
	}
	return fresh, notFound, nil
}

// Saved is the condition on which an agent has saved a conversation. Without patterns, it is always
// true.
type Saved struct {
	Patterns []string          // file name patterns of the agent's definition: if no file matches, nothing was saved
	Content  *regexp.Regexp    // has to match in one of these files, nil for any content
	Values   config.Specifiers // for these patterns
}

// check reports whether the agent has saved the conversation, or has at least begun a file for it.
func (s Saved) check(variables Variables) (saved, begun bool, err error) {
	if len(s.Patterns) == 0 {
		return true, true, nil
	}
	all, err := variables()
	if err != nil {
		return false, false, err
	}
	if own := homeOf(all); own != "" {
		s.Values.Home = own
	}
	patterns, err := config.ExpandPatterns(s.Patterns, s.Values, environment.Entries(all))
	if err != nil {
		return false, false, err
	}
	for _, pattern := range patterns {
		files, _ := filepath.Glob(pattern) // invalid patterns are reported when the definition is read
		for _, file := range files {
			if s.Content == nil || fileMatches(file, s.Content) {
				return true, true, nil
			}
		}
		begun = begun || len(files) > 0
	}
	return false, begun, nil
}

// homeOf returns the home directory that was set for the session, "" if it has the user's.
func homeOf(variables []environment.Variable) string {
	i := slices.IndexFunc(variables, func(v environment.Variable) bool { return v.Name == "HOME" })
	if i < 0 || variables[i].Source == environment.Manager || !filepath.IsAbs(variables[i].Value) {
		return ""
	}
	return variables[i].Value
}

// maxContent bounds how much of a file is searched, from its beginning, in bytes.
const maxContent = 1 << 20

// fileMatches reports whether a pattern matches in the beginning of a file. It is false if the file
// cannot be read or is not a regular file.
func fileMatches(file string, pattern *regexp.Regexp) bool {
	f, err := safefile.OpenLinked(file)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxContent))
	return err == nil && pattern.Match(text)
}
