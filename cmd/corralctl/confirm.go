package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/corrald/corral/cmd/corralctl/wording"
)

// confirmationVerbs are the verbs that ask on a terminal before they affect several sessions that
// were not named one by one. The value is the word for the question.
var confirmationVerbs = map[string]string{"rm": "Remove", "stop": "Stop", "kill": "Signal", "archive": "Archive",
	"restart": "Restart"}

// confirmingVerb adds --yes to a verb of confirmationVerbs.
func confirmingVerb(act action) func(*pflag.FlagSet) action {
	return func(f *pflag.FlagSet) action {
		yes := f.BoolP("yes", "y", false, "do not ask before several sessions are affected")
		return func(ctx context.Context, c *ctl, args []string) error {
			c.yes = c.yes || *yes
			return act(ctx, c, args)
		}
	}
}

// isBulk returns whether sessions were selected together, by --all or by a pattern.
func (c *ctl) isBulk(words, ids []string) bool {
	if confirmationVerbs[c.name] == "" {
		return false
	}
	isPattern := func(word string) bool { return strings.ContainsAny(word, "*?[") && !slices.Contains(ids, word) }
	return c.impliesAll || len(words) == 0 || len(ids) > 1 && slices.ContainsFunc(words, isPattern)
}

// confirm asks on a terminal whether to continue with these sessions, unless --yes was given.
// Without a terminal it does not ask. If the user declines, the error is only an exit code.
func (c *ctl) confirm(ctx context.Context, ids []string) error {
	if c.yes || c.errTTY == nil || openTerminal(c.in) == nil {
		return nil
	}
	sessions, err := c.candidates(ctx)
	if err != nil {
		return c.cannot(c.doing(), "", err)
	}
	states, live := map[string]string{}, 0
	for _, s := range sessions {
		states[s.ID] = s.State
	}
	width := 0
	for _, id := range ids {
		width = max(width, len(id))
		if !wording.IsEnded(states[id]) {
			live++
		}
	}
	const most = 30 // that fit on a screen
	shown := ids
	if len(ids) > most {
		shown = ids[:most-1]
	}
	for _, id := range shown {
		fmt.Fprintf(c.err, "  %-*s %s\n", width, id, states[id])
	}
	if n := len(ids) - len(shown); n > 0 {
		fmt.Fprintf(c.err, "  and %d more\n", n)
	}
	running := ""
	if live > 0 {
		running = fmt.Sprintf(" (%d running)", live)
	}
	fmt.Fprintf(c.err, "%s %s%s? [y/N] ", confirmationVerbs[c.name], wording.Plural(len(ids), "session"), running)
	answer, err := readAnswer(ctx, c.in)
	if err != nil {
		fmt.Fprintln(c.err)
	}
	if answer == "y" || answer == "yes" {
		return nil
	}
	fmt.Fprintln(c.err, "Aborted.")
	return exit(exitFailed)
}

// readAnswer reads a line and returns it in lower case.
func readAnswer(ctx context.Context, in *os.File) (string, error) {
	type line struct {
		text string
		err  error
	}
	lines := make(chan line, 1)
	go func() {
		text, err := bufio.NewReader(in).ReadString('\n')
		lines <- line{text, err}
	}()
	select {
	case l := <-lines:
		return strings.ToLower(strings.TrimSpace(l.text)), l.err
	case <-ctx.Done(): // after --timeout
		return "", ctx.Err()
	}
}
