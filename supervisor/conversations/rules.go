// Package conversations determines which conversation an agent has. Rules decide which id a run
// gets, with which command it begins or continues a conversation, and when the id is to be
// detected. A Detector detects it: by the files that the agent holds open, and by what the agent
// has printed at its end.
package conversations

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/corrald/corral/dbusapi/word"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/supervisor/session"
)

// Rules are the rules for the conversation of one session. They depend only on these values. The
// event loop, which owns the record, creates and uses them.
type Rules struct {
	Session    *session.Session
	Definition config.Agent      // of the session's agent, zero if there is none
	Values     config.Specifiers // of the session; Conversation is ignored: it is that of the record
}

// SetCommands completes the record of a new session, which contains what the client has specified:
// it sets the id of the conversation if Corral generates it, and, if the client has not specified a
// command, the commands of the agent's definition. Specifiers in these are expanded; those in
// arguments of the client are not. It returns an error if a command contains an invalid specifier,
// or one that has no value.
func (r Rules) SetCommands() (err error) {
	rec, def := r.Session, r.Definition
	specified := rec.ConversationID != ""
	if !specified && r.generatesID() && !r.choosesCopyID() {
		rec.ConversationID = newUUID()
	}
	if rec.Fork != nil {
		rec.Fork.Copy = rec.ConversationID
		if _, err = config.Expand(def.ForkCommand, r.forkValues(rec.ConversationID)); err != nil {
			return fmt.Errorf("ForkCommand: %w", err)
		}
	}
	if !rec.Defined {
		return nil
	}
	values, expand := r.values(rec.ConversationID), config.Expand
	if def.IdSource == config.IdCreate || r.choosesCopyID() {
		expand = config.ExpandKnown // there is no id yet
	}
	if rec.Command, err = expand(def.Command, values); err != nil {
		return fmt.Errorf("Command: %w", err) //nolint:staticcheck // the name of a key
	}
	rec.Command = append(rec.Command, rec.Arguments...)
	if len(def.ResumeCommand) > 0 && (rec.ConversationID != "" || !config.UsesConversation(def.ResumeCommand)) {
		if rec.ResumeCommand, err = config.Expand(def.ResumeCommand, values); err != nil {
			return fmt.Errorf("ResumeCommand: %w", err)
		}
	}
	// The first run continues a conversation that the client has specified. An agent whose ids Corral
	// assigns begins one with this id instead, unless ResumeCondition= makes it possible to detect
	// that there is no such conversation.
	rec.Continues = specified && rec.Resumable() && (len(def.ResumeCondition) > 0 || !r.assignsID())
	return nil
}

// generatesID reports whether Corral generates the id of the agent's conversation.
func (r Rules) generatesID() bool {
	return r.Definition.IdSource == config.IdPreset || r.Definition.IdSource == config.IdHistoryFile
}

// assignsID reports whether Corral knows the id of the agent's conversation before the agent runs,
// because Corral generates it or IdCommand= creates it.
func (r Rules) assignsID() bool { return r.generatesID() || r.Definition.IdSource == config.IdCreate }

// values returns the values of specifiers, with this id of the conversation.
func (r Rules) values(id string) config.Specifiers {
	values := r.Values
	values.Conversation = id
	return values
}

// KnownID returns the id of the conversation of a run that is about to begin, as far as it is
// known. It returns "" for an id that is still to be generated or created, or that the agent
// chooses. Resumed is whether the run continues a conversation.
func (r Rules) KnownID(resumed bool) string {
	rec := r.Session
	switch {
	case resumed && rec.Resumable() || !rec.Defined:
		return rec.ConversationID
	case r.assignsID() && !rec.HadConversation(rec.ConversationID):
		return rec.ConversationID
	}
	return ""
}

// AssignID is KnownID for a run that begins now: it also generates an id. Create reports that
// IdCommand= has to create it instead; then id is "".
func (r Rules) AssignID(resumed bool) (id string, create bool) {
	id = r.KnownID(resumed)
	switch {
	case id != "" || !r.Session.Defined || r.choosesCopyID():
		return id, false
	case r.generatesID():
		return newUUID(), false
	}
	return "", r.Definition.IdSource == config.IdCreate
}

