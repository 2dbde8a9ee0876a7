package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/shimwire"
)

// writtenBy returns what a text writes to a terminal that accepts size bytes at a time.
func writtenBy(t *text, size int) string {
	var got bytes.Buffer
	for {
		b := t.next()
		if len(b) == 0 {
			return got.String()
		}
		b = b[:min(len(b), size)]
		got.Write(b)
		t.advance(len(b))
	}
}

func TestText_IsEncodedForTheTerminalMode(t *testing.T) {
	line, tui := saneSettings(), rawSettings(saneSettings())
	keys, bare := saneSettings(), saneSettings()
	keys.Lflag &^= unix.ICANON
	keys.Iflag |= unix.IXON
	bare.Lflag &^= unix.IEXTEN
	plain := saneSettings()
	plain.Iflag &^= unix.ICRNL
	long := strings.Repeat("a", 3*maxLine)
	for _, c := range []struct {
		name  string
		mode  *unix.Termios
		paste bool
		text  string
		want  string
	}{
		{"canonical mode", line, false, "a\nb\r\nc", "a\rb\rc"},
		{"without ICRNL", plain, false, "a\nb", "a\nb"},
		{"raw mode", tui, false, "a\n\nb\r\n", "a\r\rb\r"},
		{"a paste", tui, true, "a\nb", "\x1b[200~a\rb\x1b[201~"},
		{"a paste in canonical mode", line, true, "a\nb", "\x1b[200~a\rb\x1b[201~"},
		{
			"a paste that contains the end of a paste", tui, true, "a\x1b[201~rm\x1b[20\x1b[201~1~\n",
			"\x1b[200~arm\r\x1b[201~",
		},
		{"the end of a paste without a paste", tui, false, "a\x1b[201~", "a\x1b[201~"},
		{
			"a paste with variants of its end", tui, true, "a\x1b[0201~b\x1b[201;1~c\u009b201~d\u009b00\x1b[201~201~e",
			"\x1b[200~abcde\x1b[201~",
		},
		{
			"a paste with similar sequences", tui, true, "201~ \x1b[2010~ \x1b[1201~ [201~ \x1b[200~ \x1b[31m",
			"\x1b[200~201~ \x1b[2010~ \x1b[1201~ [201~ \x1b[200~ \x1b[31m\x1b[201~",
		},
		{"nothing", tui, true, "", ""},
		{
			"special characters in canonical mode", line, false, "a\x03b\x04\x16\x7f\x1bc",
			"a\x16\x03b\x16\x04\x16\x16\x16\x7f\x1bc",
		},
		{"special characters in raw mode", tui, false, "a\x03b\x04\x16\x7f\x1bc", "a\x03b\x04\x16\x7f\x1bc"},
		{"special characters with ISIG", keys, false, "a\x03b\x04\x1a\x1c\x13c", "ab\x04c"},
		{"special characters in a paste", keys, true, "a\x03b\x04", "\x1b[200~ab\x04\x1b[201~"},
		{"special characters without quoting", bare, false, "a\x03b\x16\x7f\n", "ab\x16\r"},
		{
			"a special character where a long line is split", line, false, long[:maxLine-1] + "\x03\x04",
			long[:maxLine-1] + "\x16\x03\x04\x16\x04",
		},
		{"a long line in raw mode", tui, false, long, long},
		{"a long line in canonical mode", line, false, long + "b\nc", strings.Repeat(long[:maxLine]+"\x04", 3) + "b\rc"},
		{"a line that just fits", line, false, long[:maxLine-1] + "\nb", long[:maxLine-1] + "\rb"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, size := range []int{1, 7, 4096, 1 << 20} {
				x := &text{}
				require.True(t, x.append([]byte(c.text[:len(c.text)/2])))
				require.True(t, x.append([]byte(c.text[len(c.text)/2:])))
				x.prepare(c.paste, c.mode)
				assert.Equal(t, c.want, writtenBy(x, size))
			}
		})
	}
}

