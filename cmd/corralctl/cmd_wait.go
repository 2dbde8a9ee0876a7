package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi/client"
)

// sessionStates are the words that --until takes, beside those of waitActivities.
var sessionStates = []string{
	"created", "starting", "running", "stopping", "stopped", "completed", "failed", "stale", "suspended", "orphaned", "archived",
}

// waitActivities are what an agent that lives can be waited for to do.
var waitActivities = []string{"working", "idle", "waiting"}

var waitVerb = verb{name: "wait", args: "ID…", summary: "Wait until sessions have ended, and exit with their code", options: func(f *pflag.FlagSet) action {
	until := f.StringSlice("until", nil, "until they are in one of these `STATES` or activities instead")
	return func(ctx context.Context, c *ctl, args []string) error {
		for _, word := range *until {
			if err := knownState(word, "wait", "--until"); err != nil {
				return err
			}
		}
		ids, unresolved := c.resolve(ctx, args)
		if unresolved != nil {
			return unresolved
		}
		return c.waitFor(ctx, ids, *until, nil)
	}
}}

// waiter waits for sessions.
type waiter struct {
	until    []string
	ids      []string
	sessions map[string]*client.Session
	ends     map[string]error // of those that need not be waited for any more
}

// waitFor waits until each session has ended, or is as until says. The events are a subscription made earlier, nil if there is none yet.
func (c *ctl) waitFor(ctx context.Context, ids, until []string, events <-chan client.Event) error {
	ctx, cancel := c.limited(ctx)
	defer cancel()
	if events == nil {
		var err error
		if events, err = c.client.Watch(ctx, ids...); err != nil {
			return c.cannot("wait for", strings.Join(ids, " "), err)
		}
	}
	w := &waiter{until: until, ids: ids, sessions: map[string]*client.Session{}, ends: map[string]error{}}
	for _, id := range ids {
		s, err := c.client.Session(ctx, id)
		if err != nil {
			w.ends[id] = c.waitError(ctx, id, err)
			continue
		}
		w.sessions[id] = &s
		w.look(id)
	}
	for len(w.ends) < len(ids) {
		event, ok := <-events
		if !ok {
			return c.waitError(ctx, "", errors.New("the connection to the bus is lost"))
		}
		if err := w.apply(event); err != nil {
			return err
		}
	}
	var failed failures
	if c.wantsJSON() && c.name == "wait" {
		if err := c.printJSON(w.values()); err != nil {
			return err
		}
	}
	for _, id := range ids {
		if err := w.ends[id]; err != nil {
			failed.add(c, err)
		}
	}
	return failed.first()
}

// waitError is what is said when waiting is over too early: nothing but the code after --timeout.
func (c *ctl) waitError(ctx context.Context, id string, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return exit(exitTimeout)
	}
	if id == "" {
		return &failure{exitUnreachable, "cannot wait any longer: " + err.Error(), ""}
	}
	return c.cannot("wait for", id, err)
}

func (w *waiter) apply(event client.Event) error {
	switch e := event.(type) {
	case client.SessionChanged:
		if s := w.sessions[e.ID]; s != nil {
			if err := e.Properties.Decode(s); err != nil {
				return err
			}
			w.look(e.ID)
		}
	case client.SessionRemoved:
		if _, ended := w.ends[e.ID]; !ended && slices.Contains(w.ids, e.ID) {
			w.ends[e.ID] = &failure{code: exitNoSession, message: fmt.Sprintf("cannot wait for %q: it was removed", e.ID)}
		}
	case client.DaemonGone:
		return &failure{exitUnreachable, "cannot wait any longer: corrald has left the bus", "systemctl --user status corrald"}
	}
	return nil
}

// look notes whether a session need not be waited for any more.
func (w *waiter) look(id string) {
	if _, ended := w.ends[id]; ended {
		return
	}
	if over, err := w.end(*w.sessions[id]); over {
		w.ends[id] = err
	}
}

// end tells whether waiting for a session in this state is over, and with what.
func (w *waiter) end(s client.Session) (over bool, err error) {
	if len(w.until) == 0 {
		return wording.Ended(s.State) && s.State != "created", endError(s)
	}
	if slices.Contains(w.until, s.State) || slices.Contains(w.until, s.Activity) && !wording.Ended(s.State) {
		return true, nil
	}
	if wording.Ended(s.State) && s.State != "created" {
		message := fmt.Sprintf("%q is %s, it did not become %s", s.Id, s.State, strings.Join(w.until, " or "))
		return true, &failure{code: exitFailed, message: message}
	}
	return false, nil
}

// endError is the exit code of an ended session, with its reason where that is not the agent's own code or signal.
func endError(s client.Session) error {
	if s.State == "failed" && endCode(s) == exitFailed && s.Result != "exit-code" {
		return &failure{code: exitFailed, message: fmt.Sprintf("%q has failed: %s", s.Id, s.Reason)}
	}
	return exit(endCode(s))
}

// endCode is the exit code that tells how an ended session ended, as a shell's would tell of a command.
func endCode(s client.Session) int {
	const exited, killed, dumped = 1, 2, 3 // CLD_EXITED, CLD_KILLED, CLD_DUMPED
	switch {
	case s.State == "completed", s.State == "archived" && s.Result == "success":
		return 0
	case s.State == "stopped" || s.State == "suspended":
		return exitNotActive
	case s.ExecMainCode == exited && s.ExecMainStatus > 0 && s.ExecMainStatus < 256 && s.Result != "start-failed":
		return int(s.ExecMainStatus)
	case s.ExecMainCode == killed || s.ExecMainCode == dumped:
		return 128 + int(s.ExecMainStatus)
	}
	return exitFailed
}
