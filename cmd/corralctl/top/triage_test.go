package top

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi/client"
)

// triageModel returns a model with sessions that need a person, because they wait for a permission
// or an answer or have ended their turn, and with sessions that do not.
func triageModel() *model {
	m := modelOfEachState(100, 30)
	live := func(id, activity, attention string) client.Session {
		return client.Session{
			Id: id, Agent: "claude", State: "running", Activity: activity, Attention: attention,
			SessionAlive: true, AgentAlive: true, Resumable: true,
			WorkingDirectory: "/src/" + id, StateChangeTimestamp: ago(time.Minute), NRuns: 1, ControlGroup: "/g",
		}
	}
	m.update(wholeList(m, 1, client.Manager{},
		live("proj5", "waiting", "permission"), live("proj46", "waiting", "permission"), live("quiz", "waiting", "question"),
		live("busy", "working", ""), live("calm", "idle", ""),
	))
	for _, id := range []string{"proj5", "proj46", "quiz"} {
		m.update(inspected{id: id, detail: 1, group: "/g", message: "May I do " + id + "?"})
	}
	return m
}

// reportWorking has the daemon report that the session was answered and its agent works.
func reportWorking(m *model, id string) []effect {
	s := m.rows[id].Session
	s.Activity, s.Attention = "working", ""
	return m.update(changes{updated: snapshots(m.rows[id].detail+1, s)})
}

func listed(m *model) (ids []string) {
	for _, r := range m.order {
		ids = append(ids, r.Id)
	}
	return ids
}

// returnCalls completes the calls among effects, and returns their verbs and ids.
func returnCalls(m *model, effects []effect) (ids []string) {
	for _, c := range calls(effects) {
		ids = append(ids, string(c.verb)+" "+c.id)
		m.update(called{c, c.id, nil})
		if c.verb.answers() {
			reportWorking(m, c.id)
		}
	}
	return ids
}

func TestTriage_AnswersThreeSessionsWithSixKeys(t *testing.T) {
	m := triageModel()
	require.Equal(t, []string{"proj5", "proj46", "quiz", "busy", "calm"}, listed(m))
	assert.Equal(t, []string{"approve proj5"}, returnCalls(m, press(m, "Y")))
	require.Equal(t, "proj46", m.selectedID, "the next session has moved up")
	assert.Equal(t, []string{"deny proj46"}, returnCalls(m, press(m, "N")))
	require.Equal(t, "quiz", m.selectedID)
	assert.Equal(t, []string{"send to quiz"}, returnCalls(m, press(m, "s", "1", "enter")))
	assert.Equal(t, 0, m.index)
	press(m, "tab")
	assert.Contains(t, m.screen(), "No session needs attention.")
}

func TestTriage_NextKeySelectsSessionsThatNeedAttention(t *testing.T) {
	m := triageModel()
	for range byID {
		press(m, "o")
	}
	require.Equal(t, []string{"busy", "calm", "proj5", "proj46", "quiz"}, listed(m))
	press(m, "home")
	for _, id := range []string{"proj5", "proj46", "quiz", "proj5"} {
		press(m, "tab")
		assert.Equal(t, id, m.selectedID)
	}
	m.update(tea.KeyPressMsg(tea.Key{Code: tea.KeyTab, Mod: tea.ModShift}))
	assert.Equal(t, "quiz", m.selectedID)
}

// The selection follows a session that moves in the list, unless the user has just answered it
// here.
func TestTriage_SelectionFollowsASessionAnsweredElsewhere(t *testing.T) {
	m := triageModel()
	reportWorking(m, "proj5")
	assert.Equal(t, "proj5", m.selectedID, "it was answered elsewhere")
	assert.NotEqual(t, 0, m.index)
}

// Nobody can have read a question that has only just been selected.
func TestTriage_IgnoresKeysRightAfterAChange(t *testing.T) {
	m := triageModel()
	at := noon
	m.clock = func() time.Time { return at }
	m.guardUntil, m.answerGuardUntil = time.Time{}, time.Time{}
	returnCalls(m, press(m, "Y"))
	require.Equal(t, "proj46", m.selectedID)
	assert.Empty(t, calls(press(m, "Y", "N", "S")), "the key is repeated")
	assert.Contains(t, m.screen(), "the selection has just moved to proj46")
	at = at.Add(guardTime)
	assert.Len(t, calls(press(m, "Y")), 1)

	m = triageModel()
	m.clock = func() time.Time { return at }
	m.guardUntil, m.answerGuardUntil = time.Time{}, time.Time{}
	again := m.rows["proj5"].Session
	again.AttentionMessage = "May I delete everything?"
	m.update(changes{updated: snapshots(2, again)})
	m.update(inspected{id: "proj5", detail: 2, group: "/g", message: "May I delete everything?"})
	assert.Empty(t, calls(press(m, "Y")), "the question is not the one that was shown")
	at = at.Add(guardTime)
	assert.Len(t, calls(press(m, "Y")), 1)
}

