package main

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/testbed"
)

// readerSession starts a session whose program sets up its terminal and then writes what it reads
// from it into a file (got).
func (d *corrald) readerSession(t *testing.T, id, setUp string) (s *testSession, got string) {
	t.Helper()
	got = d.dir + "/" + id + "-got"
	s = d.run(t, id, setUp+"; echo go; exec cat >"+got)
	waitFile(t, d.stateDir(id)+"/output.log", "go")
	return s, got
}

func waitContent(t *testing.T, path, want string) {
	t.Helper()
	var last string
	defer func() {
		if t.Failed() {
			t.Logf("%s has %d bytes, not %d: %.200q", path, len(last), len(want), last)
		}
	}()
	testbed.WaitFile(t, path, func(b []byte) bool { last = string(b); return last == want })
}

// TestSendInput_ArrivesUnchanged sends texts with special characters in each mode of the terminal.
func TestSendInput_ArrivesUnchanged(t *testing.T) {
	d := startDaemon(t)
	texts := []string{
		"Enter", "C-c", "-l", ";", "one\ntwo\n\nthree", "a\ttab  and 漢字 ✳ é", `$HOME "quoted" \n #{pane_title} %1`,
		"\x1b[A\x1bOP\x1b[200~ \x1b]0;title\x07 \x1b", strings.Repeat("a hundred kilobytes, and no byte less\n", 2632),
	}
	t.Run("lines", func(t *testing.T) {
		s, got := d.readerSession(t, "lines", "stty -echo")
		var want strings.Builder
		for _, text := range append(texts, "\x03\x04\x15\x1a\x1c\x7f\x11\x13\x16", strings.Repeat("w", 20_000)+"\x03") {
			s.must("SendInput", text, dbusapi.InputEnter)
			want.WriteString(text + "\n")
		}
		waitContent(t, got, want.String())
		s.waitState("running")
	})
	t.Run("keys", func(t *testing.T) {
		s, got := d.readerSession(t, "keys", "stty raw -echo")
		var want strings.Builder
		for _, text := range append(texts, "\x03\x04\x15\x1a") {
			s.must("SendInput", text, dbusapi.InputEnter)
			want.WriteString(strings.ReplaceAll(text, "\n", "\r") + "\r")
		}
		waitContent(t, got, want.String())
	})
	t.Run("pastes", func(t *testing.T) {
		s, got := d.readerSession(t, "pastes", `stty raw -echo; printf '\033[?2004h'`)
		var want strings.Builder
		for _, text := range append(texts, "harmless\x1b[201~\rrm -rf x\x1b[20\x1b[201~1~\u009b201~") {
			s.must("SendInput", text, dbusapi.InputEnter)
			text, _, _ = strings.Cut(text, "\x1b[201~\rrm")
			if strings.HasPrefix(text, "harmless") {
				text += "\rrm -rf x"
			}
			want.WriteString("\x1b[200~" + strings.ReplaceAll(text, "\n", "\r") + "\x1b[201~\r")
		}
		waitContent(t, got, want.String())
	})
}

// TestSendInput_OfTwoClientsIsNotInterleaved checks that texts of two clients are not mixed, and
// that those of each client keep their order.
func TestSendInput_OfTwoClientsIsNotInterleaved(t *testing.T) {
	d := startDaemon(t)
	_, got := d.readerSession(t, "both", "stty raw -echo")
	const each = 20
	done := make(chan *dbus.Call, 2*each)
	for _, letter := range []string{"A", "B"} {
		object := testbed.Bus(t).Object(dbusapi.BusName, dbusapi.SessionPath("both"))
		for n := range each {
			object.Go(dbusapi.SessionInterface+".SendInput", 0, done,
				fmt.Sprintf("%s%d:%s.", letter, n, strings.Repeat(letter, 5000)), uint64(0))
		}
	}
	for range 2 * each {
		require.NoError(t, testbed.Receive(t, done, "answer").Err)
	}
	content := testbed.WaitFile(t, got, func(b []byte) bool { return strings.Count(string(b), ".") == 2*each })
	next := map[string]int{}
	for _, text := range strings.Split(strings.TrimSuffix(string(content), "."), ".") {
		letter := text[:1]
		require.Equal(t, fmt.Sprintf("%s%d:%s", letter, next[letter], strings.Repeat(letter, 5000)), text)
		next[letter]++
	}
}

