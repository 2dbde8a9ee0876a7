package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

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
		Sessions: func() notify.Sessions { return d.sup },
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
	command := append([]string{client}, args...)
	if args[0] == "logs" {
		command = append([]string{"/bin/sh", "-c", waitForEnter}, command...)
	}
	unit, err := desktop.Open(ctx, d.paths.bus, desktop.Window{
		Terminal: conf.Terminal, Name: args[len(args)-1], Description: "corralctl " + args[0], Command: command,
	})
	switch {
	case err == nil:
		return nil
	case unit != "":
		return fmt.Errorf("cannot open a terminal window: %w; see: journalctl --user -u %s", err, unit)
	}
	return fmt.Errorf("cannot open a terminal window: %w", err)
}

// waitForEnter sets the window's title, runs its arguments, and waits for Enter: the window would
// close with its command, and a log that fits on the screen is printed at once.
const waitForEnter = `printf '\033]2;%s: log\007' "$2"; "$0" "$@"; ` +
	`printf '\nPress Enter to close this window. '; read -r _`

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
