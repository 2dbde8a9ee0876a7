package supervisor

import (
	"context"
	"time"

	"github.com/corrald/corral/dbusapi/word"
	"github.com/corrald/corral/supervisor/conversations"
	"github.com/corrald/corral/supervisor/session"
	"github.com/corrald/corral/supervisor/workspaces"
)

// operations carries out the calls of clients. Its methods, and those of its parts, are called on
// the goroutines of the callers, and wait for the event loop, unless a comment states otherwise.
type operations struct {
	loop      *loop
	creation  creation
	worktrees *worktrees
}

// newOperations returns the operations of a loop.
func newOperations(l *loop, o Options) operations {
	t := &worktrees{l, o.WorktreeDir, o.Git, o.RunSetup, o.Approvals}
	return operations{l, creation{l, t, map[string]bool{}}, t}
}

// BeginOptions specifies how a run is begun.
type BeginOptions struct {
	// CallerEnvironment is the environment of the client, nil if it is unknown. It is used for this
	// run only, and is not stored.
	CallerEnvironment []string
	Now               bool // begin it even if MaxRunning= does not permit it
}

// Begin is Start, Resume or Restart, as how specifies (start, resume, restart), with options.
// Errors: those of the three, Invalid, OverLimit.
func (s *Supervisor) Begin(ctx context.Context, id, how string, options BeginOptions) error {
	if err := checkTexts(&Spec{CallerEnvironment: options.CallerEnvironment}); err != nil {
		return err
	}
	switch how {
	case word.Start:
		return s.loop.operations.start(ctx, id, options)
	case word.Resume:
		return s.loop.operations.resume(ctx, id, options)
	case word.Restart:
		return s.loop.operations.restart(ctx, id, options)
	}
	return refuse(Invalid, "invalid how %s: expected start, resume or restart", brief(how))
}

// Start begins a fresh run, with a new conversation, and waits until its agent runs. First it ends
// the leftover processes of an earlier run. If MaxRunning= does not permit the run, it is queued,
// and Start returns; so do Resume and Restart, except for a session that runs already. Errors:
// NoSuchSession, InvalidState, WorkspaceMissing, WorkspaceBusy, ConversationBusy, StartFailed,
// ShuttingDown.
func (s *Supervisor) Start(ctx context.Context, id string) error {
	return s.loop.operations.start(ctx, id, BeginOptions{})
}

// Restart stops the session, if it runs, and then starts it. Errors: those of Start.
func (s *Supervisor) Restart(ctx context.Context, id string) error {
	return s.loop.operations.restart(ctx, id, BeginOptions{})
}

// Resume continues where the session's last run ended. If a stale session's agent is alive, it gets
// a new tmux session around the same process. If only leftover processes of the agent exist, a new
// run begins in their scope. Any other session gets a new run with the agent's ResumeCommand=, or
// with Command= if there is none, or if no conversation was saved yet. Resume returns once the
// session runs. Errors: NoSuchSession, InvalidState, NotResumable, WorkspaceMissing, WorkspaceBusy,
// ConversationBusy, StartFailed, TmuxFailed, ShuttingDown.
func (s *Supervisor) Resume(ctx context.Context, id string) error {
	return s.loop.operations.resume(ctx, id, BeginOptions{})
}

// start is Start with options.
func (o *operations) start(ctx context.Context, id string, options BeginOptions) error {
	return o.beginFresh(ctx, id, session.OpStart, checkStartable, options)
}

// restart is Restart with options.
func (o *operations) restart(ctx context.Context, id string, options BeginOptions) error {
	return o.beginFresh(ctx, id, session.OpRestart, checkRestartable, options)
}

// beginFresh begins a fresh run by a start or a restart, for which the session's own state has to
// satisfy checkState.
func (o *operations) beginFresh(
	ctx context.Context, id string, op session.Op, checkState func(*entry) error, options BeginOptions,
) error {
	workspace, err := o.resolveExclusive(ctx, id, checkState)
	if err != nil {
		return err
	}
	return o.loop.withSession(ctx, id, func(e *entry) (<-chan error, error) {
		return o.loop.beginOrQueue(e, op, checkState, workspace, options)
	})
}

