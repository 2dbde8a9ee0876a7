package main

import (
	"context"
	"slices"
	"sync"

	"github.com/spf13/pflag"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/dbusapi/client"
	"github.com/corrald/corral/dbusapi/word"
)

// Verbs that make one call for each session.
var (
	suspendVerb = lifecycleVerb("suspend", "Stop sessions so that they can be resumed", "Suspending",
		"SuspendSession", (*client.Client).SuspendSession)
	freezeVerb = lifecycleVerb("freeze", "Pause all processes of a session", "Freezing",
		"FreezeSession", (*client.Client).FreezeSession)
	thawVerb = lifecycleVerb("thaw", "Continue frozen sessions", "Thawing",
		"ThawSession", (*client.Client).ThawSession)
	archiveVerb = lifecycleVerb("archive", "Hide ended sessions from lists and keep their records", "Archiving",
		"ArchiveSession", (*client.Client).ArchiveSession)
)

// lifecycleVerb makes a verb that calls a method of the Manager with an id as its only argument.
// doing is the word that describes its progress.
func lifecycleVerb(name, summary, doing, method string, call func(*client.Client, context.Context, string) error) verb {
	run := func(ctx context.Context, c *ctl, args []string) error {
		return c.forEach(ctx, args, doing, func(ctx context.Context, id string) error {
			if c.noBlock {
				return c.client.Post(ctx, method, id)
			}
			return call(c.client, ctx, id)
		})
	}
	options := plainVerb(run)
	if confirmationVerbs[name] != "" {
		options = confirmingVerb(run)
	}
	return verb{name: name, args: "ID…", summary: summary, options: options}
}

var startVerb = verb{
	name: "start", args: "ID…", summary: "Start sessions afresh",
	options: withNow(plainVerb(func(ctx context.Context, c *ctl, args []string) error {
		return c.forEachRun(ctx, args, "Starting", func(ctx context.Context, id string) error {
			if c.noBlock {
				return c.client.PostBegin(ctx, word.Start, id)
			}
			return c.client.StartSession(ctx, id)
		})
	})),
}

var resumeVerb = verb{
	name: "resume", args: "ID…", summary: "Start sessions where they left off",
	options: withNow(plainVerb(func(ctx context.Context, c *ctl, args []string) error {
		var withoutConversation sync.Map
		err := c.forEachRun(ctx, args, "Resuming", func(ctx context.Context, id string) error {
			if c.noBlock {
				return c.client.PostBegin(ctx, word.Resume, id)
			}
			before, _ := c.client.Session(ctx, id) // if there is no such session, ResumeSession returns the error
			err := c.client.ResumeSession(ctx, id)
			if after, e := c.client.Session(ctx, id); err == nil && e == nil && after.NRuns != before.NRuns && !after.Resumed {
				withoutConversation.Store(id, true)
			}
			return err
		})
		for id := range withoutConversation.Range {
			if !c.quiet {
				c.print("%s: no conversation was saved yet; starting a new one.\n", id)
			}
		}
		return err
	})),
}

var continueVerb = verb{
	name: "continue", args: "ID…", summary: "Continue sessions after a usage limit",
	options: func(f *pflag.FlagSet) action {
		ifDue := f.Bool("if-due", false, "only if that has been scheduled, and its time has come")
		return func(ctx context.Context, c *ctl, args []string) error {
			return c.forEach(ctx, args, "Continuing", func(ctx context.Context, id string) error {
				err := c.client.ContinueAfterLimit(ctx, id, *ifDue)
				if *ifDue && dbusapi.ShortErrorName(err) == dbusapi.NotWaiting {
					return nil
				}
				return err
			})
		}
	},
}

// withTimeout returns a context that ends after --timeout, if it was given.
func (c *ctl) withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	if !c.timeout.set {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, c.timeout.Duration)
}

var stopVerb = verb{
	name: "stop", args: "ID…", summary: "Stop sessions: SIGTERM first, SIGKILL after --timeout",
	options: confirmingVerb(func(ctx context.Context, c *ctl, args []string) error {
		stopped, err := c.tryEach(ctx, args, "Stopping", func(ctx context.Context, id string) error {
			if c.noBlock {
				return c.client.Post(ctx, "StopSession", id, uint64(c.timeout.Microseconds()))
			}
			return c.client.StopSession(ctx, id, c.timeout.Duration)
		})
		if !c.noBlock && c.client != nil {
			c.warnAboutStrays(stopped, c.straysOf(ctx))
		}
		return err
	}),
}

var removeVerb = verb{
	name: "rm", args: "ID…", summary: "Remove sessions and their logs, never the workspace",
	options: func(f *pflag.FlagSet) action {
		r := &removal{}
		f.BoolVarP(&r.force, "force", "f", false,
			"stop running sessions first, ask nothing; with --worktree, discard uncommitted work too")
		f.BoolVar(&r.worktree, "worktree", false, "remove its git worktree too, unless work would be lost")
		return confirmingVerb(func(ctx context.Context, c *ctl, args []string) error {
			c.yes = c.yes || r.force
			worktrees := c.worktrees(ctx)
			var outside map[string][]dbusapi.Stray
			if r.force && !c.noBlock && c.client != nil {
				outside = c.straysOf(ctx) // after the removal it is unknown to which session they belong
			}
			removed, err := c.tryEach(ctx, args, "Removing",
				func(ctx context.Context, id string) error { return r.remove(ctx, c, worktrees[id], id) })
			for _, id := range slices.Sorted(slices.Values(removed)) {
				if !r.worktree {
					c.reportKeptWorktree(worktrees[id])
				}
			}
			c.warnAboutStrays(removed, outside)
			return err
		})(f)
	},
}

// removal is how to remove sessions.
type removal struct{ force, worktree bool }

// remove removes a session. before is the session as it was, if it has a worktree.
func (r *removal) remove(ctx context.Context, c *ctl, before client.Session, id string) error {
	var err error
	switch {
	case c.noBlock:
		err = c.client.PostRemove(ctx, id, r.force, r.worktree)
	case r.worktree:
		err = c.client.RemoveWorktree(ctx, id, r.force)
	default:
		err = c.client.RemoveSession(ctx, id, r.force)
	}
	if err == nil {
		return nil
	}
	f := c.cannot("remove", id, err)
	switch {
	case r.worktree && dbusapi.ShortErrorName(err) == dbusapi.InvalidArgs:
		f.hint = "corralctl rm " + id
	case r.worktree && dbusapi.ShortErrorName(err) == dbusapi.ConfigError:
		f.hint = "corralctl logs " + id
	case r.force || !isInvalidState(err):
	case r.worktree && before.Worktree != "" && wording.IsEnded(before.State):
		f.hint = "git -C " + wording.ShellWords([]string{before.WorkingDirectory}) + " status"
	case r.worktree: // --force would discard uncommitted work, too
		f.hint = "corralctl stop " + id
	default:
		f.hint = "corralctl rm --force " + id
	}
	return f
}
