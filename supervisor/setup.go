package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/environment"
	"github.com/corrald/corral/internal/failpoint"
	"github.com/corrald/corral/internal/sandbox"
	"github.com/corrald/corral/internal/setup"
	"github.com/corrald/corral/internal/trust"
	"github.com/corrald/corral/internal/worktree"
	"github.com/corrald/corral/supervisor/environments"
	"github.com/corrald/corral/supervisor/session"
)

// worktreeSetup is the setup of a session's worktree, while it runs.
type worktreeSetup struct {
	e      *entry
	cancel func() // ends it, nil if it does not run
	// untrusted is set if it has failed because the user has not approved its script.
	untrusted bool
}

// workplace is what a command needs to run in a session's worktree.
type workplace struct {
	session     string
	worktree    session.Worktree
	environment environments.Sources // as that of the agent, with the variables about the worktree
	specifiers  config.Specifiers
	runtimeDir  string // of the session
	confinement *Confinement
	log         string // directory of the session's log
	logMax      int64  // bytes
}

// workplace returns where the commands of the session's worktree run. Caller is the environment of
// the client that has requested the run, nil if there is none.
func (e *entry) workplace(caller []string) workplace {
	set, w := &e.loop.settings, *e.rec.Worktree
	sources := e.environment(caller)
	sources.Corral = append(sources.Corral,
		"CORRAL_WORKTREE="+w.Path, "CORRAL_REPOSITORY="+w.Directory(), "CORRAL_BRANCH="+w.Branch)
	return workplace{
		session: e.rec.ID, worktree: w, environment: sources, specifiers: set.specifiers(e.rec),
		confinement: e.loop.confinement(e.rec),
		runtimeDir:  set.runtimeDir(e.rec.ID), log: e.loop.records.SessionDir(e.rec.ID), logMax: set.config.LogMaxSize,
	}
}

// setupPhase returns whether a new session with this worktree waits for its setup.
func (s *Spec) setupPhase(w worktree.Worktree) session.SetupPhase {
	hasScript := func() bool {
		_, err := trust.Read(w.Repository, w.Path, trust.Setup)
		return !errors.Is(err, fs.ErrNotExist)
	}
	switch {
	case s.NoSetup:
		return session.SetupSkipped
	case len(s.determined.repository.SetupCommand) > 0, !s.determined.repository.HasCommands() && hasScript():
		return session.SetupPending
	}
	return ""
}

// errSetupStopped is the result of a setup that was canceled.
var errSetupStopped = errors.New("it was stopped")

// begin has the worktree set up on another goroutine.
func (s *worktreeSetup) begin() {
	e := s.e
	e.watchWorkspace()
	ctx, cancel := context.WithCancel(e.loop.ctx)
	s.cancel = cancel
	place := e.workplace(e.claim.callerEnvironment)
	e.effects.afterSave(func() {
		defer cancel()
		failpoint.Hit("setup.begun")
		err := e.loop.operations.worktrees.run(ctx, place, setupHook)
		if ctx.Err() != nil {
			err = errSetupStopped
		}
		failpoint.Hit("setup.ended")
		e.loop.post(func() {
			if !e.removed {
				s.returned(err)
			}
		})
	})
}

// returned applies the result of the setup.
func (s *worktreeSetup) returned(err error) {
	s.cancel, s.untrusted = nil, kindOf(err) == NotTrusted
	failure := ""
	if err != nil {
		failure = fmt.Sprintf("its worktree could not be set up: %v", err)
	}
	if err != nil && !errors.Is(err, errSetupStopped) {
		s.e.loop.log.Warn("a worktree could not be set up", "session", s.e.rec.ID, "err", withoutOutput(err))
	}
	s.e.apply(session.SetupReturned{Err: failure})
	s.e.claim = &noClaim // the run has begun, or will not
}

// withoutOutput returns the error of a hook without what its command has printed.
func withoutOutput(err error) error {
	if failure := (*setup.Failure)(nil); errors.As(err, &failure) {
		return errors.New(failure.How)
	}
	return err
}

// stop ends the setup, if it runs.
func (s *worktreeSetup) stop() {
	if s.cancel != nil {
		s.cancel()
	}
}

// adopt continues the start of a session that an earlier daemon has interrupted while it set the
// worktree up: the setup begins again. After a reboot, a person decides.
func (s *worktreeSetup) adopt() {
	e, id := s.e, s.e.rec.ID
	switch was := e.rec.Setup; {
	case was.Phase != session.SetupRunning || !was.IsRequired(e.rec.Worktree, e.rec.Run):
	case was.BootID != e.loop.settings.bootID:
		e.apply(session.SetupEnded{Reason: "the machine went down while its worktree was set up"})
	default:
		go func() {
			err := e.loop.operations.start(e.loop.ctx, id, BeginOptions{Now: true}) // it had a place
			if err != nil && !errors.Is(err, ErrClosed) {
				e.loop.post(func() {
					e.loop.log.Warn("cannot continue an interrupted start", "session", id, "err", err)
				})
			}
		}()
	}
}

