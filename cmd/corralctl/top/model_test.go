package top

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/dbusapi/client"
)

var update = flag.Bool("update", false, "write the screens in testdata anew")

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) uint64 { return uint64(noon.Add(-d).UnixMicro()) }

// modelOfEachState returns a model with a session in each state.
func modelOfEachState(width, height int) *model {
	at := noon
	clock := func() time.Time { // each key is a second after the last
		at = at.Add(time.Second)
		return at
	}
	errorText := func(doing, id string, err error) string { return fmt.Sprintf("cannot %s %q: %v", doing, id, err) }
	m := &model{host: "desk", now: noon, clock: clock, errorText: errorText}
	m.update(tea.WindowSizeMsg{Width: width, Height: height})
	live := func(id, agent, activity string) client.Session {
		return client.Session{
			Id: id, Agent: agent, State: "running", Activity: activity, NRuns: 1,
			SessionAlive: true, AgentAlive: true, Resumable: agent != "command",
			ControlGroup: "/app-corral-" + id, WorkingDirectory: "/src/" + id,
			StateChangeTimestamp: ago(12 * time.Minute),
		}
	}
	ended := func(id, state, reason string) client.Session {
		return client.Session{
			Id: id, Agent: "claude", State: state, Reason: reason, WorkingDirectory: "/src/" + id,
			StateChangeTimestamp: ago(26 * time.Hour), NRuns: 1, Resumable: true,
		}
	}
	api, docs, stale := live("api", "codex", "idle"), live("docs", "claude", "waiting"), live("shop", "claude", "unknown")
	api.IdleHint, api.IdleSinceHint = true, ago(135*time.Second)
	docs.Attention, docs.AttentionTimestamp = "permission", ago(12*time.Second)
	docs.Description, docs.Worktree = "the guide for newcomers", "corral/docs"
	stale.State, stale.Attention, stale.Reason, stale.SessionAlive = "stale", "stale", "scope running, session dead", false
	frozen := live("bench", "command", "idle")
	frozen.Frozen = true
	failed := ended("fix-auth", "failed", "command exited with code 3")
	failed.Attention, failed.Labels = "failed", map[string]string{"team": "id"}
	failed.Result, failed.ExecMainCode, failed.ExecMainStatus = "exit-code", 1, 3
	sessions := []client.Session{
		api, docs, stale, frozen, failed, live("web", "gemini", "working"),
		ended("old", "completed", ""), ended("later", "suspended", ""), ended("gone", "archived", ""),
		{Id: "new", Agent: "claude", State: "created", WorkingDirectory: "/src/new", Timestamp: ago(time.Minute)},
	}
	m.update(wholeList(m, 1, client.Manager{Version: "1.4.0"}, sessions...))
	for i := range 12 {
		at := noon.Add(time.Duration(i-12) * time.Second)
		cpu := uint64(i) * uint64(time.Second)
		m.update(measured{at, []counters{
			{id: "api", exists: true, memory: 300 << 20, cpuTime: cpu / 100, tasks: 12},
			{id: "docs", exists: true, memory: 212 << 20, cpuTime: 0, tasks: 9},
			{id: "web", exists: true, memory: 3 << 29, cpuTime: uint64(i*i) * uint64(time.Second) / 5, tasks: 230},
			{id: "bench", exists: true, memory: unknown, cpuTime: cpu, tasks: unknown},
		}})
	}
	m.update(inspected{id: "docs", detail: 1, group: "/app-corral-docs", message: "Run rm -rf build?\nsecond line"})
	return m
}

// Positions in the queue follow from the times: no signal announces them.
func TestTop_NumbersTheQueue(t *testing.T) {
	m := modelOfEachState(160, 24)
	later, created := m.rows["later"].Session, m.rows["new"].Session
	later.QueuedTimestamp, created.QueuedTimestamp = 7, 8
	m.update(changes{updated: snapshots(2, later, created)})
	screen := ansi.Strip(m.screen())
	assert.Regexp(t, `later +\S+ +suspended +queued, 1st`, screen)
	assert.Regexp(t, `new +claude +created +queued, 2nd`, screen)
	later.QueuedTimestamp = 0
	m.update(changes{updated: snapshots(3, later)})
	assert.Regexp(t, `new +claude +created +queued, 1st`, ansi.Strip(m.screen()))
}

