package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/dbusapi/client"
)

var attachVerb = verb{
	name: "attach", args: "[ID]", summary: "Use a session's terminal; without ID the one that waits",
	options: func(f *pflag.FlagSet) action {
		resume := f.Bool("resume", false, "resume it first if it cannot be attached to, without asking")
		tearDown := f.Bool("tear-down", false, "end what is left of it if it cannot be attached to, without asking")
		return func(ctx context.Context, c *ctl, args []string) error {
			if len(args) > 1 {
				return usagef("attach", "attach takes one session, not %d", len(args))
			}
			if *resume && *tearDown {
				return usagef("attach", "attach can resume or tear down, not both")
			}
			alone := *tearDown && len(args) == 1 && c.host == "" // the answer of a script
			if !alone && !c.onTerminal() {
				return c.noTerminal(ctx, args)
			}
			return c.attachTo(ctx, args, recovery{*resume, *tearDown})
		}
	},
}

// onTerminal tells whether a person is asked, and answers, on a terminal.
func (c *ctl) onTerminal() bool { return c.outTTY != nil && openTerminal(c.in) != nil }

// noTerminal is why nobody can attach here, and what shows the session all the same. That there is no such session is told first.
func (c *ctl) noTerminal(ctx context.Context, words []string) error {
	f := &failure{exitFailed, "cannot attach: this is no terminal", "corralctl list"}
	if len(words) == 0 || c.host != "" {
		return f
	}
	sessions, err := c.known(ctx)
	if err != nil {
		return c.cannot(c.doing(), words[0], err)
	}
	ids, err := match(words[0], sessions, c.all)
	if err != nil {
		return c.unmatched(words[0], err)
	}
	f.hint = "corralctl status " + ids[0]
	if slices.ContainsFunc(sessions, func(s known) bool { return s.id == ids[0] && alive(s.state) }) {
		f.hint = "corralctl peek " + ids[0]
	}
	return f
}

func (c *ctl) attachTo(ctx context.Context, args []string, answer recovery) error {
	if c.host != "" {
		return c.execHost("attach", append(answer.words(), args...)...)
	}
	if len(args) == 0 {
		id, err := c.attachable(ctx)
		if err != nil || id == "" {
			return err
		}
		return c.attach(ctx, id, answer)
	}
	id, err := c.one(ctx, args[0])
	if err != nil {
		return err
	}
	return c.attach(ctx, id, answer)
}

// attachable is the session that is meant when none is named: the only one that waits, or else the only one whose turn has ended, else the only one that
// lives, else what the user chooses; "" if that is none.
func (c *ctl) attachable(ctx context.Context) (string, error) {
	bus, err := c.connect(ctx)
	if err != nil {
		return "", c.cannot("attach", "", err)
	}
	list, err := c.readTable(ctx, bus)
	if err != nil {
		return "", c.cannot("attach", "", err)
	}
	var waiting, ended, others []client.Session
	own := c.ownSession(ctx, bus)
	for _, s := range list.sessions {
		switch {
		case s.Id == own:
		case wording.Waits(s):
			waiting = append(waiting, s)
		case wording.TurnEnded(s):
			ended = append(ended, s)
		case !wording.Ended(s.State):
			others = append(others, s)
		}
	}
	live := slices.Concat(waiting, ended, others)
	switch {
	case len(waiting) == 1 || len(waiting) == 0 && len(ended) == 1:
		return live[0].Id, nil
	case len(live) == 1:
		return live[0].Id, nil
	case len(live) == 0:
		return "", &failure{exitNoSession, "cannot attach: no session runs", "corralctl list"}
	}
	return c.pick(live)
}