func TestTriage_CountsEndedTurnsSeparately(t *testing.T) {
	m := triageModel()
	s := m.rows["calm"].Session
	s.Attention, s.AttentionMessage = "turn-ended", "finished task"
	m.update(changes{updated: snapshots(2, s)})
	m.update(inspected{id: "calm", detail: 2, message: "finished task"})
	assert.Equal(t, []string{"proj5", "proj46", "quiz", "calm", "busy"}, listed(m))
	assert.Contains(t, m.screen(), wording.Cyan+"turn ended: finished task")
	assert.Contains(t, m.screen(), "1 turn ended")
}

func TestRefusal_ShowsTheReasonWithoutADialog(t *testing.T) {
	for _, row := range []struct{ session, key, text string }{
		{"api", "A", `cannot archive "api": it is running`},
		{"old", "x", `cannot kill the leftover processes of "old": it has no leftover processes`},
		{"api", "x", `cannot kill the leftover processes of "api": its agent is running, so its processes are not left over`},
		{"fix-auth", "s", `cannot send to "fix-auth": it has failed`},
		{"fix-auth", "S", `cannot stop "fix-auth": it has failed`},
		{"api", "Y", `cannot approve "api": it is not waiting for a permission`},
		{"api", "c", `cannot mark as seen "api": it does not ask for attention`},
		{"new", "l", `cannot show the log of "new": it was never started`},
		{"old", "K", `cannot signal "old": it has completed`},
		{"bench", "s", `cannot send to "bench": it is frozen; f thaws it`},
		{"bench", "i", `cannot send keys to bench: it is frozen; f thaws it`},
		{"api", "r", `cannot resume "api": it is running`},
	} {
		m := modelOfEachState(100, 30)
		m.selectedID = row.session
		m.arrange()
		effects := press(m, row.key)
		assert.Empty(t, calls(effects), "%v", row)
		assert.Nil(t, m.dialog, "%v", row)
		assert.Nil(t, m.passThrough, "%v", row)
		assert.Equal(t, row.text, m.notice.text)
	}
}

func TestMarks_ActOnAllAfterAConfirmationThatNamesThem(t *testing.T) {
	m := triageModel()
	press(m, "space", "space", "down", "space")
	assert.Contains(t, m.screen(), "3 marked")
	assert.Empty(t, calls(press(m, "S")))
	screen := m.screen()
	for _, text := range []string{"Stop 3 sessions?", "proj5, proj46, busy", "busy: its agent is working"} {
		assert.Contains(t, screen, text)
	}
	assert.Equal(t, []string{"stop proj5", "stop proj46", "stop busy"}, returnCalls(m, press(m, "y")))
	assert.Empty(t, m.marked)

	press(m, "home", "space", "space")
	assert.Empty(t, calls(press(m, "S")), "several sessions need a confirmation even if nothing would be lost")
	assert.Contains(t, m.screen(), "Stop 2 sessions?")
	press(m, "n", "esc")

	press(m, "*")
	assert.Len(t, m.marked, 5)
	assert.Empty(t, calls(press(m, "Y")))
	assert.Contains(t, m.screen(), "proj5: May I do proj5?")
	assert.Contains(t, m.screen(), "Not quiz: it is not waiting for a permission.")
	assert.Equal(t, []string{"approve proj5", "approve proj46"}, returnCalls(m, press(m, "y")))
	press(m, "*", "esc")
	assert.Empty(t, m.marked)
}

