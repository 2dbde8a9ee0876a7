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

// notices makes what tells the user.
func (d *parts) notices(t *tmux.Tmux, settings notify.Settings) *notify.Notifier {
	return notify.New(notify.Options{
		Address: d.bus, File: filepath.Join(d.state, "notifications.json"), Settings: settings,
		Sessions: func() notify.Sessions { return d.sup },
		IsWatched: func(ctx context.Context, id string) bool {
			s, err := tmux.NewSession(filepath.Join(d.runtime, id), id)
			return err == nil && t.HasFocus(ctx, s)
		},
		OpenTerminal: d.window,
		ShowMessage: func(ctx context.Context, id, text string) {
			s, err := tmux.NewSession(filepath.Join(d.runtime, id), id)
			if err == nil {
				err = t.Message(ctx, s, text)
			}
			if err != nil {
				d.log.Debug("cannot show a message in a terminal", "session", id, "err", err) // it may just have gone
			}
		},
		Hooks:    notify.Hooks{List: d.hooks, Run: d.runHook, ReportResult: d.hookEnded},
		Announce: d.server.NotificationsChanged,
		LogError: func(err error) { d.log.Warn("a desktop notification failed", "err", err) },
	})
}

// hooks lists the hooks that there are.
func (d *parts) hooks() []config.Hook {
	hooks, _ := config.Hooks(d.config) // what is wrong there, corralctl doctor says
	return hooks
}

// runHook runs a hook until it has ended.
func (d *parts) runHook(ctx context.Context, hook config.Hook, input []byte, started func()) error {
	conn, err := bus.Dial(ctx, d.places.bus)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	return transient.Run(ctx, conn, transient.Service{
		Kind: "hook", Name: hook.Name, Description: "Corral hook " + hook.Name, Slice: "background.slice", Argv: []string{hook.Path},
	}, input, notify.HookTimeout, started)
}

// hookEnded takes note of what has become of a hook. A failure is a problem until the hook works,
// is gone, or the configuration is read again.
func (d *parts) hookEnded(name string, err error) {
	text := ""
	if err != nil {
		d.log.Warn("a hook failed", "hook", name, "err", err, "message_id", journal.HookFailed)
		text = fmt.Sprintf("the hook %q failed: %v", name, err)
		var failure *transient.Failure
		if errors.As(err, &failure) {
			text += "; see: journalctl --user -u " + failure.Unit
		}
	}
	d.sup.Trouble("hook "+name, text)
}

// window opens a terminal window in which corralctl runs with these arguments.
func (d *parts) window(ctx context.Context, args ...string) error {
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
		command = append([]string{"/bin/sh", "-c", thenEnter}, command...)
	}
	unit, err := desktop.Open(ctx, d.places.bus, desktop.Window{
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

// thenEnter sets the window's title, runs its arguments, and waits for Enter: the window closes
// with its command, and what fits on it is printed at once.
const thenEnter = `printf '\033]2;%s: log\007' "$2"; "$0" "$@"; printf '\nPress Enter to close this window. '; read -r _`

// publishers tell several of what changed. The first one gives the answers.
type publishers []supervisor.Publisher

// Publish implements supervisor.Publisher.
func (p publishers) Publish(changes []supervisor.Change, after []func()) {
	for _, publisher := range p {
		publisher.Publish(changes, after)
		after = nil
	}
}

// PublishProblems implements supervisor.Publisher.
func (p publishers) PublishProblems(all []supervisor.Problem) {
	for _, publisher := range p {
		publisher.PublishProblems(all)
	}
}