// FuzzPaste checks that no text can end its paste, and that the rest of the text is not changed.
func FuzzPaste(f *testing.F) {
	f.Add([]byte("one\ntwo\x1b[201~\r\n"))
	f.Add([]byte("\x1b[20\x1b[201~1~"))
	f.Fuzz(func(t *testing.T, b []byte) {
		x := &text{}
		require.True(t, x.append(b))
		x.prepare(true, rawSettings(saneSettings()))
		got := writtenBy(x, 1<<20)
		if len(b) == 0 {
			assert.Empty(t, got)
			return
		}
		inside := strings.TrimSuffix(strings.TrimPrefix(got, "\x1b[200~"), "\x1b[201~")
		assert.Len(t, got, len(inside)+12)
		assert.NotRegexp(t, "(\x1b\\[|\u009b)0*201([ -/:-?][ -?]*)?~", inside)
		assert.NotContains(t, inside, "\n")
		special := string(specialCharacters(rawSettings(saneSettings())))
		if !bytes.ContainsAny(b, "\x1b\u009b") && !bytes.ContainsAny(b, special) {
			assert.Equal(t, strings.NewReplacer("\r\n", "\r", "\n", "\r").Replace(string(b)), inside)
		}
	})
}

func TestInput_ReachesALineReader(t *testing.T) {
	ts := newTestSession(t, "sh", "-c", "stty -echo; echo go; cat > got; echo done")
	s := ts.startShim()
	s.waitFor("go")
	d := ts.connect()
	var want strings.Builder
	for _, length := range []int{0, 1, 3000, 3000, 4094, 4095, 4096, 20_000, 300_000} {
		want.WriteString(strings.Repeat("w", length) + "\n")
	}
	assert.Empty(t, d.sendTextAndWait(1, want.String(), 0).Error)
	assert.Empty(t, d.sendTextAndWait(2, "end", shimwire.FlagEnter).Error)
	assert.Empty(t, d.sendTextAndWait(3, "", shimwire.FlagEnter).Error)
	s.typeKeys("\x04")
	require.Equal(t, 0, s.wait())
	assert.Equal(t, want.String()+"end\n\n", ts.readFile("got"))
}

func TestInput_UsesBracketedPaste(t *testing.T) {
	ts := newTestSession(t, "sh", "-c", `stty raw -echo; printf '\033[?20'; printf '04hgo'; head -c 25 > got; printf one; head -c 1 > enter; printf two`)
	s := ts.startShim()
	s.waitFor("go")
	d := ts.connect()
	assert.Empty(t, d.sendTextAndWait(9, "hello\nworld\x1b[201~!!", shimwire.FlagEnter).Error)
	s.waitFor("onetwo")
	require.Equal(t, 0, s.wait())
	assert.Equal(t, "\x1b[200~hello\rworld!!\x1b[201~", ts.readFile("got"))
	assert.Equal(t, "\r", ts.readFile("enter"))
}

// TestInput_TypesAnswersToDialogs checks that a single line is typed, because dialogs read keys and
// ignore pastes. A text of several lines is not considered an answer.
func TestInput_TypesAnswersToDialogs(t *testing.T) {
	ts := newTestSession(t, "sh", "-c", `stty raw -echo; printf '\033[?2004h\033]7501;state=blocked:kind=permission\033\\may I?'; head -c 2 >answer
		printf '\033]7501;state=blocked:kind=permission\033\\and?'; head -c 16 >paste; printf over; read rest`)
	s := ts.startShim()
	d := ts.connect()
	s.waitFor("may I?")
	assert.Empty(t, d.sendTextAndWait(1, "1", shimwire.FlagEnter).Error)
	s.waitFor("and?")
	assert.Empty(t, d.sendTextAndWait(2, "a\nb", shimwire.FlagEnter).Error)
	s.waitFor("over")
	assert.Equal(t, "1\r", ts.readFile("answer"))
	assert.Equal(t, "\x1b[200~a\rb\x1b[201~\r", ts.readFile("paste"))
}

func TestInput_SendsEnterAfterTheTextWasRead(t *testing.T) {
	ts := newTestSession(t, "reads")
	s := ts.startShim()
	s.waitFor("go")
	d := ts.connect()
	assert.Empty(t, d.sendTextAndWait(1, "some text", shimwire.FlagEnter).Error)
	s.waitFor(`read "some text"` + "\r\n" + `read "\r"` + "\r\n")
	s.typeKeys("\x03")
	s.wait()
}

// A program that computes has not processed its input yet, although it has read it and printed
// something.
func TestInput_SendsEnterAfterTheProgramHasStoppedComputing(t *testing.T) {
	for name, send := range map[string]func(*daemon) string{
		"paste": func(d *daemon) string { return d.sendTextAndWait(1, "some text", shimwire.FlagEnter).Error },
		"keys":  func(d *daemon) string { return d.pressKeys(shimwire.Message{Seq: 1}, "a", "b", "!", "Enter").Error },
	} {
		t.Run(name, func(t *testing.T) {
			ts := newTestSession(t, "computes")
			s := ts.startShim()
			s.waitFor("go")
			assert.Empty(t, send(ts.connect()))
			s.waitFor(`unread 0, then "\r"`)
			require.Equal(t, 0, s.wait())
		})
	}
}

