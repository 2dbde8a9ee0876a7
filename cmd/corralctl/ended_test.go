package main

import (
	"strings"
	"testing"

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
