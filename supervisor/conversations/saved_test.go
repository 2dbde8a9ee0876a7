package conversations

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/environment"
	"github.com/corrald/corral/supervisor/session"
)

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
}

// noVariables is an environment that is not to be asked for.
func noVariables() ([]environment.Variable, error) { return nil, errors.New("it was asked for") }

func TestChoose(t *testing.T) {
	home, own := t.TempDir(), t.TempDir()
	write(t, home, "saved", "a message")
	write(t, home, "begun", "nothing")
	write(t, own, "elsewhere", "a message")
	message := regexp.MustCompile("message")
	fresh, resume, other := []string{"a"}, []string{"a", "-r"}, []string{"a", "o"}
	variable := func(name, value, source string) Variables {
		return func() ([]environment.Variable, error) {
			return []environment.Variable{{Name: name, Value: value, Source: source}}, nil
		}
	}
	for name, c := range map[string]struct {
		id, otherID string
		patterns    []string
		content     *regexp.Regexp
		variables   Variables
		want        []string
		notFound    string // id of ConversationNotFound, "none" if the conversation is continued
	}{
		"no condition":        {"x", "", nil, nil, noVariables, resume, "none"},
		"a file":              {"begun", "", []string{"%h/%U"}, nil, variable("A", "", ""), resume, "none"},
		"no file":             {"x", "", []string{"%h/%U"}, nil, variable("A", "", ""), fresh, "x"},
		"no file, another id": {"x", "o", []string{"%h/%U"}, message, variable("A", "", ""), fresh, "x"},
		"one of the patterns": {"saved", "", []string{"%h/x", "%h/%U"}, nil, variable("A", "", ""), resume, "none"},
		"the content":         {"saved", "o", []string{"%h/%U"}, message, variable("A", "", ""), resume, "none"},
		"a file without the content": {
			"begun", "", []string{"%h/%U"}, message, variable("A", "", ""), fresh, "begun",
		},
		"a file without the content, another id": {
			"begun", "o", []string{"%h/%U"}, message, variable("A", "", ""), other, "o",
		},
		"the session's home directory": {
			"elsewhere", "", []string{"%h/%U"}, nil, variable("HOME", own, environment.Session), resume, "none",
		},
		"the user manager's home directory": {
			"elsewhere", "", []string{"%h/%U"}, nil, variable("HOME", own, environment.Manager), fresh, "elsewhere",
		},
		"a variable": {"elsewhere", "", []string{"${D}/%U"}, nil, variable("D", own, environment.Caller), resume, "none"},
	} {
		t.Run(name, func(t *testing.T) {
			continuation := Continuation{
				Resume: resume, FreshID: c.id, OtherID: c.otherID, OtherCommand: other,
				Saved: Saved{c.patterns, c.content, config.Specifiers{Conversation: c.id, Home: home}},
			}
			command, notFound, err := continuation.Choose("r", fresh, c.variables)
			require.NoError(t, err)
			assert.Equal(t, c.want, command)
			if c.notFound == "none" {
				assert.Nil(t, notFound)
			} else {
				assert.Equal(t, &session.ConversationNotFound{Run: "r", ID: c.notFound}, notFound)
			}
		})
	}
	_, _, err := Continuation{Resume: resume, Saved: Saved{Patterns: []string{"%h/x"}}}.Choose("r", fresh, noVariables)
	require.ErrorContains(t, err, "it was asked for")
	_, _, err = Continuation{Resume: resume, Saved: Saved{Patterns: []string{"%h/%U"}}}.Choose("r", fresh,
		variable("A", "", ""))
	assert.ErrorContains(t, err, "cannot expand")
}

// A copy of a conversation is begun only if that was saved.
func TestChoose_CopiesWhatWasSaved(t *testing.T) {
	home := t.TempDir()
	write(t, home, "original", "a message")
	write(t, home, "copy", "a message")
	none := func() ([]environment.Variable, error) { return nil, nil }
	saved := func(id string) *Saved {
		return &Saved{[]string{"%h/%U"}, nil, config.Specifiers{Conversation: id, Home: home}}
	}
	fork, resume := []string{"a", "--fork"}, []string{"a", "-r"}
	command, notFound, err := Continuation{Original: saved("original")}.Choose("r", fork, none)
	require.NoError(t, err)
	assert.Equal(t, fork, command)
	assert.Nil(t, notFound)

	_, _, err = Continuation{Original: saved("lost")}.Choose("r", fork, none)
	require.EqualError(t, err, "cannot copy conversation lost: it was not saved")

	begun := Continuation{Resume: resume, Saved: *saved("begun"), FreshID: "begun", Original: saved("original")}
	command, notFound, err = begun.Choose("r", fork, none)
	require.NoError(t, err)
	assert.Equal(t, fork, command, "nothing was said in the copy yet")
	assert.Equal(t, &session.ConversationNotFound{Run: "r", ID: "begun"}, notFound)

	continued := Continuation{Resume: resume, Saved: *saved("copy"), Original: saved("lost")}
	command, _, err = continued.Choose("r", fork, none)
	require.NoError(t, err)
	assert.Equal(t, resume, command, "the copy does not depend on the original")
}
