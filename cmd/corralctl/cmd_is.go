package main

import (
	"context"
	"errors"
	"slices"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi"
)

// The verbs that answer with their exit code: 0 if it is so of any of the sessions.
var (
	isActiveVerb  = isVerb("is-active", "Tell whether sessions are live", question{exitNotActive, func(row dbusapi.SessionRow) bool { return !wording.Ended(row.State) }, stateOf})
	isFailedVerb  = isVerb("is-failed", "Tell whether sessions have failed", question{exitFailed, func(row dbusapi.SessionRow) bool { return row.State == "failed" }, stateOf})
	isWaitingVerb = isVerb("is-waiting", "Tell whether sessions wait for a person", question{exitNotActive, isWaiting, activityOf})
)

// question is what is asked of sessions.
type question struct {
	no     int                           // the exit code if it is so of none
	is     func(dbusapi.SessionRow) bool // the answer
	answer func(answer isValue) string   // what is printed
}

func isWaiting(row dbusapi.SessionRow) bool {
	return row.Activity == "waiting" && !wording.Ended(row.State)
}

func stateOf(answer isValue) string { return answer.State }

// activityOf is the state of one that does nothing.
func activityOf(answer isValue) string {
	if wording.Ended(answer.State) || answer.Activity == "" || answer.Activity == "unknown" {
		return answer.State
	}
	return answer.Activity
}

// isVerb makes a verb that prints the answer for each session, unless quiet, and exits with 0 if it is so of any; else with no, or 4 if one is not known.
func isVerb(name, summary string, q question) verb {
	return verb{name: name, args: "ID…", summary: summary, options: plainVerb(func(ctx context.Context, c *ctl, args []string) error {
		if len(args) == 0 && !c.all {
			return usagef(name, "%s needs the id of a session", name)
		}
		var rows []dbusapi.SessionRow
		bus, err := c.connect(ctx)
		if err == nil {
			rows, err = bus.ListSessions(ctx)
		}
		switch {
		case err != nil && len(args) == 0:
			return c.cannot("ask for the sessions", "", err)
		case err != nil:
			return c.cannot("ask for", args[0], err)
		case len(args) == 0:
			args = unarchived(rows)
		}
		return c.is(args, rows, q)
	})}
}

// unarchived are the ids of all sessions that are in sight.
func unarchived(rows []dbusapi.SessionRow) []string {
	var ids []string
	for _, row := range rows {
		if row.State != "archived" {
			ids = append(ids, row.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

func (c *ctl) is(words []string, rows []dbusapi.SessionRow, q question) error {
	byID := map[string]dbusapi.SessionRow{}
	var sessions []known
	for _, row := range rows {
		byID[row.ID] = row
		sessions = append(sessions, known{row.ID, row.State})
	}
	code := q.no
	unknown := false
	answers := []isValue{}
	for _, word := range words {
		ids, err := match(word, sessions, c.all)
		if f := (*failure)(nil); errors.As(err, &f) && f.code != exitNoSession { // one of several, or nonsense: that is no answer
			return c.unmatched(word, err)
		}
		if err != nil {
			unknown = true
			answers = append(answers, isValue{Id: word, State: "unknown"})
		}
		for _, id := range ids {
			row := byID[id]
			answers = append(answers, isValue{id, row.State, row.Activity, q.is(row)})
			if q.is(row) {
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
			c.print("%s\n", q.answer(answer))
		}
	}
	return exit(code)
}
