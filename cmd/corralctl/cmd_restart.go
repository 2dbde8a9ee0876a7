package main

import (
	"context"

	"github.com/spf13/pflag"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi/client"
	"github.com/corrald/corral/dbusapi/word"
	"github.com/corrald/corral/internal/program"
)

var restartVerb = verb{
	name: "restart", args: "ID…", summary: "Stop sessions, then start them",
	options: withNow(func(f *pflag.FlagSet) action {
		outdated := f.Bool("outdated", false,
			"only those whose program was replaced, once nobody is attached and the agent is idle")
		return confirmingVerb(func(ctx context.Context, c *ctl, args []string) error {
			if !*outdated {
				return c.forEachRun(ctx, args, "Restarting", func(ctx context.Context, id string) error {
					if c.noBlock {
						return c.client.PostBegin(ctx, word.Restart, id)
					}
					return c.client.RestartSession(ctx, id)
				})
			}
			switch {
			case c.isRemote():
				return usagef("restart", "restart: --outdated cannot be used with --host: it examines files of this machine")
			case c.noBlock:
				return usagef("restart", "restart: --outdated waits, and cannot be used with --no-block")
			}
			return c.forEach(ctx, args, "Restarting", c.restartOutdated)
		})(f)
	}),
}

// restartOutdated restarts a session if its program was replaced since its agent was started. It
// first waits until no terminal is attached to the session and its agent is idle. A session that is
// not live, or not any more, is left alone, and so is one that was restarted meanwhile.
func (c *ctl) restartOutdated(ctx context.Context, id string) error {
	err := c.follow(ctx, id, func(ctx context.Context, watch *reconnectingWatch, s client.Session) (done bool, err error) {
		known, err := watch.query(ctx, id, func() error {
			bus := watch.c.client
			isOutdated, err := hasOutdatedProgram(ctx, bus, s)
			if done = !isOutdated; err != nil || done || !isUnused(s) {
				return err
			}
			bus.Environment = nil // as at login: the caller may be a unit
			done = true
			return bus.RestartSession(ctx, id)
		})
		return known && done, err
	})
	if isRemoved(err) {
		return nil
	}
	return err
}

// isUnused reports whether a restart of the session disturbs nobody, as far as is known.
func isUnused(s client.Session) bool {
	return s.State == word.Running && s.Activity == word.Idle && !s.Attached && !s.Frozen
}

// hasOutdatedProgram reports whether the session is live and its program was replaced since its
// agent was started. A program that does not exist is being replaced, or was removed.
func hasOutdatedProgram(ctx context.Context, bus *client.Client, s client.Session) (bool, error) {
	if wording.IsEnded(s.State) || !s.AgentAlive || len(s.Command) == 0 {
		return false, nil
	}
	_, _, path, err := bus.Variables(ctx, s.Id)
	if err != nil {
		return false, err
	}
	file, err := program.Find(s.Command[0], []string{"PATH=" + path}, s.WorkingDirectory)
	if err != nil {
		return false, nil //nolint:nilerr // there is nothing that could be started instead
	}
	changed, err := program.LastChanged(file, s.WorkingDirectory)
	return err == nil && changed.After(wording.BusTime(s.ExecMainStartTimestamp)), nil
}
