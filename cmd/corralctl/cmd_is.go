package main

import (
	"context"
	"errors"

	"github.com/spf13/pflag"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/dbusapi/client"
	"github.com/corrald/corral/dbusapi/word"
)

// Verbs that answer with their exit code: 0 if the condition holds for any of the sessions.
var (
	isActiveVerb = isVerb("is-active", "Check whether sessions are live", func(*pflag.FlagSet) condition {
		return condition{exitNotActive, func(s client.Session) bool { return !wording.IsEnded(s.State) }, stateOf}
	})
	isFailedVerb = isVerb("is-failed", "Check whether sessions have failed", func(*pflag.FlagSet) condition {
		return condition{exitFailed, func(s client.Session) bool { return s.State == word.Failed }, stateOf}
	})
	isWaitingVerb = isVerb("is-waiting", "Check whether sessions wait for a person", func(f *pflag.FlagSet) condition {
		ended := f.Bool("turn-ended", false, "also exit with 0 if the agent of a session has finished its turn")
		return condition{exitNotActive, func(s client.Session) bool {
			return wording.Matches(s, word.Waiting) || *ended && wording.IsTurnEnded(s)
		}, activityOf}
	})
)

// condition is what one of these verbs checks.
type condition struct {
	exitCode int // if it holds for none of the sessions
	holds    func(client.Session) bool
	text     func(s client.Session) string // what is printed about a session
}

func stateOf(s client.Session) string { return s.State }

// activityOf returns what the agent does, or that it has finished its turn. If the agent does
// nothing, it returns the state of the session.
func activityOf(s client.Session) string {
	switch {
	case wording.IsTurnEnded(s):
		return s.Attention
	case wording.IsEnded(s.State) || s.Activity == "" || s.Activity == word.Unknown:
		return s.State
	}
	return s.Activity
}

// isVerb makes a verb that prints the condition's text for each session, unless --quiet was given,
// and exits with 0 if the condition holds for any of them; otherwise with the condition's exit
// code, or with 4 if a session is not known.
func isVerb(name, summary string, newCondition func(*pflag.FlagSet) condition) verb {
	return verb{name: name, args: "ID…", summary: summary, options: func(f *pflag.FlagSet) action {
		cond := newCondition(f)
		return func(ctx context.Context, c *ctl, args []string) error { return c.checkSessions(ctx, name, args, cond) }
	}}
}

// checkSessions checks the condition for the sessions that args name, or for all with --all.
func (c *ctl) checkSessions(ctx context.Context, name string, args []string, cond condition) error {
	if len(args) == 0 && !c.all {
		return usagef(name, "%s: missing ID", name)
	}
	rows, err := c.candidates(ctx)
	switch {
	case err != nil && len(args) == 0:
		return c.cannot("ask for the sessions", "", err)
	case err != nil:
		return c.cannot("ask for", args[0], err)
	}
	if len(args) == 0 {
		args, _ = c.matchAll(nil, rows, func(s dbusapi.SessionRow) bool { return !isArchived(s) })
	}
	return c.checkRows(args, rows, cond)
}

// checkRows checks the condition for the sessions that words name. The error that it returns is an
// exit code, unless a word is ambiguous or invalid.
func (c *ctl) checkRows(words []string, rows []dbusapi.SessionRow, cond condition) error {
	byID := map[string]client.Session{}
	for _, row := range rows {
		byID[row.ID] = client.Session{Id: row.ID, State: row.State, Activity: row.Activity, Attention: row.Attention}
	}
	code := cond.exitCode
	unknown := false
	answers, texts := []isValue{}, []string{}
	add := func(s client.Session) {
		is := cond.holds(s)
		answers, texts = append(answers, isValue{s.Id, s.State, s.Activity, s.Attention, is}), append(texts, cond.text(s))
		if is {
			code = 0
		}
	}
	for _, name := range words {
		ids, err := c.match(name, rows)
		// An ambiguous id or an invalid pattern is an error, not an answer.
		if f := (*failure)(nil); errors.As(err, &f) && f.code != exitNoSession {
			return c.unmatchedError(name, err)
		}
		if err != nil {
			unknown = true
			answers, texts = append(answers, isValue{Id: name, State: word.Unknown}), append(texts, word.Unknown)
		}
		for _, id := range ids {
			add(byID[id])
		}
	}
	switch {
	case code == 0:
	case len(c.silent) > 0:
		code = exitUnreachable
	case unknown:
		code = exitNoSession
	}
	switch {
	case c.quiet:
	case c.wantsJSON():
		if err := c.printJSON(answers); err != nil {
			return err
		}
	default:
		for _, text := range texts {
			c.print("%s\n", text)
		}
	}
	return exit(code)
}
