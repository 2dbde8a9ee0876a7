package main

import (
	"context"
	"errors"
	"fmt"
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
		resume := f.Bool(answerResume, false, "if its agent has ended, resume it without asking")
		restart := f.Bool(answerRestart, false, "if its agent has ended, start it afresh without asking")
		tearDown := f.Bool(answerTearDown, false, "if its agent has ended, end its leftover processes without asking")
		here := f.Bool("here", false, "inside tmux: attach in this pane instead of a window of its own")
		return func(ctx context.Context, c *ctl, args []string) error {
			if len(args) > 1 {
				return usagef("attach", "attach: expected one ID, not %d", len(args))
			}
			o := attachOptions{here: *here}
			answers := map[string]bool{answerResume: *resume, answerRestart: *restart, answerTearDown: *tearDown}
			for answer, given := range answers {
				if given && o.answer != "" {
					return usagef("attach", "only one of --resume, --restart and --tear-down can be given")
				} else if given {
					o.answer = answer
				}
			}
			alone := o.answer == answerTearDown && len(args) == 1 && !c.isRemote() // needs no terminal
			if !alone && !c.onTerminal() {
				return c.noTerminalError(ctx, args)
			}
			return c.attachTo(ctx, args, o)
		}
	},
}

// Answers that options can give in advance to the question what to do with a session whose agent
// has ended.
const (
	answerResume   = "resume"
	answerRestart  = "restart"
	answerTearDown = "tear-down"
)

// attachOptions are the options of attach.
type attachOptions struct {
	answer string // one of the answers above, "" to ask
	here   bool   // attach in this pane, even inside the user's tmux
}

// onTerminal reports whether a person can be asked, and can answer, on a terminal.
func (c *ctl) onTerminal() bool { return c.outTTY != nil && openTerminal(c.in) != nil }

// noTerminalError returns the error of attaching without a terminal, with a hint that shows the
// session all the same. If there is no such session, the error reports that instead.
func (c *ctl) noTerminalError(ctx context.Context, words []string) error {
	f := &failure{exitFailed, "cannot attach: standard input is not a terminal", "corralctl list"}
	if len(words) == 0 || c.isRemote() {
		return f
	}
	sessions, err := c.candidates(ctx)
	if err != nil {
		return c.cannot(c.doing(), words[0], err)
	}
	ids, err := match(words[0], sessions, c.all)
	if err != nil {
		return c.unmatchedError(words[0], err)
	}
	f.hint = "corralctl status " + ids[0]
	if slices.ContainsFunc(sessions, func(s dbusapi.SessionRow) bool { return s.ID == ids[0] && isLive(s) }) {
		f.hint = "corralctl peek " + ids[0]
	}
	return f
}

// attachTo attaches to the session that args name, or to the default session if they name none.
func (c *ctl) attachTo(ctx context.Context, args []string, o attachOptions) error {
	var id string
	var err error
	if len(args) == 0 {
		if c.isRemote() && !c.hasSeveralHosts() {
			return c.execHost(c.onlyHost(), "attach")
		}
		id, err = c.defaultSession(ctx)
	} else {
		id, err = c.resolveHere(ctx, "attach", args[0])
	}
	switch {
	case err != nil || id == "":
		return err
	case c.isOnHost(id):
		return c.execHost(c.hostOf(id), "attach", id)
	}
	return c.attach(ctx, id, o)
}

// defaultSession returns the session to attach to if none is named: the only one that waits, else
// the only one whose turn has ended, else the only live one, else the one that the user picks, ""
// if that is none.
func (c *ctl) defaultSession(ctx context.Context) (string, error) {
	list, err := c.readTable(ctx)
	if err != nil {
		return "", c.cannot("attach", "", err)
	}
	var waiting, ended, others []client.Session
	own := c.ownSession(ctx, c.client)
	for _, s := range list.sessions {
		switch {
		case s.Id == own:
		case wording.IsWaiting(s):
			waiting = append(waiting, s)
		case wording.IsTurnEnded(s):
			ended = append(ended, s)
		case !wording.IsEnded(s.State):
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

// ownSession returns the session whose agent has started this corralctl, "" if there is none.
func (c *ctl) ownSession(ctx context.Context, bus *client.Client) string {
	if !isFromSession() || c.isRemote() && !c.hostNamed("").IsLocal() {
		return ""
	}
	id, err := bus.Of("").SessionByPID(ctx, 0)
	if err != nil {
		return "" // this process has left the session, or the session is gone
	}
	return id
}

// refuseOwnSession returns an error if corralctl runs in the session itself: a session shown in its
// own terminal prints its output again and again, which drives everything else out of its log.
func (c *ctl) refuseOwnSession(ctx context.Context, bus *client.Client, id, doing string) error {
	if c.ownSession(ctx, bus) != id {
		return nil
	}
	message := fmt.Sprintf("cannot %s %q: this is a terminal of that session itself", doing, id)
	return &failure{code: exitFailed, message: message}
}

// attachEnvironment returns the caller's environment with the variables that the daemon named. It
// leaves out TMUX, with which tmux would refuse to run inside another tmux.
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

// isInvalidState reports whether a call was refused because of the session's state.
func isInvalidState(err error) bool {
	var f *failure
	return !errors.As(err, &f) && dbusapi.ShortErrorName(err) == dbusapi.InvalidState
}
