package session

import (
	"slices"
	"time"
)

// MaxConversations is the greatest number of earlier conversations in a session's record.
const MaxConversations = 50

// ConversationSource is the source of the id of a run's conversation. A file that the agent writes
// to counts more than a report: the hooks of some agents also report conversations that the agent
// has beside the one with the user.
type ConversationSource string

const (
	Given    ConversationSource = "given"  // corrald gave it to the agent
	Printed  ConversationSource = "hint"   // the agent printed it when it exited
	Reported ConversationSource = "report" // the agent's hooks
	OpenFile ConversationSource = "file"   // it is in the name of a file that the agent has open
)

// conversationSources has every source, the weakest first.
var conversationSources = []ConversationSource{"", Given, Printed, Reported, OpenFile}

func (c ConversationSource) rank() int { return slices.Index(conversationSources, c) }

// ConversationIdentified reports which conversation the run's agent has. If it is not the one known
// before, the agent has begun it or has switched to it, and a resume continues it from now on.
type ConversationIdentified struct {
	Run    string
	ID     string
	From   ConversationSource
	Resume []string // the command that continues it, nil if there is none
	Moment
}

// ConversationNotFound reports that the conversation which the run was to continue does not exist.
// The run began a new one, whose id is ID; "" if that is not known.
type ConversationNotFound struct {
	Run string
	ID  string
}

func (e ConversationIdentified) apply(s *Session) {
	r := s.run(e.Run)
	if r == nil || e.ID == "" || e.From.rank() < r.ConversationFrom.rank() {
		return
	}
	older := e.before(r.conversationIdentified())
	if e.From == r.ConversationFrom && older {
		return
	}
	if r.Conversation != e.ID || r.ConversationFrom != e.From {
		r.Conversation, r.ConversationFrom = e.ID, e.From
		r.ConversationAt, r.ConversationMonotonic = e.At, e.Monotonic
	}
	if s.ConversationID == e.ID {
		return
	}
	s.EarlierConversations = slices.DeleteFunc(s.EarlierConversations, func(id string) bool { return id == e.ID })
	if s.ConversationID != "" {
		s.EarlierConversations = append(s.EarlierConversations, s.ConversationID)
	}
	s.EarlierConversations = slices.Clone(s.EarlierConversations[max(0, len(s.EarlierConversations)-MaxConversations):])
	s.ConversationID, s.ResumeCommand = e.ID, e.Resume
}

func (e ConversationNotFound) apply(s *Session) {
	r := s.run(e.Run)
	if r == nil || r.ConversationFrom.rank() > Given.rank() { // the agent has reported a conversation since
		return
	}
	r.Resumed = false
	if e.ID == "" {
		r.Conversation, r.ConversationFrom, r.ConversationAt, r.ConversationMonotonic = "", "", time.Time{}, 0
	}
}

// HadConversation reports whether an agent of the session was executed with this conversation. A
// run whose conversation is not known, as in records of older versions, counts as one that had it.
func (s *Session) HadConversation(id string) bool {
	had := func(r Run) bool { return !r.Started.IsZero() && (r.Conversation == id || r.Conversation == "") }
	return s.Run != nil && had(*s.Run) || slices.ContainsFunc(s.Past, had)
}
