package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/corrald/corral/internal/environment"
)

// Specifiers holds the values of the specifiers in an agent's definition for one run.
type Specifiers struct {
	Conversation string // %U: the id of the conversation, as the agent knows it
	Forked       string // %F: the id of the conversation that is copied
	Session      string // %i: the session's id
	Instance     string // %I: the part of the agent's name after "@"
	Workspace    string // %w: the session's working directory
	Runtime      string // %t: the session's runtime directory, which is removed at logout
	Home         string // %h: the user's home directory
	ConfigHome   string // %E: $XDG_CONFIG_HOME or ~/.config
	Share        string // %P: the directory of the files that Corral ships for its agents
}

// conversationPattern ensures that an id, which agents report and users type, cannot be taken for
// an option or a path.
var conversationPattern = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,127}$`)

// ValidConversationID reports whether s is an id that may become an argument of a command: at most
// 128 bytes of letters, digits, "_", ".", ":" and "-", starting with a letter, a digit or "_".
func ValidConversationID(s string) bool { return conversationPattern.MatchString(s) }

// Expand replaces the specifiers in each argument; %% is a percent sign. An argument stays one
// argument, whatever its value contains. It returns an error for an unknown specifier and for one
// without a value, such as %U before the conversation id is known.
func Expand(args []string, s Specifiers) ([]string, error) { return expandAll(args, s.value) }

// ExpandKnown is like Expand but leaves specifiers without a value unchanged.
func ExpandKnown(args []string, s Specifiers) ([]string, error) {
	return expandAll(args, func(letter byte) (string, error) {
		value, err := s.value(letter)
		if _, unknown := knownSpecifier(letter); err != nil && unknown == nil {
			return "%" + string(rune(letter)), nil
		}
		return value, err
	})
}

func expandAll(args []string, value func(letter byte) (string, error)) ([]string, error) {
	expanded := make([]string, len(args))
	for i, arg := range args {
		var err error
		if expanded[i], err = expandOne(arg, value); err != nil {
			return nil, fmt.Errorf("cannot expand %q: %w", arg, err)
		}
	}
	return expanded, nil
}

func (s Specifiers) value(letter byte) (string, error) {
	var value string
	switch letter {
	case 'U':
		if s.Conversation != "" && !ValidConversationID(s.Conversation) {
			return "", fmt.Errorf("invalid conversation id %q", s.Conversation)
		}
		value = s.Conversation
	case '8': // some agents name their files after these 8 characters
		if _, err := s.value('U'); err != nil {
			return "", err
		}
		value = s.Conversation[:min(len(s.Conversation), 8)]
	case 'F':
		if s.Forked != "" && !ValidConversationID(s.Forked) {
			return "", fmt.Errorf("invalid conversation id %q", s.Forked)
		}
		value = s.Forked
	case 'P':
		value = s.Share
	case 'i':
		value = s.Session
	case 'I':
		value = s.Instance
	case 'E':
		value = s.ConfigHome
	case 'w':
		value = s.Workspace
	case 't':
		value = s.Runtime
	case 'h':
		value = s.Home
	default:
		return "", unknownSpecifier(letter)
	}
	if value == "" {
		return "", fmt.Errorf("specifier %%%c has no value", letter)
	}
	return value, nil
}

// checkSpecifiers returns an error if arg contains a specifier that Expand does not know.
func checkSpecifiers(arg string) error {
	_, err := expandOne(arg, knownSpecifier)
	return err
}

func knownSpecifier(letter byte) (string, error) {
	if !strings.Contains("U8FiIwthEP", string(rune(letter))) {
		return "", unknownSpecifier(letter)
	}
	return "", nil
}

// usesSpecifier reports whether arg contains one of the specifiers.
func usesSpecifier(arg string, letters ...byte) bool {
	uses := false
	_, _ = expandOne(arg, func(letter byte) (string, error) {
		uses = uses || slices.Contains(letters, letter)
		return "", nil
	})
	return uses
}

// UsesConversation reports whether the command contains the conversation id.
func UsesConversation(args []string) bool {
	return slices.ContainsFunc(args, func(arg string) bool { return usesSpecifier(arg, 'U', '8') })
}

// usesForked reports whether the command contains the id of the conversation that is copied.
func usesForked(args []string) bool {
	return slices.ContainsFunc(args, func(arg string) bool { return usesSpecifier(arg, 'F') })
}

// UsesInstance reports whether the text contains the instance of a template.
func UsesInstance(text string) bool { return usesSpecifier(text, 'I') }

// ExpandPatterns replaces the specifiers and the variables, ${NAME}, in file name patterns and
// returns patterns for filepath.Glob. The inserted values match only themselves. A pattern is left
// out if one of its variables is unset or empty, or if the result is not an absolute path.
// Variables are given as NAME=VALUE.
func ExpandPatterns(patterns []string, s Specifiers, variables []string) ([]string, error) {
	var expanded []string
	for _, pattern := range patterns {
		missing := false
		text, err := expandPattern(pattern, func(letter byte) (string, error) {
			value, err := s.value(letter)
			return QuotePattern(value), err
		}, func(name string) string {
			value, _ := environment.Lookup(variables, name)
			missing = missing || value == ""
			return QuotePattern(value)
		})
		if err != nil {
			return nil, fmt.Errorf("cannot expand %q: %w", pattern, err)
		}
		if !missing && filepath.IsAbs(text) {
			expanded = append(expanded, text)
		}
	}
	return expanded, nil
}

// QuotePattern escapes a text so that it matches itself in a pattern of filepath.Glob.
func QuotePattern(s string) string { return patternQuoter.Replace(s) }

var patternQuoter = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`)

// checkPattern returns an error if ExpandPatterns or filepath.Glob would reject the pattern.
func checkPattern(pattern string) error {
	text, err := expandPattern(pattern, knownSpecifier, func(string) string { return "/" })
	if err == nil {
		if _, err = filepath.Match(text, ""); err != nil {
			err = fmt.Errorf("invalid file name pattern %q", pattern)
		}
	}
	return err
}

// expandPattern replaces the specifiers and the variables, ${NAME}, in a pattern.
func expandPattern(
	pattern string, specifier func(byte) (string, error), variable func(name string) string,
) (string, error) {
	var b strings.Builder
	for {
		before, after, ok := strings.Cut(pattern, "${")
		text, err := expandOne(before, specifier)
		b.WriteString(text)
		if err != nil || !ok {
			return b.String(), err
		}
		name, rest, closed := strings.Cut(after, "}")
		if !closed || !environment.ValidName(name) {
			return "", fmt.Errorf("%q has ${ without a variable's name and }", pattern)
		}
		b.WriteString(variable(name))
		pattern = rest
	}
}

func unknownSpecifier(letter byte) error {
	return fmt.Errorf("unknown specifier %q", "%"+string([]byte{letter}))
}

func expandOne(arg string, value func(letter byte) (string, error)) (string, error) {
	var b strings.Builder
	for {
		before, after, ok := strings.Cut(arg, "%")
		b.WriteString(before)
		if !ok {
			return b.String(), nil
		}
		if after == "" {
			return "", errors.New("a single % at the end (write %% for a percent sign)")
		}
		text := "%"
		if after[0] != '%' {
			var err error
			if text, err = value(after[0]); err != nil {
				return "", err
			}
		}
		b.WriteString(text)
		arg = after[1:]
	}
}
