package supervisor

import (
	"context"
	"time"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/supervisor/conversations"
	"github.com/corrald/corral/supervisor/session"
	"github.com/corrald/corral/supervisor/workspaces"
)

// The processes that Kill sends a signal to.
const (
	RecipientAgent     = session.RecipientAgent
	RecipientAll       = session.RecipientAll
	RecipientLeftovers = session.RecipientLeftovers
)

// withSession calls f with the session on the event loop. Then it waits for an answer on the
// channel that f has returned, unless that is nil.
func (s *Supervisor) withSession(ctx context.Context, id string, f func(*entry) (<-chan error, error)) error {
	var reply <-chan error
	var err error
	if e := s.do(func() {
		var e *entry
		if e, err = s.find(id); err == nil {
			reply, err = f(e)
		}
	}); e != nil {
		return e
	}
	if err != nil || reply == nil {
		return err
	}
	accepted(ctx)
	return s.awaitReply(ctx, reply)
}

// waitUntil returns a channel that receives the result once ready returns true, at the end of this
// iteration at the earliest.
func (s *Supervisor) waitUntil(e *entry, ready func(*entry) bool, result func(*entry) error) <-chan error {
	reply := make(chan error, 1)
	e.waiting = append(e.waiting, waiter{ready, reply, result})
	s.markDirty(e)
	return reply
}

// awaitReply waits for the answer to a call.
func (s *Supervisor) awaitReply(ctx context.Context, reply <-chan error) error {
	select {
	case err := <-reply:
		return err
	case <-ctx.Done():
		return refuse(TimedOut, "timed out; the operation may still complete")
	case <-s.done:
		return ErrClosed
	}
}

func noError(*entry) error { return nil }

// How a client requests a run: see Begin.
const (
	HowStart   = "start"
	HowResume  = "resume"
	HowRestart = "restart"
)

// Begin is Start, Resume or Restart, as how specifies (one of the How constants), with the
// environment of the caller. It is used for this run only, and is not stored. Errors: those of the
// three, Invalid, OverLimit.
func (s *Supervisor) Begin(ctx context.Context, id, how string, caller []string) error {
	if err := checkTexts(&Spec{CallerEnvironment: caller}); err != nil {
		return err
	}
	switch how {
	case HowStart:
		return s.startBy(ctx, id, caller)
	case HowResume:
		return s.resumeBy(ctx, id, caller)
	case HowRestart:
		return s.restartBy(ctx, id, caller)
	}
	return refuse(Invalid, "invalid how %s: expected start, resume or restart", brief(how))
}

// Start begins a fresh run, with a new conversation, and waits until its agent runs. First it ends
// the leftover processes of an earlier run. Errors: NoSuchSession, InvalidState, WorkspaceMissing,
// WorkspaceBusy, ConversationBusy, StartFailed, ShuttingDown.
func (s *Supervisor) Start(ctx context.Context, id string) error { return s.startBy(ctx, id, nil) }

// startBy is Start with the environment of the caller, nil if it is unknown.
func (s *Supervisor) startBy(ctx context.Context, id string, caller []string) error {
	workspace, err := s.resolveExclusive(ctx, id, checkStartable)
	if err != nil {
		return err
	}
	return s.withSession(ctx, id, func(e *entry) (<-chan error, error) {
		if err := s.checkCanStart(e, false, workspace); err != nil {
			return nil, err
		}
		return s.beginRun(e, session.OpStart, false, claim{resolution: workspace, caller: caller}), nil
	})
}

// checkStartable returns an error if the session cannot be started because it runs, is archived, or
// is being removed.
func checkStartable(e *entry) error {
	switch {
	case e.rec.Can(e.pending, session.OpStart, false):
		return nil
	case e.pending.Removing():
		return refuse(InvalidState, "session %q is being removed", e.rec.ID)
	}
	return refuseIn(e.rec.ID, e.rec.View().State)
}

// checkCanStart returns an error if the session cannot be started now: in addition to the reasons
// of checkStartable, because the daemon or the machine shuts down, or because the workspace or the
// conversation is in use.
func (s *Supervisor) checkCanStart(e *entry, resumed bool, workspace *workspaces.Resolution) error {
	if err := s.checkNotShuttingDown(); err != nil {
		return err
	}
	if err := checkStartable(e); err != nil {
		return err
	}
	return s.checkUnoccupied(e.rec, resumed, workspace)
}

// checkUnoccupied returns an error if another session uses the workspace or the conversation that a
// new run of this session would use.
func (s *Supervisor) checkUnoccupied(rec *session.Session, resumed bool, workspace *workspaces.Resolution) error {
	if err := s.checkWorkspaceFree(rec, workspaces.NextDirectory(rec, workspace)); err != nil {
		return err
	}
	return s.checkConversationFree(rec, conversations.Continues(rec, resumed))
}

