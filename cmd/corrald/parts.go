package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/corrald/corral/dbusapi/server"
	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/environment"
	"github.com/corrald/corral/internal/failpoint"
	"github.com/corrald/corral/internal/fdpoll"
	"github.com/corrald/corral/internal/inotify"
	"github.com/corrald/corral/internal/journal"
	"github.com/corrald/corral/internal/logind"
	"github.com/corrald/corral/internal/mounts"
	"github.com/corrald/corral/internal/proc"
	"github.com/corrald/corral/internal/version"
	"github.com/corrald/corral/internal/walltimer"
	"github.com/corrald/corral/internal/worktree"
	"github.com/corrald/corral/notify"
	"github.com/corrald/corral/supervisor"
	"github.com/corrald/corral/supervisor/ground"
	"github.com/corrald/corral/supervisor/store"
	"github.com/corrald/corral/tmux"
	"github.com/corrald/corral/units"
)

// slice is where all sessions' scopes are; the package installs it.
const slice = "app-corral.slice"

// places is where things are for this user.
type places struct {
	home     string
	state    string   // $XDG_STATE_HOME/corral
	runtime  string   // $XDG_RUNTIME_DIR/corral
	data     string   // $XDG_DATA_HOME/corral
	bus      string   // address of the user's bus
	shim     string   // path of corral-shim
	self     string   // path of this program
	programs string   // directory of corrald and corralctl
	config   []string // directories of configuration, the first one wins
}

func findPlaces() (places, error) {
	var p places
	var err error
	if p.home, err = os.UserHomeDir(); err != nil {
		return p, errors.New("HOME is not set")
	}
	state := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(state) {
		state = filepath.Join(p.home, ".local/state")
	}
	p.state = filepath.Join(state, "corral")
	data := os.Getenv("XDG_DATA_HOME")
	if !filepath.IsAbs(data) {
		data = filepath.Join(p.home, ".local/share")
	}
	p.data = filepath.Join(data, "corral")
	run := os.Getenv("XDG_RUNTIME_DIR")
	if !filepath.IsAbs(run) {
		return p, errors.New("XDG_RUNTIME_DIR is not set: corrald needs a login session, or lingering (loginctl enable-linger)")
	}
	p.runtime = filepath.Join(run, "corral")
	if err := os.MkdirAll(p.runtime, 0o700); err != nil {
		return p, fmt.Errorf("cannot create the runtime directory: %w", err)
	}
	if err := os.Chmod(p.runtime, 0o700); err != nil {
		return p, fmt.Errorf("cannot make the runtime directory private: %w", err)
	}
	if p.bus = os.Getenv("DBUS_SESSION_BUS_ADDRESS"); p.bus == "" {
		p.bus = "unix:path=" + run + "/bus"
	}
	self, err := os.Executable()
	if err == nil {
		self, err = filepath.EvalSymlinks(self)
	}
	if err != nil {
		return p, fmt.Errorf("cannot find the path of this program: %w", err)
	}
	p.self, p.programs = self, filepath.Dir(self)
	p.config = config.InstalledDirs(p.programs)
	p.shim, err = config.FindShim(filepath.Dir(self))
	return p, err
}

// parts is the daemon, put together.
type parts struct {
	places
	log    *slog.Logger
	units  *units.Manager
	server *server.Server
	sup    *supervisor.Supervisor
	world  *ground.Ground
	last   *lastCall
	notify *notify.Notifier

	tmuxTrouble tmuxTrouble
}

func (d *parts) close() {
	if err := d.notify.Close(); err != nil {
		d.log.Warn("cannot close the notifier: the next corrald may repeat notifications", "err", err)
	}
	_ = d.server.Close()
	_ = d.units.Close()
}