// forkValues is values for ForkCommand=.
func (r Rules) forkValues(id string) config.Specifiers {
	values := r.values(id)
	values.Forked = r.Session.Fork.Conversation
	return values
}

// isFork reports whether the session's conversation is the one that begins as a copy of another. It
// is no longer after the agent, or a later fresh run, has begun another conversation.
func (r Rules) isFork() bool {
	fork := r.Session.Fork
	return fork != nil && fork.Copy == r.Session.ConversationID
}

// choosesCopyID reports whether the agent chooses the id of the copy with which the session's
// conversation begins, although Corral may choose those of others.
func (r Rules) choosesCopyID() bool {
	return r.isFork() && !config.UsesConversation(r.Definition.ForkCommand)
}

// FreshCommand returns the command of a run that begins a conversation, or that has none. It is
// that of the agent's definition, ForkCommand= for a conversation that begins as a copy. If the
// definition was removed or cannot be used, and for a session with a command of its own, it is that
// in the session's record.
func (r Rules) FreshCommand() []string { return r.freshCommand(r.Session.ConversationID) }

func (r Rules) freshCommand(id string) []string {
	if rec := r.Session; rec.Defined {
		template, values := r.Definition.Command, r.values(id)
		if r.isFork() && len(r.Definition.ForkCommand) > 0 {
			template, values = r.Definition.ForkCommand, r.forkValues(id)
		}
		if args, err := config.Expand(template, values); err == nil && len(args) > 0 {
			return append(args, rec.Arguments...)
		}
	}
	return slices.Clone(r.Session.Command)
}

// ResumeCommand returns the command that continues the conversation with this id, by the agent's
// definition, nil if there is none.
func (r Rules) ResumeCommand(id string) []string {
	args, err := config.Expand(r.Definition.ResumeCommand, r.values(id))
	if err != nil || len(args) == 0 {
		return nil
	}
	return args
}

// Continuation returns what a run needs that is to continue the session's conversation, nil if
// there is no command for that. If the definition has none, it is that in the session's record, as
// for FreshCommand.
func (r Rules) Continuation() *Continuation {
	rec := r.Session
	c := &Continuation{Resume: slices.Clone(rec.ResumeCommand)}
	if args := r.ResumeCommand(rec.ConversationID); rec.Defined && len(args) > 0 {
		c.Resume = args
	}
	if len(c.Resume) == 0 {
		return nil
	}
	if rec.ConversationID != "" {
		c.Saved = r.saved(rec.ConversationID)
	}
	c.Original = r.original()
	if r.assignsID() {
		c.FreshID = rec.ConversationID
	}
	if c.Saved.Content != nil && rec.Defined && r.generatesID() {
		c.OtherID = newUUID()
		c.OtherCommand = r.freshCommand(c.OtherID)
	}
	return c
}

// Copy returns what a run needs that begins the session's conversation as a copy of another, nil if
// that is none, or if nothing has to be checked before.
func (r Rules) Copy() *Continuation {
	if original := r.original(); original != nil {
		return &Continuation{Original: original}
	}
	return nil
}

// original returns the field Original of a Continuation.
func (r Rules) original() *Saved {
	if !r.isFork() || !r.Session.Defined || len(r.Definition.ForkCommand) == 0 {
		return nil
	}
	saved := r.saved(r.Session.Fork.Conversation)
	return &saved
}

// saved returns the condition on which the conversation with this id was saved.
func (r Rules) saved(id string) Saved {
	return Saved{
		Patterns: slices.Clone(r.Definition.ResumeCondition), Content: r.Definition.ResumeContent,
		Values: r.values(id),
	}
}

// RecordFromCommandLine records the conversation that the agent's command line contains, for a
// session that is rebuilt from its running agent. The session can then be resumed as before its
// record was lost.
func (r Rules) RecordFromCommandLine() {
	rec := r.Session
	id := r.Definition.FindConversation(rec.Command, r.values(rec.ConversationID))
	if id == "" {
		return
	}
	rec.Defined = true
	rec.Apply(session.ConversationIdentified{
		Run: rec.Run.ID, ID: id, From: session.Given, Resume: r.ResumeCommand(id),
		Moment: session.Moment{At: rec.Run.Requested},
	})
}

