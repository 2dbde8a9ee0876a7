package supervisor

import (
	"cmp"
	"context"
	"time"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/supervisor/session"
)

// continuation gives the agent of a session ContinueText= once its usage limit has reset, if
// OnLimit= is continue. A timer of systemd then calls ContinueAfterLimit: it does not depend on the
// daemon. It is lost with the user manager, so each daemon sets the timers again.
type continuation struct {
	e *entry

	late   time.Time // for a limit that had reset before this daemon has known it: when to continue
	failed time.Time // the reset after which the agent could not be given the text, which is not tried again

	wanted, timer time.Time // the timer as it has to be, and as it was last set; zero for none
	isSetting     bool      // the timer is being set, or will be after a failure

	isGiven bool // the agent is being given the text
}

const (
	// autoContinueGrace is the time after the reset for agents that continue by themselves.
	autoContinueGrace = 5 * time.Minute
	// timerRetryDelay is the time until a timer is set again that could not be set.
	timerRetryDelay = 30 * time.Second
	// dialogTimeout limits how long an agent may take to end its wait for the reset, after LimitKeys=.
	dialogTimeout = 15 * time.Second
)

// due returns from when the session may be continued, zero for never.
func (c *continuation) due() time.Time {
	e, grace := c.e, time.Duration(0)
	if e.definition().AutoContinue {
		grace = autoContinueGrace
	}
	at := e.rec.ContinueAt(grace)
	if at.IsZero() || e.loop.settings.onLimit(e.rec) != config.LimitContinue || c.failed.Equal(e.rec.Limit.Until) {
		return time.Time{}
	}
	return at
}

// at returns when the session is to be continued, zero for never.
func (c *continuation) at() time.Time {
	at := c.due()
	if at.IsZero() {
		c.late = time.Time{}
		return at
	}
	if now := time.Now(); c.timer.IsZero() && c.late.IsZero() && at.Before(now) {
		c.late = now.Add(at.Sub(c.e.rec.Limit.Until)) // not all sessions at once, after the start of the machine
	}
	if c.late.After(at) {
		return c.late
	}
	return at
}

// schedule has the timer set to a time, or removed if that is zero.
func (c *continuation) schedule(at time.Time) {
	c.wanted = at
	if c.isSetting || c.wanted.Equal(c.timer) || c.e.loop.shutdown.stopping {
		return
	}
	c.isSetting = true
	l, id := c.e.loop, c.e.rec.ID
	go func() {
		ctx, cancel := l.clocks.AfterFunc.Context(l.ctx, systemdTimeout)
		defer cancel()
		err := l.system.Systemd.SetContinueTimer(ctx, id, at)
		l.post(func() {
			if err == nil {
				c.isSetting, c.timer = false, at
				c.schedule(c.wanted)
				return
			}
			if c.e.takeLogSlot("continue timer") {
				l.log.Warn("cannot set the timer that continues a session after its usage limit", "session", id, "err", err)
			}
			l.clocks.AfterFunc(timerRetryDelay, func() {
				l.post(func() {
					c.isSetting = false
					c.schedule(c.wanted)
				})
			})
		})
	}()
}

// ContinueAfterLimit gives the agent of a session that has reached a usage limit ContinueText=, and
// resumes the session first if it was suspended. With ifDue, it does so only if OnLimit= is
// continue, the limit has reset, nobody has typed since the agent reached the limit, and the agent
// was not given the text after this reset before. Errors: NoSuchSession, NotWaiting, and those of
// Send.
func (s *Supervisor) ContinueAfterLimit(ctx context.Context, id string, ifDue bool) error {
	o := &s.loop.operations
	var limit session.Limit
	var text string
	err := s.loop.doWith(id, func(e *entry) error {
		limit, text = e.rec.Limit, cmp.Or(e.definition().ContinueText, s.loop.settings.config.ContinueText)
		if limit == (session.Limit{}) {
			return refuse(NotWaiting, "session %q does not wait for the reset of a usage limit", id)
		}
		if at := e.continuation.due(); ifDue && (at.IsZero() || time.Now().Before(at.Add(-time.Second))) {
			return refuse(NotWaiting, "session %q is not to be continued now", id)
		}
		if e.continuation.isGiven {
			return refuse(NotWaiting, "session %q is being continued by another client", id)
		}
		e.continuation.isGiven = true
		return nil
	})
	if err != nil {
		return err
	}
	err = o.endLimitWait(ctx, id)
	if err == nil {
		err = s.Send(ctx, id, text, Input{Enter: true, Resume: true})
	}
	return o.recordContinuation(ctx, id, limit, err)
}

// recordContinuation records that the agent was given ContinueText=, or that it could not be: that
// is not tried again unless corrald was shutting down. A text that was kept because the agent could
// not be started is given to it later. The result is err, the error of giving it the text.
func (o *operations) recordContinuation(ctx context.Context, id string, limit session.Limit, err error) error {
	kind := kindOf(err)
	_ = o.loop.withSession(context.WithoutCancel(ctx), id, func(e *entry) (<-chan error, error) {
		e.continuation.isGiven = false
		switch {
		case err == nil || kind == StartFailed && e.rec.Unsent != "":
			e.apply(session.ContinueTextSent{Until: limit.Until})
		case kind != ShuttingDown:
			e.continuation.failed = limit.Until
			e.markDirty()
		}
		if err != nil {
			e.loop.log.Warn("cannot continue a session after its usage limit", "session", id, "err", err)
		}
		return e.whenPublished(), nil
	})
	return err
}

// endLimitWait makes the session's agent accept a text, with the keys of LimitKeys=: they close its
// dialog about a usage limit, which the text would answer, or end its own wait for the reset, after
// which it would continue as well. Errors: InvalidState.
func (o *operations) endLimitWait(ctx context.Context, id string) error {
	var keys []string
	var isShown, waitsItself bool
	if err := o.loop.doWith(id, func(e *entry) error {
		def := e.definition()
		keys, isShown = def.LimitKeys, e.rec.ShowsLimit()
		waitsItself = def.AutoContinue && e.rec.Run.AgentAlive() && e.rec.Limit.Run == e.rec.Run.ID
		return nil
	}); err != nil || !isShown && (!waitsItself || len(keys) == 0) {
		return err
	}
	if len(keys) == 0 {
		return refuse(InvalidState, "session %q shows a dialog about its usage limit, and its agent's definition "+
			"has no LimitKeys=: close the dialog in its terminal", id)
	}
	if err := o.giveInput(ctx, id, "continue", func(*entry) (session.Effect, time.Duration, error) {
		return session.PressKeys{Keys: keys}, keysTimeout(len(keys)), nil
	}); err != nil {
		return err
	}
	ctx, cancel := o.loop.clocks.AfterFunc.Context(ctx, dialogTimeout)
	defer cancel()
	err := o.loop.withSession(ctx, id, func(e *entry) (<-chan error, error) {
		return e.waitUntil(func(e *entry) bool {
			return e.removed || !e.rec.ShowsLimit() && e.rec.IsSilent()
		}), nil
	})
	if kindOf(err) == TimedOut {
		return refuse(InvalidState, "session %q still waits for the reset of its usage limit: look at its terminal", id)
	}
	return err
}

// onLimit returns what happens once the session's usage limit has reset: its label, else the
// definition of its agent, else the configuration decides.
func (s *settings) onLimit(rec *session.Session) string {
	label := rec.Labels[config.OnLimitLabel]
	if _, err := config.ParseOnLimit(label); err != nil {
		label = ""
	}
	def, _ := s.agents.Find(rec.Agent)
	return cmp.Or(label, def.OnLimit, s.config.OnLimit)
}
