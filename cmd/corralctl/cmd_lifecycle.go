package main

import (
	"context"

	"github.com/spf13/pflag"

	"github.com/corrald/corral/dbusapi/client"
)

// The verbs that are one call for each session.
var (
	startVerb   = lifecycleVerb("start", "Start sessions afresh", "Starting", "StartSession", (*client.Client).StartSession)
	restartVerb = lifecycleVerb("restart", "Stop sessions, then start them", "Restarting", "RestartSession", (*client.Client).RestartSession)
	resumeVerb  = lifecycleVerb("resume", "Start sessions where they left off", "Resuming", "ResumeSession", (*client.Client).ResumeSession)
	suspendVerb = lifecycleVerb("suspend", "Stop sessions, to be resumed", "Suspending", "SuspendSession", (*client.Client).SuspendSession)
	freezeVerb  = lifecycleVerb("freeze", "Hold every process of sessions", "Freezing", "FreezeSession", (*client.Client).FreezeSession)
	thawVerb    = lifecycleVerb("thaw", "Let frozen sessions go on", "Thawing", "ThawSession", (*client.Client).ThawSession)
	archiveVerb = lifecycleVerb("archive", "Keep the record of sessions, out of sight", "Archiving", "ArchiveSession", (*client.Client).ArchiveSession)
)

// lifecycleVerb makes a verb that calls a method of the Manager, which takes nothing but an id; doing is the word for its progress.
func lifecycleVerb(name, summary, doing, method string, call func(*client.Client, context.Context, string) error) verb {
	return verb{name: name, args: "ID…", summary: summary, options: plainVerb(func(ctx context.Context, c *ctl, args []string) error {
		return c.each(ctx, args, doing, func(ctx context.Context, id string) error {
			if c.noBlock {
				return c.client.Post(method, id)
			}
			return call(c.client, ctx, id)
		})
	})}
}

// limited ends what a verb waits for after --timeout.
func (c *ctl) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	if !c.timeout.set {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, c.timeout.Duration)
}

var stopVerb = verb{name: "stop", args: "ID…", summary: "End sessions politely, by force after --timeout", options: plainVerb(
	func(ctx context.Context, c *ctl, args []string) error {
		return c.each(ctx, args, "Stopping", func(ctx context.Context, id string) error {
			if c.noBlock {
				return c.client.Post("StopSession", id, uint64(c.timeout.Microseconds()))
			}
			return c.client.StopSession(ctx, id, c.timeout.Duration)
		})
	})}

var removeVerb = verb{name: "rm", args: "ID…", summary: "Forget sessions with their logs, never the workspace", options: func(f *pflag.FlagSet) action {
	force := f.Bool("force", false, "also sessions that have not ended: stop them first")
	return func(ctx context.Context, c *ctl, args []string) error {
		return c.each(ctx, args, "Removing", func(ctx context.Context, id string) error {
			if c.noBlock {
				return c.client.PostRemove(id, *force)
			}
			err := c.client.RemoveSession(ctx, id, *force)
			if err == nil {
				return nil
			}
			f := c.cannot("remove", id, err)
			f.hint = removeHint(id, err, *force)
			return f
		})
	}
}}

func removeHint(id string, err error, force bool) string {
	if force || !invalidState(err) {
		return ""
	}
	return "corralctl rm --force " + id
}
