package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// heard is what a scanner takes note of in an output.
type heard struct {
	rang     bool
	commands []string
}

// hear lets a scanner read the output in pieces of this size.
func hear(output []byte, size int) heard {
	var h heard
	var s scanner
	s.init(func(command []byte) { h.commands = append(h.commands, string(command)) })
	for piece := range slices.Chunk(output, max(size, 1)) {
		s.scan(piece)
	}
	h.rang = s.rang
	return h
}

func TestBellsAndCommands(t *testing.T) {
	long := strings.Repeat("x", maxCommand)
	for _, row := range []struct {
		name, output string
		want         heard
	}{
		{"text", "no bell\r\n", heard{}},
		{"a bell", "ding\a", heard{rang: true}},
		{"a bell that ends a title", "\x1b]0;title\a", heard{commands: []string{"0;title"}}},
		{"and one behind it", "\x1b]0;title\a\a", heard{true, []string{"0;title"}}},
		{"a title that ends with ST", "\x1b]2;title\x1b\\\a", heard{true, []string{"2;title"}}},
		{"two titles", "\x1b]0;a\a\x1b]0;b\x1b\\", heard{commands: []string{"0;a", "0;b"}}},
		{"a command that is broken off by another sequence", "\x1b]0;a\x1b[1m\a", heard{rang: true}},
		{"by another command", "\x1b]0;a\x1b]0;b\a", heard{commands: []string{"0;b"}}},
		{"a command that is cancelled", "\x1b]0;a\x18\a", heard{rang: true}},
		{"a command of nothing", "\x1b]\a", heard{}},
		{"a command as long as can be", "\x1b]" + long + "\a", heard{commands: []string{long}}},
		{"one that is longer is passed over", "\x1b]" + long + "x\a\x1b]9;hello\a", heard{commands: []string{"9;hello"}}},
		{"a bell in a control sequence rings", "\x1b[1\am", heard{rang: true}},
		{"a bell behind ESC rings", "\x1b\a", heard{rang: true}},
		{"a bell in a device control string does not", "\x1bPq\a\x1b\\", heard{}},
		{"nor in an application's", "\x1b_G\a\x1b\\", heard{}},
		{"nor in a title as tmux has them", "\x1bkname\a\x1b\\", heard{}},
		{"a bell behind a string", "\x1bPq\x1b\\\a", heard{rang: true}},
		{"what is passed through tmux", "\x1bPtmux;\x1b\x1b]9;done\a\x1b\\", heard{commands: []string{"9;done"}}},
		{"a character whose bytes look like others", "\u009d\u2407 é", heard{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			for _, size := range []int{1, 2, 3, 7, len(row.output)} {
				assert.Equal(t, row.want, hear([]byte(row.output), size), "in pieces of %d", size)
			}
		})
	}
}

// plainly reads an output byte by byte, without any of the haste of a scanner.
func plainly(output []byte) heard {
	var h heard
	kind, escaped := byte(0), false
	var text []byte
	for _, c := range output {
		if escaped {
			escaped = false
			switch {
			case kind != 0 && kind != '[' && c == '\\':
				if kind == ']' && len(text) > 0 && len(text) <= maxCommand {
					h.commands = append(h.commands, string(text))
				}
				kind = 0
				continue
			case c == charEscape:
				kind, escaped = 0, true
				continue
			case c == charCancel || c == charSubstitute:
				kind = 0
				continue
			case c < ' ':
				kind, escaped = 0, true
				h.rang = h.rang || c == charBell
				continue
			}
			kind, text = 0, nil
			if strings.IndexByte("[]PX^_k", c) >= 0 {
				kind = c
			}
			continue
		}
		inText := kind == 0 || kind == '['
		switch {
		case c == charEscape:
			escaped = true
		case c == charCancel || c == charSubstitute:
			kind = 0
		case c == charBell && kind == ']':
			if len(text) > 0 && len(text) <= maxCommand {
				h.commands = append(h.commands, string(text))
			}
			kind = 0
		case c == charBell && inText:
			h.rang = true
		case kind == '[' && c >= 0x40:
			kind = 0
		case kind == ']':
			text = append(text, c)
		}
	}
	return h
}

// FuzzScanner holds that it does not matter into which pieces the output falls, and that nothing is heard otherwise than by a reader of single bytes.
func FuzzScanner(f *testing.F) {
	for _, seed := range []string{"a\ab", "\x1b]0;t\a\a", "\x1b]9;x\x1b\\", "\x1bP\a\x1b\\\a", "\x1b[1\a;2m\x1b\x1b]7501;a\x18\x1a", "\x1bk\a\x1b[?2004h"} {
		f.Add([]byte(seed), uint8(2))
	}
	f.Fuzz(func(t *testing.T, b []byte, size uint8) {
		want := plainly(b)
		assert.Equal(t, want, hear(b, len(b)))
		assert.Equal(t, want, hear(b, int(size)+1))
	})
}

func BenchmarkScanner(b *testing.B) {
	for name, text := range map[string]string{
		"text":    strings.Repeat("  12  \tfor i, line := range lines { total += weigh(line, i) }\r\n", 1000),
		"colours": strings.Repeat("\x1b[32m+\tif err := s.save(entry); err != nil {\x1b[0m\r\n", 1000),
		"image":   "\x1b]1337;File=" + strings.Repeat("abcdefgh", 8000) + "\a",
	} {
		b.Run(name, func(b *testing.B) {
			var s scanner
			s.init(nil)
			output := []byte(text)
			b.SetBytes(int64(len(output)))
			for b.Loop() {
				s.scan(output)
			}
		})
	}
}
