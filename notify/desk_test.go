package notify

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/testbed"
	"github.com/corrald/corral/supervisor"
)

func TestMain(m *testing.M) { testbed.Main(m) }

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// failed, asking and so on are sessions, as they are published.
func failed(id string, at time.Time) *supervisor.Snapshot {
	return &supervisor.Snapshot{
		ID: id, Agent: "claude", WorkingDirectory: "/home/u/src/" + id, State: "failed", Attention: "failed", AttentionSince: at, StateChanged: at,
		Result: "exit-code", Reason: "command exited with code 3", ExecMainStatus: 3, Started: at.Add(-125 * time.Second), Exited: at,
	}
}

func asking(id, reason, message string, at time.Time) *supervisor.Snapshot {
	return &supervisor.Snapshot{
		ID: id, Agent: "claude", WorkingDirectory: "/srv/" + id, State: "running", Attention: reason, AttentionMessage: message, AttentionSource: "report",
		AttentionSince: at, AgentAlive: true, Started: at.Add(-time.Hour),
	}
}

func in(n *supervisor.Snapshot, change func(*supervisor.Snapshot)) *supervisor.Snapshot {
	c := *n
	change(&c)
	return &c
}

func settings(change ...func(*Settings)) Settings {
	s := Settings{Config: config.Default(), Home: "/home/u"}
	for _, f := range change {
		f(&s)
	}
	return s
}

func labelled(value string) func(*supervisor.Snapshot) {
	return func(n *supervisor.Snapshot) { n.Labels = map[string]string{config.NotifyLabel: value} }
}

func nothingShown(string, string) bool { return false }

// What one session that changed brings onto the screen.
func TestPolicy_NoticeOfOneSession(t *testing.T) {
	long := strings.Repeat("wörd ", 40)
	completed := in(failed("shop", start), func(n *supervisor.Snapshot) {
		n.State, n.Attention, n.Result, n.Reason, n.ExecMainStatus = "completed", "completed", "success", "", 0
	})
	none := func(s *Settings) { s.Agents = map[string]config.Agent{"claude": {Notify: []string{}}} }
	answered := func(s *Settings) {
		s.Agents = map[string]config.Agent{"claude": {ApproveKeys: []string{"1"}, DenyKeys: []string{"Escape"}}}
	}
	for name, c := range map[string]struct {
		n        *supervisor.Snapshot
		settings func(*Settings)
		title    string // "" for nothing
		body     string
		urgency  Urgency
		actions  string
	}{
		"failed": {n: failed("shop", start), title: "shop: failed, exit 3", body: "command exited with code 3\n~/src/shop, after 2m 5s", urgency: Normal, actions: "open restart log"},
		"failed, and can be resumed": {n: in(failed("shop", start), func(n *supervisor.Snapshot) { n.Resumable = true }),
			title: "shop: failed, exit 3", body: "command exited with code 3\n~/src/shop, after 2m 5s", urgency: Normal, actions: "open resume log"},
		"killed": {n: in(failed("shop", start), func(n *supervisor.Snapshot) {
			n.Result, n.ExecMainStatus, n.Reason = "signal", 9, "command was killed by SIGKILL"
		}),
			title: "shop: failed, SIGKILL", body: "command was killed by SIGKILL\n~/src/shop, after 2m 5s", urgency: Normal, actions: "open restart log"},
		"killed by the user": {n: in(failed("shop", start), func(n *supervisor.Snapshot) { n.ByWish = true })},
		"asks": {n: asking("shop", "question", "a <b>\x1b[31m\u202e or\nb & c?", start),
			title: "shop: has a question", body: "a <b> [31m or b & c?\n/srv/shop", urgency: Normal, actions: "open log inline-reply"},
		"asks at length": {n: asking("shop", "permission", long, start),
			title: "shop: asks for permission", body: strings.TrimSpace(long[:len("wörd ")*28]) + "…\n/srv/shop", urgency: Normal, actions: "open log inline-reply"},
		"asks for permission, and its keys are known": {n: asking("shop", "permission", "", start), settings: answered,
			title: "shop: asks for permission", body: "/srv/shop", urgency: Normal,
			actions: fmt.Sprintf("open approve@%d deny@%[1]d log inline-reply", start.UnixMicro())},
		"has a question, and its keys are known": {n: asking("shop", "question", "", start), settings: answered,
			title: "shop: has a question", body: "/srv/shop", urgency: Normal, actions: "open log inline-reply"},
		"has ended its turn": {n: asking("shop", "turn-ended", "", start), title: "shop: turn ended", body: "/srv/shop", urgency: Normal, actions: "open log inline-reply"},
		"an unknown reason":  {n: asking("shop", "moody", "", start), title: "shop: needs attention", body: "/srv/shop", urgency: Normal, actions: "open log inline-reply"},
		"wants nothing":      {n: asking("shop", "", "", start)},
		"completed":          {n: completed, title: "shop: completed", body: "~/src/shop, after 2m 5s", urgency: Low, actions: "open restart log"},
		"completed soon":     {n: in(completed, func(n *supervisor.Snapshot) { n.Started = n.Exited.Add(-59 * time.Second) })},
		"completed, all wanted": {n: in(completed, func(n *supervisor.Snapshot) { n.Started = n.Exited.Add(-time.Second) }), settings: func(s *Settings) { s.Config.NotifyAfter = 0 },
			title: "shop: completed", body: "~/src/shop, after 1s", urgency: Low, actions: "open restart log"},
		"stale": {n: in(asking("shop", "stale", "", start), func(n *supervisor.Snapshot) { n.State, n.Reason = "stale", "scope running, session dead" }),
			title: "shop: lost its terminal", body: "its tmux server died; the agent is still running\n/srv/shop", urgency: Normal, actions: "open resume log"},
		"orphaned": {n: in(asking("shop", "orphaned", "", start), func(n *supervisor.Snapshot) { n.State = "orphaned" }),
			title: "shop: workspace missing", body: "/srv/shop", urgency: Normal, actions: "open log"},
		"not wanted of anybody":     {n: failed("shop", start), settings: func(s *Settings) { s.Config.Notify = []string{"stale"} }},
		"not wanted of the agent":   {n: failed("shop", start), settings: none},
		"wanted of the session":     {n: in(failed("shop", start), labelled("failed")), settings: none, title: "shop: failed, exit 3", body: "command exited with code 3\n~/src/shop, after 2m 5s", urgency: Normal, actions: "open restart log"},
		"not wanted of it":          {n: in(failed("shop", start), labelled("no"))},
		"a label of something else": {n: in(failed("shop", start), labelled("dunno")), title: "shop: failed, exit 3", body: "command exited with code 3\n~/src/shop, after 2m 5s", urgency: Normal, actions: "open restart log"},
		"a day ago":                 {n: failed("shop", start.Add(-25*time.Hour))},
	} {
		t.Run(name, func(t *testing.T) {
			s := settings()
			if c.settings != nil {
				c.settings(&s)
			}
			d := NewDesk(s, true, Memory{})
			d.Set(c.n)
			notices := d.Look(start, nothingShown)
			if c.title == "" {
				assert.Empty(t, notices)
				return
			}
			require.Len(t, notices, 1)
			n := notices[0]
			assert.Equal(t, c.title, n.Title)
			assert.Equal(t, c.body, n.Body)
			assert.Equal(t, c.urgency, n.Urgency)
			var keys []string
			for _, a := range n.Actions {
				keys = append(keys, a.Key)
			}
			assert.Equal(t, c.actions, strings.Join(keys, " "))
		})
	}
}