// TestSendKeys_ArriveInOrder sends keys alone and alternating with texts.
func TestSendKeys_ArriveInOrder(t *testing.T) {
	d := startDaemon(t)
	s, got := d.readerSession(t, "keys", "stty raw -echo")
	s.must("SendKeys", []string{"C-a", "Enter", "Escape", "Up", "F1", "Tab", "BSpace", "M-x", "p", "l", " ", "é",
		"漢", ";", "-", "Space"})
	want := "\x01\r\x1b\x1b[A\x1bOP\t\x7f\x1bxpl é漢;- "
	waitContent(t, got, want)
	var keys []string
	for n := range 300 {
		keys = append(keys, string(rune('a'+n%26)), "Enter")
		want += string(rune('a'+n%26)) + "\r"
	}
	s.must("SendKeys", keys)
	waitContent(t, got, want)
	for n := range 50 {
		s.must("SendKeys", []string{"k", "Enter"})
		s.must("SendInput", fmt.Sprint("text ", n), uint64(0))
		want += fmt.Sprint("k\rtext ", n)
	}
	waitContent(t, got, want)
	assertRefused(t, s.do("SendKeys", []string{"x", "Entr"}), dbusapi.InvalidArgs, `"Entr"`)
	assertRefused(t, s.do("SendKeys", []string{"x", "S-Enter"}), dbusapi.InvalidState, "S-Enter")
	waitContent(t, got, want+"x")
}

// TestSendInput_WorksWithVimAndBash sends input to real programs that draw the screen or edit the
// input line themselves.
func TestSendInput_WorksWithVimAndBash(t *testing.T) {
	d := startDaemon(t)
	screen := func(s *testSession, text string) {
		t.Helper()
		waitFile(t, d.stateDir(s.id)+"/output.log", text)
	}
	t.Run("vim", func(t *testing.T) {
		file := d.dir + "/poem"
		s := d.create(t, "vim",
			spec{"Command": []string{"vim", "-N", "-u", "NONE", "-i", "NONE", "-n", "--cmd", "set autoindent showmode", file}})
		screen(s, "\x1b[?2004h")
		s.must("SendKeys", []string{"i"})
		screen(s, "INSERT")
		poem := "    indented\n        more\n:q!\nEscape C-c é漢\n" + strings.Repeat("a long line ", 500) + "\nend"
		s.must("SendInput", poem, uint64(0))
		s.must("SendKeys", []string{"Escape", ":", "w", "q", "Enter"}) // a text would be pasted into the file
		s.waitOutcome(outcome{"completed", "success", 1, 0, "", "active"})
		assert.Equal(t, poem+"\n", readFile(t, file))
	})
	for name, mode := range map[string]string{"bash": "on", "bash-without-paste": "off"} {
		t.Run(name, func(t *testing.T) {
			rc := d.dir + "/" + name + ".rc"
			require.NoError(t, os.WriteFile(rc, []byte("PS1='ready> '; bind 'set enable-bracketed-paste "+mode+"'\n"), 0o600))
			s := d.create(t, name, spec{"Command": []string{"bash", "--rcfile", rc, "-i"}})
			screen(s, "ready> ")
			out := d.dir + "/" + name + "-out"
			s.must("SendInput", "for i in 1 2 3; do\necho \"line $i\" >>"+out+"\ndone; echo 'an\t\"end\"' >>"+out,
				dbusapi.InputEnter)
			// Without bracketed paste the shell completes at a tab.
			want := map[string]string{"on": "line 1\nline 2\nline 3\nan\t\"end\"\n"}[mode]
			if mode == "off" {
				waitFile(t, out, "line 3\n")
			} else {
				waitContent(t, out, want)
			}
			s.must("SendInput", "exit 4", dbusapi.InputEnter)
			s.waitOutcome(outcome{"failed", "exit-code", 1, 4, "command exited with code 4", "error"})
		})
	}
}

