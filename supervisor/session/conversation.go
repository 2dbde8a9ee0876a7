package session

import (
	"slices"
	"time"
)

// MaxConversations bounds how many earlier conversations a session remembers.
const MaxConversations = 50

// Teller is what has told the id of a run's conversation. A file that is written to counts more than a word: some agents' hooks also speak for conversations that
// they have beside the one with the user.
type Teller string

const (
	Given    Teller = "given"  // it was handed to the agent
	Hint     Teller = "hint"   // the agent printed it at its end
	Reported Teller = "report" // the agent's hooks
	OpenFile Teller = "file"   // a file that the agent holds open is named after it
)

// tellers are ordered by how much they count.
var tellers = []Teller{"", Given, Hint, Reported, OpenFile}

func (t Teller) rank() int { return slices.Index(tellers, t) }

// Conversed tells which conversation the run's agent has. Another one than before is one that the agent has begun, or gone over to: it is what a resume
// goes on with from now on.
type Conversed struct {
	Run    string
	ID     string
	From   Teller
	Resume []string // the command that goes on with it, nil if there is none

	At        time.Time
	Monotonic time.Duration // the same moment
}

// NothingSaved tells that there was no conversation to go on with for a run that was to do so: it began one, by this id if that is known.
type NothingSaved struct {
	Run string
	ID  string
}

func (e Conversed) apply(s *Session) {
	r := s.run(e.Run)
	if r == nil || e.ID == "" || e.From.rank() < r.ConversationFrom.rank() || e.From == r.ConversationFrom && (moment{e.At, e.Monotonic}).before(r.conversed()) {
		return
	}
	if r.Conversation != e.ID || r.ConversationFrom != e.From {
		r.Conversation, r.ConversationFrom, r.ConversationAt, r.ConversationMonotonic = e.ID, e.From, e.At, e.Monotonic
	}
	if s.ConversationID == e.ID {
		return
	}
	s.Earlier = slices.DeleteFunc(s.Earlier, func(id string) bool { return id == e.ID })
	if s.ConversationID != "" {
		s.Earlier = append(s.Earlier, s.ConversationID)
	}
	s.Earlier = slices.Clone(s.Earlier[max(0, len(s.Earlier)-MaxConversations):])
	s.ConversationID, s.ResumeCommand = e.ID, e.Resume
}

func (e NothingSaved) apply(s *Session) {
	r := s.run(e.Run)
	if r == nil || r.ConversationFrom.rank() > Given.rank() { // it has gone on since
		return
	}
	r.Resumed = false
	if e.ID == "" {
		r.Conversation, r.ConversationFrom, r.ConversationAt, r.ConversationMonotonic = "", "", time.Time{}, 0
	}
}

// Had tells whether an agent of the session was executed with this conversation. Of the runs of an older version nobody knows which they had.
func (s *Session) Had(id string) bool {
	had := func(r Run) bool { return !r.Started.IsZero() && (r.Conversation == id || r.Conversation == "") }
	return s.Run != nil && had(*s.Run) || slices.ContainsFunc(s.Past, had)
}
