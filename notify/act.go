package notify

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/corrald/corral/internal/deadline"
	"github.com/corrald/corral/supervisor"
)

// actTimeout bounds an action; a restart may have to wait for an agent that ends slowly.
const actTimeout = 2 * time.Minute

const failureKey = "failure"

// invoked carries out what a person has selected in a notice: the action with the key text, or a
// reply with that text to the agent.
func (n *Notifier) invoked(sessions []string, reply bool, text string) {
	go func() {
		ctx, cancel := deadline.Context(n.ctx, actTimeout)
		defer cancel()
		var err error
		switch {
		case reply && len(sessions) == 1:
			err = n.Sessions().Send(ctx, sessions[0], text, supervisor.Input{Enter: true, IfWaiting: true})
		case !reply:
			err = n.act(ctx, sessions, text)
		}
		n.post(func() { n.failed(sessions, err) })
	}()
}

// act carries out the action with this key.
func (n *Notifier) act(ctx context.Context, sessions []string, key string) error {
	if key == clicked {
		key = Open
	}
	if key == ShowAll || key == Open && len(sessions) != 1 {
		return n.OpenTerminal(ctx, "top")
	}
	if answer, ok := answerOf(key); ok && len(sessions) == 1 {
		return n.Sessions().AnswerPermission(ctx, sessions[0], answer)
	}
	var errs []error
	for _, id := range sessions {
		switch key {
		case Open:
			errs = append(errs, n.OpenTerminal(ctx, "attach", id))
		case ShowLog:
			if err := n.OpenTerminal(ctx, "logs", id); err != nil {
				errs = append(errs, err)
			} else {
				errs = append(errs, n.Sessions().Acknowledge(ctx, id))
			}
		case Resume, ResumeAll:
			errs = append(errs, n.Sessions().Resume(ctx, id))
		case Restart:
			errs = append(errs, n.Sessions().Restart(ctx, id))
		}
	}
	return errors.Join(errs...)
}

// seen acknowledges how these sessions ended, after a person has closed their notice. That does not
// answer what an agent asks.
func (n *Notifier) seen(sessions []string) {
	go func() {
		ctx, cancel := deadline.Context(n.ctx, actTimeout)
		defer cancel()
		for _, id := range sessions {
			_ = n.Sessions().AcknowledgeState(ctx, id) // it may have been removed meanwhile
		}
	}()
}

// failed shows the error of an action as a notice, which is where the person is who selected it.
func (n *Notifier) failed(sessions []string, err error) {
	n.screen.failure = nil
	if err == nil || n.ctx.Err() != nil {
		return
	}
	title := "Corral: action failed"
	if len(sessions) == 1 {
		title = sessions[0] + ": action failed"
	}
	n.screen.failure = &Notice{
		Key: failureKey, Token: fmt.Sprint(time.Now().UnixNano()), Title: title, Body: shortened(plain(err.Error()), 2*maxAsked), Urgency: Normal,
		Actions: []Action{{Open, "Open"}}, Sessions: sessions,
	}
}