// A session that asks for something else by the time of the confirmation is not answered.
func TestMarks_ApproveOnlyWhatWasConfirmed(t *testing.T) {
	m := triageModel()
	press(m, "space", "space")
	require.Empty(t, calls(press(m, "Y")))
	require.Contains(t, m.screen(), "proj5: May I do proj5?")
	s := m.rows["proj5"].Session
	s.AttentionTimestamp = ago(time.Second)
	m.update(changes{updated: snapshots(2, s)})
	m.update(inspected{id: "proj5", detail: 2, group: "/g", message: "May I remove everything?"})
	effects := press(m, "y")
	assert.Equal(t, `cannot approve "proj5": it does not ask the same any more`, m.notice.text)
	assert.Equal(t, []string{"approve proj46"}, returnCalls(m, effects))
}

// While the dialog is open, its session is removed and another one with the same id is created.
func TestDialog_IgnoresALaterSessionOfTheSameID(t *testing.T) {
	for _, keys := range [][2][]string{{{"s", "1"}, {"enter"}}, {{"K"}, {"enter"}}, {{"R"}, {"y"}}} {
		m := triageModel()
		m.selectedID = "busy"
		m.arrange()
		require.Empty(t, calls(press(m, keys[0]...)))
		require.NotNil(t, m.dialog, keys[0])
		other := m.rows["busy"].Session
		other.Timestamp++
		m.update(changes{updated: snapshots(2, other)})
		assert.Empty(t, calls(press(m, keys[1]...)), "%v", keys)
		assert.Equal(t, `"busy" was removed`, m.notice.text)
	}
}

// keysFor returns the keys among effects, by session.
func keysFor(effects []effect) map[string]string {
	keys := map[string]string{}
	for _, e := range effects {
		if s, ok := e.(sendKeys); ok {
			keys[s.id] += strings.Join(s.keys, " ") + s.text + "|"
		}
	}
	return keys
}

func TestPassThrough_KeysReachOneSessionOnly(t *testing.T) {
	m := triageModel()
	press(m, "i")
	require.NotNil(t, m.passThrough)
	assert.Contains(t, m.screen(), "KEYS GO TO proj5")
	assert.Contains(t, m.screen(), "Ctrl-q leaves; every other key goes to proj5")
	assert.Equal(t, map[string]string{"proj5": "1|"}, keysFor(press(m, "1")))
	assert.Empty(t, keysFor(press(m, "esc", "q", "ctrl+c")), "they wait for the call before")
	reportWorking(m, "proj5")
	assert.Equal(t, "proj5", m.selectedID, "the selection stays, though it was answered")
	m.update(tea.MouseClickMsg{Button: tea.MouseLeft, X: 3, Y: 3})
	assert.Equal(t, "proj5", m.selectedID)
	assert.Equal(t, map[string]string{"proj5": "Escape q C-c|"}, keysFor(m.update(keysSent{"proj5", nil})))
	assert.Equal(t, map[string]string{}, keysFor(m.update(tea.PasteMsg{Content: "a\r\nb"})))
	assert.Equal(t, map[string]string{"proj5": "a\nb|"}, keysFor(m.update(keysSent{"proj5", nil})))
	press(m, "x")
	effects := m.update(tea.KeyPressMsg(tea.Key{Code: 'q', Mod: tea.ModCtrl}))
	assert.Nil(t, m.passThrough)
	assert.Empty(t, keysFor(effects))
	assert.Equal(t, map[string]string{"proj5": "x|"}, keysFor(m.update(keysSent{"proj5", nil})),
		"keys typed before are still sent")
	assert.Equal(t, "proj46", m.selectedID, "the next session has moved up")
	assert.Empty(t, keysFor(press(m, "1")))
}

// The keys must not reach the list, where they mean something else.
func TestPassThrough_DropsKeysOnceTheSessionIsGone(t *testing.T) {
	for name, end := range map[string]func(m *model){
		"ended": func(m *model) {
			s := m.rows["proj5"].Session
			s.State, s.SessionAlive, s.AgentAlive = "failed", false, false
			m.update(changes{updated: snapshots(9, s)})
		},
		"removed": func(m *model) { m.update(changes{removed: []string{"proj5"}}) },
		"created anew": func(m *model) {
			s := m.rows["proj5"].Session
			s.Timestamp++
			m.update(changes{removed: []string{"proj5"}, updated: snapshots(9, s)})
		},
		"no daemon": func(m *model) { m.update(changes{gone: map[string]string{"": "corrald is not running"}}) },
	} {
		m := triageModel()
		press(m, "i", "a", "b")
		end(m)
		assert.Contains(t, m.screen(), "KEYS GO NOWHERE", name)
		effects := append(press(m, "d", "y", "q", "enter"), m.update(keysSent{"proj5", nil})...)
		assert.Empty(t, keysFor(effects), name)
		assert.Empty(t, calls(effects), name)
		assert.Nil(t, m.dialog, name)
		assert.NotNil(t, m.passThrough, name)
		m.update(tea.KeyPressMsg(tea.Key{Code: 'q', Mod: tea.ModCtrl}))
		assert.Nil(t, m.passThrough, name)
	}
}