// Finished turns have a count of their own, and precede sessions that do not need a person, until a
// person has seen them.
func TestTop_ShowsFinishedTurns(t *testing.T) {
	m := modelOfEachState(160, 24)
	s := m.rows["api"].Session
	s.Attention, s.AttentionTimestamp = "turn-ended", ago(5*time.Second)
	m.update(changes{updated: snapshots(2, s)})
	m.update(inspected{id: "api", detail: 2, message: "finished task"})
	screen := ansi.Strip(m.screen())
	assert.Contains(t, screen, "1 waiting  1 turn ended  1 failed")
	assert.Regexp(t, `◆ api +codex +running +turn ended: finished task .* 5s`, screen)
	assert.Less(t, urgency(m.rows["api"]), calm)
	s.AttentionAcknowledged = true
	m.update(changes{updated: snapshots(3, s)})
	assert.Equal(t, calm, urgency(m.rows["api"]))
	assert.Contains(t, m.screen(), paint(wording.Dim, "◆"))
	assert.Contains(t, ansi.Strip(m.screen()), "turn ended: finished task")
}

// wholeList returns the changes of a host whose sessions were all read.
func wholeList(m *model, detail uint64, manager client.Manager, sessions ...client.Session) changes {
	c := changes{
		back: []string{""}, managers: map[string]client.Manager{"": manager}, updated: snapshots(detail, sessions...),
	}
	for i := range c.updated {
		c.updated[i].whole = true
	}
	for id := range m.rows {
		if !slices.ContainsFunc(sessions, func(s client.Session) bool { return s.Id == id }) {
			c.removed = append(c.removed, id)
		}
	}
	return c
}

func snapshots(detail uint64, sessions ...client.Session) []snapshot {
	all := make([]snapshot, len(sessions))
	for i, s := range sessions {
		all[i] = snapshot{Session: s, detail: detail}
	}
	return all
}

const agentScreen = "\x1b[1;35m✻ Claude\x1b[0m\n\n" +
	"\x1b[36mWrite\x1b[39m docs/guide.md?\n\x1b[1m 1. Yes\x1b[0m\n 2. No\n\n\n"

// press presses keys, by the names that bubbletea gives them.
func press(m *model, keys ...string) []effect {
	var effects []effect
	for _, name := range keys {
		key, known := map[string]tea.Key{
			"enter": {Code: tea.KeyEnter}, "esc": {Code: tea.KeyEscape}, "tab": {Code: tea.KeyTab},
			"space": {Code: tea.KeySpace, Text: " "}, "up": {Code: tea.KeyUp},
			"down": {Code: tea.KeyDown}, "left": {Code: tea.KeyLeft}, "pgdown": {Code: tea.KeyPgDown},
			"end": {Code: tea.KeyEnd}, "home": {Code: tea.KeyHome}, "backspace": {Code: tea.KeyBackspace},
			"alt+enter": {Code: tea.KeyEnter, Mod: tea.ModAlt},
			"ctrl+w":    {Code: 'w', Mod: tea.ModCtrl}, "ctrl+c": {Code: 'c', Mod: tea.ModCtrl},
		}[name]
		if !known {
			key = tea.Key{Code: []rune(name)[0], Text: name}
		}
		effects = append(effects, m.update(tea.KeyPressMsg(key))...)
	}
	return effects
}

// calls returns the calls among effects.
func calls(effects []effect) []call {
	var all []call
	for _, e := range effects {
		if c, ok := e.(call); ok {
			all = append(all, c)
		}
	}
	return all
}

// golden compares the screen with the file of that name, and checks that it fits the terminal.
func golden(t *testing.T, m *model, name string) {
	t.Helper()
	var plain strings.Builder
	lines := strings.Split(m.screen(), "\n")
	assert.LessOrEqual(t, len(lines), m.height)
	for _, line := range lines {
		assert.LessOrEqual(t, ansi.StringWidth(line), m.width, "%q", line)
		plain.WriteString(strings.TrimRight(ansi.Strip(line), " ") + "\n")
	}
	path := "testdata/" + name + ".screen"
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(plain.String()), 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(want), plain.String(), "go test ./cmd/corralctl/top -update writes %s anew", path)
}

