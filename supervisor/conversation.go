package supervisor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/corrald/corral/internal/environment"
	"github.com/corrald/corral/supervisor/conversations"
	"github.com/corrald/corral/supervisor/session"
)

// idCommandTimeout limits how long the command may run that creates the id of a conversation
// (IdCommand=).
const idCommandTimeout = 30 * time.Second

// errStopped is returned for a start that was stopped while IdCommand= ran.
var errStopped = errors.New("it was stopped before its conversation was created")

// detection is what the event loop needs to detect the conversation of a run's agent by the files
// that the agent holds open.
type detection struct {
	running  bool
	again    bool   // it will be repeated: the files may have changed after they were examined
	reported string // the conversation that the agent has reported last, "" for none
}

// conversationRules returns the rules for the session's conversation. It is called on the event
// loop, and the result is used there.
func (s *Supervisor) conversationRules(rec *session.Session) conversations.Rules {
	return conversations.Rules{Session: rec, Definition: s.Agents[rec.Agent], Values: s.specifiers(rec)}
}

// setConversation records the conversation of the session's current run, and the source of its id.
// If another session uses the same conversation, that is logged and published as a problem.
func (s *Supervisor) setConversation(e *entry, id string, from session.ConversationSource) {
	before := e.rec.ConversationID
	s.apply(e, session.ConversationIdentified{
		Run: e.rec.Run.ID, ID: id, From: from, Resume: s.conversationRules(e.rec).ResumeCommand(id),
		At: time.Now(), Monotonic: s.Monotonic(),
	})
	if now := e.rec.ConversationID; now != before && from != session.Given {
		s.Log.Info("the agent's conversation is known",
			"session", e.rec.ID, "agent", e.rec.Agent, "conversation", now, "source", string(from))
	}
	if holder := s.conversationHolder(e.rec, id); holder != nil && e.rec.Run.Conversation == id {
		s.problemsStale = true
		if s.canLog(e, "shared conversation") {
			s.Log.Warn("two sessions use the same conversation",
				"session", e.rec.ID, "other", holder.rec.ID, "conversation", id)
		}
	}
}

// heldConversation returns the id of the conversation that the session's agent uses, or is about to
// use; "" if none is known.
func (e *entry) heldConversation() string {
	if e.pending.WaitsToBegin() {
		return e.claim.conversation
	}
	return conversations.InUse(e.rec)
}

// conversationHolder returns another session that uses this conversation, nil if there is none.
func (s *Supervisor) conversationHolder(rec *session.Session, id string) *entry {
	if id == "" {
		return nil
	}
	for _, e := range s.sessions {
		if e.rec != rec && e.heldConversation() == id && conversations.IsSameAgent(e.rec, rec) {
			return e
		}
	}
	return nil
}

// checkConversationFree returns an error if the run that is about to begin would continue a
// conversation that another session uses: most agents would write both into one file. Errors:
// ConversationBusy.
func (s *Supervisor) checkConversationFree(rec *session.Session, resumed bool) error {
	id := s.conversationRules(rec).KnownID(resumed)
	if holder := s.conversationHolder(rec, id); holder != nil {
		return refuse(ConversationBusy, "conversation %s is in use by session %q", brief(id), holder.rec.ID)
	}
	return nil
}

// conversationProblems returns a problem for each session that uses the same conversation as
// another one. This cannot be prevented if the ids were unknown before the agents ran.
func (s *Supervisor) conversationProblems() (problems []Problem) {
	by := map[string]int{}
	for _, e := range s.sessions {
		by[e.heldConversation()]++
	}
	for _, e := range s.sessions {
		id := e.heldConversation()
		if id == "" || by[id] < 2 {
			continue
		}
		if other := s.conversationHolder(e.rec, id); other != nil {
			text := fmt.Sprintf("session %q uses the same conversation; "+
				"stop one of them, or their messages may be mixed", other.rec.ID)
			problems = append(problems, Problem{Session: e.rec.ID, Text: text})
		}
	}
	s.conversationShared = len(problems) > 0
	return problems
}

