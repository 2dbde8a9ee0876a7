package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/shimwire"
)

func TestPrompt_IsTypedWhenTheAgentIsIdle(t *testing.T) {
	ts := newTestSession(t, "sh", "-c", `stty -echo; printf go; read a; read b; printf "got <$a> <$b>"; read rest`)
	ts.spec.Prompt = "fix the tests\nall of them"
	s := ts.startShim()
	d := ts.connect()
	assert.Equal(t, shimwire.Prompted, d.expect(shimwire.Prompted).Kind)
	s.waitFor("got <fix the tests> <all of them>")
	again := ts.connect()
	again.expect(shimwire.Prompted)
	s.typeKeys("\r")
	require.Equal(t, 0, s.wait())
	assert.True(t, ts.status().Prompted)
}

func TestPrompt_IsPastedIfTheAgentSupportsIt(t *testing.T) {
	ts := newTestSession(t, "sh", "-c", `stty raw -echo; printf '\033[?2004hgo'; head -c 15 >got; printf one; head -c 1 >enter`)
	ts.spec.IdleAfter = time.Hour
	ts.spec.Prompt = "fix"
	s := ts.startShim()
	s.waitFor("one")
	require.Equal(t, 0, s.wait())
	assert.Equal(t, "\x1b[200~fix\x1b[201~", ts.readFile("got"))
	assert.Equal(t, "\r", ts.readFile("enter"))
}

// TestPrompt_DoesNotAnswerQuestions checks that the prompt is not typed while the agent asks the
// user something before it starts.
func TestPrompt_DoesNotAnswerQuestions(t *testing.T) {
	ts := newTestSession(t, "sh", "-c", `stty -echo; systemd-notify --ready X_CORRAL_ACTIVITY=waiting X_CORRAL_REASON=permission; printf 'trust?'; read a
		systemd-notify X_CORRAL_ACTIVITY=idle; printf 'well'; read b; printf "got <$a> <$b>"; read rest`).withNotify()
	ts.spec.Prompt = "fix"
	s := ts.startShim()
	d := ts.connect()
	s.waitFor("trust?")
	d.expect(shimwire.Idle)
	assert.Empty(t, d.sendTextAndWait(1, "yes", shimwire.FlagEnter).Error, "an answer does not wait for the prompt")
	s.waitFor("got <yes> <fix>")
}

func TestPrompt_WaitsForTheTitle(t *testing.T) {
	ts := newTestSession(t, "sh", "-c", `stty -echo; printf '\033[?2004hloading'; read a; printf '\033]0;Ready\007ready'; read b; printf "got <$a> <$b>"; read rest`)
	ts.spec.TitleReady, ts.spec.Prompt = "^Ready", "fix"
	s := ts.startShim()
	d := ts.connect()
	d.expect(shimwire.Idle)
	s.typeKeys("a person\r")
	s.waitFor("got <a person> <")
	s.waitFor("fix")
}

func TestPrompt_WaitsForReadyNotification(t *testing.T) {
	ts := newTestSession(t, "sh", "-c", `stty -echo; printf 'loading'; read a; systemd-notify --ready; read b; printf "got <$a> <$b>"; read rest`).withNotify()
	ts.spec.Prompt = "fix"
	s := ts.startShim()
	d := ts.connect()
	d.expect(shimwire.Idle)
	s.typeKeys("a person\r")
	s.waitFor("got <a person> <fix>")
}

func TestPrompt_PrecedesOtherTexts(t *testing.T) {
	ts := newTestSession(t, "sh", "-c", `stty -echo; printf go; read a; read b; printf "got <$a> <$b>"; read rest`)
	ts.spec.IdleAfter = time.Second
	ts.spec.Prompt = "first"
	s := ts.startShim()
	d := ts.connect()
	s.waitFor("go")
	assert.Empty(t, d.sendTextAndWait(1, "second", shimwire.FlagEnter).Error)
	s.waitFor("got <first> <second>")
}

// TestInput_IsHeldUntilTheAgentIsReady also checks that a question before that can be answered.
func TestInput_IsHeldUntilTheAgentIsReady(t *testing.T) {
	ts := newTestSession(t, "sh", "-c", `stty -echo; printf '\033]7501;state=blocked:kind=setup\007'; read a; printf '\033]7501;state=working\007loading'
		read b; printf '\033]0;Ready\007ready'; read c; printf "got <$a> <$b> <$c>"; read rest`)
	ts.spec.TitleReady, ts.spec.HoldInput = "^Ready", true
	s := ts.startShim()
	d := ts.connect()
	assert.Empty(t, d.sendTextAndWait(1, "yes", shimwire.FlagEnter).Error)
	s.waitFor("loading")
	d.expect(shimwire.Idle)
	d.sendText(2, "fix", shimwire.FlagEnter)
	s.typeKeys("a person\r")
	s.waitFor("got <yes> <a person> <fix>")
	s.typeKeys("\r")
	require.Equal(t, 0, s.wait())
	assert.False(t, ts.status().Prompted)
}