// Restart stops the session, if it runs, and then starts it. Errors: those of Start.
func (s *Supervisor) Restart(ctx context.Context, id string) error { return s.restartBy(ctx, id, nil) }

// restartBy is Restart with the environment of the caller, nil if it is unknown.
func (s *Supervisor) restartBy(ctx context.Context, id string, caller []string) error {
	workspace, err := s.resolveExclusive(ctx, id, checkRestartable)
	if err != nil {
		return err
	}
	return s.withSession(ctx, id, func(e *entry) (<-chan error, error) {
		if err := checkRestartable(e); err != nil {
			return nil, err
		}
		if err := s.checkNotShuttingDown(); err != nil {
			return nil, err
		}
		if err := s.checkUnoccupied(e.rec, false, workspace); err != nil {
			return nil, err
		}
		return s.beginRun(e, session.OpRestart, false, claim{resolution: workspace, caller: caller}), nil
	})
}

// checkRestartable returns an error if the session is archived, is about to run again, or is being
// removed.
func checkRestartable(e *entry) error {
	if !e.rec.Can(e.pending, session.OpRestart, false) {
		return refuseIn(e.rec.ID, e.rec.View().State)
	}
	return nil
}

// Stop ends the session's run at the user's request. It sends SIGTERM to the agent alone (SIGHUP if
// the agent ignores SIGTERM), SIGTERM to all processes of the scope once the agent has exited or
// grace has nearly passed, and SIGKILL to all after grace (0 selects StopTimeoutSec=). It returns
// once the scope is empty. It does nothing to a session that does not run. A session that has
// ended keeps its result. Stop cancels a start that waits for the end of the run before it. Errors:
// NoSuchSession.
func (s *Supervisor) Stop(ctx context.Context, id string, grace time.Duration) error {
	return s.withSession(ctx, id, func(e *entry) (<-chan error, error) {
		if !e.rec.Run.Live() {
			return nil, nil
		}
		return s.request(e, func(reply session.ReplyID) session.Event {
			return session.EndRequested{Op: session.OpStop, Grace: grace, Reply: reply}
		}), nil
	})
}

// Kill sends a signal to the agent alone, to all processes of the scope, or to the leftover
// processes. Errors: NoSuchSession, InvalidState, Invalid.
func (s *Supervisor) Kill(ctx context.Context, id, recipient string, signal int) error {
	if signal < 1 || signal > 64 {
		return refuse(Invalid, "invalid signal %d: expected 1 to 64", signal)
	}
	if recipient != RecipientAgent && recipient != RecipientAll && recipient != RecipientLeftovers {
		return refuse(Invalid, "invalid whom %s: expected agent, all or leftovers", brief(recipient))
	}
	return s.withSession(ctx, id, func(e *entry) (<-chan error, error) {
		r := e.rec.Run
		if r == nil || r.Scope != session.ScopeActive || recipient == RecipientAgent && !r.AgentAlive() {
			return nil, refuse(InvalidState, "session %q has no process to signal: %s", id, stateClause(e.rec.View().State))
		}
		if recipient != RecipientLeftovers {
			e.knownRun, e.clientSignal = r.ID, signal
		}
		reply, target := make(chan error, 1), s.target(e)
		go func() { reply <- s.executeOn(s.ctx, target, session.SendSignal{Recipient: recipient, Signal: signal}) }()
		return reply, nil
	})
}

// checkArchivable returns an error if the session has an agent, or is about to have one.
func checkArchivable(e *entry) error {
	if e.rec.Can(e.pending, session.OpArchive, false) {
		return nil
	}
	return checkStartable(e)
}

// Archive hides a session whose agent is gone, permanently, and ends the leftover processes of its
// scope. Errors: NoSuchSession, InvalidState.
func (s *Supervisor) Archive(ctx context.Context, id string) error {
	return s.withSession(ctx, id, func(e *entry) (<-chan error, error) {
		if err := checkArchivable(e); err != nil {
			return nil, err
		}
		return s.request(e, func(reply session.ReplyID) session.Event {
			return session.ArchiveRequested{Reply: reply}
		}), nil
	})
}

// Remove deletes a session and its log, and ends leftover processes of its scope. If the session
// has not ended, Remove stops it first if force is set, and otherwise returns an error. Errors:
// NoSuchSession, InvalidState.
func (s *Supervisor) Remove(ctx context.Context, id string, force bool) error {
	return s.removeAfter(ctx, id, force, noError, func() error { return nil })
}