func TestPassThrough_StopsAfterAKeyThatDidNotArrive(t *testing.T) {
	m := triageModel()
	press(m, "i", "a", "b")
	assert.Empty(t, keysFor(m.update(keysSent{"proj5", errors.New("no")})), "b does not make sense without a")
	assert.Contains(t, m.screen(), `cannot send keys to "proj5": no`)
	assert.Equal(t, map[string]string{"proj5": "c|"}, keysFor(press(m, "c")))
}

func TestPassThrough_NamesKeysAsTmuxDoes(t *testing.T) {
	for want, key := range map[string]tea.Key{
		"1": {Code: '1', Text: "1"}, "A": {Code: 'a', ShiftedCode: 'A', Text: "A", Mod: tea.ModShift},
		"Space": {Code: ' ', Text: " "}, "ü": {Code: 'ü', Text: "ü"},
		";": {Code: ';', Text: ";"}, "Escape": {Code: tea.KeyEscape}, "Up": {Code: tea.KeyUp},
		"S-Up": {Code: tea.KeyUp, Mod: tea.ModShift}, "BTab": {Code: tea.KeyTab, Mod: tea.ModShift},
		"C-c": {Code: 'c', Mod: tea.ModCtrl}, "M-x": {Code: 'x', Mod: tea.ModAlt},
		"M-C-Left": {Code: tea.KeyLeft, Mod: tea.ModCtrl | tea.ModAlt}, "M-Enter": {Code: tea.KeyEnter, Mod: tea.ModAlt},
		"DC": {Code: tea.KeyDelete}, "F5": {Code: tea.KeyF5}, "PPage": {Code: tea.KeyPgUp},
		"C-Space": {Code: ' ', Mod: tea.ModCtrl}, "漢 字": {Text: "漢字"},
		"": {Code: tea.KeyCapsLock},
	} {
		assert.Equal(t, want, strings.Join(tmuxKeys(key), " "), "%v", key)
	}
}

func TestColumns_IDIsWholeWhileOthersAreEmpty(t *testing.T) {
	m := modelOfEachState(80, 24)
	s := client.Session{
		Id: "a-project-with-a-long-name", Agent: "command", Command: []string{"/usr/bin/vim", "x"},
		State: "running", Timestamp: 1, ControlGroup: "/g",
	}
	m.update(wholeList(m, 1, client.Manager{}, s))
	m.update(measured{noon, []counters{{id: s.Id, exists: true, cpuTime: 1, memory: unknown, tasks: unknown}}})
	screen := m.screen()
	for _, text := range []string{"a-project-with-a-long-name", " vim "} {
		assert.Contains(t, screen, text)
	}
	assert.NotContains(t, screen, "MEMORY")
	assert.NotContains(t, screen, "TASKS")
}

func TestColumns_AreChosenAndRemembered(t *testing.T) {
	m := modelOfEachState(160, 30)
	press(m, "C")
	for columns[m.dialog.choiceIndex].name != "labels" {
		press(m, "down")
	}
	press(m, "space", "up", "up", "up", "up", "space")
	assert.Contains(t, press(m, "enter"), save{m.settings})
	assert.Contains(t, m.screen(), "LABELS")
	assert.Contains(t, m.screen(), "team=id")

	path := t.TempDir() + "/corral/top.json"
	require.NoError(t, saveSettings(path, m.settings))
	assert.Equal(t, m.settings, loadSettings(path))
	for content, want := range map[string]settings{
		"":                         {},
		"{":                        {},
		`{"columns":3}`:            {},
		`{"columns":["id","x"]}`:   {Columns: []string{"id"}},
		`{"preview":3000,"new":1}`: {Preview: maxShare},
	} {
		require.NoError(t, writeFile(path, content))
		assert.Equal(t, want, loadSettings(path), content)
	}
}