func TestScreen_MatchesTheGoldenFiles(t *testing.T) {
	for _, size := range []struct{ width, height int }{{80, 24}, {200, 60}, {120, 30}, {40, 10}} {
		name := fmt.Sprintf("%dx%d", size.width, size.height)
		t.Run(name, func(t *testing.T) {
			m := modelOfEachState(size.width, size.height)
			m.update(captured{id: "docs", text: agentScreen})
			golden(t, m, name)
		})
	}
	dialogs := map[string]func(m *model){
		"help":    func(m *model) { press(m, "?") },
		"stop":    func(m *model) { press(m, "/", "w", "e", "b", "enter", "S") },
		"remove":  func(m *model) { press(m, "d") },
		"signal":  func(m *model) { press(m, "K", "down") },
		"send":    func(m *model) { press(m, "s", "y", "e", "s"); m.update(tea.PasteMsg{Content: "one\r\ntwo"}) },
		"filter":  func(m *model) { press(m, "/", "c", "l", "a", "u") },
		"nothing": func(m *model) { press(m, "/", "x", "x", "x") },
		"gone":    func(m *model) { m.update(changes{gone: map[string]string{"": "corrald is not running"}}) },
		"error": func(m *model) {
			m.update(called{call{verb: resume, id: "docs"}, "docs", errors.New("it is running")})
		},
		"busy": func(m *model) {
			press(m, "down", "r", "down", "down", "z")
			m.update(second{noon.Add(3 * time.Second)})
		},
	}
	for name, prepare := range dialogs {
		t.Run(name, func(t *testing.T) {
			m := modelOfEachState(80, 24)
			prepare(m)
			golden(t, m, name)
		})
	}
}

// The screen fits every size of the terminal, and no line is too long.
func TestScreen_FitsAnyTerminalSize(t *testing.T) {
	for _, keys := range [][]string{{}, {"?"}, {"d"}, {"K"}, {"s", "x"}, {"/", "d"}} {
		m := modelOfEachState(80, 24)
		m.update(captured{id: "docs", text: agentScreen})
		press(m, keys...)
		for _, width := range []int{1, 2, 3, 7, 12, 20, 33, 40, 79, 80, 129} {
			for _, height := range []int{1, 2, 3, 4, 5, 8, 11, 12, 13, 14, 24, 33} {
				m.update(tea.WindowSizeMsg{Width: width, Height: height})
				lines := strings.Split(m.screen(), "\n")
				require.LessOrEqual(t, len(lines), height, "%dx%d", width, height)
				for _, line := range lines {
					require.LessOrEqual(t, ansi.StringWidth(line), width, "%dx%d %v: %q", width, height, keys, line)
				}
			}
		}
	}
}

func TestSorting_PutsSessionsThatNeedAPersonFirst(t *testing.T) {
	m := modelOfEachState(80, 24)
	ids := func() (all []string) {
		for _, r := range m.order {
			all = append(all, r.Id)
		}
		return all
	}
	assert.Equal(t, []string{"docs", "shop", "fix-auth", "api", "bench", "web", "later", "new", "old"}, ids())
	press(m, "o")
	assert.Equal(t, []string{"web", "bench", "api"}, ids()[:3], "by CPU")
	press(m, "o")
	assert.Equal(t, []string{"web", "api", "docs"}, ids()[:3], "by memory")
	press(m, "o", "o", "o", "o")
	assert.Equal(t, "docs", ids()[0])

	m.archived = true
	m.arrange()
	assert.Equal(t, "gone", ids()[9])
}

func TestSelection_FollowsASessionThatMoves(t *testing.T) {
	m := modelOfEachState(80, 24)
	press(m, "down", "down", "down")
	require.Equal(t, "api", m.selectedID)
	api := m.rows["api"].Session
	api.Activity, api.Attention = "waiting", "question"
	effects := m.update(changes{updated: snapshots(2, api)})
	assert.Equal(t, 0, m.index)
	assert.Equal(t, "api", m.selectedID)
	assert.Contains(t, effects, inspect{"api", 2}, "signals do not carry the question")
	assert.NotContains(t, m.update(second{noon}), inspect{"api", 2}, "it is read once")

	m.update(changes{removed: []string{"api"}})
	assert.Equal(t, "docs", m.selectedID, "the session that moves up")
}

// Changes accumulate while the terminal is attached to a session. When a new session is reported
// late, it is running already, but its control group was created after it was read.
func TestInspect_ReadsTheControlGroupOfANewSession(t *testing.T) {
	m := modelOfEachState(80, 24)
	late := client.Session{Id: "docs-2", Agent: "claude", State: "running", Activity: "working", AgentAlive: true,
		SessionAlive: true, Timestamp: ago(time.Minute), NRuns: 1}
	assert.Contains(t, m.update(changes{updated: snapshots(2, late)}), inspect{"docs-2", 2})
	m.update(inspected{id: "docs-2", detail: 2, group: "/app-corral-docs-2"})
	assert.Equal(t, "/app-corral-docs-2", m.rows["docs-2"].group)

	again := client.Session{Id: "docs-2", Agent: "codex", State: "running", Timestamp: ago(time.Second), NRuns: 1}
	assert.Contains(t, m.update(changes{updated: snapshots(2, again)}), inspect{"docs-2", 2},
		"it was removed and created again")
}

