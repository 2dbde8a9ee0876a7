package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi/client"
	"github.com/corrald/corral/dbusapi/word"
	"github.com/corrald/corral/internal/outcome"
)

// statesAndActivities are the words that --until and --state accept: the states, and what the agent
// of a running session does.
var statesAndActivities = slices.Concat(word.States,
	[]string{word.Working, word.Idle, word.Waiting, word.TurnEnded, wording.QueuedWord})

var waitVerb = verb{name: "wait", args: "ID…", summary: "Wait for sessions to end; exit with the agent's exit code",
	options: func(f *pflag.FlagSet) action {
		until := f.StringSlice("until", nil, "wait for one of these `STATES` or activities instead")
		return func(ctx context.Context, c *ctl, args []string) error {
			for _, name := range *until {
				if err := checkStateName(name, "wait", "--until"); err != nil {
					return err
				}
			}
			ctx, cancel := c.withTimeout(ctx)
			defer cancel()
			ids, unresolved := c.resolve(ctx, args)
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return exit(exitTimeout)
			}
			if unresolved != nil {
				return unresolved
			}
			return c.waitFor(ctx, ids, *until, nil)
		}
	}}

// waiter waits for sessions.
type waiter struct {
	watch    *reconnectingWatch
	until    []string
	sessions map[string]*client.Session
	results  map[string]error // of the sessions that are not waited for any longer
}

// waitFor waits until each session has ended or is in one of the states of until. Events is nil, or
// a subscription that is older than the sessions: then they exist, even if corrald is away.
func (c *ctl) waitFor(ctx context.Context, ids, until []string, events <-chan client.Event) error {
	ctx, cancel := c.withTimeout(ctx)
	defer cancel()
	notice := &outageNotice{c: c}
	defer notice.stop()
	w := &waiter{until: until, sessions: map[string]*client.Session{}, results: map[string]error{}}
	w.watch = &reconnectingWatch{c: c, ids: ids, events: events, onOutage: notice.start}
	if events == nil {
		if err := w.watch.subscribe(ctx); err != nil {
			return c.cannot("wait for", strings.Join(ids, " "), err)
		}
	}
	for _, id := range ids {
		if err := w.begin(ctx, id, events != nil); err != nil {
			w.results[id] = c.waitError(ctx, id, err)
		}
	}
	doing := "Waiting for the end of"
	if len(until) > 0 {
		doing = "Waiting until " + strings.Join(until, " or ") + ":"
	}
	progress := newProgress(c, doing, ids)
	defer progress.end()
	for len(w.results) < len(ids) {
		for id := range w.results {
			progress.done(id)
		}
		event, err := w.watch.next(ctx)
		if _, back := event.(client.DaemonBack); back {
			notice.stop()
		}
		if err == nil {
			err = w.apply(ctx, event)
		}
		if err != nil {
			progress.end()
			return w.giveUp(c, c.waitError(ctx, strings.Join(ids, " "), err))
		}
	}
	progress.end()
	var failed failures
	if err := w.print(c); err != nil {
		return err
	}
	for _, id := range ids {
		w.printEnd(ctx, c, id)
		if err := w.results[id]; err != nil {
			failed.add(c, err)
		}
	}
	return failed.first()
}

// begin reads a session for the first time. If it exists and corrald is not available, it is read
// once corrald is back.
func (w *waiter) begin(ctx context.Context, id string, exists bool) error {
	if exists {
		w.sessions[id] = &client.Session{Id: id, QueuedTimestamp: 1} // or it has begun meanwhile
		return w.read(ctx, id)
	}
	s, err := w.watch.c.client.Session(ctx, id)
	if err == nil {
		err = w.update(ctx, s)
	}
	return err
}

// printEnd prints on a terminal how a session has ended and what its last run has used, as
// systemd-run --wait does.
func (w *waiter) printEnd(ctx context.Context, c *ctl, id string) {
	s := w.sessions[id]
	if len(w.until) > 0 || c.errTTY == nil || c.quiet || c.wantsJSON() || s == nil || !wording.IsEnded(s.State) {
		return
	}
	if now, err := c.client.Session(ctx, id); err == nil { // changes of counters are not published
		s = &now
	}
	_ = c.out.Flush()
	fmt.Fprintf(c.err, "%s\n", wording.Printable(endSummary(*s)))
}

