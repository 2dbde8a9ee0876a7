package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/corrald/corral/dbusapi/word"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/clock"
	"github.com/corrald/corral/internal/shimwire"
)

// pressKeys sends keys and returns the answer.
func (d *daemon) pressKeys(m shimwire.Message, names ...string) shimwire.Message {
	d.t.Helper()
	m.Kind, m.Data = shimwire.Keys, []byte(strings.Join(names, "\x00"))
	d.send(m)
	return d.expect(shimwire.InputDone)
}

// expectReport returns the next status report of this source.
func (d *daemon) expectReport(source string) shimwire.Message {
	d.t.Helper()
	for {
		if m := d.expect(shimwire.StatusReport); m.Source == source {
			return m
		}
	}
}

// ifStillAsking returns a message with the condition that the agent is still asking this.
func ifStillAsking(asked shimwire.Message) shimwire.Message {
	return shimwire.Message{
		Seq: 7, Flags: shimwire.FlagIfStillAsking, Source: asked.Source, KnownSeq: asked.Seq,
		SinceMonotonic: asked.SinceMonotonic,
	}
}

func TestKeys_AreReadOneAtATime(t *testing.T) {
	ts := newTestSession(t, "reads")
	s := ts.startShim()
	s.waitFor("go")
	d := ts.connect()
	require.True(t, d.hello.TakesKeys)
	assert.Empty(t, d.pressKeys(shimwire.Message{Seq: 1}, "Escape", "C-a", "Down", "Down", "é", "Enter").Error)
	s.waitFor(`read "\x1b"` + "\r\n" + `read "\x01"` + "\r\n" + `read "\x1b[B"` + "\r\n" + `read "\x1b[B"` + "\r\n" + `read "é"` + "\r\n" + `read "\r"` + "\r\n")
	assert.Contains(t, d.pressKeys(shimwire.Message{Seq: 2}, "a", "Entr").Error, `invalid key "Entr"`)
	assert.Equal(t, "the program in its terminal has not enabled keys such as S-Enter",
		d.pressKeys(shimwire.Message{Seq: 3}, "x", "S-Enter", "y").Error)
	assert.Empty(t, d.pressKeys(shimwire.Message{Seq: 4}, "z").Error)
	s.waitFor(`read "x"` + "\r\n" + `read "z"`)
	s.typeKeys("\x03")
	s.wait()
}

func TestKeys_FollowTheModesOfTheTerminal(t *testing.T) {
	ts := newTestSession(t, "sh", "-c", `stty raw -echo; printf go; head -c 3 >plain; printf '\033[?1h\033=application'; head -c 6 >application
		printf '\033[>4;1mother'; head -c 10 >other; printf '\033[>1ukitty'; head -c 8 >kitty`)
	s := ts.startShim()
	d := ts.connect()
	for _, row := range []struct{ prints, key, more, want string }{
		{"go", "Up", "", "\x1b[A"}, {"application", "Up", "KP5", "\x1bOA\x1bOu"},
		{"other", "S-Enter", "", "\x1b[27;2;13~"}, {"kitty", "C-Enter", "C-a", "\x1b[13;5u\x01"},
	} {
		s.waitFor(row.prints)
		names := append([]string{row.key}, strings.Fields(row.more)...)
		require.Empty(t, d.pressKeys(shimwire.Message{Seq: 1}, names...).Error)
	}
	require.Equal(t, 0, s.wait())
	for file, want := range map[string]string{
		"plain": "\x1b[A", "application": "\x1bOA\x1bOu", "other": "\x1b[27;2;13~", "kitty": "\x1b[13;5u\x01",
	} {
		assert.Equal(t, want, ts.readFile(file), file)
	}
}

// Texts and keys are written in the order in which they arrive, also those of different
// connections.
func TestKeys_StayInOrderWithTexts(t *testing.T) {
	ts := newTestSession(t, "sh", "-c", "stty raw -echo; printf go; head -c 4009 > got")
	s := ts.startShim()
	s.waitFor("go")
	a, b := ts.connect(), ts.connect()
	text := strings.Repeat("t", 4000)
	a.sendText(1, text, 0)
	a.send(shimwire.Message{Kind: shimwire.Keys, Seq: 2, Data: []byte("a\x00b\x00c")})
	a.sendText(3, "TEXT", 0)
	assert.Empty(t, a.expect(shimwire.InputDone).Error)
	assert.Empty(t, b.pressKeys(shimwire.Message{Seq: 1}, "z", "Enter").Error)
	require.Equal(t, 0, s.wait())
	assert.Equal(t, text+"abcTEXTz\r", ts.readFile("got"))
}

