package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/shimwire"
)

func TestPrompt_IsTypedWhenTheAgentIsIdle(t *testing.T) {
	h := newHome(t, "sh", "-c", `stty -echo; printf go; read a; read b; printf "got <$a> <$b>"; read rest`)
	h.spec.Prompt = "fix the tests\nall of them"
	s := h.startShim()
	d := h.connect()
	assert.Equal(t, shimwire.Prompted, d.expect(shimwire.Prompted).Kind)
	s.waitFor("got <fix the tests> <all of them>")
	again := h.connect()
	again.expect(shimwire.Prompted)
	s.typeKeys("\r")
	require.Equal(t, 0, s.wait())
	assert.True(t, h.status().Prompted)
}

func TestPrompt_IsPastedIfTheAgentSupportsIt(t *testing.T) {
	h := newHome(t, "sh", "-c", `stty raw -echo; printf '\033[?2004hgo'; head -c 15 >got; printf one; head -c 1 >enter`)
	h.spec.IdleAfter = time.Hour
	h.spec.Prompt = "fix"
	s := h.startShim()
	s.waitFor("one")
	require.Equal(t, 0, s.wait())
	assert.Equal(t, "\x1b[200~fix\x1b[201~", h.read("got"))
	assert.Equal(t, "\r", h.read("enter"))
}

// TestPrompt_DoesNotAnswerQuestions: an agent that asks its user something else before it begins is
// not answered by it.
func TestPrompt_DoesNotAnswerQuestions(t *testing.T) {
	h := newHome(t, "sh", "-c", `stty -echo; systemd-notify --ready X_CORRAL_ACTIVITY=waiting X_CORRAL_REASON=permission; printf 'trust?'; read a
		systemd-notify X_CORRAL_ACTIVITY=idle; printf 'well'; read b; printf "got <$a> <$b>"; read rest`).withNotify()
	h.spec.Prompt = "fix"
	s := h.startShim()
	d := h.connect()
	s.waitFor("trust?")
	d.expect(shimwire.Idle)
	assert.Empty(t, d.sendTextAndWait(1, "yes", shimwire.FlagEnter).Error, "what somebody sends does not wait for it")
	s.waitFor("got <yes> <fix>")
}

func TestPrompt_WaitsForTheTitle(t *testing.T) {
	h := newHome(t, "sh", "-c", `stty -echo; printf '\033[?2004hloading'; read a; printf '\033]0;Ready\007ready'; read b; printf "got <$a> <$b>"; read rest`)
	h.spec.TitleReady, h.spec.Prompt = "^Ready", "fix"
	s := h.startShim()
	d := h.connect()
	d.expect(shimwire.Idle)
	s.typeKeys("a person\r")
	s.waitFor("got <a person> <")
	s.waitFor("fix")
}

func TestPrompt_WaitsForReadyNotification(t *testing.T) {
	h := newHome(t, "sh", "-c", `stty -echo; printf 'loading'; read a; systemd-notify --ready; read b; printf "got <$a> <$b>"; read rest`).withNotify()
	h.spec.Prompt = "fix"
	s := h.startShim()
	d := h.connect()
	d.expect(shimwire.Idle)
	s.typeKeys("a person\r")
	s.waitFor("got <a person> <fix>")
}

func TestPrompt_PrecedesOtherTexts(t *testing.T) {
	h := newHome(t, "sh", "-c", `stty -echo; printf go; read a; read b; printf "got <$a> <$b>"; read rest`)
	h.spec.IdleAfter = time.Second
	h.spec.Prompt = "first"
	s := h.startShim()
	d := h.connect()
	s.waitFor("go")
	assert.Empty(t, d.sendTextAndWait(1, "second", shimwire.FlagEnter).Error)
	s.waitFor("got <first> <second>")
}

// TestInput_IsHeldUntilTheAgentIsReady, but for what it asks before it begins.
func TestInput_IsHeldUntilTheAgentIsReady(t *testing.T) {
	h := newHome(t, "sh", "-c", `stty -echo; printf '\033]7501;state=blocked:kind=setup\007'; read a; printf '\033]7501;state=working\007loading'
		read b; printf '\033]0;Ready\007ready'; read c; printf "got <$a> <$b> <$c>"; read rest`)
	h.spec.TitleReady, h.spec.HoldInput = "^Ready", true
	s := h.startShim()
	d := h.connect()
	assert.Empty(t, d.sendTextAndWait(1, "yes", shimwire.FlagEnter).Error)
	s.waitFor("loading")
	d.expect(shimwire.Idle)
	d.sendText(2, "fix", shimwire.FlagEnter)
	s.typeKeys("a person\r")
	s.waitFor("got <yes> <a person> <fix>")
	s.typeKeys("\r")
	require.Equal(t, 0, s.wait())
	assert.False(t, h.status().Prompted)
}

func TestPrompt_IsNotRecordedIfTheAgentEndsFirst(t *testing.T) {
	h := newHome(t, "sh", "-c", `exit 3`)
	h.spec.Prompt = "never"
	s := h.startShim()
	require.Equal(t, 3, s.wait())
	assert.False(t, h.status().Prompted)
}

func TestPromptTime_DependsOnOutputTitleAndReadiness(t *testing.T) {
	begin := time.Now()
	at := func(seconds float64) time.Time { return begin.Add(time.Duration(seconds * float64(time.Second))) }
	for _, row := range []struct {
		name   string
		output float64 // the last one, 0 for none
		first  float64 // output, where that was another one
		holds  bool    // it would lose what comes too early
		paste  bool
		ready  float64
		title  string // that says when it is ready
		said   bool   // it has
		want   float64
	}{
		{"nothing was printed", 0, 0, false, false, 0, "", false, 15},
		{"nothing was printed, and it would be lost", 0, 0, true, false, 0, "", false, 60},
		{"it has begun late", 31, 30, true, true, 0, "", false, 31.5},
		{"it has begun late, and is never silent", 44.9, 30, true, true, 0, "", false, 45},
		{"it is going to lose what comes before it has asked for pastes", 1, 0, true, false, 0, "", false, 4},
		{"it draws, and has asked for nothing", 1, 0, false, false, 0, "", false, 4},
		{"it has asked for pastes", 1, 0, false, true, 0, "", false, 1.5},
		{"it is never silent", 14, 0, false, false, 0, "", false, 15},
		{"it is never silent, and has asked for pastes", 14.9, 0, false, true, 0, "", false, 15},
		{"it says that it is ready", 14, 0, false, false, 2, "", false, 2},
		{"its title is going to say so", 1, 0, false, true, 0, "Ready", false, 60},
		{"its title says so", 1, 0, false, true, 0, "Ready", true, 2.5},
		{"its title says so, and more", 1, 0, false, true, 0, "Ready or not", true, 4},
	} {
		s := &shim{spec: shimwire.Spec{IdleAfter: 3 * time.Second, TitleReady: row.title, HoldInput: row.holds}, agent: agent{started: begin}, lastOutput: begin}
		s.prompt.deadline = s.promptDeadline()
		if row.title == "Ready or not" {
			s.spec.TitleWorking = "Works"
		}
		if row.first != 0 {
			s.lastOutput = at(row.first)
			s.noteFirstOutput()
		}
		s.lastOutput = at(row.output)
		s.noteFirstOutput()
		s.scanner.modes.paste = row.paste
		if row.said {
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
