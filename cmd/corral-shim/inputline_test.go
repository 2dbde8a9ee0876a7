package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/corrald/corral/internal/shimwire"
)

// TestInputLine_IsClearedAfterAnInterruption: only a prompt that the agent may have put back is
// deleted, never what a person has typed.
func TestInputLine_IsClearedAfterAnInterruption(t *testing.T) {
	for _, row := range []struct {
		name  string
		typed []string // by a person; a text with a line break is a paste
		rows  int      // that are deleted
	}{
		{"nothing was entered", []string{"\x1b"}, 0},
		{"a turn was interrupted", []string{"fix it", "\r", "\x1b"}, 2},
		{"with Ctrl-C", []string{"fix it", "\r", "\x03"}, 2},
		{"with two keys", []string{"fix it", "\r", "\x1b", "\x1b"}, 2},
		{"in the kitty keyboard protocol", []string{"fix it", "\r", "\x1b[27u"}, 2},
		{"a turn with three lines", []string{"fix it\nand\nthat\r", "\x1b"}, 4},
		{"a turn with a long line", []string{strings.Repeat("x", 199), "\r", "\x1b"}, 4},
		{"a turn with very many lines", []string{strings.Repeat("x\n", 999) + "\r", "\x1b"}, maxClearedRows + 1},
		{"the turn continues", []string{"fix it", "\r"}, 0},
		{"a person has typed since", []string{"fix it", "\r", "\x1b", "no"}, 0},
		{"a person was typing", []string{"fix it", "\r", "no", "\x1b"}, 0},
		{"the prompt was entered again", []string{"fix it", "\r", "\x1b", "\r"}, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			var l inputLine
			for _, b := range row.typed {
				l.typed([]byte(b), 80)
			}
			assert.Len(t, l.clearingKeys([]string{"C-u", "BSpace"}), 2*row.rows)
			assert.Empty(t, l.clearingKeys([]string{"C-u", "BSpace"}), "only once")
		})
	}
}

// TestSend_ReplacesAnInterruptedPrompt sends texts to an agent that shows each key it has read.
func TestSend_ReplacesAnInterruptedPrompt(t *testing.T) {
	ts := newTestSession(t, "reads")
	ts.spec.ClearKeys = "C-u BSpace"
	s := ts.startShim()
	s.waitFor("go")
	d := ts.connect()
	send := func(text string) {
		d.send(shimwire.Message{Kind: shimwire.Input, Data: []byte(text), Flags: shimwire.FlagEnter, Seq: 1})
		assert.Empty(t, d.expect(shimwire.InputDone).Error)
	}
	const cleared = `read "\x15"` + "\r\n" + `read "\x7f"` + "\r\n"
	send("one")
	assert.Empty(t, d.pressKeys(shimwire.Message{Seq: 2}, "Escape").Error)
	send("two")
	s.waitFor(`read "\x1b"` + "\r\n" + cleared + cleared + `read "two"` + "\r\n" + `read "\r"`)
	send("three")
	s.waitFor(`read "\r"` + "\r\n" + `read "three"`)
	assert.Empty(t, d.pressKeys(shimwire.Message{Seq: 3}, "Escape").Error)
	send("")
	s.waitFor(`read "three"` + "\r\n" + `read "\r"` + "\r\n" + `read "\x1b"` + "\r\n" + `read "\r"`)
	send("four")
	s.waitFor(`read "\x1b"` + "\r\n" + `read "\r"` + "\r\n" + `read "four"`)
}
