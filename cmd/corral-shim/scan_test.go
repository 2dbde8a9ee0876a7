package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// scanned is what a scanner found in some output.
type scanned struct {
	hasBell  bool
	commands []string
	shown    string // the filtered output
}

// scanChunks scans the output in pieces of this size.
func scanChunks(output []byte, size int) scanned {
	return scanPieces(slices.Collect(slices.Chunk(output, max(size, 1)))...)
}

func scanPieces(pieces ...[]byte) scanned {
	var result scanned
	var s scanner
	s.init(func(command []byte) { result.commands = append(result.commands, string(command)) }, nil)
	var held []byte
	for _, piece := range pieces {
		whole := slices.Concat(held, piece)
		needed := s.filter.isNeeded(whole)
		kept := s.scan(slices.Clone(whole))
		if !needed && (!bytes.Equal(kept, whole) || s.filter.held > 0) {
			panic("isNeeded returned false for a piece that was changed")
		}
		if s.filter.held > maxHeld {
			panic("too many bytes are held")
		}
		n := len(kept) - s.filter.held
		result.shown += string(kept[:n])
		held = kept[n:]
	}
	result.hasBell = s.hasBell
	return result
}

func TestScanner_FindsBellsAndOSCCommands(t *testing.T) {
	long := strings.Repeat("x", maxCommand)
	for _, row := range []struct {
		name, output string
		want         scanned
	}{
		{"text", "no bell\r\n", scanned{}},
		{"a bell", "ding\a", scanned{hasBell: true}},
		{"a bell that ends a title", "\x1b]0;title\a", scanned{commands: []string{"0;title"}}},
		{"a bell after a title", "\x1b]0;title\a\a", scanned{hasBell: true, commands: []string{"0;title"}}},
		{"a title that ends with ST", "\x1b]2;title\x1b\\\a", scanned{hasBell: true, commands: []string{"2;title"}}},
		{"two titles", "\x1b]0;a\a\x1b]0;b\x1b\\", scanned{commands: []string{"0;a", "0;b"}}},
		{"a command aborted by another sequence", "\x1b]0;a\x1b[1m\a", scanned{hasBell: true}},
		{"a command aborted by another command", "\x1b]0;a\x1b]0;b\a", scanned{commands: []string{"0;b"}}},
		{"a command that is cancelled", "\x1b]0;a\x18\a", scanned{hasBell: true}},
		{"an empty command", "\x1b]\a", scanned{}},
		{"a command of maximum length", "\x1b]" + long + "\a", scanned{commands: []string{long}}},
		{"a longer command is ignored", "\x1b]" + long + "x\a\x1b]9;hello\a", scanned{commands: []string{"9;hello"}}},
		{"a bell in a control sequence rings", "\x1b[1\am", scanned{hasBell: true}},
		{"a bell after ESC rings", "\x1b\a", scanned{hasBell: true}},
		{"a bell in a device control string does not ring", "\x1bPq\a\x1b\\", scanned{}},
		{"a bell in an application program command does not ring", "\x1b_G\a\x1b\\", scanned{}},
		{"a bell in tmux's title sequence does not ring", "\x1bkname\a\x1b\\", scanned{}},
		{"a bell after a string", "\x1bPq\x1b\\\a", scanned{hasBell: true}},
		{
			"a command passed through tmux", "\x1bPtmux;\x1b\x1b]9;done\a\x1b\\\a",
			scanned{hasBell: true, commands: []string{"9;done"}},
		},
		{
			"a command passed through tmux, with ST", "\x1bPtmux;\x1b\x1b]9;done\x1b\x1b\\\x1b\\",
			scanned{commands: []string{"9;done"}},
		},
		{"a bell passed through tmux", "\x1bPtmux;\a\x1b\\", scanned{hasBell: true}},
		{"a command aborted by the end of its wrapper", "\x1bPtmux;\x1b\x1b]9;done\x1b\\", scanned{}},
		{"an aborted wrapper", "\x1bPtmux;\x1b\x1b]9;a\x1b]9;b\a", scanned{commands: []string{"9;b"}}},
		{"a command after ESC and bytes that tmux ignores", "\x1bé]9;a\a", scanned{commands: []string{"9;a"}}},
		{"a bell after a character set rings", "\x1b(]9;a\a", scanned{hasBell: true}},
		{"characters that contain bytes of control characters", "\u009d\u2407 é", scanned{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			for _, size := range []int{1, 2, 3, 7, len(row.output)} {
				got := scanChunks([]byte(row.output), size)
				assert.Equal(t, row.want.hasBell, got.hasBell, "in pieces of %d", size)
				assert.Equal(t, row.want.commands, got.commands, "in pieces of %d", size)
				assert.Equal(t, row.output, got.shown, "in pieces of %d", size)
			}
		})
	}
}

// referenceScanner is a simple scanner that reads byte by byte, for comparison.
type referenceScanner struct {
	scanned
	kind          byte // type of the sequence: '[', ']', 'P' and so on; 0 for text
	escaped       bool
	intermediate  bool   // an intermediate byte follows ESC
	text          []byte // content of the string
	wrapped       bool   // inside a passthrough wrapper
	wrapperEscape bool   // after the first ESC in a wrapper
}

