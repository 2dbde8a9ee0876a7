package main

import (
	"regexp"
	"testing"
	"time"

	"github.com/corrald/corral/dbusapi/word"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/shimwire"
)

// Without patterns in the agent's definition titles have no meaning.
func TestTitle_PatternsDetermineTheActivity(t *testing.T) {
	type status struct{ activity, reason, text string }
	titles := []string{
		"\x1b]0;◇ Ready\a", "\x1b]2;✦ Working… (shop)\x1b\\", "\x1b]0;✋ Action\x07", "\x1b]0;✦ Working… (shop)\a",
		"\x1b]0;◇ Ready\a", "\x1b]133;C\a\x1b]0;vim\a",
	}
	want := []status{
		{"idle", "", ""}, {"working", "", ""}, {"waiting", "question", "✋ Action"}, {"working", "", ""},
		{"idle", "turn-ended", ""}, {"", "", ""},
	}
	ts := newTestSession(t, "sh", "-c", printScript(titles...))
	ts.spec.TitleReady, ts.spec.TitleWorking, ts.spec.TitleBlocked = "^◇", "^✦", "^✋"
	s := ts.startShim()
	d := ts.connect()
	for _, expected := range want {
		s.typeKeys("\n")
		m := d.expect(shimwire.StatusReport)
		assert.Equal(t, word.Title, m.Source)
		assert.Equal(t, expected, status{m.Activity, m.Reason, m.Text})
	}
	s.typeKeys("\n")
	s.wait()
	assert.Contains(t, s.printed(), titles[0], "titles are passed to tmux")
}

// trustDialogScript is an agent that asks whether a directory is trusted, drawn as real agents do
// it, and starts after the answer.
const trustDialogScript = `stty -echo; printf '\033[2J\033[2;1H╭───╮\033[3;1H│\033[3;3HDo\033[3;6Hyou trust\033[3;16Hthis folder?\033[3;40H│'; read answer
printf '\033[2J\033[Hprompt> \033[?2004h'; read line; echo "got $line"; read end`

func TestSetupDialog_IsDetectedOnTheScreen(t *testing.T) {
	ts := newTestSession(t, "sh", "-c", trustDialogScript)
	ts.spec.SetupPattern, ts.spec.ReadyTimeout = `Do you trust this folder\?`, 500*time.Millisecond
	ts.spec.Prompt = "fix it"
	s := ts.startShim()
	d := ts.connect()
	m := d.expect(shimwire.StatusReport)
	assert.Equal(t, []string{"screen", "waiting", "setup", "Do you trust this folder?"},
		[]string{m.Source, m.Activity, m.Reason, m.Text})
	assert.GreaterOrEqual(t, m.Since.Sub(d.hello.Started), ts.spec.ReadyTimeout)
	s.typeKeys("\n")
	over := d.expect(shimwire.StatusReport)
	assert.Equal(t, []string{"screen", "", ""}, []string{over.Source, over.Activity, over.Reason})
	d.expect(shimwire.Prompted)
	s.waitFor("got \x1b[200~fix it")
	s.typeKeys("\n")
	require.Zero(t, s.wait())
}

// TestSetupDialog_MayAppearLate covers a dialog after ReadyTimeout, and a second one after it.
func TestSetupDialog_MayAppearLate(t *testing.T) {
	ts := newTestSession(t, "sh", "-c", `stty -echo; printf 'loading\033[?2004h'; read begin; `+trustDialogScript)
	ts.spec.SetupPattern, ts.spec.ReadyTimeout = `Do you trust this folder\?|prompt>`, 100*time.Millisecond
	s := ts.startShim()
	d := ts.connect()
	d.expect(shimwire.Idle)
	for _, dialog := range []string{"Do you trust this folder?", "prompt>"} {
		s.typeKeys("\n")
		m := d.expect(shimwire.StatusReport)
		assert.Equal(t, []string{"screen", "waiting", "setup", dialog}, []string{m.Source, m.Activity, m.Reason, m.Text})
	}
	s.typeKeys("\n\n")
	require.Zero(t, s.wait())
}

// TestSetupDialog_IsNotAnsweredByThePrompt covers a dialog that was not reported yet.
func TestSetupDialog_IsNotAnsweredByThePrompt(t *testing.T) {
	ts := newTestSession(t, "sh", "-c", `printf '\033[?2004h'; `+trustDialogScript)
	ts.spec.SetupPattern, ts.spec.ReadyTimeout = `Do you trust this folder\?`, time.Minute
	ts.spec.Prompt = "fix it"
	s := ts.startShim()
	d := ts.connect()
	d.expect(shimwire.Idle) // silent long enough for the prompt to be typed
	assert.NotContains(t, s.printed(), "prompt>")
	s.typeKeys("\n")
	d.expect(shimwire.Prompted)
	s.waitFor("got \x1b[200~fix it")
	s.typeKeys("\n")
	require.Zero(t, s.wait())
}

