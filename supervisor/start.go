package supervisor

import (
	"errors"
	"strings"
	"time"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/failpoint"
	"github.com/corrald/corral/internal/hookreport"
	"github.com/corrald/corral/supervisor/conversations"
	"github.com/corrald/corral/supervisor/environments"
	"github.com/corrald/corral/supervisor/session"
	"github.com/corrald/corral/supervisor/workspaces"
)

// runStart is the start of a run, from the preparation until its effects have returned.
type runStart struct {
	e *entry
	// callerEnvironment is the environment of the client that has requested the run: all of it until
	// the effects of the start have returned, then the variables that the search for its conversation
	// needs.
	callerEnvironment []string

	cancelConversation func() // cancels the creation of the conversation, nil if none is being created

	portsInUse []uint16 // ports that are reserved for the session, and that a program used when the run began

	// earlyEnds are ends of scopes that were reported before the start of the run had returned. They
	// may belong to earlier runs.
	earlyEnds []scopeEnd
}

// claim is what the next run is going to use, while the pending operation waits to begin it. No
// other session can begin a run with the same conversation, or exclusively in the same directory,
// meanwhile.
type claim struct {
	conversation      string                 // "" if it is not known
	dir               workspaces.Directory   // where the agent is going to run
	resolution        *workspaces.Resolution // of the workspace's path, nil if it was not resolved
	callerEnvironment []string               // of the client that has requested the run
}

// beginRun requests a new run and returns the channel on which the call is answered. If inside is
// set, the run begins in the scope of the run before it. The caller sets the fields resolution and
// callerEnvironment of the claim; claimRun sets the others.
func (e *entry) beginRun(op session.Op, inside bool, c claim) <-chan error {
	begin := e.claimRun(op, inside, c)
	return e.request(func(reply session.ReplyID) session.Event {
		return session.BeginRequested{Op: op, Reply: reply, Begin: begin}
	})
}

// claimRun records what the next run is going to use, and returns what it is begun with.
func (e *entry) claimRun(op session.Op, inside bool, c claim) session.Begin {
	begin := e.beginOf(op)
	begin.Inside = inside
	c.conversation = e.conversationRules().KnownID(begin.Resume)
	c.dir = workspaces.NextDirectory(e.rec, c.resolution)
	e.claim = &c
	return begin
}

// beginOf returns what a run is begun with.
func (e *entry) beginOf(op session.Op) session.Begin {
	run := session.RunBegun{
		Run: newRunID(), BootID: e.loop.settings.bootID, Unit: scopeName(e.rec),
	}
	resume := conversations.Continues(e.rec, op == session.OpResume)
	return e.loop.settings.completeBegin(e, session.Begin{Resume: resume, Run: run})
}

// prepareStart prepares the run that has just begun: it watches the files of the run and selects
// its conversation.
func (e *entry) prepareStart() {
	c, begin := e.claim, e.pending.Begin
	e.claim = &noClaim
	if !begin.Inside {
		_ = e.loop.executeImmediate(e.loop.ctx, Target{}, session.AnticipateStart{})
	}
	e.setResolvedPath(c.resolution)
	e.unwatchRun()
	e.unwatchWorkspace()
	e.resetRun()
	e.run.start.callerEnvironment = c.callerEnvironment
	if begin.Resume && !begin.Run.Resumed {
		e.loop.log.Warn("the agent's conversation is unknown; it starts a new one",
			"session", e.rec.ID, "agent", e.rec.Agent)
	}
	e.saving.exitInRuntimeDir = false
	e.run.files.watch()
	id, create := e.conversationRules().AssignID(begin.Resume)
	if id != "" {
		e.setConversation(id, session.Given)
	}
	e.apply(session.StartPrepared{CreateConversation: create})
}

// idCommandTimeout limits how long the command may run that creates the id of a conversation
// (IdCommand=).
const idCommandTimeout = 30 * time.Second

// errStopped is the result of a start that was stopped while IdCommand= ran.
var errStopped = errors.New("it was stopped before its conversation was created")

// createConversation runs the agent's IdCommand=, and records the conversation that it has created.
func (s *runStart) createConversation() {
	e := s.e
	run, plan := e.rec.Run.ID, e.plan(false)
	var err error
	plan.IDCommand, err = config.Expand(e.definition().IdCommand, e.loop.settings.specifiers(e.rec))
	ctx, cancel := e.loop.clocks.AfterFunc.Context(e.loop.ctx, idCommandTimeout)
	s.cancelConversation = cancel
	e.effects.startAfterSave(func() {
		defer cancel()
		failpoint.Hit("start.conversation-asked")
		var id string
		if err == nil {
			t := Task{Effect: session.CreateConversationID{}, Plan: plan}
			err = e.loop.system.Executor.Execute(ctx, t, func(ev session.Event) {
				if created, is := ev.(session.ConversationCreated); is {
					id = created.ID
				}
			})
		}
		failpoint.Hit("start.conversation-made")
		e.postFor(run, func() {
			s.cancelConversation = nil
			switch {
			case e.pending.Ending():
				s.returned(errStopped)
			case err != nil:
				s.returned(err)
			default:
				e.setConversation(id, session.Given)
				e.apply(session.ConversationCreated{Run: run, ID: id})
			}
		})
	})
}