func scanReference(output []byte) scanned {
	p := &referenceScanner{}
	for _, c := range output {
		switch {
		case !p.wrapped:
			p.read(c)
		case p.wrapperEscape && c == charEscape:
			p.wrapperEscape = false
			p.read(c)
		case p.wrapperEscape:
			*p = referenceScanner{scanned: p.scanned, escaped: c != '\\'}
			if p.escaped {
				p.read(c)
			}
		case c == charEscape:
			p.wrapperEscape = true
		case c == 0x18 || c == 0x1a:
			*p = referenceScanner{scanned: p.scanned}
		default:
			p.read(c)
		}
	}
	return p.scanned
}

func (p *referenceScanner) read(c byte) {
	switch {
	case p.escaped && p.kind != 0 && p.kind != '[' && c == '\\':
		p.end(p.kind == ']')
	case c == charEscape:
		if p.escaped {
			p.kind = 0
		}
		p.escaped, p.intermediate = true, false
	case c == 0x18 || c == 0x1a:
		p.end(false)
	case p.escaped && c < ' ':
		p.kind = 0
		p.hasBell = p.hasBell || c == charBell
	case p.escaped && (c < '0' || c > '~'):
		p.kind, p.text = 0, nil
		p.intermediate = p.intermediate || c < '0'
	case p.escaped:
		introduces := !p.intermediate && strings.IndexByte("[]PX^_k", c) >= 0
		if p.end(false); introduces {
			p.kind = c
		}
	case c == charBell && p.kind == ']':
		p.end(true)
	case c == charBell && (p.kind == 0 || p.kind == '['):
		p.hasBell = true
	case p.kind == '[' && c >= 0x40 && c <= '~':
		p.end(false)
	case p.kind != 0 && p.kind != '[':
		if p.text = append(p.text, c); p.kind == 'P' && string(p.text) == wrapperPrefix && !p.wrapped {
			p.end(false)
			p.wrapped = true
		}
	}
}

// end handles the end of a sequence.
func (p *referenceScanner) end(obey bool) {
	if obey && len(p.text) > 0 && len(p.text) <= maxCommand {
		p.commands = append(p.commands, string(p.text))
	}
	p.kind, p.escaped, p.intermediate, p.text = 0, false, false, nil
}

// FuzzScanner checks that the result does not depend on how the output is split into pieces, that
// it equals that of referenceScanner, and that tmux interprets the filtered output like the
// original output, except for program status.
func FuzzScanner(f *testing.F) {
	for _, seed := range []string{
		"a\ab", "\x1b]0;t\a\a", "\x1b]9;x\x1b\\", "\x1bP\a\x1b\\\a", "\x1b[1\a;2m\x1b\x1b]7501;a\x18\x1a",
		"\x1bk\a\x1b[?2004h",
		"a\x1b]7501;state=idle\ab\x1b]7501;?\x1b\\\x1b[c", "\x1bPtmux;\x1b\x1b]7501;?\x1b\x1b\\\x1b\\c",
		"\x1bPtmux;\x1b\x1b]9;a\a\x18",
		"\x1b]7501;x\x1b]7501;y\x1b[1m", "\x1b]0;t\x1b]7501;y\az",
	} {
		f.Add([]byte(seed), uint8(2))
	}
	f.Fuzz(func(t *testing.T, b []byte, size uint8) {
		whole := scanChunks(b, len(b))
		assert.Equal(t, whole, scanChunks(b, int(size)+1))
		want := scanReference(b)
		assert.Equal(t, want.hasBell, whole.hasBell)
		assert.Equal(t, want.commands, whole.commands)
		if !bytes.Contains(b, []byte("\x1bPtmux;")) {
			again := scanChunks([]byte(whole.shown), len(whole.shown))
			assert.Equal(t, whole.shown, again.shown)
			assert.Equal(t, whole.hasBell, again.hasBell)
			assert.Equal(t, withoutStatus(whole.commands), withoutStatus(again.commands))
		}
	})
}

func withoutStatus(commands []string) string {
	rest := slices.DeleteFunc(slices.Clone(commands), func(c string) bool {
		return strings.HasPrefix(c, statusStart[2:])
	})
	return strings.Join(rest, "\x00")
}

func BenchmarkScanner(b *testing.B) {
	for name, text := range map[string]string{
		"text":    strings.Repeat("  12  \tfor i, line := range lines { total += weigh(line, i) }\r\n", 1000),
		"colours": strings.Repeat("\x1b[32m+\tif err := s.save(entry); err != nil {\x1b[0m\r\n", 1000),
		"image":   "\x1b]1337;File=" + strings.Repeat("abcdefgh", 8000) + "\a",
	} {
		b.Run(name, func(b *testing.B) {
			var s scanner
			s.init(nil, nil)
			output := []byte(text)
			b.SetBytes(int64(len(output)))
			for b.Loop() {
				_ = s.scan(output)
			}
		})
	}
}
