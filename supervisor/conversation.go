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
	"github.com/corrald/corral/internal/failpoint"
	"github.com/corrald/corral/supervisor/session"
)

// idTime bounds what makes the id of a conversation (IdCommand=).
const idTime = 30 * time.Second

// Conversation is what a run that is to go on with a conversation has to know of it.
type Conversation struct {
	Resume    []string          // the command that goes on with it
	Condition []string          // patterns of files, as in the agent's definition: if none is there, nothing was saved
	Content   *regexp.Regexp    // that one of them has to have, nil for any
	Values    config.Specifiers // for these
	Begins    string            // the id of the one that is begun instead, "" if the agent chooses that itself

	// Where there is a file and nothing in it, that is in the way of one with this id: another is begun by this command.
	Another      string
	BeginAnother []string
}

// OpenFile is how the file is found that an agent keeps its conversation in, among those that it holds open.
type OpenFile struct {
	Path    *regexp.Regexp // matches in the file's path; the first group is the id
	Content *regexp.Regexp // matches in what the file begins with; of several, the one that was written last counts. nil where that tells nothing
	Known   string         // the id that is preferred where the content tells nothing
}

var errStopped = errors.New("it was stopped before its conversation was made")

// chosen tells whether we know the id of an agent's conversation before it runs, because we choose it or have it made.
func chosen(def config.Agent) bool {
	return def.IdSource == config.IdPreset || def.IdSource == config.IdHistoryFile || def.IdSource == config.IdCreate
}

// given returns the id of the conversation that a run which begins would be given, as far as it is known: "" stands for one that is still to be chosen or
// made, or that the agent chooses.
func (s *Supervisor) given(rec *session.Session, resumed bool) string {
	def := s.Agents[rec.Agent]
	switch {
	case resumed && rec.Resumable() || !rec.Defined:
		return rec.ConversationID
	case chosen(def) && !rec.Had(rec.ConversationID):
		return rec.ConversationID
	}
	return ""
}

// continues tells whether the first run of a session that is made goes on with a conversation: one that the client knows of. Where we could not tell that
// there is none, an agent to which we give ids begins one.
func continues(rec *session.Session, def config.Agent, spec Spec) bool {
	return spec.ConversationID != "" && rec.Defined && rec.Resumable() && (len(def.ResumeCondition) > 0 || !chosen(def))
}

// goesOn tells whether a run that begins goes on with a conversation, as far as that is known before it is looked for.
func goesOn(rec *session.Session, resumed bool) bool {
	return resumed || rec.Continues && rec.NRuns == 0
}

// converse takes note of the conversation that a run has.
func (s *Supervisor) converse(e *entry, id string, from session.Teller) {
	before := e.rec.ConversationID
	s.apply(e, session.Conversed{Run: e.rec.Run.ID, ID: id, From: from, Resume: s.resumeCommand(e.rec, id), At: time.Now(), Monotonic: s.Monotonic()})
	if now := e.rec.ConversationID; now != before && from != session.Given {
		s.Log.Info("the agent's conversation is known", "session", e.rec.ID, "agent", e.rec.Agent, "conversation", now, "source", string(from))
	}
	if holder := s.holder(e.rec, id); holder != nil && e.rec.Run.Conversation == id {
		s.unsure = true
		if s.mayLog(e, "shared conversation") {
			s.Log.Warn("two sessions use the same conversation", "session", e.rec.ID, "other", holder.rec.ID, "conversation", id)
		}
	}
}

// commands returns what a fresh run executes, and what one executes that goes on with the conversation: as the agent's definition has it, or, where that was
// taken away or cannot be used, as it was saved. A session with a command of its own has what was saved.
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

// resumeCommand returns what goes on with a conversation by the agent's definition, nil if there is nothing.
func (s *Supervisor) resumeCommand(rec *session.Session, conversation string) []string {
	values := s.specifiers(rec)
	values.Conversation = conversation
	args, err := config.Expand(s.Agents[rec.Agent].ResumeCommand, values)
	if err != nil || len(args) == 0 {
		return nil
	}
	return args
}

// holds returns the id of the conversation that a session's agent has, or is about to have; "" if none is known.
func (e *entry) holds() string {
	r := e.rec.Run
	switch {
	case e.starts:
		return e.wants
	case r.Ended():
		return ""
	case r.Conversation == "" && !e.rec.Defined: // an older version did not note it
		return e.rec.ConversationID
	}
	return r.Conversation
}

// sameAgent tells whether two sessions' conversations are of one kind: two definitions may run one program.
func sameAgent(a, b *session.Session) bool {
	return a.Agent == b.Agent || len(a.ResumeCommand) > 0 && len(b.ResumeCommand) > 0 && a.ResumeCommand[0] == b.ResumeCommand[0]
}