// A key acts at once if nothing would be lost; otherwise it asks for a confirmation.
func TestConfirmation_IsAskedWhereWorkWouldBeLost(t *testing.T) {
	for _, row := range []struct {
		session, key string
		title        string // of the confirmation, "" for none
		call         call
	}{
		{"api", "S", "", call{verb: stop, id: "api"}},
		{"web", "S", "Stop web?", call{verb: stop, id: "web"}},
		{"web", "z", "Suspend web?", call{verb: suspend, id: "web"}},
		{"bench", "z", "Suspend bench?", call{verb: suspend, id: "bench"}},
		{"later", "r", "", call{verb: resume, id: "later"}},
		{"new", "r", "", call{verb: start, id: "new"}},
		{"api", "f", "", call{verb: freeze, id: "api"}},
		{"bench", "f", "", call{verb: thaw, id: "bench"}},
		{"old", "A", "Archive old?", call{verb: archive, id: "old"}},
		{"old", "d", "Remove old?", call{verb: remove, id: "old"}},
		{"web", "d", "Remove web?", call{verb: remove, id: "web", force: true}},
		{"old", "x", "Kill the leftover processes of old?", call{verb: reap, id: "old", recipient: "leftovers", signal: 9}},
		{"docs", "c", "", call{verb: ack, id: "docs"}},
		{"docs", "Y", "", call{verb: approve, id: "docs"}},
		{"docs", "N", "", call{verb: deny, id: "docs"}},
		{"api", "R", "", call{verb: restart, id: "api"}},
		{"web", "R", "Restart web?", call{verb: restart, id: "web"}},
		{"api", "E", "", call{verb: enable, id: "api", text: "resume"}},
	} {
		m := modelOfEachState(80, 24)
		m.selectedID = row.session
		m.rows["old"].usage.leftovers = 2
		m.arrange()
		effects := press(m, row.key)
		if row.title == "" {
			assert.Nil(t, m.dialog, "%v", row)
			assert.Equal(t, []call{row.call}, calls(effects))
			continue
		}
		require.NotNil(t, m.dialog, "%v", row)
		assert.Equal(t, row.title, m.dialog.title)
		assert.Empty(t, calls(effects))
		assert.Empty(t, calls(press(m, "x", "enter")), "neither another key nor Enter is a yes")
		assert.Nil(t, m.dialog)
		assert.Equal(t, []call{row.call}, calls(press(m, row.key, "y")), "%v", row)
	}
}

func TestAttach_OpensNoDialog(t *testing.T) {
	m := modelOfEachState(80, 24)
	// In each state corralctl attach itself asks what to do.
	for _, id := range []string{"docs", "shop", "old", "new", "bench"} {
		m.selectedID = id
		m.arrange()
		assert.Contains(t, press(m, "enter"), attach{id})
		assert.Nil(t, m.dialog, id)
	}
}

func TestSend_KeepsTypedAndPastedText(t *testing.T) {
	m := modelOfEachState(80, 24)
	press(m, "s", "a", "b", "left", "backspace", "x", "space", "q")
	m.update(tea.PasteMsg{Content: "one\r\ntwo\rthree"})
	assert.Equal(t, []call{{verb: send, id: "docs", text: "x qone\ntwo\nthreeb", flags: dbusapi.InputEnter}},
		calls(press(m, "enter")))

	press(m, "s", "a", "alt+enter", "b", " ", "c", "ctrl+w")
	assert.Equal(t, "a\nb ", m.dialog.value())
	assert.Empty(t, calls(press(m, "esc")))

	m.selectedID = "later"
	m.arrange()
	sent := calls(press(m, "s", "a", "enter"))
	require.Len(t, sent, 1)
	assert.Equal(t, dbusapi.InputEnter|dbusapi.InputResume, sent[0].flags, "a suspended session is resumed first")
}

