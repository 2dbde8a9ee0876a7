package session_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/corrald/corral/supervisor/session"
)

func TestConversation_IsThatOfTheStrongestSource(t *testing.T) {
	identified := func(id string, from session.ConversationSource, when int) session.Event {
		resume := []string{"resume", id}
		return session.ConversationIdentified{Run: run, ID: id, From: from, Resume: resume, Moment: moment(when)}
	}
	for name, c := range map[string]struct {
		events  []session.Event
		current string
		earlier []string
		from    session.ConversationSource
	}{
		"given": {
			list(identified("a", session.Given, 1)),
			"a", nil, session.Given,
		},
		"given twice": {
			list(identified("a", session.Given, 1), identified("a", session.Given, 1)),
			"a", nil, session.Given,
		},
		"given, and the same reported": {
			list(identified("a", session.Given, 1), identified("a", session.Reported, 2)),
			"a", nil, session.Reported,
		},
		"another one was begun, and reported": {
			list(identified("a", session.Given, 1), identified("b", session.Reported, 2)),
			"b", []string{"a"}, session.Reported,
		},
		"back to the first": {
			list(identified("a", session.Reported, 1), identified("b", session.Reported, 2),
				identified("a", session.Reported, 3)),
			"a", []string{"b"}, session.Reported,
		},
		"received late": {
			list(identified("b", session.Reported, 2), identified("a", session.Reported, 1)),
			"b", nil, session.Reported,
		},
		"a report counts less than an open file": {
			list(identified("a", session.OpenFile, 1), identified("b", session.Reported, 2)),
			"a", nil, session.OpenFile,
		},
		"a file counts more than the given id": {
			list(identified("a", session.Given, 1), identified("b", session.OpenFile, 2)),
			"b", []string{"a"}, session.OpenFile,
		},
		"and more than a printed id": {
			list(identified("a", session.OpenFile, 1), identified("b", session.Printed, 2)),
			"a", nil, session.OpenFile,
		},
		"an unknown source is ignored": {list(identified("a", "gossip", 1)), "", nil, ""},
		"the clock was set back": {list(
			session.ConversationIdentified{
				Run: run, ID: "a", From: session.Reported, Resume: []string{"resume", "a"},
				Moment: session.Moment{At: at(2), Monotonic: time.Hour},
			},
			session.ConversationIdentified{
				Run: run, ID: "b", From: session.Reported, Resume: []string{"resume", "b"},
				Moment: session.Moment{At: at(1), Monotonic: 2 * time.Hour},
			},
		), "b", []string{"a"}, session.Reported},
		"another run's": {
			list(session.ConversationIdentified{Run: "other", ID: "a", From: session.Reported}),
			"", nil, "",
		},
		"no id": {list(identified("", session.Reported, 1)), "", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := after(newSession(), append(list(runBegun), c.events...))
			assert.Equal(t, c.current, s.ConversationID)
			assert.Equal(t, c.earlier, s.EarlierConversations)
			assert.Equal(t, c.from, s.Run.ConversationFrom)
			assert.Equal(t, c.current, s.Run.Conversation)
			if c.current != "" {
				assert.Equal(t, []string{"resume", c.current}, s.ResumeCommand)
			}
		})
	}
}

func TestConversation_IsKeptByLaterRuns(t *testing.T) {
	first := session.ConversationIdentified{Run: run, ID: "first", From: session.Reported, Moment: moment(1)}
	s := after(newSession(), list(runBegun, first))
	s.Apply(session.RunBegun{Run: "run-2", At: at(5)})
	assert.Equal(t, "first", s.ConversationID, "until the new run's agent has one")
	assert.Empty(t, s.Run.Conversation)
	assert.Equal(t, "first", s.Past[0].Conversation)
	for i := range 2 * session.MaxConversations {
		id := fmt.Sprint("c", i)
		s.Apply(session.ConversationIdentified{Run: "run-2", ID: id, From: session.Reported, Moment: moment(10 + i)})
	}
	assert.Equal(t, fmt.Sprint("c", 2*session.MaxConversations-1), s.ConversationID)
	assert.Len(t, s.EarlierConversations, session.MaxConversations)
	assert.Equal(t, fmt.Sprint("c", 2*session.MaxConversations-2), s.EarlierConversations[session.MaxConversations-1])
}

func TestConversationNotFound_BeginsAnotherOne(t *testing.T) {
	given := session.ConversationIdentified{
		Run: run, ID: "a", From: session.Given, Resume: []string{"resume", "a"}, Moment: moment(1),
	}
	resumed := session.RunBegun{Run: run, BootID: "boot", Resumed: true, At: at(0)}
	s := after(newSession(), list(resumed, given, session.ConversationNotFound{Run: run, ID: "a"}))
	assert.False(t, s.Run.Resumed)
	assert.Equal(t, "a", s.Run.Conversation, "the run begins it with the chosen id")

	s = after(newSession(), list(resumed, given, session.ConversationNotFound{Run: run}))
	assert.False(t, s.Run.Resumed)
	assert.Empty(t, s.Run.Conversation, "the run begins it with an unknown id")
	assert.Equal(t, "a", s.ConversationID, "the known one stays")

	reported := session.ConversationIdentified{Run: run, ID: "b", From: session.Reported, Moment: moment(2)}
	s = after(newSession(), list(resumed, given, reported, session.ConversationNotFound{Run: run}))
	assert.Equal(t, "b", s.Run.Conversation)
}

func TestHadConversation(t *testing.T) {
	given := session.ConversationIdentified{Run: run, ID: "a", From: session.Given, Moment: moment(1)}
	started := session.AgentStarted{Run: run, At: at(2)}
	assert.False(t, newSession().HadConversation("a"))
	assert.False(t, after(newSession(), list(runBegun, given)).HadConversation("a"), "its agent was not executed")
	s := after(newSession(), list(runBegun, given, started))
	assert.True(t, s.HadConversation("a"))
	assert.False(t, s.HadConversation("b"))
	s.Apply(session.RunBegun{Run: "run-2", At: at(5)})
	assert.True(t, s.HadConversation("a"))
	assert.True(t, after(newSession(), list(runBegun, started)).HadConversation("a"), "not known")
}
