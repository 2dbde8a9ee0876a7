package main

import (
	"context"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi"
)

// The verbs that answer with their exit code: 0 if it is so of any of the sessions.
var (
	isActiveVerb = isVerb("is-active", "Tell whether sessions are live", exitNotActive, func(row dbusapi.SessionRow) bool { return !wording.Ended(row.State) })
	isFailedVerb = isVerb("is-failed", "Tell whether sessions have failed", exitFailed, func(row dbusapi.SessionRow) bool { return row.State == "failed" })
	isWaiting    = func(row dbusapi.SessionRow) bool { return row.Activity == "waiting" && !wording.Ended(row.State) }

	isWaitingVerb = isVerb("is-waiting", "Tell whether sessions wait for a person", exitNotActive, isWaiting)
)

// isVerb makes a verb that prints the state of each session, unless quiet, and exits with 0 if any is such; else with no, or 4 if one is not known.
func isVerb(name, summary string, no int, such func(dbusapi.SessionRow) bool) verb {
	return verb{name: name, args: "ID…", summary: summary, options: plainVerb(func(ctx context.Context, c *ctl, args []string) error {
		if len(args) == 0 {
			return usagef(name, "%s needs the id of a session", name)
		}
		bus, err := c.connect(ctx)
		if err != nil {
			return c.cannot("ask for", args[0], err)
		}
		rows, err := bus.ListSessions(ctx)
		if err != nil {
			return c.cannot("ask for", args[0], err)
		}
		return c.is(args, rows, no, such)
	})}
}

func (c *ctl) is(words []string, rows []dbusapi.SessionRow, no int, such func(dbusapi.SessionRow) bool) error {
	byID := map[string]dbusapi.SessionRow{}
	var sessions []known
	for _, row := range rows {
		byID[row.ID] = row
		sessions = append(sessions, known{row.ID, row.State})
	}
	code := no
	unknown := false
	answers := []isValue{}
	for _, word := range words {
		ids, err := match(word, sessions, c.all)
		if err != nil {
			unknown = true
			answers = append(answers, isValue{Id: word, State: "unknown"})
		}
		for _, id := range ids {
			row := byID[id]
			answers = append(answers, isValue{id, row.State, row.Activity, such(row)})
			if such(row) {
				code = 0
			}
		}
	}
	if unknown && code != 0 {
		code = exitNoSession
	}
	switch {
	case c.quiet:
	case c.wantsJSON():
		if err := c.printJSON(answers); err != nil {
			return err
		}
	default:
		for _, answer := range answers {
			c.print("%s\n", answer.State)
		}
	}
	return exit(code)
}
