package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/cmd/corralctl/hosts"
	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/dbusapi/client"
	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/desktop"
	"github.com/corrald/corral/internal/journal"
	"github.com/corrald/corral/internal/logind"
	"github.com/corrald/corral/internal/safefile"
	"github.com/corrald/corral/notify"
)

// notifyVerb is the verb that corral-remote@HOST.service runs, corral-remote@.service(5).
var notifyVerb = verb{
	name: "notify", summary: "Show the notifications of another machine on this desktop",
	details: `Runs until it is interrupted, and reconnects whenever that is possible. To have it
always run: systemctl --user enable --now corral-remote@HOST.service
`,
	options: plainVerb(func(ctx context.Context, c *ctl, _ []string) error {
		if !c.isRemote() {
			return &failure{exitUsage, "notify shows the notifications of another machine: expected --host=HOST",
				"corralctl help notify"}
		}
		return c.notify(ctx)
	}),
}

// remoteNotifier shows the notifications of another machine on the desktop of this one.
type remoteNotifier struct {
	host     string // how it is called
	to       hosts.Host
	option   string // of corralctl, that selects it
	log      *slog.Logger
	notifier *notify.Notifier
	client   atomic.Pointer[client.Client] // nil while there is no connection
	awake    chan struct{}                 // receives a value when this machine has woken up

	// The fields below belong to the goroutine of run.

	link        link
	reportedOld bool // that the corrald there is older was logged
}

// link is what is known about the other machine.
type link int

const (
	linkUnknown link = iota
	linkUp
	linkNoDaemon
	linkDown
)

// notify shows the notifications of the other machine until it is interrupted.
func (c *ctl) notify(ctx context.Context) error {
	ctx, stop := signal.NotifyContext(ctx, unix.SIGINT, unix.SIGTERM)
	defer stop()
	name := c.hostLabel()
	address, err := client.BusAddress()
	if err != nil {
		return c.cannot("notify", name, err)
	}
	// A host may be a URI with slashes.
	file := filepath.Join(stateDirectory(), "remote", url.PathEscape(name)+".json")
	unlock, err := lockNotifications(c, name, file)
	if err != nil {
		return err
	}
	defer unlock()
	out := journal.New(new(slog.LevelVar))
	defer out.Close()
	r := &remoteNotifier{
		host: name, to: c.onlyHost(), option: c.hostOption(),
		log: slog.New(out.Handler()).With("host", name), awake: make(chan struct{}, 1),
	}
	settings := notify.Settings{Home: os.Getenv("HOME"), Host: name}
	if settings.Config, _, err = config.Load(configDirs()); err != nil {
		r.log.Warn("corral.conf is not used", "err", err)
	}
	settings.Agents, _ = config.LoadAgents(configDirs())
	applySettings := followSettings(ctx, &settings)
	r.notifier = notify.New(notify.Options{
		Address: address, File: file, Settings: settings,
		Sessions:     func() notify.Sessions { return hostSessions{r} },
		OpenTerminal: r.openTerminal, Confirm: r.confirm,
		Hooks:    notify.Hooks{List: func() []config.Hook { return nil }}, // that machine runs its own
		Announce: func(bool) {},
		LogError: func(err error) { r.log.Warn("a desktop notification failed", "err", err) },
	})
	go applySettings(r.notifier.Configure)
	go r.followSleep(ctx)
	_, _ = daemon.SdNotify(false, daemon.SdNotifyReady)
	r.run(ctx)
	if err := r.notifier.Close(); err != nil {
		r.log.Warn("notifications may be repeated", "err", err)
	}
	return nil
}

// lockNotifications creates the directory of a file, and locks the file: two processes would show
// everything twice.
func lockNotifications(c *ctl, host, file string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return nil, c.cannot("notify", host, err)
	}
	lock, err := safefile.OpenFile(file+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, c.cannot("notify", host, err)
	}
	if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		_ = lock.Close()
		return nil, &failure{exitFailed, fmt.Sprintf("the notifications of %q are shown already", host),
			"systemctl --user status 'corral-remote@*'"}
	}
	return func() { _ = lock.Close() }, nil
}

// followSettings turns notices on and off together with those of the corrald of this machine, if it
// runs. It applies the present setting to settings, and later ones by the function that it returns.
func followSettings(ctx context.Context, settings *notify.Settings) (apply func(configure func(notify.Settings))) {
	none := func(func(notify.Settings)) {}
	local, err := client.Connect(ctx)
	if err != nil {
		return none // without a bus, there are no notices
	}
	local.DisableAutoStart()
	events, err := local.WatchManager(ctx)
	if err != nil {
		return none
	}
	read := func() {
		if m, err := local.Manager(ctx); err == nil {
			settings.Config.Notifications = m.Notifications
		}
	}
	read()
	return func(configure func(notify.Settings)) {
		for event := range events {
			switch event := event.(type) {
			case client.DaemonBack:
				read()
			case client.ManagerChanged:
				if on, ok := event.Properties["Notifications"].Value().(bool); ok {
					settings.Config.Notifications = on
				}
			}
			configure(*settings)
		}
	}
}