// After a status report the screen is not examined any more.
func TestSetupDialog_DetectionStopsAfterAStatusReport(t *testing.T) {
	for name, report := range map[string]string{
		"by program status": "\x1b]7501;state=idle\a", "by its title": "\x1b]0;✦\a",
	} {
		t.Run(name, func(t *testing.T) {
			ts := newTestSession(t, "sh", "-c", printScript(report, "Do you trust this folder?", "\a"))
			ts.spec.SetupPattern, ts.spec.ReadyTimeout, ts.spec.TitleWorking = `Do you trust`, 400*time.Millisecond, "^✦"
			s := ts.startShim()
			d := ts.connect()
			s.typeKeys("\n")
			d.expect(shimwire.StatusReport)
			s.typeKeys("\n")
			s.waitFor("Do you trust")
			d.expect(shimwire.Idle)
			s.typeKeys("\n")
			assert.Equal(t, word.Bell, d.expect(shimwire.StatusReport).Source)
			s.typeKeys("\n")
			s.wait()
		})
	}
}

// TestOSC7501_CanBeIgnored also checks that the query is not answered, so that the agent behaves as
// in any other terminal.
func TestOSC7501_CanBeIgnored(t *testing.T) {
	ts := newTestSession(t, "sh", "-c", printScript("\x1b]7501;?\a\x1b]7501;state=idle\ashown", "\a"))
	ts.spec.IgnoreOSC7501 = true
	s := ts.startShim()
	d := ts.connect()
	s.typeKeys("\n")
	s.waitFor("shown")
	s.typeKeys("\n")
	assert.Equal(t, word.Bell, d.expect(shimwire.StatusReport).Source)
	s.typeKeys("\n")
	s.wait()
	assert.NotContains(t, s.printed(), "7501")
}

// TestScreenStatus_FindsWhatTheAgentDoesNotReport: what the agent prints in a conversation is not
// taken for a dialog or for its last line.
func TestScreenStatus_FindsWhatTheAgentDoesNotReport(t *testing.T) {
	limit := statusOf(word.Waiting, word.Limit, "Limit reached. Resets at 7:35.")
	for _, row := range []struct {
		name, screen string
		want         agentStatus
	}{
		{"a dialog at the start", "Trust?\r\n1. Keep trying", statusOf(word.Waiting, word.Setup, "Trust?")},
		{"a dialog about a limit", "│ Limit reached. │\r\n│ Resets at 7:35. │\r\n\r\n│ 1. Keep trying │", limit},
		{"it precedes the last line", "Limit reached.\r\nResets at 7:35.\r\n1. Keep trying\r\nready · help", limit},
		{"the agent writes about limits", "Limit reached.\r\nfixed\r\nready · help", agentStatus{activity: word.Idle}},
		{"a failed request", "* 529 Overloaded · retrying in 5s\r\nesc to interrupt",
			statusOf(word.Working, word.Error, "529 Overloaded")},
		{"an idle agent", "done\r\n\r\n   ready · help", agentStatus{activity: word.Idle}},
		{"a working agent has printed that line", "ready · help\r\nworking", agentStatus{}},
		{"an empty screen", "", agentStatus{}},
		{"a working agent", "fix\r\nbusy (esc)", agentStatus{activity: word.Working}},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := screenStatus{
				setup: regexp.MustCompile("^Trust"), limit: regexp.MustCompile(`(Limit [^\n]*(?:\nResets [^\n]*)?)\n1\. Keep`),
				retry: regexp.MustCompile(`^\S (.+) · retrying`), idle: regexp.MustCompile("^ready · "),
				screen: newTextScreen(10, 40),
			}
			w.screen.write([]byte(row.screen))
			w.working = regexp.MustCompile(`^busy`)
			status, ok := w.status()
			assert.Equal(t, row.want, status)
			assert.Equal(t, row.want != agentStatus{}, ok)
			w.working = nil
			_, ok = w.status()
			assert.True(t, ok)
		})
	}
}

// TestScreenStatus_IsFollowedUntilTheEnd: patterns other than that of a dialog at the start apply
// also after the agent has reported its status.
func TestScreenStatus_IsFollowedUntilTheEnd(t *testing.T) {
	ts := newTestSession(t, "sh", "-c", printScript("\x1b]7501;state=idle\a", "\x1b[2Jready",
		"\x1b[2J\x1b[Hworking", "\x1b[2J\x1b[Hready"))
	ts.spec.SetupPattern, ts.spec.IdlePattern, ts.spec.ReadyTimeout = "never", "^ready$", 20*time.Millisecond
	s := ts.startShim()
	d := ts.connect()
	s.typeKeys("\n")
	assert.Equal(t, word.Idle, d.expectReport(word.OSC7501).Activity)
	for _, activity := range []string{word.Idle, "", word.Idle} {
		s.typeKeys("\n")
		assert.Equal(t, activity, d.expectReport(word.Screen).Activity)
	}
	s.typeKeys("\n")
	s.wait()
}

