package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/corrald/corral/internal/bus"
	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/desktop"
	"github.com/corrald/corral/internal/journal"
	"github.com/corrald/corral/internal/transient"
	"github.com/corrald/corral/notify"
	"github.com/corrald/corral/supervisor"
	"github.com/corrald/corral/tmux"
)

// newNotifier creates the notifier, which notifies the user by desktop notifications, hooks and
// messages in terminals.
func (d *parts) newNotifier(settings notify.Settings) *notify.Notifier {
	return notify.New(notify.Options{
		Address: d.bus, File: filepath.Join(d.state, "notifications.json"), Settings: settings,
		Sessions: func() notify.Sessions { return notifiedSessions{d.sup} },
		IsWatched: func(ctx context.Context, id string) bool {
			s, err := tmux.NewSession(filepath.Join(d.runtime, id), id)
			return err == nil && d.tmux.HasFocus(ctx, s)
		},
		OpenTerminal: d.openWindow,
		ShowMessage: func(ctx context.Context, id, text string) {
			s, err := tmux.NewSession(filepath.Join(d.runtime, id), id)
			if err == nil {
				err = d.tmux.Message(ctx, s, text)
			}
			if err != nil {
				d.log.Debug("cannot show a message in a terminal", "session", id, "err", err) // the session may just have ended
			}
		},
		Hooks:    notify.Hooks{List: d.hooks, Run: d.runHook, ReportResult: d.reportHook},
		Announce: d.server.NotificationsChanged,
		Publish: func(changed map[string]notify.Notification) {
			all := make(map[string]supervisor.Notification, len(changed))
			for id, n := range changed {
				all[id] = supervisor.Notification(n)
			}
			d.sup.SetNotifications(all)
		},
		LogError: func(err error) { d.log.Warn("a desktop notification failed", "err", err) },
	})
}

// hooks lists the configured hooks.
func (d *parts) hooks() []config.Hook {
	hooks, _ := config.Hooks(d.config) // corralctl doctor reports invalid hooks
	return hooks
}

// runHook runs a hook and waits until it has exited.
func (d *parts) runHook(ctx context.Context, hook config.Hook, input []byte, started func()) error {
	conn, err := bus.Dial(ctx, d.paths.bus)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	return transient.Run(ctx, conn, transient.Service{
		Kind: "hook", Name: hook.Name, Description: "Corral hook " + hook.Name, Slice: "background.slice",
		Argv: []string{hook.Path},
	}, input, notify.HookTimeout, started)
}

// reportHook publishes a problem if a hook failed. The problem is resolved when the hook succeeds,
// is removed, or the configuration is reloaded.
func (d *parts) reportHook(name string, err error) {
	text := ""
	if err != nil {
		d.log.Warn("a hook failed", "hook", name, "err", err, "message_id", journal.HookFailed)
		text = fmt.Sprintf("the hook %q failed: %v", name, err)
		var failure *transient.Failure
		if errors.As(err, &failure) {
			text += "; see: journalctl --user -u " + failure.Unit
		}
	}
	d.sup.SetProblem("hook "+name, text)
}

// openWindow opens a terminal window that runs corralctl with args.
func (d *parts) openWindow(ctx context.Context, args ...string) error {
	client, err := config.FindClient(d.programs)
	if err != nil {
		return err
	}
	conf, _, err := config.Load(d.config)
	if err != nil {
		return err
	}
	unit, err := desktop.Open(ctx, d.paths.bus, desktop.Window{
		Terminal: conf.Terminal, Name: args[len(args)-1], Description: "corralctl " + args[0],
		Command: notify.WindowCommand([]string{client}, args...),
	})
	switch {
	case err == nil:
		return nil
	case unit != "":
		return fmt.Errorf("cannot open a terminal window: %w; see: journalctl --user -u %s", err, unit)
	}
	return fmt.Errorf("cannot open a terminal window: %w", err)
}

// notifiedSessions carries out the actions of notifications.
type notifiedSessions struct{ *supervisor.Supervisor }

// Reply implements notify.Sessions.
func (s notifiedSessions) Reply(ctx context.Context, id, text string) error {
	return s.Send(ctx, id, text, supervisor.Input{Enter: true, IfWaiting: true})
}

// AnswerPermission implements notify.Sessions.
func (s notifiedSessions) AnswerPermission(ctx context.Context, id string, deny bool, since time.Time) error {
	return s.Supervisor.AnswerPermission(ctx, id, supervisor.Answer{Deny: deny, Since: since})
}

// notifierUpdates passes the changes of sessions to the notifier. It is a supervisor.Publisher.
type notifierUpdates struct{ *notify.Notifier }

// Prepare implements supervisor.Publisher. It ignores the replies, which only the bus needs.
func (n notifierUpdates) Prepare(changes []supervisor.Change) (publish func(after []func())) {
	return func([]func()) {
		var updates []notify.Change
		for _, c := range changes {
			switch {
			case c.New == nil:
				updates = append(updates, notify.Change{ID: c.Old.ID})
			case isOfInterest(c.Old) || isOfInterest(c.New):
				updates = append(updates, notify.Change{ID: c.New.ID, Session: notifiedSession(c.New)})
			}
		}
		n.Update(updates)
	}
}

// isOfInterest reports whether the notifier needs to know of the session: see Notifier.Update. Of a
// thousand sessions, most only run.
func isOfInterest(n *supervisor.Snapshot) bool {
	return n != nil && (n.Attention != "" || n.Interrupted || n.Attached)
}

// PublishProblems implements supervisor.Publisher.
func (n notifierUpdates) PublishProblems([]supervisor.Problem) {}

// notifiedSession returns a session as the notifier sees it.
func notifiedSession(n *supervisor.Snapshot) *notify.Session {
	return &notify.Session{
		ID: n.ID, Agent: n.Agent, Description: n.Description, Labels: n.Labels, WorkingDirectory: n.WorkingDirectory,
		State: n.State, StateChanged: n.StateChanged, Result: n.Result, Reason: n.Reason, EndCause: n.EndCause,
		Run: notify.Run{
			ExecMainCode: n.ExecMainCode, ExecMainStatus: n.ExecMainStatus, Started: n.Started, Exited: n.Exited,
			AgentAlive: n.AgentAlive,
		},
		Attached: n.Attached, Resumable: n.Resumable,
		Attention: n.Attention, AttentionMessage: n.AttentionMessage, AttentionSource: n.AttentionSource,
		AttentionSince: n.AttentionSince, AttentionUntil: n.AttentionUntil,
		AttentionAcknowledged: n.AttentionAcknowledged, ContinueAt: n.ContinueAt,
		Interrupted: n.Interrupted, ByRequest: n.ByRequest,
	}
}

// publishers publish changes to several receivers. Only the first one replies to callers.
type publishers []supervisor.Publisher

// Prepare implements supervisor.Publisher.
func (p publishers) Prepare(changes []supervisor.Change) (publish func(after []func())) {
	prepared := make([]func([]func()), 0, len(p))
	for _, publisher := range p {
		prepared = append(prepared, publisher.Prepare(changes))
	}
	return func(after []func()) {
		for _, publish := range prepared {
			publish(after)
			after = nil
		}
	}
}

// PublishProblems implements supervisor.Publisher.
func (p publishers) PublishProblems(all []supervisor.Problem) {
	for _, publisher := range p {
		publisher.PublishProblems(all)
	}
}