// attach replaces this process by the one that joins the session's terminal. Where there is none to join, what to do is asked.
func (c *ctl) attach(ctx context.Context, id string, answer recovery) error {
	bus, err := c.connect(ctx)
	if err != nil {
		return c.cannot("attach to", id, err)
	}
	if err := c.refuseOwn(ctx, bus, id, "attach to"); err != nil {
		return err
	}
	argv, variables, err := bus.AttachCommand(ctx, id)
	if err != nil {
		why, final := c.cannotAttach(ctx, bus, id, err)
		if !invalidState(err) || final {
			return why
		}
		resumed, err := c.recover(ctx, bus, id, why, answer)
		if !resumed {
			return err
		}
		if argv, variables, err = bus.AttachCommand(ctx, id); err != nil {
			return c.cannot("attach to", id, err)
		}
	}
	if !c.onTerminal() {
		return c.noTerminal(ctx, []string{id})
	}
	followAgent()
	_ = bus.Acknowledge(ctx, id) // also where somebody is attached already: tmux tells of the first one only
	return c.cannot("attach to", id, c.exec(argv, attachEnvironment(os.Environ(), variables)))
}

// ownSession is the session that corralctl runs in, as a program that its agent has started, "" if there is none.
func (c *ctl) ownSession(ctx context.Context, bus *client.Client) string {
	if c.host != "" || !concerned() {
		return ""
	}
	id, err := bus.SessionOf(ctx, 0)
	if err != nil {
		return "" // it has left the session, or there is none any more
	}
	return id
}

// refuseOwn keeps a session's terminal from being shown in itself, where what is shown is output that is shown again, and drives all else out of its log.
func (c *ctl) refuseOwn(ctx context.Context, bus *client.Client, id, doing string) error {
	if c.ownSession(ctx, bus) != id {
		return nil
	}
	return &failure{code: exitFailed, message: fmt.Sprintf("cannot %s %q: this is a terminal of that session itself", doing, id)}
}

// attachEnvironment is the caller's environment with the variables that the daemon named. Inside of another tmux ours nests: with TMUX set it would refuse.
func attachEnvironment(environment, variables []string) []string {
	replaced := []string{"TMUX=", "TMUX_PANE="}
	for _, entry := range variables {
		name, _, _ := strings.Cut(entry, "=")
		replaced = append(replaced, name+"=")
	}
	kept := slices.DeleteFunc(slices.Clone(environment), func(entry string) bool {
		return slices.ContainsFunc(replaced, func(prefix string) bool { return strings.HasPrefix(entry, prefix) })
	})
	return append(kept, variables...)
}

// cannotAttach says why, and what would help, by the state that the session is in. Where there is no choice, it is final: a frozen session is to be thawed, and one that
// was never started has nothing to be resumed or torn down.
func (c *ctl) cannotAttach(ctx context.Context, bus *client.Client, id string, err error) (f *failure, final bool) {
	f = c.cannot("attach to", id, err)
	if dbusapi.ShortErrorName(err) != dbusapi.InvalidState {
		return f, false
	}
	s, err := bus.Session(ctx, id)
	if err != nil {
		return f, false
	}
	switch {
	case s.Frozen:
		f.message = fmt.Sprintf("cannot attach to %q: it is frozen", id)
		f.hint = "corralctl thaw " + id
	case s.State == "stale":
		f.message = fmt.Sprintf("cannot attach to %q: its tmux session is dead, its agent may live on", id)
		f.hint = "corralctl resume " + id
	case s.State == "created":
		f.message = fmt.Sprintf("cannot attach to %q: it was never started", id)
		f.hint = "corralctl start " + id
	case wording.Ended(s.State):
		f.message = fmt.Sprintf("cannot attach to %q: it is %s", id, s.State)
		if s.Reason != "" {
			f.message += ", " + s.Reason
		}
		f.hint = "corralctl resume " + id + ", or corralctl logs " + id
	}
	return f, s.Frozen || s.State == "created"
}

// invalidState tells whether a call was refused because of the state that the session is in.
func invalidState(err error) bool {
	var f *failure
	return !errors.As(err, &f) && dbusapi.ShortErrorName(err) == dbusapi.InvalidState
}
