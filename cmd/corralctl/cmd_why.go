package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/dbusapi/client"
	"github.com/corrald/corral/dbusapi/word"
)

var whyVerb = verb{name: "why", args: "ID…", summary: "Explain how a session's state was determined", pages: true,
	options: func(f *pflag.FlagSet) action {
		environment := f.Bool("environment", false, "show where the variables of its last run came from instead")
		return func(ctx context.Context, c *ctl, args []string) error {
			ids, unresolved := c.resolve(ctx, args)
			if len(ids) > 1 && c.wantsJSON() {
				return usagef("why", "why --json: expected one session, not %d", len(ids))
			}
			why := c.why
			if *environment {
				why = c.whyEnvironment
			}
			for i, id := range ids {
				if i > 0 {
					fmt.Fprintln(c.out)
				}
				if err := why(ctx, id); err != nil {
					return c.cannot(c.doing(), id, err)
				}
			}
			return unresolved
		}
	}}

func (c *ctl) why(ctx context.Context, id string) error {
	explanations, err := c.client.Explain(ctx, id)
	if err != nil {
		return err
	}
	for _, s := range c.straysOf(ctx)[id] {
		explanations = append(explanations, dbusapi.Explanation{Subject: "outside",
			Source: fmt.Sprintf("process %d", s.PID), Value: s.Name + " is in " + strayPlace(s) + ", not in its scope"})
	}
	if c.wantsJSON() {
		return c.printJSON(explanations)
	}
	s, err := c.client.Session(ctx, id)
	if err != nil {
		return err
	}
	c.printWhy(s, explanations, time.Now())
	return nil
}

// printWhy prints the session's state with the deciding source, and then a row for each
// explanation. Rows of the same subject name it only once. Explanations that do not apply are
// dimmed.
func (c *ctl) printWhy(s client.Session, explanations []dbusapi.Explanation, now time.Time) {
	if !c.noLegend && !c.plain {
		id := wording.Printable(s.Id)
		text := c.fit(wording.Printable(headline(s, c.leftovers, explanations, now)), wording.Width(id)+len("* - "))
		fmt.Fprintf(c.out, "%s %s - %s\n", c.statusDot(s), c.paint(wording.Bold, id), text)
	}
	t := table{columns: []column{{title: "SUBJECT"}, {title: "SOURCE"}, {title: "SINCE"},
		{title: "WHAT", minWidth: 10, cut: wording.Ellipsize}}}
	last := ""
	for _, e := range explanations {
		subject, source := e.Subject, e.Source
		if subject == last && !c.plain {
			subject = ""
		}
		if source == "" {
			source = "-"
		}
		colour := rowColour(s, e, e.Subject != last)
		last = e.Subject
		t.rows = append(t.rows,
			[]cell{{text: subject}, {source, colour}, {wording.Age(e.Time, now), colour}, {e.Value, colour}})
	}
	c.printTable(t)
}

// headline summarizes the table in one sentence: "running (waiting: permission), reported by
// osc7501 12s ago".
func headline(s client.Session, leftovers func(client.Session) int, explanations []dbusapi.Explanation,
	now time.Time) string {
	text := wording.StateText(s, leftovers, now)
	for i, e := range explanations {
		first := i == 0 || explanations[i-1].Subject != e.Subject
		if first && isDecisive(s, e) && (e.Subject == word.Attention || s.Attention == "") {
			return text + ", reported by " + e.Source + " " + wording.Age(e.Time, now) + " ago"
		}
	}
	return text
}

// isDecisive returns whether an explanation, which is the first one of its subject, determines the
// activity, or why the session needs attention.
func isDecisive(s client.Session, e dbusapi.Explanation) bool {
	switch e.Subject {
	case word.Activity:
		return e.Source != "" && e.Value == s.Activity
	case word.Attention:
		return s.Attention != "" && s.Attention != s.State
	}
	return false
}

// rowColour returns the colour of a row. First is whether it is the first one of its subject.
func rowColour(s client.Session, e dbusapi.Explanation, first bool) string {
	switch {
	case e.Subject == word.State || first && e.Subject == word.Activity && s.Activity != word.Waiting:
		return ""
	case first && (e.Subject == word.Activity || s.Attention != ""):
		return wording.StateColour(s)
	}
	return wording.Dim
}
