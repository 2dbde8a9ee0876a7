package supervisor

import (
	"context"
	"path/filepath"
	"time"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/propertysyntax"
	"github.com/corrald/corral/supervisor/session"
)

// settings are the configuration, and what is known of this daemon and its machine.
type settings struct {
	config   config.Config
	agents   config.Agents
	version  string
	bootID   string
	runDir   string // $XDG_RUNTIME_DIR/corral
	home     string
	confDir  string // $XDG_CONFIG_HOME or ~/.config
	shareDir string // of the files that Corral provides for agents

	sandboxDir string // Confinement.CacheDir
}

// definition returns the definition of the session's agent, zero if there is none.
func (s *settings) definition(rec *session.Session) config.Agent {
	def, _ := s.agents.Find(rec.Agent)
	return def
}

// runtimeDir returns the directory of the session's sockets.
func (s *settings) runtimeDir(id string) string { return filepath.Join(s.runDir, id) }

// specifiers returns the values of specifiers for the session.
func (s *settings) specifiers(rec *session.Session) config.Specifiers {
	values := s.agentSpecifiers(rec.Agent)
	values.Conversation = rec.ConversationID
	values.Session = rec.ID
	values.Workspace = rec.WorkingDirectory
	values.Runtime = s.runtimeDir(rec.ID)
	values.Share = s.shareDir
	return values
}

// agentSpecifiers returns the values of specifiers that are the same for all sessions of an agent.
func (s *settings) agentSpecifiers(agent string) config.Specifiers {
	_, instance, _ := config.CutInstance(agent)
	return config.Specifiers{Instance: instance, Home: s.home, ConfigHome: s.confDir}
}

// stopTimeout returns the time from SIGTERM to SIGKILL when the session is stopped: its own, else
// that of its agent's definition, else the configured one.
func (s *settings) stopTimeout(rec *session.Session) time.Duration {
	const limit = 24 * time.Hour
	timeout := s.config.StopTimeout
	def := s.definition(rec)
	if own := def.StopTimeout(); own > 0 {
		timeout = own
	}
	for _, p := range rec.UnitProperties {
		if p.Name != "TimeoutStopUSec" {
			continue
		}
		v, err := propertysyntax.Decode(p.Signature, p.Value)
		if usec, ok := v.Value().(uint64); err == nil && ok && usec > 0 {
			timeout = time.Duration(min(usec, uint64(limit/time.Microsecond))) * time.Microsecond
		}
	}
	return min(timeout, limit)
}

// completeBegin returns begin with what the agent's definition determines about the run.
func (s *settings) completeBegin(e *entry, begin session.Begin) session.Begin {
	def := s.definition(e.rec)
	begin.Run.Resumed = begin.Resume && (e.rec.Resumable() || len(def.ResumeCommand) == 0)
	begin.Run.Notify, begin.Run.Sources = def.Type == config.TypeNotify, def.Status.Sources
	begin.Run.SandboxTool, begin.Run.SandboxNetwork = s.sandboxTool(e.rec.Sandbox)
	return begin
}

// ListAgents returns the agents that can be run: those that are defined, and the instances of
// templates that the user has set up. It reads the directories of their environment files.
func (s *Supervisor) ListAgents() ([]config.Agent, error) {
	agents, err := s.loop.agents()
	if err != nil {
		return nil, err
	}
	var all []config.Agent
	for _, name := range agents.Known(s.loop.settings.agentSpecifiers("")) {
		def, _ := agents.Find(name)
		all = append(all, def)
	}
	return all, nil
}

// agents returns the agent definitions by name. Any goroutine but the event loop may call it.
func (l *loop) agents() (agents config.Agents, err error) {
	err = l.do(func() { agents = l.settings.agents })
	return agents, err
}

// repository returns what is configured for the git repository in a directory. Any goroutine but
// the event loop may call it.
func (l *loop) repository(dir string) (config.Repository, error) {
	var all config.Repositories
	var values config.Specifiers
	err := l.do(func() { all, values = l.settings.config.Repositories, l.settings.agentSpecifiers("") })
	return all.Find(dir, values), err
}

// Reload replaces the configuration. It applies to everything that begins from now on, and to how
// long sessions are kept and may be idle. The caller must not change its arguments afterwards.
func (s *Supervisor) Reload(c config.Config, agents config.Agents) error {
	reply := make(chan error, 1)
	if err := s.loop.do(func() {
		s.loop.settings.config, s.loop.settings.agents = c, agents
		var all []func()
		for _, e := range s.loop.sessions.byID {
			e.markDirty() // its times of expiry and of suspension may change
			if e.pending.WaitsToBegin() {
				e.pending.Begin = s.loop.settings.completeBegin(e, e.pending.Begin)
			}
			if e.rec.Run != nil && hasPane(e.rec.Run) && !e.rec.Frozen {
				t := e.target()
				all = append(all, func() { s.loop.logFailure(t, session.SetDetachKey{}, s.loop.setDetachKey(t)) })
			}
		}
		go callFewAtATime(all)
		s.loop.expiry.alarmStale = true
		s.loop.answerAfterPublish(reply, nil)
	}); err != nil {
		return err
	}
	return s.loop.awaitReply(context.Background(), reply)
}

// setDetachKey sets the key of the current configuration, which may have been reloaded since this
// was requested. Any goroutine but the event loop may call it.
func (l *loop) setDetachKey(t Target) error {
	var key string
	if err := l.do(func() { key = l.settings.config.DetachKey }); err != nil {
		return err
	}
	return l.executeImmediate(l.ctx, t, session.SetDetachKey{Key: key})
}

// callFewAtATime calls functions that run a program each, so few at the same time that the machine
// remains usable.
func callFewAtATime(all []func()) {
	slots := make(chan struct{}, 4)
	for _, f := range all {
		slots <- struct{}{}
		go func() {
			defer func() { <-slots }()
			f()
		}()
	}
}