// assemble connects to systemd and the bus, and takes over what is there.
func assemble(ctx context.Context, log *slog.Logger, out *journal.Log, p places, records *store.Store) (*parts, error) {
	d := &parts{places: p, log: log}
	conf, agents, problem := d.read()
	if problem != nil {
		log.Error("cannot read the configuration", "err", problem)
	}
	var err error
	if d.units, err = units.Connect(ctx, p.bus, filepath.Dir(p.runtime)); err != nil {
		return nil, err
	}
	d.server = server.New(server.Info{Version: version.Version, Slice: slice, StateDir: p.state, Reload: d.reload, Log: out, SetNotifications: func(on bool) error { return d.notify.SetEnabled(on) },
		StartAtLogin: (&loginStart{parts: d}).enable},
		func(err error) { log.Error("an error on the bus", "err", err) })
	if err := d.server.Connect(ctx, p.bus); err != nil {
		return nil, err
	}
	terminals, world, err := d.ground(ctx, conf.DetachKey)
	if err != nil {
		return nil, err
	}
	boot, err := proc.BootID()
	if err != nil {
		return nil, fmt.Errorf("cannot identify this boot: %w", err)
	}
	d.notify = d.notices(terminals, notify.Settings{Config: conf, Agents: agents, Home: p.home})
	d.last = newLastCall(log)
	options := supervisor.Options{
		Config: conf, Agents: agents, Records: records, World: world, Publisher: publishers{d.server, d.notify}, Log: log,
		Version: version.Version, BootID: boot, RuntimeDir: p.runtime, Home: p.home, ShareDir: config.FindShare(p.programs),
		WorktreeDir: filepath.Join(p.data, "worktrees"), Git: worktree.Git{Environment: environment.ForHelper(os.Environ()), Run: p.runWorktreeStep},
		Status: func(text string) { _, _ = daemon.SdNotify(false, "STATUS="+text) }, Live: d.last.live, Announce: d.server.ShuttingDownChanged,
		Stirred: (&rest{after: restAfter}).stir,
		Ending: func(most time.Duration) {
			_, _ = daemon.SdNotify(false, fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", most.Microseconds()))
		},
	}
	if every, err := daemon.SdWatchdogEnabled(false); err == nil && every > 0 {
		options.AliveEvery = every / 2
		options.Alive = func() { _, _ = daemon.SdNotify(false, daemon.SdNotifyWatchdog) }
	}
	options.OpenFiles = func() (supervisor.Files, error) { return inotify.New() }
	descriptors, err := fdpoll.New()
	if err != nil {
		return nil, err
	}
	options.Descriptors = descriptors
	alarm, err := walltimer.New()
	if err != nil {
		return nil, err
	}
	options.Alarm = func(at time.Time) {
		if err := alarm.Set(at); err != nil {
			log.Warn("cannot set the alarm for what expires next", "err", err)
		}
	}
	d.sup, d.world = supervisor.New(options), world
	d.tmuxTrouble = tmuxTrouble{log: log, report: d.sup.Trouble}
	world.Trouble = d.loginShellTrouble
	world.TmuxConfig = d.tmuxTrouble.read
	d.last.suspend, d.last.resume = d.sup.LastCall, d.sup.CalledOff
	d.last.settle, d.last.woke = d.sup.Settle, d.sup.AlarmRang
	d.configured(problem)
	go alarm.Run(d.sup.AlarmRang)
	if table, err := mounts.Open(); err == nil {
		go table.Run(d.sup.MountsChanged)
	} else {
		log.Warn("cannot watch mounts: unmounted workspaces will not be detected", "err", err)
	}
	if linger, err := logind.WatchLinger(); err == nil {
		go linger.Run(d.server.LingeringChanged)
	} else {
		log.Warn("cannot watch lingering: its changes will not be published", "err", err)
	}
	return d, d.adopt(ctx, records)
}

func (d *parts) ground(ctx context.Context, detachKey string) (*tmux.Tmux, *ground.Ground, error) {
	env, err := d.units.Environment(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot read the manager's environment: %w", err)
	}
	t, err := tmux.Prepare(d.runtime, environment.ForHelper(env, "TERM=tmux-256color"), d.bus)
	if err != nil {
		return nil, nil, err
	}
	if err := t.SetDetachKey(detachKey); err != nil {
		return nil, nil, err
	}
	world, err := ground.New(d.units, t, d.shim, d.runtime)
	return t, world, err
}

func (d *parts) adopt(ctx context.Context, records *store.Store) error {
	saved, found, err := records.Load()
	if err != nil {
		return err
	}
	for _, f := range found {
		d.log.Warn("the record of a session has a problem", "session", f.ID, "detail", f.String(), "path", f.Path, "message_id", journal.RecordDamaged)
		d.sup.Found(supervisor.Problem{Session: f.ID, Text: f.String(), Path: f.Path, UntilSaved: f.Kind == store.Edited || f.Kind == store.SetAside && f.Path == ""})
	}
	failpoint.Hit("adopt.loaded")
	d.endWorktreeSteps(stepsEndTime)
	if err := d.sup.Adopt(ctx, saved); err != nil {
		return err
	}
	d.notify.Begin()
	return nil
}

// read reads the configuration, and tells what is wrong with it.
func (d *parts) read() (config.Config, map[string]config.Agent, error) {
	conf, warnings, err := config.Load(d.config)
	agents, more := config.LoadAgents(d.config)
	for _, w := range append(warnings, more...) {
		d.log.Warn("configuration", "detail", w.String(), "file", w.File, "line", w.Line)
	}
	return conf, agents, err
}

// configured notes whether the configuration could be read.
func (d *parts) configured(err error) {
	text := ""
	if err != nil {
		text = err.Error() + "; fix it, then run: systemctl --user reload corrald"
	}
	d.sup.Trouble("configuration", text)
}

// loginShellTrouble notes whether it is known what the login shell sets.
func (d *parts) loginShellTrouble(err error) {
	text := ""
	if err != nil {
		text = err.Error() + "; runs started without an environment of the caller lack it (see LoginShell= in corral.conf)"
	}
	d.sup.Trouble("login shell", text)
}

func (d *parts) reload() error {
	conf, agents, err := d.read()
	d.configured(err)
	if err != nil {
		return err
	}
	d.notify.Configure(notify.Settings{Config: conf, Agents: agents, Home: d.home})
	d.world.ForgetLoginShell()
	d.tmuxTrouble.forget()
	if err := d.world.Tmux.SetDetachKey(conf.DetachKey); err != nil {
		return err
	}
	return d.sup.Reload(conf, agents)
}