// IsNew reports whether a conversation id that the agent of the current run reports is valid for
// this agent and new. Reported is the id that this agent has reported last, "" for none. An id in
// the name of a file that Corral has chosen (IdSource=history-file) is not replaced by a report. An
// id detected from a file that the agent holds open has precedence over a reported one; if several
// such files are open, the reported id selects one of them.
func (r Rules) IsNew(id, reported string) bool {
	def, run := r.Definition, r.Session.Run
	return id != "" &&
		(def.IdSource == config.IdReport || config.UsesConversation(def.ResumeCommand)) &&
		def.IdSource != config.IdHistoryFile &&
		id != reported && (id != run.Conversation || run.ConversationFrom != session.Reported)
}

// IsOpenFileDue reports whether to detect the conversation by the files that the agent holds open,
// after a report of its activity. IsNew is whether the agent has reported another conversation.
// Detector.DetectOpen examines all processes of the scope: a conversation that was detected by an
// open file is therefore detected again only when the agent is no longer working, or has reported
// another conversation.
func (r Rules) IsOpenFileDue(activity string, isNew bool) bool {
	run := r.Session.Run
	return run.AgentAlive() && (run.ConversationFrom != session.OpenFile || activity != word.Working || isNew)
}

// OpenFile returns how to detect the conversation of the current run's agent by its open files, nil
// if the agent's definition has no IdFile=. Reported is the id that the agent has reported last.
// The file is also searched for a usage limit if the agent's turn has failed.
func (r Rules) OpenFile(reported string) *OpenFile {
	def := r.Definition
	if def.IdFile == nil {
		return nil
	}
	file := &OpenFile{Path: def.IdFile, Content: def.IdFileContent, Known: cmp.Or(reported, r.Session.Run.Conversation)}
	if r.Session.HasFailed() {
		file.Limit = def.LimitRecord
	}
	return file
}

// Printed returns how to detect the conversation id that the agent of the current run has printed
// at its end (IdPattern=). It returns nil if the agent has not ended, or has reported its
// conversation. The agent may have left an assigned conversation for another one: the printed id is
// then used if that conversation was saved.
func (r Rules) Printed() *Printed {
	def, run := r.Definition, r.Session.Run
	switch {
	case def.IdPattern == nil || run == nil || run.Exit == nil || run.Started.IsZero():
		return nil
	case run.ConversationFrom != "" && (run.ConversationFrom != session.Given || len(def.ResumeCondition) == 0):
		return nil
	}
	return &Printed{Pattern: def.IdPattern, Saved: r.saved(r.Session.ConversationID)}
}

// Continues reports whether a run that is about to begin continues a conversation, as far as that
// is known before the saved conversation is looked for. Resumed is whether the client requests it.
func Continues(rec *session.Session, resumed bool) bool {
	return resumed || rec.Continues && rec.NRuns == 0
}

// InUse returns the id of the conversation that the agent of the session's current run uses, "" if
// none is known.
func InUse(rec *session.Session) string {
	r := rec.Run
	switch {
	case r.Ended():
		return ""
	case r.Conversation == "" && !rec.Defined: // an older version did not record it
		return rec.ConversationID
	}
	return r.Conversation
}

// IsSameAgent reports whether the conversations of two sessions are of the same agent: two
// definitions may run the same program. Each account, an instance of a template, has conversations
// of its own.
func IsSameAgent(a, b *session.Session) bool {
	_, accountA, _ := config.CutInstance(a.Agent)
	_, accountB, _ := config.CutInstance(b.Agent)
	if accountA != accountB {
		return false
	}
	return a.Agent == b.Agent ||
		len(a.ResumeCommand) > 0 && len(b.ResumeCommand) > 0 && a.ResumeCommand[0] == b.ResumeCommand[0]
}

// newUUID returns a random UUID (RFC 9562, version 4).
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	h := hex.EncodeToString(b[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
