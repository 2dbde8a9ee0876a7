package supervisor

import (
	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/failpoint"
	"github.com/corrald/corral/supervisor/conversations"
	"github.com/corrald/corral/supervisor/session"
	"github.com/corrald/corral/supervisor/workspaces"
)

// claim is what the next run is going to use, while the pending operation waits to begin it. No
// other session can begin a run with the same conversation, or exclusively in the same directory,
// meanwhile.
type claim struct {
	conversation string                 // "" if it is not known
	dir          workspaces.Directory   // where the agent is going to run
	resolution   *workspaces.Resolution // of the workspace's path, nil if it was not resolved
	caller       []string               // the environment of the caller
}

// beginRun requests a new run and returns the channel on which the call is answered. If inside is
// set, the run begins in the scope of the run before it.
func (s *Supervisor) beginRun(e *entry, op session.Op, inside bool, c claim) <-chan error {
	resume := conversations.Continues(e.rec, op == session.OpResume)
	c.conversation = s.conversationRules(e.rec).KnownID(resume)
	c.dir = workspaces.NextDirectory(e.rec, c.resolution)
	e.claim = c
	begin := s.withDefinition(e, session.Begin{
		Resume: resume,
		Inside: inside,
		Run:    session.RunBegun{Run: newRunID(), BootID: s.BootID, Unit: UnitName(e.rec.Agent, e.rec.ID)},
	})
	return s.request(e, func(reply session.ReplyID) session.Event {
		return session.BeginRequested{Op: op, Reply: reply, Begin: begin}
	})
}

// withDefinition returns begin with what the agent's definition determines about the run.
func (s *Supervisor) withDefinition(e *entry, begin session.Begin) session.Begin {
	def := s.Agents[e.rec.Agent]
	begin.Run.Resumed = begin.Resume && (e.rec.Resumable() || len(def.ResumeCommand) == 0)
	begin.Run.Notify, begin.Run.Sources = def.Type == config.TypeNotify, def.Status.Sources
	return begin
}

// prepareStart prepares the run that has just begun: it watches the files of the run and selects
// its conversation.
func (s *Supervisor) prepareStart(e *entry) {
	c, begin := e.claim, e.pending.Begin
	e.claim = claim{}
	if !begin.Inside {
		_ = s.executeOn(s.ctx, Target{}, session.AnticipateStart{})
	}
	s.setResolvedPath(e, c.resolution)
	s.unwatchRun(e)
	s.unwatchWorkspace(e)
	e.run = runtime{callerEnvironment: c.caller}
	if begin.Resume && !begin.Run.Resumed {
		s.Log.Warn("the agent's conversation is unknown; it starts a new one", "session", e.rec.ID, "agent", e.rec.Agent)
	}
	e.exitInRuntimeDir = false
	s.watchRunFiles(e)
	id, create := s.conversationRules(e.rec).AssignID(begin.Resume)
	if id != "" {
		s.setConversation(e, id, session.Given)
	}
	s.apply(e, session.StartPrepared{CreateConversation: create})
}

// createConversation runs the agent's IdCommand=.
func (s *Supervisor) createConversation(e *entry) {
	run, plan := e.rec.Run.ID, s.plan(e, false)
	var err error
	plan.IDCommand, err = config.Expand(s.Agents[e.rec.Agent].IdCommand, s.specifiers(e.rec))
	ctx, cancel := s.AfterFunc.Context(s.ctx, idCommandTimeout)
	e.run.cancelConversation = cancel
	s.queueStartAfterSave(e, func() {
		defer cancel()
		failpoint.Hit("start.conversation-asked")
		var id string
		if err == nil {
			err = s.Executor.Execute(ctx, Task{Effect: session.CreateConversationID{}, Plan: plan}, func(ev session.Event) {
				if created, is := ev.(session.ConversationCreated); is {
					id = created.ID
				}
			})
		}
		failpoint.Hit("start.conversation-made")
		s.post(func() {
			if e.removed || e.rec.Run.ID != run {
				return
			}
			e.run.cancelConversation = nil
			switch {
			case e.pending.Ending():
				s.startReturned(e, run, errStopped)
			case err != nil:
				s.startReturned(e, run, err)
			default:
				s.setConversation(e, id, session.Given)
				s.apply(e, session.ConversationCreated{Run: run, ID: id})
			}
		})
	})
}

// startScope starts the scope of the run.
func (s *Supervisor) startScope(e *entry) {
	begin := e.pending.Begin
	run, resolution, plan := e.rec.Run.ID, s.resolver.Resolve(e.rec.WorkingDirectory), s.plan(e, begin.Resume)
	if begin.Inside {
		before := e.rec.Past[len(e.rec.Past)-1]
		plan.ExistingScope = &ExistingScope{before.InvocationID, before.ControlGroup, before.Agent}
	}
	if begin.Prompt {
		plan.Spec.Prompt = e.rec.Prompt
	}
	s.queueStartAfterSave(e, func() {
		failpoint.Hit("start.record-saved")
		err := awaitResolution(s.ctx, resolution, plan.Spec.Dir)
		if err == nil {
			s.post(func() { s.workspaceResolved(e, run, resolution) })
			t := Task{Effect: session.StartScope{}, Plan: plan}
			err = s.Executor.Execute(s.ctx, t, func(ev session.Event) { s.startEvent(e, ev) })
		}
		s.post(func() {
			s.dropCallerEnvironment(e, run)
			s.startReturned(e, run, err)
		})
	})
}

// startReturned applies the result of the effects of a start, and then the ends of scopes that were
// reported meanwhile. They are applied in this order because the result contains the reason of a
// failed start.
func (s *Supervisor) startReturned(e *entry, run string, err error) {
	if e.removed || e.rec.Run.ID != run {
		return
	}
	ended := e.run.earlyEnds
	e.run.earlyEnds = nil
	reason := ""
	if err != nil {
		reason = err.Error()
	}
	s.apply(e, session.StartReturned{Run: run, Err: reason})
	for _, end := range ended {
		if e.rec.Run.ID == run {
			s.scopeEnded(e, end)
		}
	}
}

// rejoinTmux starts a new tmux server that shows the running agent.
func (s *Supervisor) rejoinTmux(e *entry) {
	t, plan, run := s.target(e), s.plan(e, false), e.rec.Run.ID
	s.queueAfterSave(e, func() {
		failpoint.Hit("rejoin.asked")
		err := s.Executor.Execute(s.ctx, Task{session.RejoinTmux{}, t, plan}, func(ev session.Event) { s.postEvent(e, ev) })
		if err != nil {
			err = refuse(TmuxFailed, "cannot resume %q: %v", t.ID, err)
		}
		s.postEvent(e, session.Rejoined{Run: run, Err: err})
	})
}