// beginOrQueue begins a run if checkCanStart returns no error, or queues it. It returns the channel
// on which the call is answered.
func (l *loop) beginOrQueue(
	e *entry, op session.Op, checkState func(*entry) error, workspace *workspaces.Resolution, options BeginOptions,
) (<-chan error, error) {
	l.sessions.queue.beginAll()
	if err := e.checkCanStart(checkState, op == session.OpResume, workspace); err != nil {
		return nil, err
	}
	c := claim{resolution: workspace, callerEnvironment: options.CallerEnvironment}
	return l.sessions.queue.beginOrAdd(e, op, c, options.Now), nil
}

// checkCanStart returns an error if a run of the session cannot begin now: because the daemon or
// the machine shuts down, because of the session's own state, or because another session uses the
// workspace or the conversation. Resumed is set if the run is to continue the conversation.
func (e *entry) checkCanStart(
	checkState func(*entry) error, resumed bool, workspace *workspaces.Resolution,
) error {
	if err := e.loop.shutdown.check(); err != nil {
		return err
	}
	if err := checkState(e); err != nil {
		return err
	}
	if err := e.loop.checkWorkspaceFree(e.rec, workspaces.NextDirectory(e.rec, workspace)); err != nil {
		return err
	}
	return e.loop.checkConversationFree(e.rec, conversations.Continues(e.rec, resumed))
}

// checkStartable returns an error if the session cannot be started because it runs, is archived, or
// is being removed.
func checkStartable(e *entry) error {
	switch {
	case e.rec.Can(*e.pending, session.OpStart, false):
		return nil
	case e.pending.Removing():
		return refuse(InvalidState, "session %q is being removed", e.rec.ID)
	}
	return stateError(e)
}

// checkRestartable returns an error if the session is archived, is about to run again, or is being
// removed.
func checkRestartable(e *entry) error {
	if !e.rec.Can(*e.pending, session.OpRestart, false) {
		return stateError(e)
	}
	return nil
}

// resume is Resume with options.
func (o *operations) resume(ctx context.Context, id string, options BeginOptions) error {
	if err := o.awaitDetection(ctx, id); err != nil {
		return err
	}
	workspace, err := o.resolveExclusive(ctx, id, checkStartable)
	if err != nil {
		return err
	}
	return o.loop.withSession(ctx, id, func(e *entry) (<-chan error, error) {
		if err := o.loop.shutdown.check(); err != nil {
			return nil, err
		}
		r := e.rec.Run
		if r == nil && e.rec.Archived.IsZero() {
			return nil, refuse(NotResumable, "session %q has never run: there is nothing to resume", id)
		}
		switch stale := e.rec.Stale() && !e.pending.Ending(); {
		case stale && e.pending.Phase == session.Rejoin:
			return nil, refuse(InvalidState, "session %q is being resumed", id)
		case stale && e.rec.Frozen:
			return nil, refuse(InvalidState, "session %q is frozen: thaw it first", id)
		case stale && r.AgentAlive():
			return e.request(func(reply session.ReplyID) session.Event {
				return session.RejoinRequested{Reply: reply}
			}), nil
		case stale && e.rec.View().State == session.Orphaned:
			return nil, refuse(WorkspaceMissing, "workspace %q is gone", e.rec.WorkingDirectory)
		case stale:
			return e.beginRun(session.OpResume, true, claim{callerEnvironment: options.CallerEnvironment}), nil
		}
		return o.loop.beginOrQueue(e, session.OpResume, checkStartable, workspace, options)
	})
}

// Stop ends the session's run at the user's request. It sends SIGTERM to the agent alone (SIGHUP if
// the agent ignores SIGTERM), SIGTERM to all processes of the scope once the agent has exited or
// grace has nearly passed, and SIGKILL to all after grace (0 selects StopTimeoutSec=). It returns
// once the scope is empty. To a session that does not run it does nothing, except that it ends the
// setup of its worktree. A session that has ended keeps its result. Stop cancels a start that waits
// for the end of the run before it, and one that is queued. Errors: NoSuchSession.
func (s *Supervisor) Stop(ctx context.Context, id string, grace time.Duration) error {
	return s.loop.withSession(ctx, id, func(e *entry) (<-chan error, error) {
		isQueued := e.rec.IsQueued()
		if isQueued {
			s.loop.sessions.queue.remove(e)
		}
		switch {
		case e.rec.Run.Live(), e.pending.Phase == session.SetUp:
		case isQueued:
			return e.whenPublished(), nil
		default:
			return nil, nil
		}
		return e.request(func(reply session.ReplyID) session.Event {
			return session.EndRequested{Op: session.OpStop, Grace: grace, Reply: reply}
		}), nil
	})
}