// endSummary describes how a session has ended: "Session build: failed (exit-code, exit 3) after 2m
// 15s; CPU 12.301s, memory peak 212.4M".
func endSummary(s client.Session) string {
	text := fmt.Sprintf("Session %s: %s", s.Id, s.State)
	switch how := cmp.Or(outcome.Short(s.Result, int(s.ExecMainStatus)), exitText(s)); {
	case s.Result != "" && how != "":
		text += fmt.Sprintf(" (%s, %s)", s.Result, how)
	case s.Result != "":
		text += fmt.Sprintf(" (%s)", s.Result)
	}
	if start, end := s.ExecMainStartTimestamp, s.ExecMainExitTimestamp; start != 0 && end >= start {
		if took := wording.BusTime(end).Sub(wording.BusTime(start)); took < time.Second {
			text += fmt.Sprintf(" after %dms", took.Milliseconds())
		} else {
			text += " after " + wording.Span(took)
		}
	}
	var used []string
	if wording.IsAvailable(s.ExecMainCPUUsageNSec) {
		used = append(used, "CPU "+wording.CPUTime(s.ExecMainCPUUsageNSec))
	}
	if peak := s.MemoryPeak; wording.IsAvailable(peak) && peak > 0 {
		used = append(used, "memory peak "+wording.Size(peak))
	} else if peak := s.ExecMainMaxRSS; wording.IsAvailable(peak) {
		used = append(used, "memory peak "+wording.Size(peak))
	}
	if len(used) > 0 {
		text += "; " + strings.Join(used, ", ")
	}
	return text
}

// exitText returns the agent's exit code or signal, "" if there is none.
func exitText(s client.Session) string {
	switch s.ExecMainCode {
	case exited:
		return fmt.Sprintf("exit %d", s.ExecMainStatus)
	case killed, dumped:
		return outcome.SignalName(int(s.ExecMainStatus))
	}
	return ""
}

// giveUp stops waiting for the remaining sessions, with err as their result.
func (w *waiter) giveUp(c *ctl, err error) error {
	for _, id := range w.watch.ids {
		if _, ended := w.results[id]; !ended {
			w.results[id] = err
		}
	}
	if e := w.print(c); e != nil {
		return e
	}
	return err
}

// print prints the sessions with wait --json.
func (w *waiter) print(c *ctl) error {
	if !c.wantsJSON() || c.name != "wait" {
		return nil
	}
	return c.printJSON(w.values())
}

// waitError returns the error for waiting that failed. After --timeout it is only an exit code.
func (c *ctl) waitError(ctx context.Context, ids string, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return exit(exitTimeout)
	}
	return c.cannot("wait for", ids, err)
}

// apply updates the sessions for an event.
func (w *waiter) apply(ctx context.Context, event client.Event) error {
	switch e := event.(type) {
	case client.SessionChanged:
		known := w.sessions[e.ID]
		if known == nil {
			return nil
		}
		s := *known
		if applied, err := applyChange(&s, e); err != nil || !applied {
			return err
		}
		return w.update(ctx, s)
	case client.SessionRemoved:
		w.removed(e.ID)
	case client.DaemonBack:
		return w.readAll(ctx, e.Host)
	}
	return nil
}

