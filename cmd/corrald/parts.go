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
	"github.com/corrald/corral/internal/journal"
	"github.com/corrald/corral/internal/logind"
	"github.com/corrald/corral/internal/mounts"
	"github.com/corrald/corral/internal/proc"
	"github.com/corrald/corral/internal/trust"
	"github.com/corrald/corral/internal/unitname"
	"github.com/corrald/corral/internal/version"
	"github.com/corrald/corral/internal/walltimer"
	"github.com/corrald/corral/internal/worktree"
	"github.com/corrald/corral/notify"
	"github.com/corrald/corral/supervisor"
	"github.com/corrald/corral/supervisor/effects"
	"github.com/corrald/corral/supervisor/environments"
	"github.com/corrald/corral/supervisor/store"
	"github.com/corrald/corral/tmux"
	"github.com/corrald/corral/units"
)

// paths are the directories, files and addresses of this user.
type paths struct {
	home     string
	state    string   // $XDG_STATE_HOME/corral
	runtime  string   // $XDG_RUNTIME_DIR/corral
	data     string   // $XDG_DATA_HOME/corral
	cache    string   // $XDG_CACHE_HOME/corral
	bus      string   // address of the user's bus
	shim     string   // path of corral-shim
	self     string   // path of this program
	programs string   // directory of corrald and corralctl
	config   []string // directories of configuration, highest priority first
}

