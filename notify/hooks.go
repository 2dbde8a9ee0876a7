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

// HookTime is how long a hook may take.
const HookTime = 30 * time.Second

// hookPatience bounds how long a hook is waited for, should systemd not say that its time was over.
const hookPatience = HookTime + 30*time.Second

// Hooks is what hooks are run with. Its functions may be called from any goroutine.
type Hooks struct {
	List func() []config.Hook // those that there are now
	// Run runs one until it has ended, HookTime at most, and calls started once it is sure that it runs.
	Run   func(ctx context.Context, hook config.Hook, input []byte, started func()) error
	Ended func(name string, err error) // tells how one has ended that has failed, with nil that this is over
}

// caller runs one hook, once at a time. What is to be told meanwhile is told together after that: a hook that hangs holds up itself alone.
type caller struct {
	hook    config.Hook
	busy    bool
	failed  bool
	tries   int // how often systemd did not take it over
	waiting []*News
}

// tell tells what is new, and returns when there may be more, the zero time if never.
func (n *Notifier) tell(now time.Time) time.Time {
	all, next := n.desk.News(now)
	for _, news := range all {
		n.message(news)
		n.hook(news)
	}
	return next
}

// message shows news in the terminals that are attached to other sessions than it is about.
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
			n.Message(n.ctx, id, line)
			n.post(func() { delete(n.messaged, id) })
		}()
	}
}

// hook has every hook told. Which ones there are is looked up each time: nobody has to tell us of a new one.
func (n *Notifier) hook(news *News) {
	go func() {
		hooks := n.Hooks.List()
		n.post(func() {
			n.forgetHooks(hooks)
			if news.begin = len(hooks); news.begin == 0 {
				n.told(news)
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

// runHook runs a hook with all that it is to be told, unless it is busy.
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
			return // it runs on; one that has not begun is for the next daemon
		}
		if err != nil || failed {
			n.Hooks.Ended(hook.Name, err)
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

// runHookAgain has a hook run later that systemd did not take over: it may just be executed anew. What even then nobody has begun to tell is for the next
// daemon.
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

// begin takes note that a hook has begun to be told.
func (n *Notifier) begin(parts []*News) {
	for _, news := range parts {
		if news.begin--; news.begin == 0 {
			n.told(news)
		}
	}
}

func (n *Notifier) told(news *News) {
	n.desk.Told(news)
	n.dirty = true
}

// forgetHooks drops what is known of hooks that are there no more.
func (n *Notifier) forgetHooks(there []config.Hook) {
	for name, c := range n.callers {
		switch {
		case slices.ContainsFunc(there, func(h config.Hook) bool { return h.Name == name }):
		case c.failed:
			n.pardonHook(c)
		case !c.busy:
			delete(n.callers, name)
		}
	}
}

// pardonHook has it forgotten that a hook has failed.
func (n *Notifier) pardonHook(c *caller) {
	if c.busy || !c.failed {
		return
	}
	c.busy = true // what it does next is told after this
	name := c.hook.Name
	go func() {
		n.Hooks.Ended(name, nil)
		n.post(func() {
			c.busy, c.failed = false, false
			n.runHook(c)
		})
	}()
}

// event is what a hook reads: docs/reference/json.md.
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

// event is the news as hooks get them, in one line.
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
		content = fmt.Appendf(nil, "{%q:%q}", "Event", n.Event) // cannot be
	}
	return append(content, '\n')
}

func micro(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}
