package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/pflag"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi/client"
	"github.com/corrald/corral/dbusapi/word"
)

// withNow adds the option --now to a verb that begins runs.
func withNow(options func(*pflag.FlagSet) action) func(*pflag.FlagSet) action {
	return func(f *pflag.FlagSet) action {
		now := nowOption(f)
		act := options(f)
		return func(ctx context.Context, c *ctl, args []string) error {
			c.now = *now
			return act(ctx, c, args)
		}
	}
}

func nowOption(f *pflag.FlagSet) *bool {
	return f.Bool("now", false, "do not queue it, even if MaxRunning= is reached")
}

// forEachRun is forEach for a verb that begins runs. It prints which sessions are queued instead.
func (c *ctl) forEachRun(ctx context.Context, words []string, doing string,
	do func(ctx context.Context, id string) error) error {
	begun, err := c.tryEach(ctx, words, doing, do)
	if c.now || c.noBlock || c.quiet || len(begun) == 0 {
		return err
	}
	list, _ := c.readTable(ctx) // after an error, nothing is printed: the runs were requested
	for _, s := range list.sessions {
		if s.QueuedTimestamp != 0 && slices.Contains(begun, s.Id) {
			c.print("%s is %s.\n", s.Id, wording.Queued(s))
		}
	}
	return err
}

// queued returns the session if it is queued, otherwise nil, also if corrald does not answer.
func (c *ctl) queued(ctx context.Context, id string) *client.Session {
	if s, err := c.client.Session(ctx, id); err == nil && s.QueuedTimestamp != 0 {
		return &s
	}
	return nil
}

// queuedError is the error of attaching to a session that is queued.
func queuedError(s client.Session) *failure {
	message := fmt.Sprintf("cannot attach to %q: it is %s", s.Id, wording.Queued(s))
	return &failure{exitFailed, message, "corralctl " + beginNow(s)}
}

// beginNow returns the command that takes a session out of the queue and begins its run.
func beginNow(s client.Session) string {
	if s.State == word.Suspended {
		return "resume --now " + s.Id
	}
	return "start --now " + s.Id
}