// TestSendInput_WorksInAStaleSession checks that the shim accepts texts and keys without tmux.
func TestSendInput_WorksInAStaleSession(t *testing.T) {
	d := startDaemon(t)
	s, got := d.readerSession(t, "stale", "stty -echo")
	kill(t, s.process("tmux: server"), syscall.SIGKILL)
	s.waitState("stale")
	s.must("SendInput", "still\nthere", dbusapi.InputEnter)
	waitContent(t, got, "still\nthere\n")
	s.must("SendKeys", []string{"k", "Enter"})
	waitContent(t, got, "still\nthere\nk\n")
	assertRefused(t, s.do("Capture", uint32(0), uint64(0)), dbusapi.InvalidState, `"stale"`)
	s.must("Resume")
	s.must("SendInput", "again", dbusapi.InputEnter)
	waitContent(t, got, "still\nthere\nk\nagain\n")
}

// TestSendInput_FailsWhenTheAgentDoesNotRead checks that only the senders to such an agent wait,
// and for a bounded time.
func TestSendInput_FailsWhenTheAgentDoesNotRead(t *testing.T) {
	d := startDaemon(t)
	deaf := d.run(t, "deaf", "stty raw -echo; echo go; exec sleep 1000")
	other, got := d.readerSession(t, "other", "stty raw -echo")
	waitFile(t, d.stateDir("deaf")+"/output.log", "go")
	done := make(chan *dbus.Call, 2)
	begin := time.Now()
	for _, letter := range []string{"x", "y"} { // the terminal holds neither text, whichever comes first
		testbed.Bus(t).Object(dbusapi.BusName, dbusapi.SessionPath("deaf")).
			Go(dbusapi.SessionInterface+".SendInput", 0, done, strings.Repeat(letter, 200_000), dbusapi.InputEnter)
	}
	var want strings.Builder
	for n := range 20 {
		text := fmt.Sprintf("%d\r", n)
		want.WriteString(text)
		other.must("SendInput", text, uint64(0))
		deaf.must("SetDescription", text)
		var screen string
		require.NoError(t, d.manager("GetSession", []any{"other"}, new(dbus.ObjectPath)))
		require.NoError(t, d.call(dbusapi.SessionPath("deaf"), dbusapi.SessionInterface+".Capture",
			[]any{uint32(0), uint64(0)}, &screen))
		deaf.properties()
	}
	waitContent(t, got, want.String())
	assert.Empty(t, done, "the senders were still waiting")
	for range 2 {
		assertRefused(t, testbed.Receive(t, done, "answer").Err, dbusapi.InvalidState, `"deaf"`, "does not read")
	}
	assert.Less(t, time.Since(begin), 25*time.Second, "D-Bus clients wait for 25 s")
	deaf.must("Stop", uint64(0))
}

// TestSendInput_IsTheLastInput sends text until the kernel updates the time at which the terminal
// was last read, which it does every eight seconds.
func TestSendInput_IsTheLastInput(t *testing.T) {
	d := startDaemon(t)
	begin := time.Now()
	s, _ := d.readerSession(t, "shop", "stty -echo")
	lastInput := func() uint64 { n, _ := s.properties()["LastInputTimestamp"].Value().(uint64); return n }
	assert.Zero(t, lastInput(), "nothing was sent")
	testbed.Poll(t, "input was read", func() bool {
		s.must("SendInput", "x", dbusapi.InputEnter)
		return lastInput() > 0
	})
	assert.WithinRange(t, time.UnixMicro(int64(lastInput())), begin.Add(-time.Second), time.Now())
}