// screenshot is what is on the screen, by key, and with its title.
func screenshot(d *Desk, now time.Time) []string {
	lines := []string{}
	for _, n := range d.Look(now, nothingShown) {
		lines = append(lines, n.Key+" | "+n.Title)
	}
	return lines
}

func TestPolicy_ShowsOneNoticePerSession(t *testing.T) {
	d := NewDesk(settings(), true, Memory{})
	d.Set(asking("shop", "question", "1", start))
	first := d.Look(start, nothingShown)
	d.Set(in(asking("shop", "question", "1", start), func(n *supervisor.Snapshot) { n.Description = "x" }))
	assert.Equal(t, first[0].Token, d.Look(start, nothingShown)[0].Token, "nothing new")
	d.Set(asking("shop", "question", "2", start.Add(time.Second)))
	again := d.Look(start, nothingShown)
	require.Len(t, again, 1)
	assert.Equal(t, first[0].Key, again[0].Key, "in the same place")
	assert.NotEqual(t, first[0].Token, again[0].Token)
	d.Set(asking("shop", "", "", start))
	assert.Empty(t, d.Look(start, nothingShown))
	d.Set(failed("shop", start))
	d.Remove("shop")
	assert.Empty(t, d.Look(start, nothingShown))
}

// TestPolicy_HidesAcknowledgedQuestions: its notice goes although the question stays, and does not
// come again; neither do hooks learn of it.
func TestPolicy_HidesAcknowledgedQuestions(t *testing.T) {
	acknowledged := func(n *supervisor.Snapshot) { n.AttentionAcknowledged = true }
	d := NewDesk(settings(), true, Memory{})
	d.Set(asking("shop", "question", "which?", start))
	require.Equal(t, []string{"session shop | shop: has a question"}, screenshot(d, start))
	d.Set(in(asking("shop", "question", "which?", start), acknowledged))
	assert.Empty(t, d.Look(start.Add(time.Second), nothingShown))
	all, _ := d.News(start.Add(time.Second))
	assert.Empty(t, all)

	next := NewDesk(settings(), true, d.Memory())
	next.Set(in(asking("shop", "question", "which?", start), acknowledged))
	assert.Empty(t, next.Look(start.Add(time.Minute), nothingShown), "after a restart of the daemon")
	next.Set(asking("shop", "question", "which?", start.Add(time.Minute)))
	assert.Len(t, next.Look(start.Add(time.Minute), nothingShown), 1, "it asks again")
}