// TestScreenStatus_IgnoresALineThatIsDrawnInPart: what the last line has shown applies until a line
// that shows nothing has stayed for a moment.
func TestScreenStatus_IgnoresALineThatIsDrawnInPart(t *testing.T) {
	ts := newTestSession(t, "sh", "-c", `stty -echo; printf ready; read next; printf '\033[2J'; sleep 0.3; printf '\033[H'; sleep 0.3; printf ready
read next; printf '\033[2J\033[Hdialog'; read next; printf '\033[2J\033[Hready'; read end`)
	ts.spec.IdlePattern, ts.spec.WorkingPattern, ts.spec.ReadyTimeout = "^ready$", "^working$", 500*time.Millisecond
	s := ts.startShim()
	d := ts.connect()
	first := d.expectReport(word.Screen)
	assert.Equal(t, word.Idle, first.Activity)
	s.typeKeys("\n")
	s.waitFor("\x1b[Hready")
	begin := time.Now()
	s.typeKeys("\n")
	covered := d.expectReport(word.Screen)
	assert.Empty(t, covered.Activity)
	assert.True(t, covered.Since.After(begin), "the line that was drawn in part is not reported")
	s.typeKeys("\n")
	assert.Equal(t, word.Idle, d.expectReport(word.Screen).Activity)
	s.typeKeys("\n")
	s.wait()
}

// TestLimitDialog_HasTheTimeOfItsReset: the time is in the agent's time zone. It is read once for a
// dialog that remains, because a time of day means another day once it has passed.
func TestLimitDialog_HasTheTimeOfItsReset(t *testing.T) {
	ts := newTestSession(t, "sh", "-c", printScript("Limit reached, resets 7:30am\r\n1. Keep trying",
		"\x1b[2J\x1b[HLimit reached\r\n1. Keep trying"))
	ts.spec.Env = append(ts.spec.Env, "TZ=Pacific/Kiritimati") // UTC+14, without daylight saving
	ts.spec.LimitPattern, ts.spec.ReadyTimeout = `(Limit [^\n]*)\n1\.`, 20*time.Millisecond
	s := ts.startShim()
	d := ts.connect()
	s.typeKeys("\n")
	m := d.expectReport(word.Screen)
	assert.Equal(t, []string{word.Waiting, word.Limit, "Limit reached, resets 7:30am"},
		[]string{m.Activity, m.Reason, m.Text})
	until := m.Until.UTC()
	assert.Equal(t, "17:31", until.Format("15:04"))
	assert.WithinRange(t, until, time.Now().Add(-time.Hour), time.Now().Add(25*time.Hour))
	assert.Equal(t, until, ts.connect().expectReport(word.Screen).Until.UTC(), "it is repeated to a new daemon")
	s.typeKeys("\n")
	assert.Zero(t, d.expectReport(word.Screen).Until, "no time")
	s.typeKeys("\n")
	s.wait()
}

func TestLimitDialog_TimeIsReadOnce(t *testing.T) {
	w := screenStatus{limit: regexp.MustCompile(`Limit.*`), screen: newTextScreen(2, 40), zone: time.UTC}
	w.screen.write([]byte("Limit, resets " + time.Now().UTC().Format("3:04pm")))
	w.read()
	w.readLimit()
	first := w.limitUntil
	require.NotZero(t, first)
	w.zone = time.FixedZone("", -5*3600)
	w.readLimit()
	assert.Equal(t, first, w.limitUntil)
	w.screen.write([]byte("\x1b[2J"))
	w.read()
	w.readLimit()
	assert.Zero(t, w.limitUntil)
}

// TestTyped_IsReportedOncePerReport: not for each key, and not for what the terminal sends by
// itself.
func TestTyped_IsReportedOncePerReport(t *testing.T) {
	ts := newTestSession(t, "sh", "-c", `stty -echo; printf '\033[?1004h'; read a; read b; printf '\a'; read c; read d`)
	ts.spec.IdleAfter = 50 * time.Millisecond
	s := ts.startShim()
	d := ts.connect()
	assert.True(t, d.hello.SendsTyped)
	d.expect(shimwire.Idle)
	s.typeKeys("\x1b[I\x1b[O")
	before := time.Now()
	s.typeKeys("a")
	m := d.expect(shimwire.Typed)
	assert.WithinRange(t, m.Since, before.Add(-time.Second), time.Now())
	assert.NotZero(t, m.SinceMonotonic)
	s.typeKeys("b\n")
	d.sendText(1, "from a client", shimwire.FlagEnter)
	for kind := shimwire.Kind(0); kind != shimwire.Idle; { // after the bell
		m := d.nextOfAll()
		kind = m.Kind
		require.NotEqual(t, shimwire.Typed, kind, "a second one")
	}
	d.sendText(2, "once more", shimwire.FlagEnter)
	d.expect(shimwire.Typed)
	again := ts.connect()
	assert.True(t, again.expect(shimwire.Typed).Since.After(m.Since), "repeated to a new daemon")
	s.typeKeys("\n")
	s.wait()
}
