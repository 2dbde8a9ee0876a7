package session_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/corrald/corral/supervisor/session"
)

func TestWhichConversationARunHas(t *testing.T) {
	told := func(id string, from session.Teller, when int) session.Event {
		return session.Conversed{Run: run, ID: id, From: from, Resume: []string{"resume", id}, At: at(when)}
	}
	for name, c := range map[string]struct {
		events  []session.Event
		current string
		earlier []string
		from    session.Teller
	}{
		"given":                                 {list(told("a", session.Given, 1)), "a", nil, session.Given},
		"told twice":                            {list(told("a", session.Given, 1), told("a", session.Given, 1)), "a", nil, session.Given},
		"given, and reported the same":          {list(told("a", session.Given, 1), told("a", session.Reported, 2)), "a", nil, session.Reported},
		"another one was begun":                 {list(told("a", session.Given, 1), told("b", session.Reported, 2)), "b", []string{"a"}, session.Reported},
		"back to the first":                     {list(told("a", session.Reported, 1), told("b", session.Reported, 2), told("a", session.Reported, 3)), "a", []string{"b"}, session.Reported},
		"told late":                             {list(told("b", session.Reported, 2), told("a", session.Reported, 1)), "b", nil, session.Reported},
		"a word counts less than what is seen":  {list(told("a", session.OpenFile, 1), told("b", session.Reported, 2)), "a", nil, session.OpenFile},
		"a file counts more than what is given": {list(told("a", session.Given, 1), told("b", session.OpenFile, 2)), "b", []string{"a"}, session.OpenFile},
		"and more than a hint":                  {list(told("a", session.OpenFile, 1), told("b", session.Hint, 2)), "a", nil, session.OpenFile},
		"an unknown teller counts for nothing":  {list(told("a", "gossip", 1)), "", nil, ""},
		"the clock was set back": {list(
			session.Conversed{Run: run, ID: "a", From: session.Reported, Resume: []string{"resume", "a"}, At: at(2), Monotonic: time.Hour},
			session.Conversed{Run: run, ID: "b", From: session.Reported, Resume: []string{"resume", "b"}, At: at(1), Monotonic: 2 * time.Hour},
		), "b", []string{"a"}, session.Reported},
		"another run's": {list(session.Conversed{Run: "other", ID: "a", From: session.Reported}), "", nil, ""},
		"no id":         {list(told("", session.Reported, 1)), "", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := after(newSession(), append(list(asked), c.events...))
			assert.Equal(t, c.current, s.ConversationID)
			assert.Equal(t, c.earlier, s.Earlier)
			assert.Equal(t, c.from, s.Run.ConversationFrom)
			assert.Equal(t, c.current, s.Run.Conversation)
			if c.current != "" {
				assert.Equal(t, []string{"resume", c.current}, s.ResumeCommand)
			}
		})
	}
}

func TestAConversationIsNeverForgotten(t *testing.T) {
	s := after(newSession(), list(asked, session.Conversed{Run: run, ID: "first", From: session.Reported, At: at(1)}))
	s.Apply(session.RunAsked{Run: "run-2", At: at(5)})
	assert.Equal(t, "first", s.ConversationID, "until the new run's agent has one")
	assert.Empty(t, s.Run.Conversation)
	assert.Equal(t, "first", s.Past[0].Conversation)
	for i := range 2 * session.MaxConversations {
		s.Apply(session.Conversed{Run: "run-2", ID: fmt.Sprint("c", i), From: session.Reported, At: at(10 + i)})
	}
	assert.Equal(t, fmt.Sprint("c", 2*session.MaxConversations-1), s.ConversationID)
	assert.Len(t, s.Earlier, session.MaxConversations)
	assert.Equal(t, fmt.Sprint("c", 2*session.MaxConversations-2), s.Earlier[session.MaxConversations-1])
}

func TestNothingWasSaved(t *testing.T) {
	given := session.Conversed{Run: run, ID: "a", From: session.Given, Resume: []string{"resume", "a"}, At: at(1)}
	resumed := session.RunAsked{Run: run, BootID: "boot", Resumed: true, At: at(0)}
	s := after(newSession(), list(resumed, given, session.NothingSaved{Run: run, ID: "a"}))
	assert.False(t, s.Run.Resumed)
	assert.Equal(t, "a", s.Run.Conversation, "it is begun with the id that was chosen")

	s = after(newSession(), list(resumed, given, session.NothingSaved{Run: run}))
	assert.False(t, s.Run.Resumed)
	assert.Empty(t, s.Run.Conversation, "it is begun with an id that nobody knows yet")
	assert.Equal(t, "a", s.ConversationID, "what was known stays")

	s = after(newSession(), list(resumed, given, session.Conversed{Run: run, ID: "b", From: session.Reported, At: at(2)}, session.NothingSaved{Run: run}))
	assert.Equal(t, "b", s.Run.Conversation)
}

func TestHadAConversation(t *testing.T) {
	given := session.Conversed{Run: run, ID: "a", From: session.Given, At: at(1)}
	started := session.AgentStarted{Run: run, At: at(2)}
	assert.False(t, newSession().Had("a"))
	assert.False(t, after(newSession(), list(asked, given)).Had("a"), "its agent was not executed")
	s := after(newSession(), list(asked, given, started))
	assert.True(t, s.Had("a"))
	assert.False(t, s.Had("b"))
	s.Apply(session.RunAsked{Run: "run-2", At: at(5)})
	assert.True(t, s.Had("a"))
	assert.True(t, after(newSession(), list(asked, started)).Had("a"), "nobody knows")
}
