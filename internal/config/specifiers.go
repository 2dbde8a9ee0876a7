package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Specifiers is what the specifiers in an agent's definition stand for in one run.
type Specifiers struct {
	Conversation string // %U: the agent's own id of its conversation
	Session      string // %i: the session's id
	Workspace    string // %w: the session's working directory
	Runtime      string // %t: the session's runtime directory, gone at logout
	Home         string // %h: the user's home directory
	Share        string // %P: the directory of what comes with Corral for its agents
}

// conversationPattern keeps an id, which agents report and people type, from becoming an option or
// a path.
var conversationPattern = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,127}$`)

// ValidConversationID tells whether s is an id that may be put into a command: letters, digits,
// "_", ".", ":" and "-", none of the last three in front, 128 bytes at most.
func ValidConversationID(s string) bool { return conversationPattern.MatchString(s) }

// Expand replaces the specifiers in each argument; %% is a percent sign. An argument stays one
// argument, whatever is put into it. An unknown specifier is an error, and so is one that has no
// value here, such as %U before the conversation's id is known.
func Expand(args []string, s Specifiers) ([]string, error) {
	expanded := make([]string, len(args))
	for i, arg := range args {
		var err error
		if expanded[i], err = expandOne(arg, s.value); err != nil {
			return nil, fmt.Errorf("cannot expand %q: %w", arg, err)
		}
	}
	return expanded, nil
}

// ExpandKnown is Expand where what has no value yet stays as it is written.
func ExpandKnown(args []string, s Specifiers) ([]string, error) {
	expanded := make([]string, len(args))
	for i, arg := range args {
		var err error
		if expanded[i], err = expandOne(arg, func(letter byte) (string, error) {
			value, err := s.value(letter)
			if _, unknown := knownSpecifier(letter); err != nil && unknown == nil {
				return "%" + string(rune(letter)), nil
			}
			return value, err
		}); err != nil {
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
	case '8': // as some agents name their files
		if _, err := s.value('U'); err != nil {
			return "", err
		}
		value = s.Conversation[:min(len(s.Conversation), 8)]
	case 'P':
		value = s.Share
	case 'i':
		value = s.Session
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

// checkSpecifiers finds what Expand would not know.
func checkSpecifiers(arg string) error {
	_, err := expandOne(arg, knownSpecifier)
	return err
}

func knownSpecifier(letter byte) (string, error) {
	if !strings.Contains("U8iwthP", string(rune(letter))) {
		return "", unknownSpecifier(letter)
	}
	return "", nil
}

// usesSpecifier tells whether one of the letters is a specifier in arg.
func usesSpecifier(arg string, letters ...byte) bool {
	uses := false
	_, _ = expandOne(arg, func(letter byte) (string, error) {
		uses = uses || slices.Contains(letters, letter)
		return "", nil
	})
	return uses
}

// UsesConversation tells whether the conversation's id is part of the command.
func UsesConversation(args []string) bool {
	return slices.ContainsFunc(args, func(arg string) bool { return usesSpecifier(arg, 'U', '8') })
}

// ExpandPatterns makes of patterns with specifiers and variables, ${NAME}, those that filepath.Glob
// takes. What is put in matches only itself. A pattern is left out if a variable in it is not set,
// or empty, or if it does not lead to one place whatever the working directory is. Variables are
// NAME=VALUE.
func ExpandPatterns(patterns []string, s Specifiers, variables []string) ([]string, error) {
	var expanded []string
	for _, pattern := range patterns {
		missing := false
		text, err := expandPattern(pattern, func(letter byte) (string, error) {
			value, err := s.value(letter)
			return quotePattern(value), err
		}, func(name string) string {
			value := variable(variables, name)
			missing = missing || value == ""
			return quotePattern(value)
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

// variable returns what the last entry says of a variable, "" if none does.
func variable(variables []string, name string) (value string) {
	for _, entry := range variables {
		if of, is, _ := strings.Cut(entry, "="); of == name {
			value = is
		}
	}
	return value
}

// quotePattern has a text match itself.
func quotePattern(s string) string { return patternQuoter.Replace(s) }

var patternQuoter = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`)

// checkPattern finds what ExpandPatterns, or filepath.Glob, would not take.
func checkPattern(pattern string) error {
	text, err := expandPattern(pattern, knownSpecifier, func(string) string { return "/" })
	if err == nil {
		if _, err = filepath.Match(text, ""); err != nil {
			err = fmt.Errorf("invalid file name pattern %q", pattern)
		}
	}
	return err
}

// expandPattern replaces specifiers, and variables between them.
func expandPattern(pattern string, specifier func(byte) (string, error), variable func(name string) string) (string, error) {
	var b strings.Builder
	for {
		before, after, ok := strings.Cut(pattern, "${")
		text, err := expandOne(before, specifier)
		b.WriteString(text)
		if err != nil || !ok {
			return b.String(), err
		}
		name, rest, closed := strings.Cut(after, "}")
		if !closed || !variablePattern.MatchString(name) {
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