// readAll reads the remaining sessions of a host again, if corrald can be reached.
func (w *waiter) readAll(ctx context.Context, host string) error {
	for id := range w.sessions {
		if _, ended := w.results[id]; ended {
			continue
		}
		if of, _ := client.SplitID(id); of != host {
			continue
		}
		if err := w.read(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// read reads a session again, if corrald can be reached.
func (w *waiter) read(ctx context.Context, id string) error {
	s, known, err := w.watch.session(ctx, id)
	switch {
	case isNoSuchSession(err):
		w.removed(id)
		return nil
	case err != nil || !known:
		return err
	}
	return w.update(ctx, s)
}

func (w *waiter) removed(id string) {
	if _, ended := w.results[id]; !ended && w.sessions[id] != nil {
		w.results[id] = &failure{code: exitNoSession, message: fmt.Sprintf("cannot wait for %q: it was removed", id)}
	}
}

// update stores a session and determines whether it is still waited for.
func (w *waiter) update(ctx context.Context, s client.Session) error {
	before := w.sessions[s.Id]
	w.sessions[s.Id] = &s
	if _, ended := w.results[s.Id]; ended {
		return nil
	}
	if w.hasReached(s) {
		w.results[s.Id] = nil
		return nil
	}
	if hasLeftQueue(before, s) {
		message := fmt.Sprintf("cannot wait for %q: it was taken out of the queue", s.Id)
		w.results[s.Id] = &failure{code: exitNotActive, message: message}
		return nil
	}
	ended, err := w.watch.hasEnded(ctx, s)
	if err == nil && ended && s.State != word.Created {
		w.results[s.Id] = w.endError(s)
	}
	return err
}

// hasLeftQueue returns whether a session was queued before, nil if that is unknown, and is now not
// going to run.
func hasLeftQueue(before *client.Session, s client.Session) bool {
	return before != nil && before.QueuedTimestamp != 0 && s.QueuedTimestamp == 0 && s.NRuns == before.NRuns &&
		wording.IsEnded(s.State)
}

// hasReached returns whether a session is in one of the states of until. A suspended session whose
// agent is running does not count: corrald marks sessions so when it shuts down.
func (w *waiter) hasReached(s client.Session) bool {
	if s.State == word.Suspended && s.AgentAlive {
		return false
	}
	return slices.ContainsFunc(w.until, func(word string) bool { return wording.Matches(s, word) })
}

// endError returns the result for a session that has ended: its exit code, or, with until, that it
// did not reach the state.
func (w *waiter) endError(s client.Session) error {
	if len(w.until) == 0 {
		return endError(s)
	}
	message := fmt.Sprintf("%q is %s and did not become %s", s.Id, s.State, strings.Join(w.until, " or "))
	return &failure{code: exitFailed, message: message}
}

// outageNotice reports on the terminal, after a second, that corrald cannot be reached.
type outageNotice struct {
	c     *ctl
	timer *time.Timer
}

func (n *outageNotice) start(why string) {
	if n.timer == nil && !n.c.quiet {
		n.timer = time.AfterFunc(time.Second, func() {
			if n.c.errTTY != nil && !n.c.errTTY.dumb {
				fmt.Fprint(n.c.err, "\r\x1b[K") // erases the progress line
			}
			fmt.Fprintf(n.c.err, "corralctl: %s; waiting for it\nhint: systemctl --user status corrald\n", why)
		})
	}
}

func (n *outageNotice) stop() {
	if n.timer != nil {
		n.timer.Stop()
		n.timer = nil
	}
}

// endError returns the exit code of an ended session, with the reason if the code is not that of
// the agent.
func endError(s client.Session) error {
	if s.State == word.Failed && endCode(s) == exitFailed && s.Result != word.ExitCode {
		return &failure{code: exitFailed, message: fmt.Sprintf("%q has failed: %s", s.Id, s.Reason)}
	}
	return exit(endCode(s))
}

const exited, killed, dumped = 1, 2, 3 // si_code values: CLD_EXITED, CLD_KILLED, CLD_DUMPED

// endCode returns the exit code for an ended session, as a shell reports how a command ended.
func endCode(s client.Session) int {
	switch {
	case s.State == word.Completed,
		s.State == word.Archived && s.Result == word.Success && s.ExecMainCode == exited && s.ExecMainStatus == 0:
		return 0
	case s.State == word.Stopped || s.State == word.Suspended, s.State == word.Archived && s.Result == word.Success:
		return exitNotActive
	case s.ExecMainCode == exited && s.ExecMainStatus > 0 && s.ExecMainStatus < 256 && s.Result != word.StartFailed:
		return int(s.ExecMainStatus)
	case s.ExecMainCode == killed || s.ExecMainCode == dumped:
		return 128 + int(s.ExecMainStatus)
	}
	return exitFailed
}