func TestTask_IsShownUntilItsCallReturns(t *testing.T) {
	m := modelOfEachState(80, 24)
	press(m, "down")
	started := calls(press(m, "r"))
	m.update(second{noon.Add(4 * time.Second)})
	assert.Contains(t, m.screen(), "Resuming shop (4s)…")
	press(m, "down")
	assert.Equal(t, "fix-auth", m.selectedID, "keys do not wait for the call")
	m.update(called{started[0], "shop", errors.New("no")})
	assert.Contains(t, m.screen(), `cannot resume "shop": no`)
	assert.Empty(t, m.tasks)
	press(m, "down")
	assert.NotContains(t, m.screen(), `cannot resume`)
}

// Only what is on the screen is measured, and nothing while the daemon is not running.
func TestMeasure_ReadsOnlyShownSessions(t *testing.T) {
	m := &model{now: noon, clock: time.Now}
	m.update(tea.WindowSizeMsg{Width: 80, Height: 24})
	var sessions []client.Session
	for i := range 500 {
		id := fmt.Sprintf("s%03d", i)
		sessions = append(sessions, client.Session{Id: id, State: "running", SessionAlive: true, ControlGroup: "/g"})
	}
	effects := m.update(wholeList(m, 1, client.Manager{}, sessions...))
	assert.Contains(t, effects, delayCapture{"s000", previewSelectDelay})
	measures := func(effects []effect) (n int) {
		for _, e := range effects {
			if e, ok := e.(measure); ok {
				n = len(e.of)
			}
		}
		return n
	}
	assert.Equal(t, 10, measures(m.update(second{noon})))
	assert.Equal(t, 0, measures(m.update(second{noon})), "the last result has not arrived yet")
	m.update(measured{at: noon})
	press(m, "o")
	assert.Equal(t, 500, measures(m.update(second{noon})), "an order by CPU needs all")
	m.update(measured{at: noon})
	press(m, "end")
	assert.Equal(t, "s499", m.selectedID)
	assert.Len(t, m.shownRows(), 10)

	m.update(changes{gone: map[string]string{"": "corrald is not running"}})
	m.remote = true
	assert.Equal(t, 0, measures(m.update(second{noon})))
	assert.Empty(t, press(m, "S", "r", "space"), "keys do not act either")
	assert.Contains(t, m.screen(), "corrald is not running")
	m.update(wholeList(m, 2, client.Manager{}, sessions...))
	assert.Equal(t, "s499", m.selectedID, "the selection does not change")
	assert.NotContains(t, m.screen(), "corrald is not running")
}

// Of sessions on other machines, counters are read every five seconds, and less often if many are
// on the screen.
func TestMeasure_ReadsFromOtherMachinesLessOften(t *testing.T) {
	for shown, interval := range map[int]int{3: 5, 40: 12} {
		m := &model{now: noon, clock: time.Now, remote: true}
		m.update(tea.WindowSizeMsg{Width: 80, Height: 100})
		var sessions []client.Session
		for i := range shown {
			sessions = append(sessions, client.Session{Id: fmt.Sprintf("s%02d", i), State: "running", SessionAlive: true})
		}
		m.update(wholeList(m, 1, client.Manager{}, sessions...))
		var at []int
		for i := range 30 {
			now := noon.Add(time.Duration(i) * time.Second)
			for _, e := range m.update(second{now}) {
				if e, ok := e.(measure); ok {
					assert.Len(t, e.of, shown)
					at = append(at, i)
					m.update(measured{at: now})
				}
			}
		}
		require.GreaterOrEqual(t, len(at), 2)
		assert.Equal(t, interval, at[1]-at[0], "%d sessions", shown)
	}
}

func TestPreview_IsReadWhenTheSessionChanges(t *testing.T) {
	m := modelOfEachState(80, 24)
	require.Equal(t, "docs", m.preview.id)
	assert.Equal(t, []effect{capture{"docs", m.previewHeight()}}, m.update(captureDue{"docs"}))
	assert.Empty(t, m.update(captured{id: "docs", text: agentScreen}), "the agent waits: nothing changes")
	docs := m.rows["docs"].Session
	docs.Activity, docs.Attention = "working", ""
	assert.Contains(t, m.update(changes{updated: snapshots(2, docs)}), delayCapture{"docs", previewInterval})
	assert.Empty(t, m.update(changes{updated: snapshots(3, docs)})[1:], "once, until it has been read")
	m.update(captureDue{"docs"})
	assert.Contains(t, m.update(captured{id: "docs", text: agentScreen}), delayCapture{"docs", previewInterval},
		"the agent works: again")

	effects := press(m, "end")
	assert.Empty(t, effects, "old has no screen")
	assert.Empty(t, m.update(captureDue{"docs"}), "another session is shown")
	m.update(captured{id: "docs", text: "late"})
	assert.Empty(t, m.preview.text)
	press(m, "p")
	assert.Equal(t, 0, m.previewHeight())
	assert.Empty(t, press(m, "home"))
}