// Texts are held until the agent accepts input; keys answer its first dialog.
func TestKeys_PrecedeHeldTexts(t *testing.T) {
	ts := newTestSession(t, "sh", "-c", `stty raw -echo; printf 'trust?'; head -c 1 > key; printf '\033[?2004hready'; head -c 17 > got`)
	ts.spec.HoldInput = true
	s := ts.startShim()
	s.waitFor("trust?")
	a, b := ts.connect(), ts.connect()
	a.sendText(1, "later", 0)
	assert.Empty(t, b.pressKeys(shimwire.Message{Seq: 1}, "1").Error)
	assert.Empty(t, a.expect(shimwire.InputDone).Error)
	require.Equal(t, 0, s.wait())
	assert.Equal(t, "1", ts.readFile("key"))
	assert.Equal(t, "\x1b[200~later\x1b[201~", ts.readFile("got"))
}

// TestKeys_AreWithdrawnWithTheirConnection checks that the rest of a sequence is dropped when its
// sender disconnects.
func TestKeys_AreWithdrawnWithTheirConnection(t *testing.T) {
	ts := newTestSession(t, "sh", "-c", "mkfifo now; stty raw echo; printf go; read -r line < now; head -c 6 > got")
	s := ts.startShim()
	s.waitFor("go")
	gone, stays := ts.connect(), ts.connect()
	gone.send(shimwire.Message{Kind: shimwire.Keys, Seq: 1, Data: []byte("a\x00b\x00c\x00d")})
	s.waitFor("goa") // the first key was written, but not read
	stays.send(shimwire.Message{Kind: shimwire.Input, Seq: 1, Data: []byte("stays")})
	gone.close()
	assert.Empty(t, stays.expect(shimwire.InputDone).Error)
	ts.writeFile("now", "\n")
	require.Equal(t, 0, s.wait())
	assert.Equal(t, "astays", ts.readFile("got"))
}

// TestKeys_AreTypedAheadIfTheProgramDoesNotRead checks that keys are written after inputWait.
func TestKeys_AreTypedAheadIfTheProgramDoesNotRead(t *testing.T) {
	ts := newTestSession(t, "sh", "-c", "mkfifo now; stty raw -echo; printf go; read -r line < now; head -c 50 > got")
	s := ts.startShim()
	s.waitFor("go")
	d := ts.connect()
	assert.Empty(t, d.pressKeys(shimwire.Message{Seq: 1}, strings.Split(strings.Repeat("k", 50), "")...).Error)
	ts.writeFile("now", "\n")
	require.Equal(t, 0, s.wait())
	assert.Equal(t, strings.Repeat("k", 50), ts.readFile("got"))
}

const (
	blocked         = "\x1b]7501;state=blocked:kind=permission\x1b\\"
	blockedWithText = "\x1b]7501;state=blocked:kind=permission:msg=Zm9v\x1b\\"
)

// Each row's agent prints a question and, after the test has written to the FIFO "now", more
// output.
func TestKeys_AnswerOnlyPendingQuestions(t *testing.T) {
	over := "its agent has continued meanwhile"
	for name, row := range map[string]struct{ prints, typed, want string }{
		"it still asks":                           {prints: "nothing new"},
		"it works":                                {prints: "\x1b]7501;state=working\x1b\\", want: over},
		"it is idle":                              {prints: "\x1b]7501;state=done\x1b\\", want: over},
		"it asks again":                           {prints: "\x1b]7501;state=working\x1b\\" + blocked, want: over},
		"it asks another question":                {prints: blockedWithText, want: over},
		"it was reset":                            {prints: "\x1bc", want: over},
		"its title shows that it works":           {prints: "\x1b]2;works\a", want: over},
		"a key was typed":                         {typed: "1", want: "it was answered just now"},
		"the terminal has reported its focus":     {typed: "\x1b[I\x1b[O\x1b[<35;1;1M\x1b[?1;2c"},
		"a key was typed, and the focus reported": {typed: "\x1b[Ix", want: "it was answered just now"},
	} {
		t.Run(name, func(t *testing.T) {
			ts := newTestSession(t, "sh", "-c", `stty raw -echo; printf '%s' "$1"; mkfifo now; read -r more <now; printf '%b' "$more"; printf said; head -c 100 >got`, "sh", blocked)
			ts.spec.TitleWorking = "^works$"
			s := ts.startShim()
			d := ts.connect()
			asked := d.expectReport(word.OSC7501)
			require.Equal(t, "permission", asked.Reason)
			waitForFile(t, ts.spec.Dir+"/now")
			ts.writeFile("now", strings.ReplaceAll(row.prints, "\x1b", `\033`)+"\n")
			s.waitFor("said")
			s.typeKeys(row.typed)
			answer := d.pressKeys(ifStillAsking(asked), "y", "z")
			assert.Equal(t, row.want, answer.Error)
			assert.Equal(t, row.want != "", answer.Flags == shimwire.FlagIfStillAsking)
			if row.want == "" {
				again := d.pressKeys(ifStillAsking(asked), "y")
				assert.Equal(t, "it was answered just now", again.Error)
			}
			ts.killAgent(d)
			s.wait()
		})
	}
}