// Suspend stops the session so that it can be resumed. It returns once the scope is empty. Errors:
// NoSuchSession, InvalidState.
func (s *Supervisor) Suspend(ctx context.Context, id string) error {
	return s.loop.withSession(ctx, id, func(e *entry) (<-chan error, error) { return e.requestSuspend("") })
}

// requestSuspend begins to suspend the session, and returns the channel on which the call is
// answered. It is called on the event loop.
func (e *entry) requestSuspend(why string) (<-chan error, error) {
	if !e.rec.Can(*e.pending, session.OpSuspend, false) {
		return nil, stateError(e)
	}
	return e.request(func(reply session.ReplyID) session.Event {
		return session.EndRequested{Op: session.OpSuspend, Why: why, Reply: reply}
	}), nil
}

// Kill sends a signal to the agent alone, to all processes of the scope, or to the leftover
// processes; recipient is word.Agent, All or Leftovers. Errors:
// NoSuchSession, InvalidState, Invalid.
func (s *Supervisor) Kill(ctx context.Context, id, recipient string, signal int) error {
	if signal < 1 || signal > 64 {
		return refuse(Invalid, "invalid signal %d: expected 1 to 64", signal)
	}
	switch recipient {
	case word.Agent, word.All, word.Leftovers:
	default:
		return refuse(Invalid, "invalid whom %s: expected agent, all or leftovers", brief(recipient))
	}
	return s.loop.withSession(ctx, id, func(e *entry) (<-chan error, error) {
		r := e.rec.Run
		if r == nil || r.Scope != session.ScopeActive || recipient == word.Agent && !r.AgentAlive() {
			return nil, refuse(InvalidState, "session %q has no process to signal: %s",
				id, stateClause(e.rec.View().State))
		}
		if recipient != word.Leftovers {
			e.client.run, e.client.signal = r.ID, signal
		}
		reply, target := make(chan error, 1), e.target()
		go func() {
			reply <- s.loop.executeImmediate(s.loop.ctx, target,
				session.SendSignal{Recipient: recipient, Signal: signal})
		}()
		return reply, nil
	})
}

// Archive hides a session whose agent is gone, permanently, and ends the leftover processes of its
// scope. Errors: NoSuchSession, InvalidState.
func (s *Supervisor) Archive(ctx context.Context, id string) error {
	return s.loop.withSession(ctx, id, func(e *entry) (<-chan error, error) {
		if !e.rec.Can(*e.pending, session.OpArchive, false) {
			if err := checkStartable(e); err != nil {
				return nil, err
			}
		}
		return e.request(func(reply session.ReplyID) session.Event {
			return session.ArchiveRequested{Reply: reply}
		}), nil
	})
}

// Describe sets the description of the session. Errors: NoSuchSession, Invalid, OverLimit.
func (s *Supervisor) Describe(ctx context.Context, id, description string) error {
	if len(description) > maxDescription {
		return refuse(OverLimit, "Description is longer than %d bytes", maxDescription)
	}
	return s.loop.operations.changeRecord(ctx, id, func(rec *session.Session) { rec.Description = description })
}

// Label replaces the session's labels. Errors: see Describe.
func (s *Supervisor) Label(ctx context.Context, id string, labels map[string]string) error {
	if err := checkLabels(labels); err != nil {
		return err
	}
	return s.loop.operations.changeRecord(ctx, id, func(rec *session.Session) { rec.Labels = labels })
}

// SetOnLogin sets what is done with the session at the next login. Errors: see Describe.
func (s *Supervisor) SetOnLogin(ctx context.Context, id, onLogin string) error {
	spec := Spec{OnLogin: onLogin}
	if err := checkChoices(&spec); err != nil {
		return err
	}
	return s.loop.operations.changeRecord(ctx, id, func(rec *session.Session) { rec.OnLogin = spec.OnLogin })
}

// changeRecord changes the record of the session by f, and returns once that is published, after an
// attempt to save it.
func (o *operations) changeRecord(ctx context.Context, id string, f func(*session.Session)) error {
	return o.loop.withSession(ctx, id, func(e *entry) (<-chan error, error) {
		o.loop.expiry.changeWanted(e, func() { f(e.rec) })
		return e.whenPublished(), nil
	})
}
