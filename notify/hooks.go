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

// hookPatience bounds how long a hook is waited for, should systemd not say that its time was over.
const hookPatience = HookTimeout + 30*time.Second

// Hooks configures how hooks are run. Its functions may be called from any goroutine.
type Hooks struct {
	List func() []config.Hook // the installed ones
	// Run runs one until it has ended, HookTimeout at most, and calls started once it certainly runs.
	Run          func(ctx context.Context, hook config.Hook, input []byte, started func()) error
	ReportResult func(name string, err error) // reports that one has failed, or by nil that it works again
}

// caller runs one hook, never twice at once. News that arrive meanwhile are delivered together in
// its next run: a hook that hangs delays no other.
type caller struct {
	hook    config.Hook
	busy    bool
	failed  bool
	tries   int // how often systemd did not start it
	waiting []*News
}

// sendNews sends the news that are due, and returns when there may be more, the zero time if never.
func (n *Notifier) sendNews(now time.Time) time.Time {
	all, next := n.desk.News(now)
	for _, news := range all {
		n.message(news)
		n.hook(news)
	}
	return next
}

// message shows news in the terminals that are attached to other sessions.
func (n *Notifier) message(news *News) {
	if !n.Settings.Config.TmuxMessages {
		return
	}
	for id, s := range n.desk.sessions {
		if !s.Attached || news.concerns(id) || n.messaged[id] {
			continue
		}
		n.messaged[id] = true
		line := news.line()
		go func() {
			n.ShowMessage(n.ctx, id, line)
			n.post(func() { delete(n.messaged, id) })
		}()
	}
}

// hook delivers news to all hooks. They are listed each time, so that a new one is used at once.
func (n *Notifier) hook(news *News) {
	go func() {
		hooks := n.Hooks.List()
		n.post(func() {
			n.forgetHooks(hooks)
			if news.begin = len(hooks); news.begin == 0 {
				n.newsSent(news)
			}
			for _, h := range hooks {
				c := n.callers[h.Name]
				if c == nil {
					c = &caller{}
					n.callers[h.Name] = c
				}
				c.hook, c.waiting = h, append(c.waiting, news)
				n.runHook(c)
			}
		})
	}()
}

// runHook runs a hook with the news that wait for it, unless it is running.
func (n *Notifier) runHook(c *caller) {
	if c.busy || len(c.waiting) == 0 {
		return
	}
	parts := c.waiting
	c.busy, c.waiting = true, nil
	hook, input, failed := c.hook, together(parts, n.Settings).event(time.Now()), c.failed
	go func() {
		ctx, cancel := deadline.Context(n.ctx, hookPatience)
		defer cancel()
		began := false
		err := n.Hooks.Run(ctx, hook, input, func() {
			began = true
			n.post(func() { n.begin(parts) })
		})
		if n.ctx.Err() != nil {
			return // it keeps running; if it has not begun, the next daemon runs it
		}
		if err != nil || failed {
			n.Hooks.ReportResult(hook.Name, err)
		}
		n.post(func() {
			c.failed = err != nil
			if began {
				c.busy, c.tries = false, 0
				n.runHook(c)
			} else {
				n.runHookAgain(c, parts)
			}
		})
	}()
}

// runHookAgain runs a hook later that systemd did not start: it may be re-executing itself. After
// the last try the news is left to the next daemon.
func (n *Notifier) runHookAgain(c *caller, parts []*News) {
	if c.tries++; c.tries == maxTries {
		c.busy, c.tries = false, 0
		n.runHook(c)
		return
	}
	c.waiting = append(parts, c.waiting...)
	deadline.AfterFunc(retryAfter<<(c.tries-1), func() {
		n.post(func() {
			c.busy = false
			n.runHook(c)
		})
	})
}

// begin handles the start of a hook.
func (n *Notifier) begin(parts []*News) {
	for _, news := range parts {
		if news.begin--; news.begin == 0 {
			n.newsSent(news)
		}
	}
}

func (n *Notifier) newsSent(news *News) {
	n.desk.Sent(news)
	n.dirty = true
}

// forgetHooks drops what is known of hooks that are there no more.
func (n *Notifier) forgetHooks(there []config.Hook) {
	for name, c := range n.callers {
		switch {
		case slices.ContainsFunc(there, func(h config.Hook) bool { return h.Name == name }):
		case c.failed:
			n.clearHookFailure(c)
		case !c.busy:
			delete(n.callers, name)
		}
	}
}

// clearHookFailure clears the failure of a hook.
func (n *Notifier) clearHookFailure(c *caller) {
	if c.busy || !c.failed {
		return
	}
	c.busy = true // its next result is reported after this
	name := c.hook.Name
	go func() {
		n.Hooks.ReportResult(name, nil)
		n.post(func() {
			c.busy, c.failed = false, false
			n.runHook(c)
		})
	}()
}

// event is the input of a hook: docs/reference/json.md.
type event struct {
	Event    string
	Title    string
	Text     string
	Urgency  string
	Time     int64 // µs since 1970, as are all
	Sessions []eventSession
}

//nolint:revive // named after the bus's properties
type eventSession struct {
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

// event returns the news as hooks read it, in one line.
func (n *News) event(now time.Time) []byte {
	e := event{Event: n.Event, Title: n.Title, Text: n.Body, Urgency: n.Urgency.String(), Time: micro(n.Since), Sessions: []eventSession{}}
	for _, s := range n.About {
		session := eventSession{
			Id: s.ID, Agent: s.Agent, Description: s.Description, Labels: s.Labels, WorkingDirectory: s.WorkingDirectory, State: s.State,
			Attention: s.Attention, AttentionMessage: s.AttentionMessage, AttentionSource: s.AttentionSource, Result: s.Result, Reason: s.Reason,
			ExecMainCode: s.ExecMainCode, ExecMainStatus: s.ExecMainStatus, ExecMainStartTimestamp: micro(s.Started), ExecMainExitTimestamp: micro(s.Exited),
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
		e.Sessions = append(e.Sessions, session)
	}
	content, err := json.Marshal(e)
	if err != nil {
		content = fmt.Appendf(nil, "{%q:%q}", "Event", n.Event) // cannot happen
	}
	return append(content, '\n')
}

func micro(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}