// startEvent is postEvent for a step of a start. If the event reports that the run begins a new
// conversation, this is on disk when startEvent returns.
func (s *Supervisor) startEvent(e *entry, ev session.Event) {
	notFound, ok := ev.(session.ConversationNotFound)
	if !ok {
		s.postEvent(e, ev)
		return
	}
	_ = s.withSession(s.ctx, e.rec.ID, func(found *entry) (<-chan error, error) {
		if found != e {
			return nil, nil
		}
		s.recordNothingSaved(e, notFound)
		return s.waitUntil(e, func(*entry) bool { return true }, noError), nil
	})
}

// recordNothingSaved records that no conversation was saved which the run could have continued.
func (s *Supervisor) recordNothingSaved(e *entry, ev session.ConversationNotFound) {
	if e.rec.Run.ID != ev.Run {
		return
	}
	s.apply(e, ev)
	if ev.ID != "" && ev.ID != e.rec.ConversationID {
		s.setConversation(e, ev.ID, session.Given)
	}
	s.Log.Info("no conversation was saved; the agent starts a new one", "session", e.rec.ID, "agent", e.rec.Agent)
}

// detectConversation starts to detect the conversation of an agent by the files that the agent
// holds open, if that is due because a message about the agent's status or output has arrived.
// IsNew is set if the agent has reported another conversation.
func (s *Supervisor) detectConversation(e *entry, activity string, isNew bool) {
	if !s.conversationRules(e.rec).IsOpenFileDue(activity, isNew) {
		return
	}
	d := &e.run.detection
	if d.running {
		d.again = true
		return
	}
	if detect := s.conversationDetector(e); detect != nil {
		d.running = true
		t := s.target(e)
		s.queueAfterSave(e, func() { detect(t) })
	}
}

// conversationDetector returns a function that detects the conversation of the run's agent by its
// open files, nil if the agent's definition has no IdFile=.
func (s *Supervisor) conversationDetector(e *entry) func(Target) {
	file := s.conversationRules(e.rec).OpenFile(e.run.detection.reported)
	if file == nil {
		return nil
	}
	run := e.rec.Run.ID
	return func(t Target) {
		id := s.Conversations.DetectOpen(t.ControlGroup, t.Agent.PID, *file)
		s.post(func() {
			if e.removed || e.rec.Run.ID != run {
				return
			}
			e.run.detection.running = false
			if id != "" && (e.rec.Run.Conversation != id || e.rec.Run.ConversationFrom != session.OpenFile) {
				s.setConversation(e, id, session.OpenFile)
			}
			if e.run.detection.again {
				e.run.detection.again = false
				s.detectConversation(e, "", true)
			}
		})
	}
}

// detectPrintedConversation starts to detect, after an agent has ended, the conversation id that
// the agent has printed.
func (s *Supervisor) detectPrintedConversation(e *entry) {
	printed := s.conversationRules(e.rec).Printed()
	if printed == nil || e.detectingPrinted {
		return
	}
	run, plan := e.rec.Run.ID, s.plan(e, false)
	variables := func() ([]environment.Variable, error) {
		return s.Environments.Compose(s.ctx, plan.Environment, plan.ID, plan.Spec.Dir)
	}
	e.detectingPrinted = true
	s.queueAfterSave(e, func() {
		id := s.Conversations.DetectPrinted(plan.Spec.StateDir, *printed, variables)
		s.post(func() {
			e.detectingPrinted = false
			s.markDirty(e)
			// The log also contains what an earlier run has printed at its end.
			earlier := slices.Contains(e.rec.EarlierConversations, id)
			if id != "" && !e.removed && e.rec.Run.ID == run && id != e.rec.Run.Conversation && !earlier {
				s.setConversation(e, id, session.Printed)
			}
		})
	})
}

// awaitDetection waits until the detection of the conversation of the session's last agent has
// finished.
func (s *Supervisor) awaitDetection(ctx context.Context, id string) error {
	return s.withSession(notYetAccepted(ctx), id, func(e *entry) (<-chan error, error) {
		if !e.detectingPrinted {
			return nil, nil
		}
		return s.waitUntil(e, func(e *entry) bool { return e.removed || !e.detectingPrinted }, noError), nil
	})
}
