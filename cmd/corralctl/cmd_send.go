package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi"
)

// maxText is the largest text for an agent that is read from standard input, in bytes; corrald has
// a limit of its own.
const maxText = 16 << 20

var sendVerb = verb{name: "send", args: "ID TEXT", summary: "Type a text into a session and press Enter",
	options: func(f *pflag.FlagSet) action {
		noEnter := f.Bool("no-enter", false, "do not press Enter after the text")
		ifWaiting := f.Bool("if-waiting", false, "only if the session waits for input")
		resume := f.Bool("resume", false, "resume the session first if it is suspended")
		return func(ctx context.Context, c *ctl, args []string) error {
			if err := checkIDAndText("send", args); err != nil {
				return err
			}
			flags := dbusapi.InputEnter
			if *noEnter {
				flags = 0
			}
			if *ifWaiting {
				flags |= dbusapi.InputIfWaiting
			}
			if *resume {
				flags |= dbusapi.InputResume
			}
			return c.send(ctx, args[0], args[1], flags)
		}
	}}

// checkIDAndText returns an error unless the arguments of a verb are an ID and a TEXT.
func checkIDAndText(verb string, args []string) error {
	switch len(args) {
	case 0:
		return usagef(verb, "%s: missing ID and TEXT", verb)
	case 1:
		return usagef(verb, "%s: missing TEXT", verb)
	case 2:
		return nil
	}
	return usagef(verb, "%s: expected one TEXT, not %s: quote the text", verb, wording.Plural(len(args)-1, "word"))
}

func (c *ctl) send(ctx context.Context, word, text string, flags uint64) error {
	if text == "-" {
		data, err := io.ReadAll(io.LimitReader(c.in, maxText+1))
		if err != nil {
			return fmt.Errorf("cannot read standard input: %w", err)
		}
		if len(data) > maxText {
			return &failure{code: exitFailed,
				message: fmt.Sprintf("cannot send to %q: the text is longer than %s", word, wording.Size(maxText))}
		}
		text = strings.TrimSuffix(string(data), "\n")
	}
	if !isSendable(text) {
		return usagef("send", "cannot send to %q: the text is not valid UTF-8", word)
	}
	ids, err := c.resolve(ctx, []string{word})
	if len(ids) == 0 {
		return err
	}
	var failed failures
	for _, id := range ids {
		if err := c.client.SendInput(ctx, id, text, flags); err != nil {
			failed.add(c, c.inputError(ctx, id, "corralctl send --resume "+id+" …", err))
		} else if s := c.queued(ctx, id); s != nil && !c.quiet {
			c.print("%s is %s. The text is typed once it runs.\n", id, wording.Queued(*s))
		}
	}
	return failed.first()
}
