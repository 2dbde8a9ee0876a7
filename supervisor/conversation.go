package supervisor

import (
	"fmt"

	"github.com/corrald/corral/supervisor/conversations"
	"github.com/corrald/corral/supervisor/session"
)

// conversationRules returns the rules for the session's conversation. They are used on the event
// loop.
func (e *entry) conversationRules() conversations.Rules {
	return e.loop.settings.conversationRules(e.rec)
}

// conversationRules is entry.conversationRules for a session that may have no entry yet.
func (s *settings) conversationRules(rec *session.Session) conversations.Rules {
	return conversations.Rules{Session: rec, Definition: s.definition(rec), Values: s.specifiers(rec)}
}

// checkConversationFree returns an error if the run that is about to begin would continue a
// conversation that another session uses: most agents would write both into one file. Errors:
// ConversationBusy.
func (l *loop) checkConversationFree(rec *session.Session, resumed bool) error {
	id := l.settings.conversationRules(rec).KnownID(resumed)
	if holder := l.conversationHolder(rec, id); holder != nil {
		return refuse(ConversationBusy, "conversation %s is in use by session %q", brief(id), holder.rec.ID)
	}
	return nil
}

// conversationHolder returns another session that uses this conversation, nil if there is none.
func (l *loop) conversationHolder(rec *session.Session, id string) *entry {
	if id == "" {
		return nil
	}
	for _, e := range l.sessions.byID {
		if e.rec != rec && e.heldConversation() == id && conversations.IsSameAgent(e.rec, rec) {
			return e
		}
	}
	return nil
}

// heldConversation returns the id of the conversation that the session's agent uses, or is about to
// use; "" if none is known.
func (e *entry) heldConversation() string {
	if e.pending.WaitsToBegin() {
		return e.claim.conversation
	}
	return conversations.InUse(e.rec)
}

// setConversation records the conversation of the session's current run, and the source of its id.
// If another session uses the same conversation, that is logged and published as a problem.
func (e *entry) setConversation(id string, from session.ConversationSource) {
	before := e.rec.ConversationID
	e.apply(session.ConversationIdentified{
		Run: e.rec.Run.ID, ID: id, From: from, Resume: e.conversationRules().ResumeCommand(id),
		Moment: e.loop.now(),
	})
	if now := e.rec.ConversationID; now != before && from != session.Given {
		e.loop.log.Info("the agent's conversation is known",
			"session", e.rec.ID, "agent", e.rec.Agent, "conversation", now, "source", string(from))
	}
	if holder := e.loop.conversationHolder(e.rec, id); holder != nil && e.rec.Run.Conversation == id {
		e.loop.problems.stale = true
		if e.takeLogSlot("shared conversation") {
			e.loop.log.Warn("two sessions use the same conversation",
				"session", e.rec.ID, "other", holder.rec.ID, "conversation", id)
		}
	}
}

// conversationProblems returns a problem for each session that uses the same conversation as
// another one. This cannot be prevented if the ids were unknown before the agents ran.
func (ps *problemList) conversationProblems() (problems []Problem) {
	by := map[string]int{}
	for _, e := range ps.loop.sessions.byID {
		by[e.heldConversation()]++
	}
	for _, e := range ps.loop.sessions.byID {
		id := e.heldConversation()
		if id == "" || by[id] < 2 {
			continue
		}
		if other := ps.loop.conversationHolder(e.rec, id); other != nil {
			text := fmt.Sprintf("session %q uses the same conversation; "+
				"stop one of them, or their messages may be mixed", other.rec.ID)
			problems = append(problems, Problem{Session: e.rec.ID, Text: text})
		}
	}
	ps.conversationShared = len(problems) > 0
	return problems
}
