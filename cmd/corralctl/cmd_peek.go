package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi"
)

var peekVerb = verb{
	name: "peek", args: "ID…", summary: "Show a session's screen without attaching",
	options: func(f *pflag.FlagSet) action {
		lines := f.Uint32P("lines", "n", 0, "the last `LINES` of screen and history")
		escapes := f.BoolP("escapes", "e", false, "keep colours and other escape sequences")
		return func(ctx context.Context, c *ctl, args []string) error {
			ids, unresolved := c.resolve(ctx, args)
			var failed failures
			screens := []screenValue{}
			for i, id := range ids {
				var flags uint64
				if *escapes {
					flags = dbusapi.CaptureEscapes
				}
				text, err := c.client.Capture(ctx, id, *lines, flags)
				if err != nil {
					f := c.cannot("peek at", id, err)
					if isInvalidState(err) {
						f.hint = c.fallbackHint(ctx, "logs", id)
					}
					failed.add(c, f)
					continue
				}
				if c.wantsJSON() {
					screens = append(screens, screenValue{id, strings.Split(strings.TrimRight(text, "\n"), "\n")})
					continue
				}
				if len(ids) > 1 && !c.noLegend {
					if i > 0 {
						fmt.Fprintln(c.out)
					}
					c.print("==> %s <==\n", id)
				}
				text = strings.TrimRight(text, "\n")
				if !*escapes {
					text = wording.PrintableLines(text)
				}
				fmt.Fprintln(c.out, text)
			}
			if c.wantsJSON() && len(ids) > 0 {
				if err := c.printJSON(screens); err != nil {
					return err
				}
			}
			return cmp.Or(unresolved, failed.first())
		}
	},
}

// fallbackHint returns the command that helps if a session has nothing to show: verb or, if there
// was neither a run nor a setup of its worktree, start.
func (c *ctl) fallbackHint(ctx context.Context, verb, id string) string {
	if s, err := c.client.Session(ctx, id); err == nil && s.NRuns == 0 && s.Reason == "" {
		verb = "start"
	}
	return "corralctl " + verb + " " + id
}
