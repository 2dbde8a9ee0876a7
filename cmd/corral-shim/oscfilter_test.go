package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestOSCFilter_RemovesProgramStatus(t *testing.T) {
	for _, row := range []struct{ name, output, shown string }{
		{"with BEL", "a\x1b]7501;state=idle\ab", "ab"},
		{"with ST", "a\x1b]7501;state=idle\x1b\\b", "ab"},
		{"the query, and what comes with it", "\x1b]7501;?\x1b\\\x1b[c", "\x1b[c"},
		{"two", "\x1b]7501;a\a\x1b]7501;b\a", ""},
		{
			"another number", "\x1b]7502;a\a\x1b]75;b\a\x1b]7501\a\x1b]07501;c\a",
			"\x1b]7502;a\a\x1b]75;b\a\x1b]7501\a\x1b]07501;c\a",
		},
		{"far too long", "a\x1b]7501;" + strings.Repeat("x", 2*maxCommand) + "\ab", "ab"},
		{"cancelled", "a\x1b]7501;x\x18b\x1b]7501;y\x1ac", "abc"},
		{"aborted by a visible sequence", "a\x1b]7501;x\x1b[1mb", "a\x1b[1mb"},
		{"aborted by another one", "a\x1b]7501;x\x1b]7501;y\ab", "ab"},
		{"in another command, which it aborts", "\x1b]0;t\x1b]7501;x\ab", "\x1b]0;t\x1b]7501;x\ab"},
		{"after an ESC, with which no other sequence may start", "\x1b\x1b]7501;x\ac", "\x1b\x1b]7501;x\ac"},
		{"with a control character after its ESC", "\x1b\n]7501;x\ac", "\x1b\n]7501;x\ac"},
		{"passed through tmux", "a\x1bPtmux;\x1b\x1b]7501;x\a\x1b\\b", "ab"},
		{"passed through tmux, with ST", "a\x1bPtmux;\x1b\x1b]7501;x\x1b\x1b\\\x1b\\b", "ab"},
		{"another command passed through tmux", "a\x1bPtmux;\x1b\x1b]9;x\a\x1b\\b", "a\x1bPtmux;\x1b\x1b]9;x\a\x1b\\b"},
		{
			"another command passed through tmux, with the same prefix", "a\x1bPtmux;\x1b\x1b]75\a\x1b\\b",
			"a\x1bPtmux;\x1b\x1b]75\a\x1b\\b",
		},
		{"text before it in the wrapper", "\x1bPtmux;t\x1b\x1b]7501;x\a\x1b\\b", "\x1bPtmux;t\x1b\x1b]7501;x\a\x1b\\b"},
		{"a wrapper aborted by a visible sequence", "\x1bPtmux;\x1b\x1b]7501;x\x1b[1mb", "\x1b[1mb"},
		{"another device control string", "\x1bPtmix;\x1b]7501;x\ab", "\x1bPtmix;\x1b]7501;x\ab"},
	} {
		t.Run(row.name, func(t *testing.T) {
			for _, size := range []int{1, 2, 3, 7, len(row.output)} {
				assert.Equal(t, row.shown, scanChunks([]byte(row.output), size).shown, "in pieces of %d", size)
			}
		})
	}
}

// TestOSCFilter_IsIndependentOfReadBoundaries uses long outputs of well-formed sequences: all
// commands are found, and the output is shown without its program status.
func TestOSCFilter_IsIndependentOfReadBoundaries(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		var output, shown strings.Builder
		var commands []string
		for range 30 {
			piece, command, status := anySequence(r)
			output.WriteString(piece)
			if command != "" {
				commands = append(commands, command)
			}
			if !status {
				shown.WriteString(piece)
			}
		}
		for _, size := range []int{1, 2, 5, 1 + r.IntN(40), output.Len()} {
			got := scanChunks([]byte(output.String()), size)
			assert.Equal(t, shown.String(), got.shown, "seed %d, in pieces of %d", seed, size)
			assert.Equal(t, commands, got.commands, "seed %d, in pieces of %d", seed, size)
		}
	}
	const output = "a\x1b]7501;state=idle\x1b\\b\x1bPtmux;\x1b\x1b]7501;?\x1b\x1b\\\x1b\\c\x1b[1md"
	for i := range len(output) {
		for j := i; j < len(output); j++ {
			got := scanPieces([]byte(output[:i]), []byte(output[i:j]), []byte(output[j:]))
			assert.Equal(t, "abc\x1b[1md", got.shown, "split at %d and %d", i, j)
			assert.Equal(t, []string{"7501;state=idle", "7501;?"}, got.commands, "split at %d and %d", i, j)
		}
	}
}

// anySequence returns a random piece of output, the command in it, and whether that command is a
// program status.
func anySequence(r *rand.Rand) (piece, command string, status bool) {
	end := []string{"\a", "\x1b\\"}[r.IntN(2)]
	switch r.IntN(7) {
	case 0:
		return fmt.Sprintf("text %d\r\n", r.IntN(1000)), "", false
	case 1:
		return fmt.Sprintf("\x1b[%d;%dH", r.IntN(50), r.IntN(50)), "", false
	case 2:
		command = fmt.Sprintf("0;title %d", r.IntN(1000))
	case 3:
		command = fmt.Sprintf("75%d;x", r.IntN(10))
	case 4:
		return "\x1bPq#0;2;0;0;0" + strings.Repeat("~", r.IntN(20)) + "\x1b\\", "", false
	case 5:
		command = fmt.Sprintf("7501;state=working:progress=%d", r.IntN(100))
		return "\x1b]" + command + end, command, true
	case 6:
		command = fmt.Sprintf("7501;state=done:id=part/%d", r.IntN(100))
		return "\x1bPtmux;" + strings.ReplaceAll("\x1b]"+command+end, "\x1b", "\x1b\x1b") + "\x1b\\", command, true
	}
	return "\x1b]" + command + end, command, false
}