func TestSanitize_KeepsTextAndSGROnly(t *testing.T) {
	for in, want := range map[string]string{
		"plain":                          "plain",
		"\x1b[31mred":                    "\x1b[31mred",
		"\x1b[38:2::1:2:3mrgb\x1b[0m":    "\x1b[38:2::1:2:3mrgb\x1b[0m",
		"a\x1b[2Jb\x1b[Hc\x1b[?1049hd":   "abcd",
		"a\x1b]0;title\ab\x1b]52;c;x\ac": "abc",
		"a\x1b]8;;http://x\x1b\\link":    "alink",
		"a\x1bPq#0\x1b\\b\x1b_x\x1b\\c":  "abc",
		"bell\a back\b\r x\x1bc":         "bell back x",
		"a\tb":                           "a       b",
		"left\u202etfel":                 "lefttfel",
		"\xff\xfe":                       "??",
		"\x1b[>4;2mno\x1b[?25m\x1b[1 m":  "no",
		"\u009b31mc1":                    "31mc1",
		"漢字 ✳":                           "漢字 ✳",
	} {
		assert.Equal(t, want, sanitize(in), "%q", in)
	}
	lines := screenLines("\x1b[31mone\ntwo\n\x1b[0;1mthree\nfour\n\n", 3)
	assert.Equal(t, []string{"\x1b[31mone\x1b[m", "\x1b[31mtwo\x1b[m", "\x1b[31m\x1b[0;1mthr\x1b[m", "\x1b[1mfou\x1b[m"},
		lines, "styles continue on the next line")
}

func FuzzScreenLines(f *testing.F) {
	isControl := func(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 }
	for _, seed := range []string{agentScreen, "\x1b[", "\x1b]0;", "\u009b1m", "a\u0301\u202e", "\xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, screen string) {
		for _, line := range screenLines(screen, 20) {
			require.LessOrEqual(t, ansi.StringWidth(line), 20, "%q", line)
			for rest := line; rest != ""; {
				before, after, found := strings.Cut(rest, "\x1b")
				require.NotContains(t, before, "\u202e")
				require.Equal(t, -1, strings.IndexFunc(before, isControl), "%q", line)
				if !found {
					break
				}
				sequence, more, ended := strings.Cut(after, "m")
				require.True(t, ended && isSGR("\x1b"+sequence+"m"), "%q", line)
				rest = more
			}
		}
	})
}

func TestUsage_IsTheRateSinceTheLastSample(t *testing.T) {
	var u usage
	at := func(seconds int, cpu time.Duration) {
		u.add(noon.Add(time.Duration(seconds)*time.Second), counters{exists: true, cpuTime: uint64(cpu)})
	}
	at(0, time.Minute)
	assert.Less(t, u.cpu, 0.0, "one sample does not give a rate")
	at(1, time.Minute+500*time.Millisecond)
	assert.InDelta(t, 0.5, u.cpu, 1e-9)
	at(2, time.Minute+600*time.Millisecond)
	assert.Equal(t, "  █▂", u.sparkline(4))
	at(12, time.Minute+1600*time.Millisecond)
	assert.InDelta(t, 0.1, u.cpu, 1e-9)
	assert.Len(t, u.history, 1, "a gap")
	at(13, time.Second)
	assert.Less(t, u.cpu, 0.0, "another run")
	u.add(noon, counters{})
	assert.Equal(t, "-", percent(u.cpu, u.exists))
	assert.Equal(t, "12.3%", percent(0.123, true))
	assert.Equal(t, "1234%", percent(12.341, true))
}

func TestColours_MatchCorralctlList(t *testing.T) {
	m := modelOfEachState(80, 24)
	press(m, "end")
	view := m.screen()
	assert.Contains(t, view, "\x1b[0;1;31mfailed   \x1b[0m")
	assert.Contains(t, view, "\x1b[0;1;32mrunning  \x1b[0m")
	assert.Contains(t, view, "\x1b[0;1;33m●\x1b[0m docs ")
	m.update(changes{gone: map[string]string{"": "corrald is not running"}})
	for _, line := range strings.Split(m.screen(), "\n")[:20] {
		assert.Equal(t, "\x1b[0;2m"+ansi.Strip(line)+"\x1b[0m", line, "the last view stays, dimmed")
	}
}
