package main

import (
	"context"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/dbusapi/client"
	"github.com/corrald/corral/dbusapi/word"
	"github.com/corrald/corral/internal/keys"
)

// maxKeys is how many keys the daemon accepts in one call.
const maxKeys = 1000

var sendKeysVerb = verb{
	name: "send-keys", args: "ID KEY…", summary: "Press keys in a session, by their names in tmux",
	details: "A KEY is one character, or a name: Enter, Escape, Tab, BTab, Space, BSpace, Up, Down, Left, " +
		"Right, Home, End, PageUp, PageDown, IC, DC, F1 to F12,\n" +
		"with C- for Ctrl, M- for Alt or S- for Shift before it, as in C-c.\n",
	options: func(f *pflag.FlagSet) action {
		literal := f.Bool("literal", false, "type the characters of each KEY instead")
		return func(ctx context.Context, c *ctl, args []string) error {
			switch {
			case len(args) == 0:
				return usagef("send-keys", "send-keys: missing ID and KEY")
			case len(args) == 1:
				return usagef("send-keys", "send-keys: missing KEY")
			}
			names, err := keyNames(args[0], args[1:], *literal || c.full)
			if err != nil {
				return err
			}
			return c.forEach(ctx, args[:1], "", func(ctx context.Context, id string) error {
				for part := range slices.Chunk(names, maxKeys) {
					if err := c.client.SendKeys(ctx, id, part...); err != nil {
						return c.inputError(ctx, id, "corralctl resume "+id, err)
					}
				}
				return nil
			})
		}
	},
}

// keyNames returns the keys that words name or, if literal, their characters. Session is the
// word on the command line that names the session, for errors and their hints.
func keyNames(session string, words []string, literal bool) ([]string, error) {
	var names []string
	for _, word := range words {
		if !isSendable(word) {
			return nil, usagef("send-keys", "cannot send to %q: the text is not valid UTF-8", session)
		}
		if literal {
			names = append(names, strings.Split(word, "")...)
			continue
		}
		if _, err := keys.Parse(word); err != nil {
			f := &failure{code: exitUsage, message: err.Error(), hint: "corralctl send-keys --literal " + session + " " + word}
			if near := nearestKey(word); near != "" {
				f.hint = "corralctl send-keys " + session + " " + near
			}
			return nil, f
		}
		names = append(names, word)
	}
	return names, nil
}

// nearestKey returns the name of the key that was probably meant, "" if there is none.
func nearestKey(word string) string {
	best, distance := "", 1+max(1, utf8.RuneCountInString(word)/3)
	for _, name := range keys.Names() {
		d := editDistance(strings.ToLower(word), strings.ToLower(name))
		if len(word) <= maxID && len(word) > 2 && d < distance {
			best, distance = name, d
		}
	}
	return best
}

var (
	approveVerb = permissionVerb("approve", "Permit what sessions ask permission for", (*client.Client).Approve)
	denyVerb    = permissionVerb("deny", "Refuse what sessions ask permission for", (*client.Client).Deny)
)

// permissionVerb makes a verb that answers a request for permission. Each session has to be named,
// so that nobody approves what they have not looked at.
func permissionVerb(name, summary string, call func(*client.Client, context.Context, string) error) verb {
	run := func(ctx context.Context, c *ctl, args []string) error {
		if len(args) == 0 {
			return usagef(name, "%s: missing ID", name)
		}
		return c.forEach(ctx, args, "", func(ctx context.Context, id string) error {
			err := call(c.client, ctx, id)
			if err == nil {
				return nil
			}
			f := c.cannot(name, id, err)
			switch dbusapi.ShortErrorName(err) {
			case dbusapi.NotSupported: // Corral cannot answer, but a person can
				f.hint = "corralctl attach " + id
			case dbusapi.InvalidState:
				if s := c.inspect(id); s.AgentAlive && !s.Frozen { // likewise: its shim is too old
					f.hint = "corralctl attach " + id
				}
			}
			return f
		})
	}
	return verb{
		name: name, args: "ID…", summary: summary, options: plainVerb(run),
		details: "It presses the keys that the agent's definition has for it, " +
			"and only while the session waits for a permission.\n",
	}
}

// inputError returns the error of input that a session did not accept. If the session is suspended,
// its hint is resume.
func (c *ctl) inputError(ctx context.Context, id, resume string, err error) *failure {
	f := c.cannot("send to", id, err)
	if dbusapi.ShortErrorName(err) != dbusapi.InvalidState {
		return f
	}
	if now, err := c.client.Session(ctx, id); err == nil && now.State == word.Suspended {
		f.hint = resume
	}
	return f
}