// holder returns another session that has this conversation, nil if there is none.
func (s *Supervisor) holder(rec *session.Session, id string) *entry {
	if id == "" {
		return nil
	}
	for _, e := range s.sessions {
		if e.rec != rec && e.holds() == id && sameAgent(e.rec, rec) {
			return e
		}
	}
	return nil
}

// unheld refuses to go on with a conversation that another session has: most agents would write both into one file.
func (s *Supervisor) unheld(rec *session.Session, resumed bool) error {
	id := s.given(rec, resumed)
	if holder := s.holder(rec, id); holder != nil {
		return refuse(ConversationBusy, "conversation %s is in use by session %q", brief(id), holder.rec.ID)
	}
	return nil
}

// shared tells of sessions that have the same conversation: nobody could know before they had it.
func (s *Supervisor) shared() (problems []Problem) {
	by := map[string]int{}
	for _, e := range s.sessions {
		by[e.holds()]++
	}
	for _, e := range s.sessions {
		id := e.holds()
		if id == "" || by[id] < 2 {
			continue
		}
		if other := s.holder(e.rec, id); other != nil {
			text := fmt.Sprintf("session %q uses the same conversation; stop one of them, or their messages may be mixed", other.rec.ID)
			problems = append(problems, Problem{Session: e.rec.ID, Text: text})
		}
	}
	s.sharing = len(problems) > 0
	return problems
}

// launch has the run that was asked for started, after its conversation was made where that is a command's work: the id is on disk before the agent is
// executed.
func (s *Supervisor) launch(e *entry, resumed bool, into *Into, prompt string) {
	rec, def := e.rec, s.Agents[e.rec.Agent]
	id := s.given(rec, resumed)
	if id == "" && rec.Defined && chosen(def) {
		if def.IdSource == config.IdCreate {
			s.makeConversation(e, into, func() { s.launchPlanned(e, resumed, into, prompt) })
			return
		}
		id = newUUID()
	}
	if id != "" {
		s.converse(e, id, session.Given)
	}
	s.launchPlanned(e, resumed, into, prompt)
}

// launchPlanned has the run started that the session's record says.
func (s *Supervisor) launchPlanned(e *entry, resumed bool, into *Into, prompt string) {
	run, way, plan := e.rec.Run.ID, s.follow(e.rec.WorkingDirectory), s.plan(e, resumed)
	plan.Into, plan.Spec.Prompt = into, prompt
	s.armStart(e)
	s.startEffect(e, func() {
		failpoint.Hit("start.record-saved")
		err := way.await(s.ctx, s, plan.Spec.Dir)
		if err == nil {
			s.post(func() { s.arrive(e, run, way) })
			err = s.World.Start(s.ctx, plan, func(ev session.Event) { s.startEvent(e, ev) })
		}
		s.post(func() {
			s.forgetCaller(e, run)
			s.startDone(e, run, err, into != nil)
		})
	})
}

// startEvent is event for a step of a start. That the run begins a conversation is on disk once it returns.
func (s *Supervisor) startEvent(e *entry, ev session.Event) {
	nothing, is := ev.(session.NothingSaved)
	if !is {
		s.event(e, ev)
		return
	}
	_ = s.with(s.ctx, e.rec.ID, func(found *entry) (<-chan error, error) {
		if found != e {
			return nil, nil
		}
		s.nothingSaved(e, nothing)
		return s.wait(e, func(*entry) bool { return true }, noError), nil
	})
}

// makeConversation has the agent make a conversation, and goes on with then once its id is known. A stop calls it off.
func (s *Supervisor) makeConversation(e *entry, into *Into, then func()) {
	run, plan := e.rec.Run.ID, s.plan(e, false)
	command, err := config.Expand(s.Agents[e.rec.Agent].IdCommand, s.specifiers(e.rec))
	ctx, cancel := s.AfterFunc.Context(s.ctx, idTime)
	e.run.making = cancel
	s.startEffect(e, func() {
		defer cancel()
		failpoint.Hit("start.conversation-asked")
		var id string
		if err == nil {
			id, err = s.World.MakeConversation(ctx, plan, command)
		}
		failpoint.Hit("start.conversation-made")
		s.post(func() {
			if e.removed || e.rec.Run.ID != run {
				return
			}
			e.run.making = nil
			switch {
			case e.run.stage != notEnding:
				s.startDone(e, run, errStopped, into != nil)
			case err != nil:
				s.startDone(e, run, err, into != nil)
			default:
				s.converse(e, id, session.Given)
				then()
			}
		})
	})
}