// scriptsDir is the directory in a session's runtime directory with the scripts that are executed.
const scriptsDir = "scripts"

// hook is a command that is executed for a worktree: one that the user has configured or, if the
// user has configured none at all, a script of the repository that the user has approved.
type hook struct {
	configured func(*config.Repository) []string
	script     string // "" for none
}

var (
	setupHook    = hook{(*config.Repository).Setup, trust.Setup}
	teardownHook = hook{(*config.Repository).Teardown, trust.Teardown}
)

// run runs a hook in a worktree, if there is one. Errors: NotTrusted.
func (t *worktrees) run(ctx context.Context, w workplace, h hook) error {
	c, err := t.command(w, h)
	if err != nil || len(c.Args) == 0 {
		return err
	}
	variables, err := t.loop.system.Environments.Compose(ctx, w.environment, w.session, w.worktree.Path)
	if err != nil {
		return err
	}
	confined, variables, err := t.confine(w, c, variables)
	if err != nil {
		return fmt.Errorf("cannot set up sandbox %q: %w", w.confinement.Profile.Name, err)
	}
	c.Prefix, c.Environment = confined.Args, environment.Entries(variables)
	err = t.runner.Run(ctx, w.session, c)
	if confined.Forbidden != "" && os.Remove(confined.Forbidden) == nil {
		return errors.Join(err, fmt.Errorf("it created %q, with which it could leave its sandbox", confined.Forbidden))
	}
	return err
}

// confine returns the command that sets up the sandbox of the session for a command, which may
// execute what its agent has written.
func (t *worktrees) confine(
	w workplace, c setup.Command, variables []environment.Variable,
) (sandbox.Command, []environment.Variable, error) {
	request := sandbox.Request{Workspace: c.Dir}
	if len(c.Script) > 0 {
		if err := os.MkdirAll(c.ScriptDir, 0o700); err != nil { // it has to exist when the sandbox is described
			return sandbox.Command{}, nil, err
		}
		request.Visible = []string{c.ScriptDir}
	}
	return t.loop.system.Confine(w.confinement, request, variables)
}

// command returns the command of a hook, without its environment. It has no arguments if there is
// none. Errors: NotTrusted.
func (t *worktrees) command(w workplace, h hook) (c setup.Command, err error) {
	repository := w.worktree.Directory()
	configured, err := t.loop.repository(repository)
	if err != nil {
		return c, err
	}
	c = setup.Command{Dir: w.worktree.Path, Log: w.log, LogMax: w.logMax, Limit: configured.TimeLimit()}
	if configured.HasCommands() {
		c.Args, err = config.Expand(h.configured(&configured), w.specifiers)
		return c, err
	}
	if h.script == "" {
		return c, nil
	}
	script, err := trust.Read(repository, w.worktree.Path, h.script)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return c, nil
	case err != nil:
		return c, err
	case !t.approvals.Has(script):
		return c, refuse(NotTrusted, "%s was not approved, or has changed since: corralctl trust %s",
			h.script, w.worktree.Path)
	}
	c.Args, c.Script, c.ScriptDir = []string{h.script}, script.Content, filepath.Join(w.runtimeDir, scriptsDir)
	return c, nil
}

// tearDown runs the hook that undoes the setup, unless the worktree was never set up although it
// has a setup. If changes would be lost with the worktree, or the hook fails, the worktree is kept,
// unless discard is set.
func (t *worktrees) tearDown(w workplace, phase session.SetupPhase, discard bool) error {
	if phase == session.SetupPending || phase == session.SetupSkipped {
		return nil
	}
	h := teardownHook
	if phase == "" {
		h.script = "" // it undoes only what that of the setup has done
	}
	c, err := t.command(w, h)
	if err == nil && len(c.Args) == 0 {
		return nil
	}
	if _, err := os.Lstat(w.worktree.Path); errors.Is(err, fs.ErrNotExist) {
		return nil // somebody has removed it
	}
	if !discard { // the agent may have changed files until it exited
		if err := t.checkLosses(w.session, worktree.Worktree(w.worktree)); err != nil {
			return err
		}
	}
	if err == nil {
		err = t.run(t.loop.ctx, w, h)
	}
	switch {
	case err == nil:
		return nil
	case discard:
		t.loop.post(func() {
			t.loop.log.Warn("a worktree could not be torn down",
				"session", w.session, "path", w.worktree.Path, "err", withoutOutput(err))
		})
		return nil
	}
	kind := ConfigError
	if kindOf(err) == NotTrusted {
		kind = NotTrusted
	}
	return refuse(kind, "the worktree of session %q cannot be torn down: %v: %s", w.session, err, w.worktree.Path)
}
