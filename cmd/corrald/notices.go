package main

import (
	"context"
	"path/filepath"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/desktop"
	"github.com/corrald/corral/notify"
	"github.com/corrald/corral/supervisor"
	"github.com/corrald/corral/tmux"
)

// notices makes what sends desktop notifications.
func (d *parts) notices(t *tmux.Tmux, settings notify.Settings) *notify.Notifier {
	return notify.New(notify.Options{
		Address: d.bus, File: filepath.Join(d.state, "notifications.json"), Settings: settings,
		Sessions: func() notify.Sessions { return d.sup },
		Watched: func(ctx context.Context, id string) bool {
			s, err := tmux.NewSession(filepath.Join(d.runtime, id), id)
			return err == nil && t.Watched(ctx, s)
		},
		Terminal: d.window,
		Announce: d.server.NotificationsChanged,
		Report:   func(err error) { d.log.Warn("a desktop notification", "err", err) },
	})
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
	_, err = desktop.Open(ctx, d.places.bus, desktop.Window{
		Terminal: conf.Terminal, Name: args[len(args)-1], Description: "corralctl " + args[0], Command: append([]string{client}, args...),
	})
	return err
}

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