// TestKeys_AnswerQuestionsReportedOverDBus checks questions that were not reported to the shim. The
// shim can only check that nobody has typed since.
func TestKeys_AnswerQuestionsReportedOverDBus(t *testing.T) {
	ts := newTestSession(t, "sh", "-c", "stty raw -echo; printf go; head -c 100 >got")
	s := ts.startShim()
	s.waitFor("go")
	d := ts.connect()
	report := shimwire.Message{Source: "report", SinceMonotonic: clock.Monotonic()}
	require.Empty(t, d.pressKeys(ifStillAsking(report), "y").Error)
	assert.Equal(t, "it was answered just now", d.pressKeys(ifStillAsking(report), "y").Error)
	report.SinceMonotonic = clock.Monotonic()
	require.Empty(t, d.pressKeys(ifStillAsking(report), "y").Error, "another question")
	report.SinceMonotonic = clock.Monotonic()
	s.typeKeys("\x1b[I")
	require.Empty(t, d.pressKeys(ifStillAsking(report), "y").Error)
	ts.killAgent(d)
	s.wait()
}

// TestKeys_StopWhenTheQuestionIsAnswered checks that the rest of a sequence is dropped after its
// first key was the answer.
func TestKeys_StopWhenTheQuestionIsAnswered(t *testing.T) {
	ts := newTestSession(t, "sh", "-c", `stty raw -echo; printf '%s' "$1"; head -c 1 >key; printf '\033]7501;state=working\033\\over'; head -c 5 >rest`, "sh", blocked)
	s := ts.startShim()
	d := ts.connect()
	asked := d.expectReport(word.OSC7501)
	assert.Empty(t, d.pressKeys(ifStillAsking(asked), "Escape", "Enter").Error)
	s.waitFor("over")
	assert.Empty(t, d.pressKeys(shimwire.Message{Seq: 1}, "e", "n", "d", "e", "d").Error)
	require.Equal(t, 0, s.wait())
	assert.Equal(t, "\x1b", ts.readFile("key"))
	assert.Equal(t, "ended", ts.readFile("rest"))
}

// questions is the number of questions in TestKeys_NeverReachAnOutdatedQuestion.
const questions = 1000

// TestKeys_NeverReachAnOutdatedQuestion lets answers race with the end of their question. The agent
// asks for permission and continues at a random moment, answered or not. When it asks and when it
// continues it also sends the status query. The shim's answer to that query arrives in the same
// stream as keys, after the shim has read everything that precedes the query. From its position the
// agent knows for each key whether the shim wrote it while it knew that this question was pending.
func TestKeys_NeverReachAnOutdatedQuestion(t *testing.T) {
	ts := newTestSession(t, "asks")
	ts.spec.IdleAfter = time.Hour // silence must not cause reports between two questions
	s := ts.startShim()
	d := ts.connect()
	s.waitFor("go")
	s.typeKeys("g") // the first question is the first report
	first := d.expectReport(word.OSC7501)
	pressed := 0
	for n := range questions {
		s.waitFor(fmt.Sprintf("question %d.", n))
		<-time.After(rand.N(6 * time.Millisecond))
		m := ifStillAsking(first)
		m.Seq, m.KnownSeq = uint32(n), first.Seq+2*uint32(n)
		answer := d.pressKeys(m, string(answerTo(n)))
		if answer.Error != "" {
			require.Equal(t, "its agent has continued meanwhile", answer.Error)
			continue
		}
		pressed++
	}
	s.waitFor("over.")
	s.typeKeys("q")
	require.Equal(t, 0, s.wait())
	assert.Contains(t, s.printed(), fmt.Sprintf("answers %d, late 0, wrong 0.", pressed))
	t.Logf("%d of %d questions were answered", pressed, questions)
	assert.NotZero(t, pressed)
	assert.Less(t, pressed, questions)
}

