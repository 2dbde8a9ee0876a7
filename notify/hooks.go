package notify

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/deadline"
)

// HookTimeout is how long a hook may take.
const HookTimeout = 30 * time.Second

// hookWaitLimit bounds how long to wait for a hook if systemd does not report that it has exceeded
// HookTimeout.
const hookWaitLimit = HookTimeout + 30*time.Second

// Hooks configures how hooks are run. Its functions may be called from any goroutine.
type Hooks struct {
	List func() []config.Hook // returns the installed hooks
	// Run runs a hook until it has exited, at most for HookTimeout, and calls started once the hook is
	// certain to be running.
	Run func(ctx context.Context, hook config.Hook, input []byte, started func()) error
	// ReportResult reports that a hook has failed, or with a nil error that it works again.
	ReportResult func(name string, err error)
}

// hookQueue holds the events for one hook, which never runs twice at once. Events that arrive while
// it runs are delivered together in its next run, so a hook that hangs delays no other hook.
type hookQueue struct {
	hook   config.Hook
	busy   bool // it is running, waits to be started again, or its failure is being cleared
	failed bool // in its last run
	tries  int  // how often systemd has failed to start it
	queued []*Event
}

// sendEvents sends the events that are due, and returns when there may be more, the zero time for
// never.
func (n *Notifier) sendEvents(now time.Time) time.Time {
	all, next := n.policy.Events(now)
	for _, e := range all {
		n.showInTerminals(e)
		n.runHooks(e)
	}
	return next
}

// showInTerminals shows an event in the terminals that are attached to other sessions.
func (n *Notifier) showInTerminals(e *Event) {
	if !n.Settings.Config.TmuxMessages {
		return
	}
	for id, s := range n.policy.sessions {
		if !s.Attached || e.isAbout(id) || n.messaging[id] {
			continue
		}
		n.messaging[id] = true
		line := e.line()
		go func() {
			n.ShowMessage(n.ctx, id, line)
			n.post(func() { delete(n.messaging, id) })
		}()
	}
}

// runHooks delivers an event to all hooks. It lists the hooks each time, so that a new one is used
// at once.
func (n *Notifier) runHooks(e *Event) {
	go func() {
		hooks := n.Hooks.List()
		n.post(func() {
			n.dropUninstalledHooks(hooks)
			if e.unstarted = len(hooks); e.unstarted == 0 {
				n.eventSent(e)
			}
			for _, h := range hooks {
				q := n.hookQueues[h.Name]
				if q == nil {
					q = &hookQueue{}
					n.hookQueues[h.Name] = q
				}
				q.hook, q.queued = h, append(q.queued, e)
				n.runHook(q)
			}
		})
	}()
}

// runHook runs a hook with its queued events, unless it is busy.
func (n *Notifier) runHook(q *hookQueue) {
	if q.busy || len(q.queued) == 0 {
		return
	}
	events := q.queued
	q.busy, q.queued = true, nil
	hook, input, failed := q.hook, merge(events, n.Settings).hookInput(time.Now()), q.failed
	go func() {
		ctx, cancel := deadline.Context(n.ctx, hookWaitLimit)
		defer cancel()
		began := false
		err := n.Hooks.Run(ctx, hook, input, func() {
			began = true
			n.post(func() { n.hookStarted(events) })
		})
		if n.ctx.Err() != nil {
			return // the hook keeps running; if it was not started, the next daemon runs it
		}
		if err != nil || failed {
			n.Hooks.ReportResult(hook.Name, err)
		}
		n.post(func() {
			q.failed = err != nil
			if began {
				q.busy, q.tries = false, 0
				n.runHook(q)
			} else {
				n.runHookAgain(q, events)
			}
		})
	}()
}