// cancelCreation cancels the creation of the conversation, if one is being created.
func (s *runStart) cancelCreation() {
	if s.cancelConversation != nil {
		s.cancelConversation()
		s.cancelConversation = nil
	}
}

// startScope starts the scope of the run, once the path of its workspace is resolved.
func (s *runStart) startScope() {
	e := s.e
	begin := e.pending.Begin
	run, plan := e.rec.Run.ID, e.plan(begin.Resume)
	resolution := e.loop.resolver.Resolve(e.rec.WorkingDirectory)
	if begin.Inside {
		before := e.rec.Past[len(e.rec.Past)-1]
		plan.ExistingScope = &ExistingScope{before.InvocationID, before.ControlGroup, before.Agent}
	}
	plan.Spec.Prompt = e.rec.Unsent
	if begin.Prompt {
		plan.Spec.Prompt = strings.TrimSuffix(e.rec.Prompt+"\n\n"+e.rec.Unsent, "\n\n")
	}
	ports := e.rec.Ports
	e.effects.startAfterSave(func() {
		failpoint.Hit("start.record-saved")
		if plan.ExistingScope == nil { // a leftover process of the session may use its ports
			s.checkPorts(run, ports)
		}
		_, _, _ = hookreport.Take(plan.RuntimeDir) // of the last run
		hookreport.Remove(plan.RuntimeDir)
		err := awaitResolution(e.loop.ctx, resolution, plan.Spec.Dir)
		if err == nil {
			err = s.proceed(run, resolution)
		}
		if err == nil {
			t := Task{Effect: session.StartScope{}, Plan: plan}
			err = e.loop.system.Executor.Execute(e.loop.ctx, t, e.postStartStep)
		}
		e.postFor(run, func() { s.returned(err) })
	})
}

// errEnded is the result of a start whose run has ended before its effects could be carried out.
var errEnded = errors.New("the run has ended already")

// proceed records the resolved path of the workspace of a run that is about to start. It returns
// errEnded if the run has ended meanwhile: its start has failed because it has taken too long. Any
// goroutine but the event loop may call it.
func (s *runStart) proceed(run string, resolution *workspaces.Resolution) error {
	e := s.e
	return e.loop.try(func() error {
		if !e.isCurrent(run) || e.rec.Run.Ended() {
			return errEnded
		}
		e.setResolvedPath(resolution)
		e.watchWorkspace()
		return nil
	})
}

// postStartStep is postEvent for a step of StartScope. If the event reports that the run begins a
// new conversation, this is on disk when postStartStep returns, unless it cannot be saved. Any
// goroutine but the event loop may call it.
func (e *entry) postStartStep(ev session.Event) {
	notFound, ok := ev.(session.ConversationNotFound)
	if !ok {
		e.postEvent(ev)
		return
	}
	var saved <-chan error
	err := e.loop.do(func() {
		if !e.removed {
			e.run.start.recordNothingSaved(notFound)
			saved = e.whenPublished()
		}
	})
	if err == nil && saved != nil {
		_ = e.loop.awaitReply(e.loop.ctx, saved)
	}
}

// recordNothingSaved records that no conversation was saved which the run could have continued.
func (s *runStart) recordNothingSaved(ev session.ConversationNotFound) {
	e := s.e
	if e.rec.Run.ID != ev.Run {
		return
	}
	e.apply(ev)
	if ev.ID != "" && ev.ID != e.rec.ConversationID {
		e.setConversation(ev.ID, session.Given)
	}
	e.loop.log.Info("no conversation was saved; the agent starts a new one", "session", e.rec.ID, "agent", e.rec.Agent)
}

// returned applies the result of the effects of a start, and then the ends of scopes that were
// reported meanwhile. They are applied in this order because the result contains the reason of a
// failed start.
func (s *runStart) returned(err error) {
	e := s.e
	s.callerEnvironment = environments.CallerAfterStart(s.callerEnvironment, e.definition())
	ended := s.earlyEnds
	s.earlyEnds = nil
	run, reason := e.rec.Run.ID, ""
	if err != nil {
		reason = err.Error()
	}
	e.apply(session.StartReturned{Run: run, Err: reason})
	for _, end := range ended {
		if e.rec.Run.ID == run {
			e.run.scope.ended(end)
		}
	}
}

// rejoinTmux starts a new tmux server that shows the running agent.
func (s *runStart) rejoinTmux() {
	e := s.e
	t, plan, run := e.target(), e.plan(false), e.rec.Run.ID
	e.effects.afterSave(func() {
		failpoint.Hit("rejoin.asked")
		err := e.loop.system.Executor.Execute(e.loop.ctx, Task{session.RejoinTmux{}, t, plan}, e.postEvent)
		if err != nil {
			err = refuse(TmuxFailed, "cannot resume %q: %v", t.ID, err)
		}
		e.postEvent(session.Rejoined{Run: run, Err: err})
	})
}