func TestPolicy_SummarizesABurst(t *testing.T) {
	d := NewDesk(settings(), true, Memory{})
	for i := range maxAlone {
		d.Set(failed(fmt.Sprint("s", i), start))
		assert.Len(t, screenshot(d, start), i+1)
	}
	d.Set(asking("t", "question", "", start))
	assert.Equal(t, []string{"summary | 5 sessions need attention"}, screenshot(d, start.Add(time.Second)), "the ones before are taken into it")
	summary := d.Look(start.Add(time.Second), nothingShown)[0]
	assert.Equal(t, "s0: failed, exit 3\ns1: failed, exit 3\ns2: failed, exit 3\ns3: failed, exit 3\nt: has a question", summary.Body)
	assert.Equal(t, Normal, summary.Urgency)

	d.Set(asking("s0", "", "", start))
	smaller := d.Look(start.Add(2*time.Second), nothingShown)[0]
	assert.Equal(t, "4 sessions need attention", smaller.Title)
	assert.Equal(t, summary.Token, smaller.Token, "that one wants nothing any more is no news")
	for i := range 20 {
		d.Set(failed(fmt.Sprint("u", i), start))
	}
	larger := d.Look(start.Add(3*time.Second), nothingShown)
	require.Len(t, larger, 1)
	assert.Equal(t, "24 sessions need attention", larger[0].Title)
	assert.NotEqual(t, summary.Token, larger[0].Token)
	assert.Contains(t, larger[0].Body, "and 16 more")

	d.Set(failed("later", start.Add(20*time.Second)))
	assert.Equal(t, []string{"session later | later: failed, exit 3", "summary | 24 sessions need attention"}, screenshot(d, start.Add(20*time.Second)))
	for _, n := range d.sessions {
		if n.ID != "later" {
			d.Remove(n.ID)
		}
	}
	assert.Equal(t, []string{"session later | later: failed, exit 3"}, screenshot(d, start.Add(20*time.Second)))
}

func TestPolicy_HidesRequestsOfWatchedSessions(t *testing.T) {
	attached := func(n *supervisor.Snapshot) { n.Attached = true }
	d := NewDesk(settings(), true, Memory{})
	d.Set(in(asking("shop", "question", "1", start), attached))
	d.Set(in(asking("forum", "question", "1", start), attached))
	assert.Empty(t, screenshot(d, start), "until it is known who looks")
	unsure := d.Unsure()
	assert.Len(t, unsure, 2)
	d.Watched("shop", unsure["shop"], true)
	d.Watched("forum", "another", true)
	d.Watched("forum", unsure["forum"], false)
	assert.Empty(t, d.Unsure())
	assert.Equal(t, []string{"session forum | forum: has a question"}, screenshot(d, start))
	assert.Equal(t, Seen, d.Memory().Items["shop"].Place)
}

func TestPolicy_ListsSessionsSuspendedByAReboot(t *testing.T) {
	suspended := func(id string, at time.Time) *supervisor.Snapshot {
		return &supervisor.Snapshot{ID: id, State: "suspended", Reason: "the machine went down", Interrupted: true, StateChanged: at}
	}
	d := NewDesk(settings(), true, Memory{})
	for _, id := range []string{"b", "a", "c"} {
		d.Set(suspended(id, start))
	}
	d.Set(in(suspended("mine", start), func(n *supervisor.Snapshot) { n.Interrupted = false }))
	d.Set(in(suspended("quiet", start), labelled("no")))
	assert.Empty(t, screenshot(d, start), "those that come back at login are not counted")
	d.Set(in(suspended("c", start), func(n *supervisor.Snapshot) { n.State, n.Interrupted = "running", false }))
	d.LoggedIn(start)
	notices := d.Look(start, nothingShown)
	require.Len(t, notices, 1)
	assert.Equal(t, "2 sessions were suspended", notices[0].Title)
	assert.Equal(t, "the machine went down\na, b", notices[0].Body)
	assert.Equal(t, []string{"a", "b"}, notices[0].Sessions)
	assert.Contains(t, notices[0].Actions, Action{ResumeAll, "Resume all"})

	again := NewDesk(settings(), true, d.Memory())
	again.Set(suspended("a", start))
	again.Set(suspended("b", start))
	again.LoggedIn(start.Add(time.Minute))
	same := again.Look(start.Add(time.Minute), nothingShown)
	require.Len(t, same, 1)
	assert.Equal(t, notices[0].Token, same[0].Token, "a restart of the daemon is no other reboot")
	again.Set(suspended("b", start.Add(time.Hour)))
	assert.Equal(t, []string{"interrupted | 1 session was suspended"}, screenshot(again, start))
	again.LoggedIn(start.Add(time.Hour))
	assert.Equal(t, []string{"b"}, again.Look(start.Add(time.Hour), nothingShown)[0].Sessions, "after the next reboot, of that one")
	assert.Empty(t, again.Look(start.Add(26*time.Hour), nothingShown), "that nobody was there to take")
}

