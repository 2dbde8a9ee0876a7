package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/shimwire"
)

// TestTitle_PatternsDetermineTheActivity mean what the agent's definition says, and nothing without
// one.
func TestTitle_PatternsDetermineTheActivity(t *testing.T) {
	type said struct{ activity, reason, text string }
	titles := []string{"\x1b]0;◇ Ready\a", "\x1b]2;✦ Working… (shop)\x1b\\", "\x1b]0;✋ Action\x07", "\x1b]0;✦ Working… (shop)\a", "\x1b]0;◇ Ready\a", "\x1b]133;C\a\x1b]0;vim\a"}
	want := []said{
		{"idle", "", ""}, {"working", "", ""}, {"waiting", "question", "✋ Action"}, {"working", "", ""}, {"idle", "turn-ended", ""}, {"", "", ""},
	}
	h := newHome(t, "sh", "-c", printScript(titles...))
	h.spec.TitleReady, h.spec.TitleWorking, h.spec.TitleBlocked = "^◇", "^✦", "^✋"
	s := h.startShim()
	d := h.connect()
	for _, expected := range want {
		s.typeKeys("\n")
		m := d.expect(shimwire.StatusReport)
		assert.Equal(t, shimwire.Title, m.Source)
		assert.Equal(t, expected, said{m.Activity, m.Reason, m.Text})
	}
	s.typeKeys("\n")
	s.wait()
	assert.Contains(t, s.printed(), titles[0], "tmux has the titles all the same")
}

// trustDialogScript is an agent that asks whether a directory can be trusted, as programs draw it, and
// begins after the answer.
const trustDialogScript = `stty -echo; printf '\033[2J\033[2;1H╭───╮\033[3;1H│\033[3;3HDo\033[3;6Hyou trust\033[3;16Hthis folder?\033[3;40H│'; read answer
printf '\033[2J\033[Hprompt> \033[?2004h'; read line; echo "got $line"; read end`

func TestSetupDialog_IsDetectedOnTheScreen(t *testing.T) {
	h := newHome(t, "sh", "-c", trustDialogScript)
	h.spec.SetupPattern, h.spec.ReadyTimeout = `Do you trust this folder\?`, 500*time.Millisecond
	h.spec.Prompt = "fix it"
	s := h.startShim()
	d := h.connect()
	m := d.expect(shimwire.StatusReport)
	assert.Equal(t, []string{"screen", "waiting", "setup", "Do you trust this folder?"}, []string{m.Source, m.Activity, m.Reason, m.Text})
	assert.GreaterOrEqual(t, m.Since.Sub(d.hello.Started), h.spec.ReadyTimeout)
	s.typeKeys("\n")
	over := d.expect(shimwire.StatusReport)
	assert.Equal(t, []string{"screen", "", ""}, []string{over.Source, over.Activity, over.Reason})
	d.expect(shimwire.Prompted)
	s.waitFor("got \x1b[200~fix it")
	s.typeKeys("\n")
	require.Zero(t, s.wait())
}

// TestSetupDialog_MayAppearLate, after the time in which the agent should have said something, and
// one that follows it.
func TestSetupDialog_MayAppearLate(t *testing.T) {
	h := newHome(t, "sh", "-c", `stty -echo; printf 'loading\033[?2004h'; read begin; `+trustDialogScript)
	h.spec.SetupPattern, h.spec.ReadyTimeout = `Do you trust this folder\?|prompt>`, 100*time.Millisecond
	s := h.startShim()
	d := h.connect()
	d.expect(shimwire.Idle)
	for _, dialog := range []string{"Do you trust this folder?", "prompt>"} {
		s.typeKeys("\n")
		m := d.expect(shimwire.StatusReport)
		assert.Equal(t, []string{"screen", "waiting", "setup", dialog}, []string{m.Source, m.Activity, m.Reason, m.Text})
	}
	s.typeKeys("\n\n")
	require.Zero(t, s.wait())
}

// TestSetupDialog_IsNotAnsweredByThePrompt, also before it is told that there is one.
func TestSetupDialog_IsNotAnsweredByThePrompt(t *testing.T) {
	h := newHome(t, "sh", "-c", `printf '\033[?2004h'; `+trustDialogScript)
	h.spec.SetupPattern, h.spec.ReadyTimeout = `Do you trust this folder\?`, time.Minute
	h.spec.Prompt = "fix it"
	s := h.startShim()
	d := h.connect()
	d.expect(shimwire.Idle) // it was silent for as long as the prompt waits
	assert.NotContains(t, s.printed(), "prompt>")
	s.typeKeys("\n")
	d.expect(shimwire.Prompted)
	s.waitFor("got \x1b[200~fix it")
	s.typeKeys("\n")
	require.Zero(t, s.wait())
}

// TestSetupDialog_DetectionStopsAfterAStatusReport: whatever its screen shows.
func TestSetupDialog_DetectionStopsAfterAStatusReport(t *testing.T) {
	for name, speaks := range map[string]string{"by program status": "\x1b]7501;state=idle\a", "by its title": "\x1b]0;✦\a"} {
		t.Run(name, func(t *testing.T) {
			h := newHome(t, "sh", "-c", printScript(speaks, "Do you trust this folder?", "\a"))
			h.spec.SetupPattern, h.spec.ReadyTimeout, h.spec.TitleWorking = `Do you trust`, 400*time.Millisecond, "^✦"
			s := h.startShim()
			d := h.connect()
			s.typeKeys("\n")
			d.expect(shimwire.StatusReport)
			s.typeKeys("\n")
			s.waitFor("Do you trust")
			d.expect(shimwire.Idle)
			s.typeKeys("\n")
			assert.Equal(t, shimwire.Bell, d.expect(shimwire.StatusReport).Source)
			s.typeKeys("\n")
			s.wait()
		})
	}
}

// TestOSC7501_CanBeIgnored does not answer, so that the agent goes on as in any other terminal.
func TestOSC7501_CanBeIgnored(t *testing.T) {
	h := newHome(t, "sh", "-c", printScript("\x1b]7501;?\a\x1b]7501;state=idle\ashown", "\a"))
	h.spec.IgnoreOSC7501 = true
	s := h.startShim()
	d := h.connect()
	s.typeKeys("\n")
	s.waitFor("shown")
	s.typeKeys("\n")
	assert.Equal(t, shimwire.Bell, d.expect(shimwire.StatusReport).Source)
	s.typeKeys("\n")
	s.wait()
	assert.NotContains(t, s.printed(), "7501")
}