// followSleep reports when this machine has woken up. Without logind, a lost connection is noticed
// when ssh gives it up.
func (r *remoteNotifier) followSleep(ctx context.Context) {
	manager, err := logind.Connect(ctx, logind.Address())
	if err != nil {
		return
	}
	defer func() { _ = manager.Close() }()
	for {
		select {
		case <-ctx.Done():
			return
		case asleep := <-manager.PreparingForSleep():
			if asleep {
				continue
			}
			select {
			case r.awake <- struct{}{}:
			default:
			}
		}
	}
}

// setLink logs whether the other machine can be reached, and shows it in systemctl status.
func (r *remoteNotifier) setLink(to link, err error) {
	status := "showing the notifications of " + r.host
	switch to {
	case linkDown:
		status = "cannot reach " + r.host + ", trying again: " + wording.Printable(err.Error())
	case linkNoDaemon:
		status = "waiting for corrald on " + r.host
	}
	_, _ = daemon.SdNotify(false, "STATUS="+status)
	if to == r.link {
		return
	}
	r.link = to
	switch to {
	case linkUp:
		r.log.Info("shows the notifications of another machine")
	case linkNoDaemon:
		r.log.Info("corrald does not run on the other machine: waiting for it")
	case linkDown:
		r.log.Warn("cannot reach the other machine: trying again until it can be reached", "err", err)
	}
}

// confirm reports to the other machine that a notification was shown. If that fails, the notifier
// calls it again when there is a connection again.
func (r *remoteNotifier) confirm(ctx context.Context, id string, since time.Time) {
	if host := r.client.Load(); host != nil {
		_ = host.ConfirmNotification(ctx, id, uint64(since.UnixMicro()))
	}
}

// openTerminal opens a terminal window on this machine that runs a verb for the other one.
func (r *remoteNotifier) openTerminal(ctx context.Context, args ...string) error {
	self, err := ownPath()
	if err != nil {
		return err
	}
	address, err := client.BusAddress()
	if err != nil {
		return err
	}
	configured, _, err := config.Load(configDirs())
	if err != nil {
		return err
	}
	unit, err := desktop.Open(ctx, address, desktop.Window{
		Terminal: configured.Terminal, Name: args[len(args)-1], Description: "corralctl " + args[0] + " on " + r.host,
		Command: notify.WindowCommand([]string{self, r.option}, args...),
	})
	if err != nil && unit != "" {
		err = fmt.Errorf("%w; see: journalctl --user -u %s", err, unit)
	}
	if err != nil {
		err = fmt.Errorf("cannot open a terminal window: %w", err)
	}
	return err
}

// hostSessions carries out the actions of notifications on the other machine.
type hostSessions struct{ *remoteNotifier }

// with calls f with the connection to the other machine.
func (h hostSessions) with(f func(*client.Client) error) error {
	host := h.client.Load()
	if host == nil {
		return fmt.Errorf("%s cannot be reached at the moment", h.host)
	}
	return f(host)
}

// Resume implements notify.Sessions, as do the methods below.
func (h hostSessions) Resume(ctx context.Context, id string) error {
	return h.with(func(host *client.Client) error { return host.ResumeSession(ctx, id) })
}

// Restart starts the session again, with a new conversation.
func (h hostSessions) Restart(ctx context.Context, id string) error {
	return h.with(func(host *client.Client) error { return host.RestartSession(ctx, id) })
}

// Acknowledge acknowledges everything that the session requests attention for.
func (h hostSessions) Acknowledge(ctx context.Context, id string) error {
	return h.with(func(host *client.Client) error { return host.Acknowledge(ctx, id) })
}

// AcknowledgeState reads first whether the request is that of the agent.
func (h hostSessions) AcknowledgeState(ctx context.Context, id string) error {
	return h.with(func(host *client.Client) error {
		s, err := host.Session(ctx, id)
		if err != nil || s.AttentionSource != "" {
			return err
		}
		return host.Acknowledge(ctx, id)
	})
}

// Reply types the text if the agent waits for input.
func (h hostSessions) Reply(ctx context.Context, id, text string) error {
	return h.with(func(host *client.Client) error {
		return host.SendInput(ctx, id, text, dbusapi.InputEnter|dbusapi.InputIfWaiting)
	})
}

// AnswerPermission reads first whether the agent still asks for the same permission. If it was
// answered a moment ago, corrald refuses another answer for a second.
func (h hostSessions) AnswerPermission(ctx context.Context, id string, deny bool, since time.Time) error {
	return h.with(func(host *client.Client) error {
		s, err := host.Session(ctx, id)
		switch {
		case err != nil:
			return err
		case s.AttentionTimestamp != uint64(since.UnixMicro()):
			return fmt.Errorf("session %q does not ask for this permission any more", id)
		case deny:
			return host.Deny(ctx, id)
		}
		return host.Approve(ctx, id)
	})
}
