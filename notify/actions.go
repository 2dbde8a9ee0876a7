package notify

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/corrald/corral/internal/deadline"
	"github.com/corrald/corral/internal/plaintext"
)

// actionTimeout bounds an action; a restart may have to wait for an agent that exits slowly.
const actionTimeout = 2 * time.Minute

// failureKey is the key of the notice about a failed action.
const failureKey = "failure"

// actionInvoked carries out what a person has selected in a notice: the action whose key is text,
// or a reply to the agent that consists of text.
func (n *Notifier) actionInvoked(sessions []string, reply bool, text string) {
	go func() {
		ctx, cancel := deadline.Context(n.ctx, actionTimeout)
		defer cancel()
		var err error
		switch {
		case reply && len(sessions) == 1:
			err = n.Sessions().Reply(ctx, sessions[0], text)
		case !reply:
			err = n.act(ctx, sessions, text)
		}
		n.post(func() { n.showFailure(sessions, err) })
	}()
}

// act carries out the action with this key.
func (n *Notifier) act(ctx context.Context, sessions []string, key string) error {
	if key == defaultKey {
		key = Open
	}
	if key == ShowAll || key == Open && len(sessions) != 1 {
		return n.OpenTerminal(ctx, "top")
	}
	if deny, since, ok := parsePermissionKey(key); ok && len(sessions) == 1 {
		return n.Sessions().AnswerPermission(ctx, sessions[0], deny, since)
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

// acknowledgeState acknowledges the state of these sessions, such as failed, after a person has
// closed their notice. It does not acknowledge the question of an agent.
func (n *Notifier) acknowledgeState(sessions []string) {
	go func() {
		ctx, cancel := deadline.Context(n.ctx, actionTimeout)
		defer cancel()
		for _, id := range sessions {
			_ = n.Sessions().AcknowledgeState(ctx, id) // the session may have been removed meanwhile
		}
	}()
}

// showFailure shows the error of an action as a notice, because the person who selected the action
// is looking at notices.
func (n *Notifier) showFailure(sessions []string, err error) {
	n.screen.failure = nil
	if err == nil || n.ctx.Err() != nil {
		return
	}
	title := "Corral: action failed"
	if len(sessions) == 1 {
		title = sessions[0] + ": action failed"
	}
	n.screen.failure = &Notice{
		Key: failureKey, Token: fmt.Sprint(time.Now().UnixNano()),
		Title: n.Settings.title(title), Body: truncate(plaintext.Line(err.Error()), 2*maxQuestion), Urgency: Normal,
		Actions: []Action{{Open, "Open"}}, Sessions: sessions,
	}
}
