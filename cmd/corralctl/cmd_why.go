package main

import (
	"context"
	"time"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi"
)

var whyVerb = verb{name: "why", args: "ID", summary: "Show what told a session's state, activity and attention", pages: true, options: plainVerb(
	func(ctx context.Context, c *ctl, args []string) error {
		if len(args) != 1 {
			return usagef("why", "why takes one session, not %d", len(args))
		}
		id, err := c.one(ctx, args[0])
		if err != nil {
			return err
		}
		told, err := c.client.Explain(ctx, id)
		if err != nil {
			return c.cannot("explain", id, err)
		}
		if c.wantsJSON() {
			return c.printJSON(told)
		}
		c.printWhy(told, time.Now())
		return nil
	})}

// printWhy writes what told what, a line each; a subject is named in the first of its lines.
func (c *ctl) printWhy(told []dbusapi.Explanation, now time.Time) {
	t := table{columns: []column{{title: "SUBJECT"}, {title: "SOURCE"}, {title: "SINCE"}, {title: "WHAT", shrink: 10, cut: wording.Ellipsize}}}
	last := ""
	for _, e := range told {
		subject, source := e.Subject, e.Source
		if subject == last && !c.plain {
			subject = ""
		}
		if source == "" {
			source = "-"
		}
		last = e.Subject
		t.rows = append(t.rows, []cell{{text: subject}, {text: source}, {text: wording.Age(e.Time, now)}, {text: e.Value}})
	}
	c.printTable(t)
}
