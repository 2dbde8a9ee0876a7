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
	h := newHome(t, "sh", "-c", says(titles...))
	h.spec.TitleReady, h.spec.TitleWorking, h.spec.TitleBlocked = "^◇", "^✦", "^✋"
	s := h.show()
	d := h.connect()
	for _, expected := range want {
		s.keys("\n")
		m := d.hears(shimwire.StatusReport)
		assert.Equal(t, shimwire.Title, m.Source)
		assert.Equal(t, expected, said{m.Activity, m.Reason, m.Text})
	}
	s.keys("\n")
	s.ends()
	assert.Contains(t, s.printed(), titles[0], "tmux has the titles all the same")
}

// trusting is an agent that asks whether a directory can be trusted, as programs draw it, and
// begins after the answer.
const trusting = `stty -echo; printf '\033[2J\033[2;1H╭───╮\033[3;1H│\033[3;3HDo\033[3;6Hyou trust\033[3;16Hthis folder?\033[3;40H│'; read answer
printf '\033[2J\033[Hprompt> \033[?2004h'; read line; echo "got $line"; read end`

func TestSetupDialog_IsDetectedOnTheScreen(t *testing.T) {
	h := newHome(t, "sh", "-c", trusting)
	h.spec.SetupPattern, h.spec.ReadyTimeout = `Do you trust this folder\?`, 500*time.Millisecond
	h.spec.Prompt = "fix it"
	s := h.show()
	d := h.connect()
	m := d.hears(shimwire.StatusReport)
	assert.Equal(t, []string{"screen", "waiting", "setup", "Do you trust this folder?"}, []string{m.Source, m.Activity, m.Reason, m.Text})
	assert.GreaterOrEqual(t, m.Since.Sub(d.hello.Started), h.spec.ReadyTimeout)
	s.keys("\n")
	over := d.hears(shimwire.StatusReport)
	assert.Equal(t, []string{"screen", "", ""}, []string{over.Source, over.Activity, over.Reason})
	d.hears(shimwire.Prompted)
	s.sees("got \x1b[200~fix it")
	s.keys("\n")
	require.Zero(t, s.ends())
}

// TestSetupDialog_MayAppearLate, after the time in which the agent should have said something, and
// one that follows it.
func TestSetupDialog_MayAppearLate(t *testing.T) {
	h := newHome(t, "sh", "-c", `stty -echo; printf 'loading\033[?2004h'; read begin; `+trusting)
	h.spec.SetupPattern, h.spec.ReadyTimeout = `Do you trust this folder\?|prompt>`, 100*time.Millisecond
	s := h.show()
	d := h.connect()
	d.hears(shimwire.Idle)
	for _, dialog := range []string{"Do you trust this folder?", "prompt>"} {
		s.keys("\n")
		m := d.hears(shimwire.StatusReport)
		assert.Equal(t, []string{"screen", "waiting", "setup", dialog}, []string{m.Source, m.Activity, m.Reason, m.Text})
	}
	s.keys("\n\n")
	require.Zero(t, s.ends())
}

// TestSetupDialog_IsNotAnsweredByThePrompt, also before it is told that there is one.
func TestSetupDialog_IsNotAnsweredByThePrompt(t *testing.T) {
	h := newHome(t, "sh", "-c", `printf '\033[?2004h'; `+trusting)
	h.spec.SetupPattern, h.spec.ReadyTimeout = `Do you trust this folder\?`, time.Minute
	h.spec.Prompt = "fix it"
	s := h.show()
	d := h.connect()
	d.hears(shimwire.Idle) // it was silent for as long as the prompt waits
	assert.NotContains(t, s.printed(), "prompt>")
	s.keys("\n")
	d.hears(shimwire.Prompted)
	s.sees("got \x1b[200~fix it")
	s.keys("\n")
	require.Zero(t, s.ends())
}

// TestSetupDialog_DetectionStopsAfterAStatusReport: whatever its screen shows.
func TestSetupDialog_DetectionStopsAfterAStatusReport(t *testing.T) {
	for name, speaks := range map[string]string{"by program status": "\x1b]7501;state=idle\a", "by its title": "\x1b]0;✦\a"} {
		t.Run(name, func(t *testing.T) {
			h := newHome(t, "sh", "-c", says(speaks, "Do you trust this folder?", "\a"))
			h.spec.SetupPattern, h.spec.ReadyTimeout, h.spec.TitleWorking = `Do you trust`, 400*time.Millisecond, "^✦"
			s := h.show()
			d := h.connect()
			s.keys("\n")
			d.hears(shimwire.StatusReport)
			s.keys("\n")
			s.sees("Do you trust")
			d.hears(shimwire.Idle)
			s.keys("\n")
			assert.Equal(t, shimwire.Bell, d.hears(shimwire.StatusReport).Source)
			s.keys("\n")
			s.ends()
		})
	}
}

// TestOSC7501_CanBeIgnored does not answer, so that the agent goes on as in any other terminal.
func TestOSC7501_CanBeIgnored(t *testing.T) {
	h := newHome(t, "sh", "-c", says("\x1b]7501;?\a\x1b]7501;state=idle\ashown", "\a"))
	h.spec.IgnoreOSC7501 = true
	s := h.show()
	d := h.connect()
	s.keys("\n")
	s.sees("shown")
	s.keys("\n")
	assert.Equal(t, shimwire.Bell, d.hears(shimwire.StatusReport).Source)
	s.keys("\n")
	s.ends()
	assert.NotContains(t, s.printed(), "7501")
}