func TestPolicy_RestoresItsState(t *testing.T) {
	d := NewDesk(settings(), true, Memory{})
	for i := range 6 {
		d.Set(failed(fmt.Sprint("s", i), start))
	}
	before := d.Look(start, nothingShown)
	next := NewDesk(settings(), true, d.Memory())
	for i := range 6 {
		next.Set(failed(fmt.Sprint("s", i), start))
	}
	next.Set(failed("new", start))
	after := next.Look(start.Add(time.Minute), nothingShown)
	require.Len(t, after, 2)
	assert.Equal(t, "session new", after[0].Key)
	assert.Equal(t, before[0].Token, after[1].Token)
}

// What gathered while no server was there is told at once, as one.
func TestPolicy_RegroupSummarizesUnsentNotices(t *testing.T) {
	d := NewDesk(settings(), true, Memory{})
	for i := range 6 {
		at := start.Add(time.Duration(i) * time.Hour)
		d.Set(failed(fmt.Sprint("s", i), at))
		d.Look(at, nothingShown)
	}
	assert.Len(t, screenshot(d, start.Add(6*time.Hour)), 6)
	d.Regroup(nothingShown)
	assert.Equal(t, []string{"summary | 6 sessions need attention"}, screenshot(d, start.Add(6*time.Hour)))
	d.Regroup(nothingShown)
	assert.Empty(t, screenshot(d, start.Add(60*time.Hour)))
}

func TestPolicy_DropsRequestsMadeWhileOff(t *testing.T) {
	d := NewDesk(settings(), true, Memory{})
	d.Set(failed("one", start))
	d.Switch(false)
	d.Set(failed("two", start))
	assert.Empty(t, screenshot(d, start))
	d.Switch(true)
	assert.Empty(t, screenshot(d, start))
	d.Set(failed("three", start))
	assert.Equal(t, []string{"session three | three: failed, exit 3"}, screenshot(d, start))
}

func TestSpan_FormatsDurations(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "less than 1s", 1500 * time.Millisecond: "1s", time.Minute: "1m", 125 * time.Second: "2m 5s", 3*time.Hour + 4*time.Minute + 5*time.Second: "3h 4m",
		50 * time.Hour: "2d 2h", 24 * time.Hour: "1d", 24*time.Hour + time.Minute: "1d",
	} {
		assert.Equal(t, want, span(d), d.String())
	}
}

// TestUrgency_IsConfiguredByAgentAndKind; by default nothing is critical, which desktops show in
// spite of Do Not Disturb.
func TestUrgency_IsConfiguredByAgentAndKind(t *testing.T) {
	s := settings(func(s *Settings) {
		s.Config.NotifyUrgency = config.Urgencies{"failed": "critical", "suspended": "low"}
		s.Agents = map[string]config.Agent{"codex": {NotifyUrgency: config.Urgencies{"failed": "low", "waiting": "critical"}}}
	})
	of := func(agent string, n *supervisor.Snapshot, s Settings) Urgency {
		n.Agent = agent
		return noticeOf(n, "t", s).Urgency
	}
	for _, kind := range config.NotifyAll {
		assert.Less(t, settings().urgency(failed("shop", start), kind), Critical, kind)
	}
	assert.Equal(t, Critical, of("claude", failed("shop", start), s), "of the configuration")
	assert.Equal(t, Low, of("codex", failed("shop", start), s), "of the agent")
	assert.Equal(t, Normal, of("claude", asking("shop", "question", "", start), s), "the default")
	assert.Equal(t, Critical, of("codex", asking("shop", "question", "", start), s), "of the agent, for all that it waits for")
	reboot := &supervisor.Snapshot{ID: "shop", Agent: "codex", State: "suspended", Interrupted: true}
	assert.Equal(t, Low, interruptedNotice([]*supervisor.Snapshot{reboot}, "t", s).Urgency)
	both := []*supervisor.Snapshot{in(failed("a", start), func(n *supervisor.Snapshot) { n.Agent = "codex" }), failed("b", start)}
	assert.Equal(t, Critical, summaryOf(both, "t", s).Urgency, "the most urgent one's")
	assert.Equal(t, []string{"low", "normal", "critical"}, []string{Low.String(), Normal.String(), Critical.String()})
}