func findPaths() (paths, error) {
	var p paths
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
	cache := os.Getenv("XDG_CACHE_HOME")
	if !filepath.IsAbs(cache) {
		cache = filepath.Join(p.home, ".cache")
	}
	p.cache = filepath.Join(cache, "corral")
	run := os.Getenv("XDG_RUNTIME_DIR")
	if !filepath.IsAbs(run) {
		return p, errors.New("XDG_RUNTIME_DIR is not set: " +
			"corrald needs a login session, or lingering (loginctl enable-linger)")
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

// parts are the components of the daemon.
type parts struct {
	paths
	log       *slog.Logger
	units     *units.Manager
	server    *server.Server
	sup       *supervisor.Supervisor
	tmux      *tmux.Tmux
	inhibitor *shutdownInhibitor
	notify    *notify.Notifier

	environments *environments.Composer
	tmuxProblems tmuxProblems
}

func (d *parts) close() {
	if err := d.notify.Close(); err != nil {
		d.log.Warn("cannot close the notifier: the next corrald may repeat notifications", "err", err)
	}
	_ = d.server.Close()
	_ = d.units.Close()
}

// assemble connects to systemd and the bus, creates the components, and adopts the sessions of
// earlier daemons.
func assemble(ctx context.Context, log *slog.Logger, out *journal.Log, p paths, records *store.Store) (*parts, error) {
	d := &parts{paths: p, log: log}
	conf, agents, problem := d.readConfiguration()
	if problem != nil {
		log.Error("corral.conf is not used", "err", problem)
	}
	var err error
	if d.units, err = units.Connect(ctx, p.bus, filepath.Dir(p.runtime)); err != nil {
		return nil, err
	}
	trimmer := &memoryTrimmer{idleDelay: trimDelay, callDelay: callTrimDelay}
	info := server.Info{
		Version: version.Version, Slice: unitname.Slice, StateDir: p.state, Reload: d.reload, Log: out,
		SetNotifications:    func(on bool) error { return d.notify.SetEnabled(on) },
		ConfirmNotification: func(id string, since time.Time) error { return d.notify.ConfirmElsewhere(id, since) },
		StartAtLogin:        (&loginEnabler{parts: d}).enable,
		CallBegins:          trimmer.noteCall,
	}
	d.server = server.New(info, func(err error) { log.Error("an error on the bus", "err", err) })
	if err := d.server.Connect(ctx, p.bus); err != nil {
		return nil, err
	}
	if err := d.prepareTmux(ctx, conf.DetachKey); err != nil {
		return nil, err
	}
	d.environments = environments.NewComposer(d.units.Environment, p.shim, p.runtime, p.bus)
	executor, err := effects.New(d.units, d.tmux, d.environments, p.shim, filepath.Join(p.programs, "corralctl"))
	if err != nil {
		return nil, err
	}
	boot, err := proc.BootID()
	if err != nil {
		return nil, err
	}
	d.notify = d.newNotifier(notify.Settings{Config: conf, Agents: agents, Home: p.home})
	d.inhibitor = newShutdownInhibitor(log)
	d.inhibitor.present = presenceFile{filepath.Join(p.runtime, presenceFileName), log}.set
	options := supervisor.Options{
		Config: conf, Agents: agents, Records: records, System: executor.System(), Log: log,
		Publisher: publishers{d.server, notifierUpdates{d.notify}},
		Version:   version.Version, BootID: boot,
		RuntimeDir: p.runtime, Home: p.home, ConfigHome: config.ConfigHome(), ShareDir: config.FindShare(p.programs),
		WorktreeDir: filepath.Join(p.data, "worktrees"), SandboxDir: filepath.Join(p.cache, "sandboxes"),
		RunSetup: p.runSetup, Approvals: trust.Approvals(filepath.Join(p.state, "trusted")),
		Git: worktree.Git{Environment: environment.ForHelper(os.Environ()), Run: p.runGitStep},
		Callbacks: supervisor.Callbacks{
			SetStatus:        func(text string) { _, _ = daemon.SdNotify(false, "STATUS="+text) },
			SetAnyAgentAlive: d.inhibitor.setAnyRunning,
			AnnounceShutdown: d.server.ShuttingDownChanged,
			IterationBegins:  trimmer.noteActivity,
			StopDelayed: func(most time.Duration) {
				_, _ = daemon.SdNotify(false, fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", most.Microseconds()))
			},
		},
	}
	if every, err := daemon.SdWatchdogEnabled(false); err == nil && every > 0 {
		options.Callbacks.KeepAliveInterval = every / 2
		options.Callbacks.KeepAlive = func() { _, _ = daemon.SdNotify(false, daemon.SdNotifyWatchdog) }
	}
	poller, err := fdpoll.New()
	if err != nil {
		return nil, err
	}
	options.Poller = poller
	alarm, err := walltimer.New()
	if err != nil {
		return nil, err
	}
	options.Callbacks.SetAlarm = func(at time.Time) {
		if err := alarm.Set(at); err != nil {
			log.Warn("cannot set the alarm for what expires next", "err", err)
		}
	}
	d.sup = supervisor.New(options)
	d.tmuxProblems = tmuxProblems{log: log, publish: d.sup.SetProblem}
	d.environments.LoginShellProblem = func(err error) {
		d.setProblem("login shell", err,
			"runs started without an environment of the caller lack it (see LoginShell= in corral.conf)")
	}
	executor.TmuxConfig = d.tmuxProblems.record
	d.inhibitor.suspend, d.inhibitor.resume = d.sup.SuspendForShutdown, d.sup.ShutdownCancelled
	d.inhibitor.flush, d.inhibitor.onWake = d.sup.Flush, d.sup.AlarmRang
	d.setProblem("configuration", problem, configurationRemedy)
	go alarm.Run(d.sup.AlarmRang)
	if table, err := mounts.Open(); err == nil {
		go table.Run(d.sup.MountsChanged)
	} else {
		log.Warn("unmounted workspaces will not be detected", "err", err)
	}
	if linger, err := logind.WatchLinger(); err == nil {
		go linger.Run(d.server.LingeringChanged)
	} else {
		log.Warn("changes of lingering will not be published", "err", err)
	}
	return d, d.adopt(ctx, records)
}

// prepareTmux prepares the tmux with which servers are started and used.
func (d *parts) prepareTmux(ctx context.Context, detachKey string) error {
	env, err := d.units.Environment(ctx)
	if err != nil {
		return err
	}
	if d.tmux, err = tmux.Prepare(d.runtime, environment.ForHelper(env, "TERM=tmux-256color"), d.bus); err != nil {
		return err
	}
	return d.tmux.SetDetachKey(detachKey)
}

func (d *parts) adopt(ctx context.Context, records *store.Store) error {
	saved, found, err := records.Load()
	if err != nil {
		return err
	}
	for _, f := range found {
		d.log.Warn("the record of a session has a problem",
			"session", f.ID, "detail", f.String(), "path", f.Path, "message_id", journal.RecordDamaged)
		untilSaved := f.Kind == store.Edited || f.Kind == store.SetAside && f.Path == ""
		d.sup.AddProblem(supervisor.Problem{Session: f.ID, Text: f.String(), Path: f.Path, UntilSaved: untilSaved})
	}
	failpoint.Hit("adopt.loaded")
	d.endWorktreeSteps(stepStopTimeout)
	if err := d.sup.Adopt(ctx, saved); err != nil {
		return err
	}
	d.sup.RunUntil(ctx, d.notify.Begin())
	return nil
}

// readConfiguration reads the configuration and logs its invalid lines.
func (d *parts) readConfiguration() (config.Config, config.Agents, error) {
	conf, warnings, err := config.Load(d.config)
	agents, more := config.LoadAgents(d.config)
	for _, w := range append(warnings, more...) {
		d.log.Warn("configuration", "detail", w.String(), "file", w.File, "line", w.Line)
	}
	return conf, agents, err
}

const configurationRemedy = "fix it, then run: systemctl --user reload corrald"

// setProblem publishes err as a problem, with its remedy or consequence, and resolves the problem
// if err is nil.
func (d *parts) setProblem(topic string, err error, remedy string) {
	text := ""
	if err != nil {
		text = err.Error() + "; " + remedy
	}
	d.sup.SetProblem(topic, text)
}

func (d *parts) reload() error {
	conf, agents, err := d.readConfiguration()
	d.setProblem("configuration", err, configurationRemedy)
	if err != nil {
		return err
	}
	if err := d.tmux.SetDetachKey(conf.DetachKey); err != nil {
		return err // nothing of the new configuration applies yet
	}
	d.notify.Configure(notify.Settings{Config: conf, Agents: agents, Home: d.home})
	d.environments.ForgetLoginShell()
	d.tmuxProblems.resolveAll()
	return d.sup.Reload(conf, agents)
}