// TestPrompt_WaitsUntilTheTerminalIsSetUp checks that a warning that is printed before an agent
// draws its screen is not taken for its screen. In canonical mode, the terminal would echo the
// prompt and translate its Enter to a newline, which agents insert into their input line.
func TestPrompt_WaitsUntilTheTerminalIsSetUp(t *testing.T) {
	ts := newTestSession(t, "sh", "-c", `stty -echo; printf warning; read a; stty raw; printf '\033[?2004hgo'; head -c 16 >got; printf "<$a>"; read rest`)
	ts.spec.HoldInput, ts.spec.Prompt = true, "fix"
	s := ts.startShim()
	d := ts.connect()
	s.waitFor("warning")
	d.expect(shimwire.Idle)
	s.typeKeys("a person\r")
	s.waitFor("<a person>")
	assert.Equal(t, "\x1b[200~fix\x1b[201~\r", ts.readFile("got"))
}

func TestPrompt_IsNotRecordedIfTheAgentEndsFirst(t *testing.T) {
	ts := newTestSession(t, "sh", "-c", `exit 3`)
	ts.spec.Prompt = "never"
	s := ts.startShim()
	require.Equal(t, 3, s.wait())
	assert.False(t, ts.status().Prompted)
}

func TestPromptTime_DependsOnOutputTitleAndReadiness(t *testing.T) {
	begin := time.Now()
	at := func(seconds float64) time.Time { return begin.Add(time.Duration(seconds * float64(time.Second))) }
	for _, row := range []struct {
		name   string
		output float64 // seconds until the last output; 0 for none
		first  float64 // seconds until the first output, if it is another one
		holds  bool    // the agent would discard early input
		lines  bool    // its terminal is in canonical mode
		paste  bool
		ready  float64
		title  string // the pattern for the title of an agent that is ready
		titled bool   // the title has matched
		want   float64
	}{
		{"no output", 0, 0, false, false, false, 0, "", false, 15},
		{"no output, and early input would be lost", 0, 0, true, false, false, 0, "", false, 60},
		{"late first output", 31, 30, true, false, true, 0, "", false, 31.5},
		{"late first output, never silent", 44.9, 30, true, false, true, 0, "", false, 45},
		{"early input would be lost, no bracketed paste", 1, 0, true, false, false, 0, "", false, 4},
		{"output of a wrapper, and early input would be lost", 1, 0, true, true, false, 0, "", false, 60},
		{"canonical mode", 1, 0, false, true, false, 0, "", false, 4},
		{"no bracketed paste", 1, 0, false, false, false, 0, "", false, 4},
		{"bracketed paste", 1, 0, false, false, true, 0, "", false, 1.5},
		{"never silent", 14, 0, false, false, false, 0, "", false, 15},
		{"never silent, bracketed paste", 14.9, 0, false, false, true, 0, "", false, 15},
		{"READY=1", 14, 0, false, false, false, 2, "", false, 2},
		{"the title has not matched yet", 1, 0, false, false, true, 0, "Ready", false, 60},
		{"the title has matched", 1, 0, false, false, true, 0, "Ready", true, 2.5},
		{"the title has matched, and shows all activity", 1, 0, false, false, true, 0, "Ready or not", true, 4},
	} {
		s := &shim{
			spec:  shimwire.Spec{IdleAfter: 3 * time.Second, TitleReady: row.title, HoldInput: row.holds},
			agent: agent{started: begin}, lastOutput: begin,
		}
		s.prompt.deadline = s.promptDeadline()
		if row.title == "Ready or not" {
			s.spec.TitleWorking = "Works"
		}
		if row.first != 0 {
			s.lastOutput = at(row.first)
			s.noteFirstOutput(row.lines)
		}
		s.lastOutput = at(row.output)
		s.noteFirstOutput(row.lines)
		s.scanner.modes.paste = row.paste
		if row.titled {
			s.reports[sourceTitle].seq = 1
		}
		if row.ready != 0 {
			s.readyAt = at(row.ready)
		}
		assert.Equal(t, at(row.want), s.promptTime(), row.name)
		s.spec.IdleAfter = 5 * time.Minute
		assert.Equal(t, at(row.want), s.promptTime(), "%s, and IdleAfterSec= is 5 minutes", row.name)
	}
}
