package supervisor

import (
	"context"
	"slices"
	"time"

	"github.com/corrald/corral/dbusapi/word"
	"github.com/corrald/corral/internal/environment"
	"github.com/corrald/corral/internal/shimwire"
	"github.com/corrald/corral/supervisor/conversations"
	"github.com/corrald/corral/supervisor/session"
)

// How long the other effects of a session wait for the detection of its conversation, which reads
// files of the agent. detectPrintedTimeout includes the run of a login shell.
const (
	detectOpenTimeout    = time.Second
	detectPrintedTimeout = 10 * time.Second
)

// recentExit is the age up to which an exit may have been saved by an earlier daemon that was
// killed before it had detected the conversation, or before systemd had reported the stop that was
// the cause: systemd starts the next daemon within seconds.
const recentExit = time.Minute

// openFileDetection detects the conversation of a run's agent by the files that the agent holds
// open.
type openFileDetection struct {
	e        *entry
	running  bool
	again    bool   // it will be repeated: the files may have changed after they were examined
	reported string // the conversation that the agent has reported last, "" for none
}

// detectIfDue detects the conversation if that is due because a message about the agent's status or
// output has arrived. IsNew is set if the agent has reported another conversation.
func (d *openFileDetection) detectIfDue(activity string, isNew bool) {
	switch {
	case !d.e.conversationRules().IsOpenFileDue(activity, isNew):
	case d.running:
		d.again = true
	default:
		d.running = d.enqueue()
	}
}

// enqueue has the conversation detected after the effects that are queued for the session. It
// returns false if the agent's definition has no IdFile=.
func (d *openFileDetection) enqueue() bool {
	e := d.e
	file := e.conversationRules().OpenFile(d.reported)
	if file == nil {
		return false
	}
	t, run := e.target(), e.rec.Run.ID
	e.effects.afterSaveAtMost(detectOpenTimeout, func() {
		found := e.loop.system.Conversations.DetectOpen(t.ControlGroup, t.Agent.PID, *file)
		e.postFor(run, func() { d.returned(found) })
	})
	return true
}

// returned records the conversation that was detected, if there is one, and the usage limit that
// has ended its last turn: as a report of a hook, which the agent does not have for it.
func (d *openFileDetection) returned(found conversations.Opened) {
	e, id := d.e, found.ID
	d.running = false
	if found.Limit != nil && e.rec.HasFailed() {
		if !isPlausibleReset(found.Limit.Until) {
			found.Limit.Until = time.Time{}
		}
		_, _ = e.run.reports.reported(Report{
			Activity: word.Idle, Reason: word.Limit, Message: shimwire.SanitizeLine(found.Limit.Message),
			Until: found.Limit.Until,
		}, e.loop.now())
	}
	if id != "" && (e.rec.Run.Conversation != id || e.rec.Run.ConversationFrom != session.OpenFile) {
		e.setConversation(id, session.OpenFile)
	}
	if d.again {
		d.again = false
		d.detectIfDue("", true)
	}
}

// detectPrintedConversation detects the conversation id that the agent has printed at its end.
func (e *entry) detectPrintedConversation() {
	printed := e.conversationRules().Printed()
	if printed == nil || e.detectingPrinted {
		return
	}
	run, plan := e.rec.Run.ID, e.plan(false)
	variables := func() ([]environment.Variable, error) {
		return e.loop.system.Environments.Compose(e.loop.ctx, plan.Environment, plan.ID, plan.Spec.Dir)
	}
	e.detectingPrinted = true
	e.effects.afterSaveAtMost(detectPrintedTimeout, func() {
		id := e.loop.system.Conversations.DetectPrinted(plan.Spec.StateDir, *printed, variables)
		e.loop.post(func() {
			e.detectingPrinted = false
			e.markDirty()
			// The log also contains what an earlier run has printed at its end.
			earlier := slices.Contains(e.rec.EarlierConversations, id)
			if e.isCurrent(run) && id != "" && id != e.rec.Run.Conversation && !earlier {
				e.setConversation(id, session.Printed)
			}
		})
	})
}

// hasJustExited reports whether the session's last agent has exited within recentExit.
func (e *entry) hasJustExited() bool {
	r := e.rec.Run
	return r != nil && r.Exit != nil && time.Since(r.Exit.Exited) < recentExit
}

// awaitDetection waits until detectPrintedConversation has finished for the session's last agent.
func (o *operations) awaitDetection(ctx context.Context, id string) error {
	return o.loop.withSession(notYetAccepted(ctx), id, func(e *entry) (<-chan error, error) {
		if !e.detectingPrinted {
			return nil, nil
		}
		return e.waitUntil(func(e *entry) bool { return e.removed || !e.detectingPrinted }), nil
	})
}