// runHookAgain schedules another run of a hook that systemd did not start: systemd may be
// re-executing itself. After the last try, the events are left to the next daemon.
func (n *Notifier) runHookAgain(q *hookQueue, events []*Event) {
	if q.tries++; q.tries == maxTries {
		q.busy, q.tries = false, 0
		n.runHook(q)
		return
	}
	q.queued = append(events, q.queued...)
	deadline.AfterFunc(retryAfter<<(q.tries-1), func() {
		n.post(func() {
			q.busy = false
			n.runHook(q)
		})
	})
}

// hookStarted records that a hook was started with these events. An event counts as sent once all
// hooks have started with it.
func (n *Notifier) hookStarted(events []*Event) {
	for _, e := range events {
		if e.unstarted--; e.unstarted == 0 {
			n.eventSent(e)
		}
	}
}

func (n *Notifier) eventSent(e *Event) {
	n.policy.MarkSent(e)
	n.dirty = true
}

// dropUninstalledHooks drops the queues of hooks that are not installed any more.
func (n *Notifier) dropUninstalledHooks(installed []config.Hook) {
	for name, q := range n.hookQueues {
		switch {
		case slices.ContainsFunc(installed, func(h config.Hook) bool { return h.Name == name }):
		case q.failed:
			n.clearHookFailure(q)
		case !q.busy:
			delete(n.hookQueues, name)
		}
	}
}

// clearHookFailure reports that a failed hook does not count as a problem any more.
func (n *Notifier) clearHookFailure(q *hookQueue) {
	if q.busy || !q.failed {
		return
	}
	q.busy = true // so that the next result is reported after this
	name := q.hook.Name
	go func() {
		n.Hooks.ReportResult(name, nil)
		n.post(func() {
			q.busy, q.failed = false, false
			n.runHook(q)
		})
	}()
}

// hookInput is the input of a hook, described in docs/reference/json.md.
type hookInput struct {
	Event    string
	Title    string
	Text     string
	Urgency  string
	Time     int64 // µs since 1970, as all times here
	Sessions []hookSession
}

//nolint:revive // named after the bus's properties
type hookSession struct {
	Id                     string
	Agent                  string
	Description            string
	Labels                 map[string]string
	WorkingDirectory       string
	State                  string
	Attention              string
	AttentionMessage       string
	AttentionSource        string
	Result                 string
	Reason                 string
	ExecMainCode           int32
	ExecMainStatus         int32
	ExecMainStartTimestamp int64
	ExecMainExitTimestamp  int64
	DurationUSec           int64
}

// hookInput returns the event in the format that hooks read, in one line.
func (e *Event) hookInput(now time.Time) []byte {
	input := hookInput{
		Event: e.Kind, Title: e.Title, Text: e.Body, Urgency: e.Urgency.String(), Time: micro(e.Since),
		Sessions: []hookSession{},
	}
	for _, s := range e.Snapshots {
		session := hookSession{
			Id: s.ID, Agent: s.Agent, Description: s.Description, Labels: s.Labels,
			WorkingDirectory: s.WorkingDirectory, State: s.State,
			Attention: s.Attention, AttentionMessage: s.AttentionMessage, AttentionSource: s.AttentionSource,
			Result: s.Result, Reason: s.Reason,
			ExecMainCode: s.ExecMainCode, ExecMainStatus: s.ExecMainStatus,
			ExecMainStartTimestamp: micro(s.Started), ExecMainExitTimestamp: micro(s.Exited),
		}
		if session.Labels == nil {
			session.Labels = map[string]string{}
		}
		switch {
		case s.Exited.After(s.Started):
			session.DurationUSec = s.Exited.Sub(s.Started).Microseconds()
		case s.AgentAlive:
			session.DurationUSec = max(now.Sub(s.Started), 0).Microseconds()
		}
		input.Sessions = append(input.Sessions, session)
	}
	content, err := json.Marshal(input)
	if err != nil {
		content = fmt.Appendf(nil, "{%q:%q}", "Event", e.Kind) // cannot happen
	}
	return append(content, '\n')
}

// micro returns a time in µs since 1970, 0 for the zero time.
func micro(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}
