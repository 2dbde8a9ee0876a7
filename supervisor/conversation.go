package supervisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/supervisor/session"
)

// idCommandTimeout limits how long the command may run that creates the id of a conversation
// (IdCommand=).
const idCommandTimeout = 30 * time.Second

// Conversation is what a run needs that is to continue a conversation.
type Conversation struct {
	Resume    []string          // the command that continues it
	Condition []string          // file name patterns of the agent's definition: if no file matches, nothing was saved
	Content   *regexp.Regexp    // has to match in one of these files, nil for any content
	Values    config.Specifiers // for these patterns
	FreshID   string            // id of the conversation begun if nothing was saved, "" if the agent chooses it

	// OtherID and OtherCommand are used if a file exists, but without the content: the file
	// prevents a new conversation with the same id, and OtherCommand begins one with OtherID.
	OtherID      string
	OtherCommand []string
}

// OpenFile describes the file in which an agent keeps its conversation, to find it among the files
// that the agent holds open.
type OpenFile struct {
	Path *regexp.Regexp // matches in the path of the file; the first group is the id
	// Content matches in the beginning of the file; of several such files, the one that was written
	// last is used. It is nil if the content does not matter.
	Content *regexp.Regexp
	Known   string // the id that is preferred if the content does not decide
}

// errStopped is returned for a start that was stopped while IdCommand= ran.
var errStopped = errors.New("it was stopped before its conversation was created")

// assignsID reports whether Corral knows the id of the agent's conversation before the agent runs,
// because Corral generates it or IdCommand= creates it.
func assignsID(def config.Agent) bool {
	return def.IdSource == config.IdPreset || def.IdSource == config.IdHistoryFile || def.IdSource == config.IdCreate
}

// conversationForNewRun returns the id of the conversation of a run that is about to begin, as far
// as it is known. It returns "" for an id that is still to be generated or created, or that the
// agent chooses.
func (s *Supervisor) conversationForNewRun(rec *session.Session, resumed bool) string {
	def := s.Agents[rec.Agent]
	switch {
	case resumed && rec.Resumable() || !rec.Defined:
		return rec.ConversationID
	case assignsID(def) && !rec.HadConversation(rec.ConversationID):
		return rec.ConversationID
	}
	return ""
}

// firstRunContinues reports whether the first run of a new session continues a conversation, which
// the client has specified. An agent whose ids Corral assigns begins one with this id instead,
// unless ResumeCondition= makes it possible to detect that there is no such conversation.
func firstRunContinues(rec *session.Session, def config.Agent, spec Spec) bool {
	return spec.ConversationID != "" && rec.Defined && rec.Resumable() && (len(def.ResumeCondition) > 0 || !assignsID(def))
}

// continuesConversation reports whether a run that is about to begin continues a conversation, as
// far as that is known before the saved conversation is looked for.
func continuesConversation(rec *session.Session, resumed bool) bool {
	return resumed || rec.Continues && rec.NRuns == 0
}