func answerTo(question int) byte { return '0' + byte(question%10) }

// askQuestions is the agent of TestKeys_NeverReachAnOutdatedQuestion.
func askQuestions() {
	mode, err := unix.IoctlGetTermios(0, unix.TCGETS)
	if err != nil {
		os.Exit(1)
	}
	_ = unix.IoctlSetTermios(0, unix.TCSETS, rawSettings(mode))
	fmt.Print("go")
	var a questioner
	_, _ = os.Stdin.Read(make([]byte, 1))
	for n := range questions {
		before := a.answers
		fmt.Printf("%s\x1b]7501;?\x1b\\question %d.", blocked, n)
		a.read(time.Hour, func() bool { return a.seen == 2*n+1 })
		if rand.N(4) == 0 { // continue only after an answer
			a.read(time.Hour, func() bool { return a.answers > before })
		} else {
			a.read(rand.N(12*time.Millisecond), func() bool { return false })
		}
		fmt.Print("\x1b]7501;state=working\x1b\\\x1b]7501;?\x1b\\")
		a.read(time.Hour, func() bool { return a.seen == 2*n+2 })
	}
	fmt.Print("over.")
	a.read(time.Hour, func() bool { return a.ended })
	fmt.Printf("answers %d, late %d, wrong %d.", a.answers, a.late, a.wrong)
	os.Exit(0)
}

// questioner reads the terminal of that agent.
type questioner struct {
	rest []byte
	// Answers to the query. While the number is odd the shim knows that the question is pending, while
	// it is even that it is over.
	seen                 int
	ended                bool // q was pressed
	answers, late, wrong int
}

// read reads until done returns true, at most for limit.
func (a *questioner) read(limit time.Duration, done func() bool) {
	for end := time.Now().Add(limit); !done(); {
		p := []unix.PollFd{{Fd: 0, Events: unix.POLLIN}}
		left := unix.NsecToTimespec(max(time.Until(end), 0).Nanoseconds())
		switch n, err := unix.Ppoll(p, &left, nil); {
		case err != nil: // interrupted by a signal of the Go runtime
			continue
		case n == 0:
			return
		}
		var b [4096]byte
		if n, _ := unix.Read(0, b[:]); n > 0 {
			a.take(b[:n])
		}
	}
}

func (a *questioner) take(b []byte) {
	a.rest = append(a.rest, b...)
	for len(a.rest) > 0 {
		if rest, found := bytes.CutPrefix(a.rest, statusAnswer); found {
			a.seen++
			a.rest = rest
			continue
		}
		if a.rest[0] == charEscape && len(a.rest) < len(statusAnswer) {
			return // the rest of the answer follows
		}
		switch {
		case a.rest[0] == 'q':
			a.ended = true
		case a.seen%2 == 0:
			a.late++
		case a.rest[0] != answerTo(a.seen/2):
			a.wrong++
		default:
			a.answers++
		}
		a.rest = a.rest[1:]
	}
}

// TestIsUserInput: what a terminal answers to the queries of an agent is not the input of a person.
func TestIsUserInput(t *testing.T) {
	for text, want := range map[string]bool{
		"a": true, "\r": true, "\x1b": true, "\x1b\x1b": true, "\x1bx": true, "\x1bOA": true,
		"\x1b[A": true, "\x1b[1;5C": true,
		"\x1b[200~go\x1b[201~": true, "\x1b[27;5;13~": true, "\x1b[13;2u": true, "\x1b]": true, "\x1bP": true, "\x1b[": true,
		"\x1b[I": false, "\x1b[O\x1b[I": false, "\x1b[<0;3;4M": false, "\x1b[<35;1": false, "\x1b[Ix": true,
		"\x1b[?1;2;4c": false, "\x1b[>84;0;0c": false, "\x1b[24;80R": false, "\x1b[?2026;2$y": false, "\x1b[8;24;80t": false,
		"\x1b[?1u\x1b[?1;2c": false, "\x1b]11;rgb:0000/0000/0000\x1b\\": false, "\x1b]10;rgb:ffff/ffff/ffff\a": false,
		"\x1bP>|tmux 3.4\x1b\\\x1b[?62;c": false, "\x1b]11;rgb:0000/0000/0000\x1b\\y": true, "\x1b]11;rgb:00": false,
		"": false,
	} {
		assert.Equal(t, want, isUserInput([]byte(text)), "%q", text)
	}
}