// conversation returns what a run has to know that is to go on with a conversation, nil where it cannot.
func (s *Supervisor) conversation(rec *session.Session, resume []string) *Conversation {
	if len(resume) == 0 {
		return nil
	}
	def := s.Agents[rec.Agent]
	c := &Conversation{Resume: resume, Values: s.specifiers(rec)}
	if rec.ConversationID != "" {
		c.Condition, c.Content = slices.Clone(def.ResumeCondition), def.ResumeContent
	}
	if chosen(def) {
		c.Begins = rec.ConversationID
	}
	if c.Content != nil && rec.Defined && (def.IdSource == config.IdPreset || def.IdSource == config.IdHistoryFile) {
		other := rec.Clone()
		other.ConversationID = newUUID()
		c.Another = other.ConversationID
		c.BeginAnother, _ = s.commands(other)
	}
	return c
}

// nothingSaved takes note that a run could not go on with a conversation.
func (s *Supervisor) nothingSaved(e *entry, ev session.NothingSaved) {
	if e.rec.Run.ID != ev.Run {
		return
	}
	s.apply(e, ev)
	if ev.ID != "" && ev.ID != e.rec.ConversationID {
		s.converse(e, ev.ID, session.Given)
	}
	s.Log.Info("no conversation was saved; the agent starts a new one", "session", e.rec.ID, "agent", e.rec.Agent)
}

// seek has it found out in which conversation an agent is that shows it by the files that it holds open. It costs a look at the scope's processes, and is done
// when something is told anyway; once it is known, only when the agent has come to the end of something, or has told of another one.
func (s *Supervisor) seek(e *entry, activity string, told bool) {
	r := e.rec.Run
	if !r.AgentAlive() || r.ConversationFrom == session.OpenFile && activity == session.Working && !told {
		return
	}
	if e.run.seeking { // it may have looked already at what has changed
		e.run.seekAgain = true
		return
	}
	if find := s.finder(e); find != nil {
		e.run.seeking = true
		t := s.target(e)
		s.effect(e, func() { find(t) })
	}
}

// finder returns what finds the conversation of a run's agent, nil if it cannot be found so.
func (s *Supervisor) finder(e *entry) func(Target) {
	r, def := e.rec.Run, s.Agents[e.rec.Agent]
	if def.IdFile == nil {
		return nil
	}
	run, file := r.ID, OpenFile{def.IdFile, def.IdFileContent, cmp.Or(e.run.reported, r.Conversation)}
	return func(t Target) {
		id := s.World.OpenConversation(t, file)
		s.post(func() {
			if e.removed || e.rec.Run.ID != run {
				return
			}
			e.run.seeking = false
			if id != "" && (e.rec.Run.Conversation != id || e.rec.Run.ConversationFrom != session.OpenFile) {
				s.converse(e, id, session.OpenFile)
			}
			if e.run.seekAgain {
				e.run.seekAgain = false
				s.seek(e, "", true)
			}
		})
	}
}

// takeHint has it found out, once an agent has ended that has told nobody of its conversation, whether it has printed which it was. What it was given may
// have been left for another one: that one counts if it was saved.
func (s *Supervisor) takeHint(e *entry) {
	r, def := e.rec.Run, s.Agents[e.rec.Agent]
	switch {
	case def.IdPattern == nil || r == nil || r.Exit == nil || r.Started.IsZero() || e.hinting:
		return
	case r.ConversationFrom != "" && (r.ConversationFrom != session.Given || len(def.ResumeCondition) == 0):
		return
	}
	run, plan := r.ID, s.plan(e, false)
	known := Conversation{Condition: slices.Clone(def.ResumeCondition), Content: def.ResumeContent, Values: s.specifiers(e.rec)}
	e.hinting = true
	s.effect(e, func() {
		id := s.World.Hint(s.ctx, plan, known, def.IdPattern)
		s.post(func() {
			e.hinting = false
			s.touch(e)
			earlier := slices.Contains(e.rec.Earlier, id) // what an earlier run has printed at its end is in the log, too
			if id != "" && !e.removed && e.rec.Run.ID == run && id != e.rec.Run.Conversation && !earlier {
				s.converse(e, id, session.Hint)
			}
		})
	})
}

// settled waits until it is known which conversation a session's last agent had.
func (s *Supervisor) settled(ctx context.Context, id string) error {
	return s.with(notYetAccepted(ctx), id, func(e *entry) (<-chan error, error) {
		if !e.hinting {
			return nil, nil
		}
		return s.wait(e, func(e *entry) bool { return e.removed || !e.hinting }, noError), nil
	})
}