// setConversation records the conversation of the session's current run, and the source of its id.
// If another session uses the same conversation, that is logged and published as a problem.
func (s *Supervisor) setConversation(e *entry, id string, from session.ConversationSource) {
	before := e.rec.ConversationID
	s.apply(e, session.ConversationIdentified{
		Run: e.rec.Run.ID, ID: id, From: from, Resume: s.resumeCommand(e.rec, id),
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

// commands returns the command of a fresh run, and the command of a run that continues the
// conversation. They are those of the agent's definition. If the definition was removed or cannot
// be used, and for a session with a command of its own, they are those in the session's record.
func (s *Supervisor) commands(rec *session.Session) (fresh, resume []string) {
	fresh, resume = slices.Clone(rec.Command), slices.Clone(rec.ResumeCommand)
	if !rec.Defined {
		return fresh, resume
	}
	if args, err := config.Expand(s.Agents[rec.Agent].Command, s.specifiers(rec)); err == nil && len(args) > 0 {
		fresh = append(args, rec.Arguments...)
	}
	if args := s.resumeCommand(rec, rec.ConversationID); len(args) > 0 {
		resume = args
	}
	return fresh, resume
}

// resumeCommand returns the command that continues a conversation, by the agent's definition, nil
// if there is none.
func (s *Supervisor) resumeCommand(rec *session.Session, conversation string) []string {
	values := s.specifiers(rec)
	values.Conversation = conversation
	args, err := config.Expand(s.Agents[rec.Agent].ResumeCommand, values)
	if err != nil || len(args) == 0 {
		return nil
	}
	return args
}

// heldConversation returns the id of the conversation that the session's agent uses, or is about to
// use; "" if none is known.
func (e *entry) heldConversation() string {
	r := e.rec.Run
	switch {
	case e.pending.WaitsToBegin():
		return e.claim.conversation
	case r.Ended():
		return ""
	case r.Conversation == "" && !e.rec.Defined: // an older version did not record it
		return e.rec.ConversationID
	}
	return r.Conversation
}

// isSameAgent reports whether the conversations of two sessions are of the same agent: two
// definitions may run the same program.
func isSameAgent(a, b *session.Session) bool {
	return a.Agent == b.Agent ||
		len(a.ResumeCommand) > 0 && len(b.ResumeCommand) > 0 && a.ResumeCommand[0] == b.ResumeCommand[0]
}

// conversationHolder returns another session that uses this conversation, nil if there is none.
func (s *Supervisor) conversationHolder(rec *session.Session, id string) *entry {
	if id == "" {
		return nil
	}
	for _, e := range s.sessions {
		if e.rec != rec && e.heldConversation() == id && isSameAgent(e.rec, rec) {
			return e
		}
	}
	return nil
}

// checkConversationFree returns an error if the run that is about to begin would continue a
// conversation that another session uses: most agents would write both into one file. Errors:
// ConversationBusy.
func (s *Supervisor) checkConversationFree(rec *session.Session, resumed bool) error {
	id := s.conversationForNewRun(rec, resumed)
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

// conversationToResume returns the conversation for a run that is to continue it, nil if there is
// no command for that.
func (s *Supervisor) conversationToResume(rec *session.Session, resume []string) *Conversation {
	if len(resume) == 0 {
		return nil
	}
	def := s.Agents[rec.Agent]
	c := &Conversation{Resume: resume, Values: s.specifiers(rec)}
	if rec.ConversationID != "" {
		c.Condition, c.Content = slices.Clone(def.ResumeCondition), def.ResumeContent
	}
	if assignsID(def) {
		c.FreshID = rec.ConversationID
	}
	if c.Content != nil && rec.Defined && (def.IdSource == config.IdPreset || def.IdSource == config.IdHistoryFile) {
		other := rec.Clone()
		other.ConversationID = newUUID()
		c.OtherID = other.ConversationID
		c.OtherCommand, _ = s.commands(other)
	}
	return c
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
// holds open. This examines all processes of the scope, and is therefore done only when a message
// about the agent's status or output arrives anyway; once the conversation was detected in this
// way, only when the agent is no longer working, or has reported another conversation (isNew).
func (s *Supervisor) detectConversation(e *entry, activity string, isNew bool) {
	r := e.rec.Run
	if !r.AgentAlive() || r.ConversationFrom == session.OpenFile && activity == session.Working && !isNew {
		return
	}
	if e.run.detecting { // the files may have changed after that detection examined them
		e.run.detectAgain = true
		return
	}
	if detect := s.conversationDetector(e); detect != nil {
		e.run.detecting = true
		t := s.target(e)
		s.queueAfterSave(e, func() { detect(t) })
	}
}

// conversationDetector returns a function that detects the conversation of the run's agent by its
// open files, nil if the agent's definition has no IdFile=.
func (s *Supervisor) conversationDetector(e *entry) func(Target) {
	r, def := e.rec.Run, s.Agents[e.rec.Agent]
	if def.IdFile == nil {
		return nil
	}
	run, file := r.ID, OpenFile{def.IdFile, def.IdFileContent, cmp.Or(e.run.reportedConversation, r.Conversation)}
	return func(t Target) {
		id := s.Conversations.DetectOpen(t, file)
		s.post(func() {
			if e.removed || e.rec.Run.ID != run {
				return
			}
			e.run.detecting = false
			if id != "" && (e.rec.Run.Conversation != id || e.rec.Run.ConversationFrom != session.OpenFile) {
				s.setConversation(e, id, session.OpenFile)
			}
			if e.run.detectAgain {
				e.run.detectAgain = false
				s.detectConversation(e, "", true)
			}
		})
	}
}

// detectPrintedConversation starts to detect, after an agent has ended that has not reported its
// conversation, the conversation id that the agent has printed (IdPattern=). The agent may have
// left an assigned conversation for another one: the printed id is then used if that conversation
// was saved.
func (s *Supervisor) detectPrintedConversation(e *entry) {
	r, def := e.rec.Run, s.Agents[e.rec.Agent]
	switch {
	case def.IdPattern == nil || r == nil || r.Exit == nil || r.Started.IsZero() || e.detectingPrinted:
		return
	case r.ConversationFrom != "" && (r.ConversationFrom != session.Given || len(def.ResumeCondition) == 0):
		return
	}
	run, plan := r.ID, s.plan(e, false)
	known := Conversation{
		Condition: slices.Clone(def.ResumeCondition), Content: def.ResumeContent, Values: s.specifiers(e.rec),
	}
	e.detectingPrinted = true
	s.queueAfterSave(e, func() {
		id := s.Conversations.DetectPrinted(s.ctx, plan, known, def.IdPattern)
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