func TestGroups_HaveHeadings(t *testing.T) {
	m := modelOfEachState(100, 30)
	press(m, "t")
	assert.Contains(t, m.screen(), "/src/docs  1 session, 1 needs attention")
	assert.Equal(t, "docs", m.selectedID)
	assert.Equal(t, 1, m.lineOf(m.index), "below its heading")
	assert.Contains(t, press(m, "t"), save{settings{Group: "label:team"}})
	assert.Contains(t, m.screen(), "team=id  1 session, 1 needs attention")
	assert.Contains(t, m.screen(), "no label team  8 sessions, 2 need attention")
	for _, key := range []string{"end", "home", "pgdn", "down", "G"} {
		press(m, key)
		assert.Contains(t, m.shownRows(), m.selected(), key)
	}
	press(m, "t")
	assert.NotContains(t, m.screen(), "no label")
}

func TestMouse_SelectsAttachesSortsAndScrolls(t *testing.T) {
	m := modelOfEachState(80, 24)
	at := noon
	m.clock = func() time.Time { return at }
	m.guardUntil, m.answerGuardUntil = time.Time{}, time.Time{}
	click := func(x, y int) []effect { return m.update(tea.MouseClickMsg{Button: tea.MouseLeft, X: x, Y: y}) }
	click(5, 5)
	assert.Equal(t, "api", m.selectedID)
	at = at.Add(time.Second)
	assert.NotContains(t, click(5, 5), attach{"api"}, "too late for a double click")
	assert.Contains(t, click(5, 5), attach{"api"})
	click(strings.Index(strings.Split(m.screen(), "\n")[1], "CPU")-len("\x1b[0;4m"), 1)
	assert.Equal(t, byCPU, m.sort)
	m.update(tea.MouseWheelMsg{Button: tea.MouseWheelDown, X: 1, Y: 3})
	assert.Equal(t, "docs", m.selectedID, "the one after api")
	for _, y := range []int{0, 11, 23, 50} {
		click(3, y)
		assert.Equal(t, "docs", m.selectedID)
	}
}

func TestPreview_ScrollsIntoTheHistory(t *testing.T) {
	m := modelOfEachState(80, 24)
	var lines []string
	for i := range 100 {
		lines = append(lines, fmt.Sprintf("line %d", i+1))
	}
	m.update(captureDue{"docs"})
	m.update(captured{id: "docs", text: strings.Join(lines[90:], "\n")})
	assert.Contains(t, m.screen(), "line 100")
	up := func() []effect { return m.update(tea.KeyPressMsg(tea.Key{Code: 'u', Mod: tea.ModCtrl})) }
	assert.Contains(t, up(), delayCapture{"docs", 0})
	assert.Equal(t, []effect{capture{"docs", historyLines}}, m.update(captureDue{"docs"}))
	m.update(captured{id: "docs", text: strings.Join(lines, "\n")})
	assert.NotContains(t, m.screen(), "line 100 ")
	assert.Contains(t, m.screen(), "of 100: Esc ends scrolling")
	assert.Empty(t, up(), "the history is complete and does not change")
	m.update(changes{updated: snapshots(2, m.rows["docs"].Session)})
	assert.NotContains(t, m.screen(), "line 100 ")
	press(m, "esc")
	assert.Contains(t, m.screen(), "line 100")

	before := m.previewHeight()
	assert.Contains(t, press(m, "+"), save{settings{Preview: 60}})
	assert.Greater(t, m.previewHeight(), before)
	press(m, "-", "-", "-")
	assert.LessOrEqual(t, m.previewHeight(), before)
}

