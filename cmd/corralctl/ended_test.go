package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/corrald/corral/dbusapi/client"
)

// TestEndMenu_EscapesTheProgramsName: the file that a session executes can have any name.
func TestEndMenu_EscapesTheProgramsName(t *testing.T) {
	for _, state := range []string{"created", "failed", "suspended", "stale"} {
		s := client.Session{Id: "x", Agent: "command", State: state, Command: []string{"/tmp/a\x1b]0;b\x07\nc"}}
		text := strings.Join(endMenuFor(s, 0).lines(200), "\n")
		assert.NotContains(t, text, "\x1b", state)
		assert.NotContains(t, text, "\x07", state)
	}
}

// TestEndMenu_ExplainsASetup: the log of a session that has never run contains the output of its
// setup.
func TestEndMenu_ExplainsASetup(t *testing.T) {
	s := client.Session{Id: "x", State: "created", Command: []string{"true"}}
	assert.NotContains(t, strings.Join(endMenuFor(s, 0).lines(80), "\n"), "log")
	assert.Equal(t, "true has never been started", resultSentence(s, 0, time.Now()))
	s.Reason = "its worktree could not be set up"
	assert.Contains(t, strings.Join(endMenuFor(s, 0).lines(80), "\n"), "log        show the output of the setup")
	assert.Equal(t, "true has never been started: its worktree could not be set up", resultSentence(s, 0, time.Now()))
}
