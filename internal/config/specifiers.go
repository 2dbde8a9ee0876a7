package config

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Specifiers is what the specifiers in an agent's definition stand for in one run.
type Specifiers struct {
	Conversation string // %U: the agent's own id of its conversation
	Session      string // %i: the session's id
	Workspace    string // %w: the session's working directory
	Runtime      string // %t: the session's runtime directory, gone at logout
	Home         string // %h: the user's home directory
}

// conversationPattern keeps an id, which agents report and people type, from becoming an option or a path.
var conversationPattern = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,127}$`)

// ValidConversationID tells whether s is an id that may be put into a command: letters, digits, "_", ".", ":" and "-", none of the last three
// in front, 128 bytes at most.
func ValidConversationID(s string) bool { return conversationPattern.MatchString(s) }

// Expand replaces the specifiers in each argument; %% is a percent sign. An argument stays one argument, whatever is put into it. An unknown
// specifier is an error, and so is one that has no value here, such as %U before the conversation's id is known.
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

func (s Specifiers) value(letter byte) (string, error) {
	var value string
	switch letter {
	case 'U':
		if s.Conversation != "" && !ValidConversationID(s.Conversation) {
			return "", fmt.Errorf("%q is no conversation id", s.Conversation)
		}
		value = s.Conversation
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
	_, err := expandOne(arg, func(letter byte) (string, error) {
		if !strings.Contains("Uiwth", string(rune(letter))) {
			return "", unknownSpecifier(letter)
		}
		return "", nil
	})
	return err
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