func TestNewSession_FormKeepsItsInputUntilTheCallSucceeds(t *testing.T) {
	m := modelOfEachState(80, 24)
	assert.Contains(t, press(m, "n"), listAgents{})
	m.update(agents{names: []string{"claude", "codex", "command"}})
	press(m, "right", "tab", "tab", "b", "1", "tab", "f", "i", "x")
	m.update(tea.PasteMsg{Content: " it\nnow"})
	golden(t, m, "new")
	sent := calls(press(m, "enter"))
	require.Len(t, sent, 1)
	assert.Equal(t, NewSession{Agent: "codex", Directory: "/src/docs", Branch: "b1", Prompt: "fix it\nnow"}, sent[0].spec)
	assert.Empty(t, calls(press(m, "enter")), "once")
	m.update(called{sent[0], "", errors.New("it is not a repository")})
	assert.Contains(t, m.screen(), "it is not a repository")
	sent = calls(press(m, "enter"))
	require.Len(t, sent, 1)
	m.update(called{sent[0], "docs-2", nil})
	assert.Nil(t, m.dialog)
	m.update(changes{updated: snapshots(1, client.Session{Id: "docs-2", State: "running"})})
	assert.Equal(t, "docs-2", m.selectedID)

	m.directory = "/src/here"
	press(m, "n")
	m.update(agents{names: []string{"claude", "codex", "command"}})
	press(m, "left", "tab", "v", "i", "m", "space", "x")
	sent = calls(press(m, "enter"))
	require.Len(t, sent, 1)
	assert.Equal(t, "command", sent[0].spec.Agent)
	assert.Equal(t, "vim x", sent[0].spec.Command)
	assert.Equal(t, "/src/here", sent[0].spec.Directory)
}

func TestLabels_AreCheckedBeforeTheyAreSet(t *testing.T) {
	m := modelOfEachState(80, 24)
	m.selectedID = "fix-auth"
	m.arrange()
	press(m, "L", "space", "x")
	assert.Empty(t, calls(press(m, "enter")))
	assert.Contains(t, m.screen(), `invalid label "x": expected KEY=VALUE`)
	assert.Equal(t, []call{{verb: label, id: "fix-auth", labels: map[string]string{"team": "id", "x": "1"}}},
		calls(press(m, "=", "1", "enter")))

	press(m, "e", "h", "i")
	assert.Equal(t, []call{{verb: describe, id: "fix-auth", text: "hi"}}, calls(press(m, "enter")))
}

func TestPaste_RefusesTextThatIsTooLong(t *testing.T) {
	m := modelOfEachState(80, 24)
	press(m, "s")
	m.update(tea.PasteMsg{Content: strings.Repeat("x\n", maxInputLines+1)})
	assert.Empty(t, m.dialog.value())
	assert.Contains(t, m.notice.text, "too long")
	text := strings.Repeat("word ", maxInput/10) + strings.Repeat("\n", maxInputLines)
	m.update(tea.PasteMsg{Content: text})
	assert.Equal(t, text, m.dialog.value())
	assert.NotEmpty(t, m.screen())
}

func writeFile(path, content string) error { return os.WriteFile(path, []byte(content), 0o600) }

func TestColumns_TotalTimeGrowsWithTheRuns(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(seconds int) uint64 { return uint64(start.Add(time.Duration(seconds) * time.Second).UnixMicro()) }
	total := func(r *row, seconds int) string {
		return wording.Runtime(r.earlierRuntime + lastRun(r.Session, start.Add(time.Duration(seconds)*time.Second)))
	}
	var r row
	apply := func(s client.Session, seconds int) {
		s.Id = "shop"
		r.addRuntime(s, start.Add(time.Duration(seconds)*time.Second))
		r.Session = s
	}
	running := client.Session{AgentAlive: true, ExecMainStartTimestamp: at(0), TotalRuntimeUSec: 100e6}
	apply(running, 60) // 40 s in earlier runs, 60 s in this one
	assert.Equal(t, "1m 40s", total(&r, 60))
	assert.Equal(t, "2m", total(&r, 80))
	ended := running
	ended.AgentAlive, ended.ExecMainExitTimestamp = false, at(90)
	apply(ended, 91)
	assert.Equal(t, "2m 10s", total(&r, 500), "40 s and 90 s")
	running.ExecMainStartTimestamp = at(500)
	apply(running, 500)
	assert.Equal(t, "2m 20s", total(&r, 510), "a third run")
}

// tmux still shows the screen of the ended session, but only a running agent takes input.
func TestBottomLine_OffersNoInputKeysForEndedSessions(t *testing.T) {
	m := modelOfEachState(100, 30)
	m.update(wholeList(m, 1, client.Manager{},
		client.Session{Id: "over", Agent: "claude", State: "failed", SessionAlive: true, NRuns: 1},
	))
	lines := strings.Split(strings.TrimRight(m.screen(), "\n"), "\n")
	bottom := ansi.Strip(lines[len(lines)-1])
	assert.Contains(t, bottom, "r resume")
	assert.NotContains(t, bottom, "i keys")
	assert.NotContains(t, bottom, "s send")
}