func TestInput_SendsEnterAfterTimeoutIfTheTextIsUnread(t *testing.T) {
	ts := newTestSession(t, "sh", "-c", `stty raw -echo; printf go; while [ ! -e now ]; do read -t 0.05 x < /dev/null; sleep 0.05; done; head -c 5 > got`)
	s := ts.startShim()
	s.waitFor("go")
	d := ts.connect()
	assert.Empty(t, d.sendTextAndWait(1, "text", shimwire.FlagEnter).Error)
	ts.writeFile("now", "")
	require.Equal(t, 0, s.wait())
	assert.Equal(t, "text\r", ts.readFile("got"))
}

func TestInput_DeliversConcurrentTextsUnmixed(t *testing.T) {
	ts := newTestSession(t, "sh", "-c", "stty raw -echo; printf go; head -c 600300 > got")
	s := ts.startShim()
	s.waitFor("go")
	a, b := ts.connect(), ts.connect()
	big := strings.Repeat("A", 300_000)
	a.sendText(1, big, 0)
	s.typeKeys(strings.Repeat("k", 300))
	b.sendText(1, strings.Repeat("B", 300_000), 0)
	assert.Empty(t, a.expect(shimwire.InputDone).Error)
	assert.Empty(t, b.expect(shimwire.InputDone).Error)
	require.Equal(t, 0, s.wait())
	got := ts.readFile("got")
	for _, part := range []string{big, strings.Repeat("B", 300_000), strings.Repeat("k", 300)} {
		assert.Contains(t, got, part)
	}
}

func TestInput_RejectsTooMuchText(t *testing.T) {
	ts := newTestSession(t, "sh", "-c", "stty raw -echo; printf go; exec sleep 1000")
	s := ts.startShim()
	s.waitFor("go")
	d, other := ts.connect(), ts.connect()
	d.sendText(1, strings.Repeat("x", 900_000), 0)
	tooMuch := other.sendTextAndWait(2, strings.Repeat("y", 900_000), 0)
	assert.Equal(t, "too much text is waiting to be read by the agent", tooMuch.Error)
	for seq := range uint32(maxTexts - 1) {
		d.sendText(10+seq, "z", 0)
	}
	assert.Equal(t, "too many texts are waiting to be read by the agent", d.sendTextAndWait(5000, "z", 0).Error)
	s.typeKeys("never read")
	ts.killAgent(d)
	refused := d.expect(shimwire.InputDone)
	assert.Equal(t, uint32(1), refused.Seq)
	assert.Equal(t, "the agent has ended", refused.Error)
	assert.Equal(t, 137, s.wait())
}

// TestInput_WithdrawsTextsOfClosedConnections checks that a text is dropped if its sender
// disconnects before the shim has begun to write it: the sender reports it as not delivered.
func TestInput_WithdrawsTextsOfClosedConnections(t *testing.T) {
	ts := newTestSession(t, "sh", "-c", "mkfifo now; stty raw -echo; printf go; head -c 1 > first; printf one; "+
		"read -r line < now; head -c 300004 > got")
	s := ts.startShim()
	s.waitFor("go")
	begun, waits, stays := ts.connect(), ts.connect(), ts.connect()
	begun.sendText(1, strings.Repeat("b", 300_000), 0)
	s.waitFor("one")
	waits.sendText(1, "withdrawn", 0)
	stays.sendText(1, "stays", 0)
	begun.close()
	waits.close()
	ts.writeFile("now", "\n")
	assert.Empty(t, stays.expect(shimwire.InputDone).Error)
	require.Equal(t, 0, s.wait())
	assert.Equal(t, strings.Repeat("b", 299_999)+"stays", ts.readFile("got"))
}

func TestInput_DiscardsTextsOfInterruptedConnections(t *testing.T) {
	ts := newTestSession(t, "sh", "-c", "stty raw -echo; printf go; head -c 5 > got")
	s := ts.startShim()
	s.waitFor("go")
	a, b := ts.connect(), ts.connect()
	a.send(shimwire.Message{Kind: shimwire.Input, Seq: 1, Flags: shimwire.FlagMore, Data: []byte("never whole")})
	a.close()
	assert.Empty(t, b.sendTextAndWait(1, "whole", 0).Error)
	require.Equal(t, 0, s.wait())
	assert.Equal(t, "whole", ts.readFile("got"))
}