// checkRemovable returns an error if the session is being removed, or, unless force is set, if it
// has not ended or is about to run again.
func checkRemovable(e *entry, force bool) error {
	switch {
	case force:
	case e.pending.WaitsToBegin():
		return refuse(InvalidState, "session %q is being started", e.rec.ID)
	case !e.rec.Run.Ended():
		return refuseIn(e.rec.ID, e.rec.View().State)
	}
	if e.pending.Removing() {
		return refuse(InvalidState, "session %q is being removed", e.rec.ID)
	}
	return nil
}

// removeAfter is Remove, but calls two functions before it deletes the session, once no process of
// the session runs: check on the event loop, then before on another goroutine. If one of them
// returns an error, the session is kept.
func (s *Supervisor) removeAfter(
	ctx context.Context, id string, force bool, check func(*entry) error, before func() error,
) error {
	return s.withSession(ctx, id, func(e *entry) (<-chan error, error) {
		if err := checkRemovable(e, force); err != nil {
			return nil, err
		}
		e.removal = removal{check: check, before: before}
		return s.request(e, func(reply session.ReplyID) session.Event {
			return session.RemoveRequested{Force: force, Reply: reply}
		}), nil
	})
}

// remove deletes the record and the log of a session that has nothing else any more. It is called
// on the event loop.
func (s *Supervisor) remove(e *entry) error {
	s.markDirty(e)
	if err := s.Records.Remove(e.rec.ID); err != nil {
		return err
	}
	s.unwatchRun(e)
	s.unwatchWorkspace(e)
	s.dropProblemsOf(e.rec.ID)
	e.removed = true
	delete(s.sessions, e.rec.ID)
	delete(s.units, UnitName(e.rec.Agent, e.rec.ID))
	return nil
}

// Describe sets the description of the session. Errors: NoSuchSession, Invalid, OverLimit.
func (s *Supervisor) Describe(ctx context.Context, id, description string) error {
	if len(description) > maxDescription {
		return refuse(OverLimit, "Description is longer than %d bytes", maxDescription)
	}
	return s.changeRecord(ctx, id, func(rec *session.Session) { rec.Description = description })
}

// Label replaces the session's labels. Errors: see Describe.
func (s *Supervisor) Label(ctx context.Context, id string, labels map[string]string) error {
	if err := CheckLabels(labels); err != nil {
		return err
	}
	return s.changeRecord(ctx, id, func(rec *session.Session) { rec.Labels = labels })
}

// SetOnLogin sets what is done with the session at the next login. Errors: see Describe.
func (s *Supervisor) SetOnLogin(ctx context.Context, id, onLogin string) error {
	spec := Spec{OnLogin: onLogin}
	if err := checkChoices(&spec); err != nil {
		return err
	}
	return s.changeRecord(ctx, id, func(rec *session.Session) { rec.OnLogin = spec.OnLogin })
}

// changeRecord changes the record of the session by f, and returns once that is saved and
// published.
func (s *Supervisor) changeRecord(ctx context.Context, id string, f func(*session.Session)) error {
	return s.withSession(ctx, id, func(e *entry) (<-chan error, error) {
		s.expiry.changeWanted(e, func() { f(e.rec) })
		e.onlyExitUnsaved = false
		return s.waitUntil(e, func(*entry) bool { return true }, noError), nil
	})
}

// ListAgents returns the agent definitions by name.
func (s *Supervisor) ListAgents() (agents map[string]config.Agent, err error) {
	err = s.do(func() { agents = s.Agents })
	return agents, err
}

// Reload replaces the configuration. It applies to everything that begins from now on, and to how
// long sessions are kept and may be idle. The caller must not change its arguments afterwards.
func (s *Supervisor) Reload(c config.Config, agents map[string]config.Agent) error {
	reply := make(chan error, 1)
	if err := s.do(func() {
		s.Config, s.Agents = c, agents
		var all []func()
		for _, e := range s.sessions {
			s.markDirty(e) // its times of expiry and of suspension may change
			if e.pending.WaitsToBegin() {
				e.pending.Begin = s.withDefinition(e, e.pending.Begin)
			}
			if e.rec.Run != nil && hasPane(e.rec.Run) && !e.rec.Frozen {
				t := s.target(e)
				all = append(all, func() { s.logFailure(t, session.SetDetachKey{}, s.setDetachKey(t)) })
			}
		}
		go callFewAtATime(all)
		s.expiry.alarmStale = true
		s.afterPublish = append(s.afterPublish, func() { reply <- nil })
	}); err != nil {
		return err
	}
	return s.awaitReply(context.Background(), reply)
}

// setDetachKey sets the key of the current configuration, which may have been reloaded since this
// was requested.
func (s *Supervisor) setDetachKey(t Target) error {
	var key string
	if err := s.do(func() { key = s.Config.DetachKey }); err != nil {
		return err
	}
	return s.executeOn(s.ctx, t, session.SetDetachKey{Key: key})
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
