package session_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/supervisor/session"
)

// The words of these tests.
var (
	permission = said(session.FromReport, 5, session.Waiting, session.Permission)
	turnEnded  = said(session.FromReport, 6, session.Idle, session.TurnEnded)
	reportsOn  = said(session.FromReport, 7, session.Working, "")
	exact      = said(session.FromOSC7501, 5, session.Waiting, session.Permission)
	rings      = said(session.FromBell, 3, "", session.BellRang)
	ringsAgain = said(session.FromBell, 8, "", session.BellRang)
	asks       = said(session.FromNotify, 3, session.Waiting, session.Question)
	asksAgain  = said(session.FromNotify, 8, session.Waiting, session.Question)
	rungOut    = said(session.FromBell, 4, "", "") // its output went on
)

// seen is that a person takes note of what the session wants attention for after these events.
func seen(events []session.Event) session.Event {
	return after(newSession(), events).Acknowledgement()
}

// answered is that the agent is given input after these events.
func answered(events []session.Event) session.Event {
	return session.Answered{Run: run, Words: after(newSession(), events).Asking()}
}

// TestActivityIsOfAnAgentThatIsAlive: who is the strongest to say something says what the agent does.
func TestActivityIsOfAnAgentThatIsAlive(t *testing.T) {
	for _, row := range []struct {
		name     string
		events   []session.Event
		activity string
		source   session.Source
		since    time.Time
	}{
		{"nothing was told", running, "unknown", "", time.Time{}},
		{"idle", list(running, silent), "idle", "output", at(2)},
		{"working", list(running, silent, said(session.FromOutput, 3, session.Working, "")), "working", "output", at(3)},
		{"what is told late is what was", list(running, said(session.FromOutput, 3, session.Working, ""), silent), "working", "output", at(3)},
		{"ended", list(running, silent, exit(1, 0)), "unknown", "", time.Time{}},
		{"its shim died", list(running, silent, shimDied), "unknown", "", time.Time{}},
		{"of another run", list(running, session.Said{Run: "run-0", Source: session.FromOutput, Word: silent.Word}), "unknown", "", time.Time{}},
		{"a new run knows nothing yet", list(running, silent, permission, empty, session.RunAsked{Run: "run-2"}, session.AgentStarted{Run: "run-2", At: at(70)}), "unknown", "", time.Time{}},
		{"a report is stronger than the output", list(running, permission, prints), "waiting", "report", at(5)},
		{"the agent's own words are stronger than a report", list(running, said(session.FromOSC7501, 4, session.Working, ""), permission), "working", "osc7501", at(4)},
		{"the agent goes on", list(running, silent, permission, reportsOn), "working", "report", at(7)},
		{"it was answered: then the output tells", list(running, silent, permission, answered(list(running, permission))), "idle", "output", at(2)},
		{"one that tells it itself was answered: it has not taken it", list(running, silent, exact, answered(list(running, exact))), "waiting", "osc7501", at(5)},
		{"it asks again after it was answered", list(running, silent, permission, answered(list(running, permission)), said(session.FromReport, 8, session.Waiting, session.Question)), "waiting", "report", at(8)},
		{"a person has only looked: it waits", list(running, silent, permission, seen(list(running, permission))), "waiting", "report", at(5)},
		{"it rings, and prints", list(running, prints, rings), "working", "output", at(1)},
		{"it rings, and falls silent", list(running, silent, rings), "waiting", "bell", at(2)},
		{"it rang, and has gone on", list(running, silent, rings, rungOut), "idle", "output", at(2)},
		{"it rang, and somebody has looked", list(running, silent, rings, seen(list(running, rings))), "idle", "output", at(2)},
		{"a text of its own tells nothing", list(running, silent, session.Said{Run: run, Source: session.FromNotify, Word: session.Word{Message: "indexing", Seq: 1}}), "idle", "output", at(2)},
	} {
		t.Run(row.name, func(t *testing.T) {
			activity, source, since := after(newSession(), row.events).Active()
			assert.Equal(t, row.activity, activity)
			assert.Equal(t, row.source, source)
			assert.Equal(t, row.since, since)
		})
	}
}

// TestAskedForSinceTheFirstTime: who rings again and again before anybody has looked wants a person since the first time, and is not told of anew.
func TestAskedForSinceTheFirstTime(t *testing.T) {
	assert.Equal(t, at(3), after(newSession(), list(running, rings, ringsAgain)).Attention().Since)
	assert.Equal(t, at(8), after(newSession(), list(running, rings, seen(list(running, rings)), ringsAgain)).Attention().Since)
}

func TestAttention(t *testing.T) {
	crashed := list(running, exit(1, 3), empty)
	for _, row := range []struct {
		name   string
		events []session.Event
		reason string
		source session.Source
	}{
		{"an agent that works wants nobody", list(running, prints), "", ""},
		{"one that is idle neither", list(running, silent), "", ""},
		{"it asks for permission", list(running, permission), "permission", "report"},
		{"its turn has ended", list(running, turnEnded), "turn-ended", "report"},
		{"it goes on", list(running, permission, reportsOn), "", ""},
		{"a person has only looked: the question stays", list(running, permission, seen(list(running, permission))), "permission", "report"},
		{"a person has looked at a finished turn: it stays", list(running, turnEnded, seen(list(running, turnEnded))), "turn-ended", "report"},
		{"a person has looked, and the agent continues", list(running, permission, seen(list(running, permission)), reportsOn), "", ""},
		{"a person has looked, and answers then", list(running, permission, seen(list(running, permission)), answered(list(running, permission))), "", ""},
		{"it rang, and a person has looked", list(running, rings, seen(list(running, rings))), "", ""},
		{"somebody has, before it asked again", list(running, permission, seen(list(running, permission)), turnEnded), "turn-ended", "report"},
		{"somebody has answered", list(running, permission, answered(list(running, permission))), "", ""},
		{"somebody has answered one that tells itself when it goes on", list(running, exact, answered(list(running, exact))), "permission", "osc7501"},
		{"somebody has answered what was asked before", list(running, permission, answered(list(running)), turnEnded), "turn-ended", "report"},
		{"it rings", list(running, rings), "bell", "bell"},
		{"it rang, and has gone on", list(running, rings, rungOut), "", ""},
		{"it rang, somebody has looked, and it rings again", list(running, rings, seen(list(running, rings)), ringsAgain), "bell", "bell"},
		{"it rang twice, and somebody has looked", list(running, rings, ringsAgain, seen(list(running, rings, ringsAgain))), "", ""},
		{"it asked, was answered, and asks the same again", list(running, asks, answered(list(running, asks)), asksAgain), "question", "notify"},
		{"it reports, so that its bell means nothing more", list(running, rings, permission), "permission", "report"},
		{"it reports that it works, so that its bell means nothing", list(running, rings, reportsOn), "", ""},
		{"a bell beneath a question is acknowledged with it", list(running, rings, permission, seen(list(running, rings, permission)), answered(list(running, permission))), "", ""},
		{"the agent is dead, and so is its question", list(running, permission, stop, empty), "", ""},

		{"failed", crashed, "failed", ""},
		{"failed, with a question", list(running, permission, exit(1, 3)), "failed", ""},
		{"failed, and seen", list(crashed, seen(crashed)), "", ""},
		{"failed again after that", list(crashed, seen(crashed), session.RunAsked{Run: "run-2", At: at(61)}, session.StartFailed{Run: "run-2", Reason: "no", At: at(62)}), "failed", ""},
		{"completed", list(running, exit(1, 0)), "completed", ""},
		{"completed, and seen", list(running, exit(1, 0), seen(list(running, exit(1, 0))), empty), "", ""},
		{"stale", list(running, tmuxDied), "stale", ""},
		{"stale, and seen, and it asks", list(running, tmuxDied, seen(list(running, tmuxDied)), permission), "permission", "report"},
		{"stale, and seen, and its end is worse", list(running, tmuxDied, seen(list(running, tmuxDied)), empty), "failed", ""},
		{"orphaned", list(running, gone), "orphaned", ""},
		{"stopped as it was asked for", list(running, stop, empty), "", ""},
		{"suspended", list(running, suspend, empty), "", ""},
		{"failed and put away", list(crashed, archive), "", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			a := after(newSession(), row.events).Attention()
			assert.Equal(t, row.reason, a.Reason)
			assert.Equal(t, row.source, a.Source)
			assert.Equal(t, row.reason == "", a == session.Attention{})
		})
	}
}

// TestAttention_Acknowledged: what the agent asks stays with its text and its time, and only what a
// person has not seen is announced.
func TestAttention_Acknowledged(t *testing.T) {
	asks := permission
	asks.Message = "Run rm -rf build?"
	again := said(session.FromReport, 9, session.Waiting, session.Permission)
	titleAsks, reportTells := said(session.FromTitle, 5, session.Waiting, session.Question), asks
	titleAsks.Monotonic, reportTells.Monotonic = time.Second, time.Second
	titleFirst := asked
	titleFirst.Sources = []string{"title", "report"}
	begun := list(titleFirst, scope, tmux, agent, titleAsks)
	for _, row := range []struct {
		name         string
		events       []session.Event
		want         session.Attention
		acknowledged bool
	}{
		{"nobody has seen the question", list(running, asks), session.Attention{Reason: "permission", Message: asks.Message, Source: "report", Since: at(5)}, false},
		{"a person has seen it", list(running, asks, seen(list(running, asks))), session.Attention{Reason: "permission", Message: asks.Message, Source: "report", Since: at(5)}, true},
		{"it is asked again after that", list(running, asks, seen(list(running, asks)), again), session.Attention{Reason: "permission", Source: "report", Since: at(9)}, false},
		{"a person has seen that the turn has ended", list(running, turnEnded, seen(list(running, turnEnded))), session.Attention{Reason: "turn-ended", Source: "report", Since: at(6)}, true},
		{"a person has seen the title, and a report then says what is asked", list(begun, seen(begun), reportTells),
			session.Attention{Reason: "permission", Message: asks.Message, Source: "report", Since: at(5)}, false},
		{"a person has seen both", list(begun, reportTells, seen(list(begun, reportTells))),
			session.Attention{Reason: "permission", Message: asks.Message, Source: "report", Since: at(5)}, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.want.Acknowledged = row.acknowledged
			assert.Equal(t, row.want, after(newSession(), row.events).Attention())
		})
	}
	t.Run("an acknowledgement is part of the record", func(t *testing.T) {
		text, err := json.Marshal(after(newSession(), list(running, asks, seen(list(running, asks)))))
		require.NoError(t, err)
		var read session.Session
		require.NoError(t, json.Unmarshal(text, &read))
		assert.True(t, read.Attention().Acknowledged)
		assert.Equal(t, asks.Message, read.Attention().Message)
	})
}

func TestAnAgentThatSaysWhenItIsReadyIsStartingUntilThen(t *testing.T) {
	notify := asked
	notify.Notify = true
	ready := session.AgentReady{Run: run, At: at(9)}
	s := after(newSession(), list(notify, scope, tmux, agent))
	assert.Equal(t, session.Starting, s.View().State)
	assert.True(t, s.Run.AgentAlive())
	s.Apply(ready)
	assert.Equal(t, session.View{State: session.Running, Since: at(9)}, s.View())
	assert.Equal(t, session.Running, after(newSession(), list(notify, ready, scope, tmux, agent)).View().State, "told early")
	assert.Equal(t, at(2), after(newSession(), list(running, ready)).View().Since, "nobody asked it")
	assert.Equal(t, session.Failed, after(newSession(), list(notify, scope, tmux, agent, exit(1, 3))).View().State, "ended before")
}

func TestWhatWasHeardIsOfTheRunAlone(t *testing.T) {
	s := after(newSession(), list(running, permission, rings, seen(list(running, rings)), exit(1, 3), empty))
	s.Apply(s.Acknowledgement())
	s.Apply(session.RunAsked{Run: "run-2", At: at(61)})
	require.Len(t, s.Past, 1)
	assert.Zero(t, s.Past[0].Reported, "what an agent has asked is not kept longer than it matters")
	assert.Empty(t, s.Asking())
	assert.Empty(t, s.Seen)
}

func TestExplain(t *testing.T) {
	for _, row := range []struct {
		name   string
		events []session.Event
		want   []session.Told
	}{
		{"created", nil, []session.Told{{"state", "user", t0, "created"}, {"activity", "", time.Time{}, "unknown"}}},
		{"waiting", list(running, silent, rings, permission), []session.Told{
			{"state", "systemd", time.Time{}, "the scope is active"},
			{"state", "tmux", time.Time{}, "its server is alive"},
			{"state", "user", t0, "created"},
			{"state", "user", at(1), "start asked"},
			{"state", "shim", at(2), "agent started (PID 12)"},
			{"activity", "report", at(5), "waiting"},
			{"activity", "osc7501", time.Time{}, "nothing"},
			{"activity", "notify", time.Time{}, "nothing"},
			{"activity", "title", time.Time{}, "nothing"},
			{"activity", "output", at(2), "idle (overruled by report)"},
			{"attention", "report", at(5), "permission"},
			{"attention", "bell", at(3), "bell (overruled by report)"},
		}},
		{"suspended", list(running, permission, suspend, empty), []session.Told{
			{"state", "tmux", time.Time{}, "its server is dead"},
			{"state", "user", t0, "created"},
			{"state", "user", at(1), "start asked"},
			{"state", "shim", at(2), "agent started (PID 12)"},
			{"state", "corrald", at(30), "suspend asked (idle for an hour)"},
			{"state", "systemd", at(60), "the scope is gone (success)"},
			{"activity", "", time.Time{}, "unknown"},
		}},
		{"answered, then failed", list(running, exit(2, 9), gone), []session.Told{
			{"state", "systemd", time.Time{}, "the scope is active"},
			{"state", "tmux", time.Time{}, "its server is alive"},
			{"state", "inotify", time.Time{}, `workspace "/home/u/shop" is gone`},
			{"state", "user", t0, "created"},
			{"state", "user", at(1), "start asked"},
			{"state", "shim", at(2), "agent started (PID 12)"},
			{"state", "exit_status", at(20), "killed by SIGKILL"},
			{"activity", "", time.Time{}, "unknown"},
			{"attention", "state", at(20), "failed"},
		}},
		{"answered", list(running, silent, permission, answered(list(running, permission))), []session.Told{
			{"state", "systemd", time.Time{}, "the scope is active"},
			{"state", "tmux", time.Time{}, "its server is alive"},
			{"state", "user", t0, "created"},
			{"state", "user", at(1), "start asked"},
			{"state", "shim", at(2), "agent started (PID 12)"},
			{"activity", "output", at(2), "idle"},
			{"activity", "osc7501", time.Time{}, "nothing"},
			{"activity", "report", at(5), "waiting (answered)"},
			{"activity", "notify", time.Time{}, "nothing"},
			{"activity", "title", time.Time{}, "nothing"},
			{"activity", "bell", time.Time{}, "nothing"},
			{"attention", "report", at(5), "permission (answered)"},
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			assert.Equal(t, row.want, after(newSession(), row.events).Explain())
		})
	}
}

// TestWhoIsHeardIsForTheDefinitionToSay: in which order, and who at all.
func TestWhoIsHeardIsForTheDefinitionToSay(t *testing.T) {
	titleWorks, titleReady := said(session.FromTitle, 4, session.Working, ""), said(session.FromTitle, 3, session.Idle, "")
	titleBlocked := said(session.FromTitle, 5, session.Waiting, session.Question)
	asksLater := permission
	asksLater.Message, asksLater.Monotonic = "touch y?", time.Second
	longAgo := said(session.FromReport, 1, session.Waiting, session.Auth)
	titleEnded, failedLongAgo := said(session.FromTitle, 5, session.Idle, session.TurnEnded), said(session.FromReport, 1, session.Idle, session.ErrorShown)
	failedLater, endedLate := failedLongAgo, titleEnded
	failedLater.Monotonic, endedLate.Monotonic = time.Second, time.Minute
	shows := said(session.FromScreen, 6, session.Waiting, session.Setup)
	goesOn, quiet, asksAgain := titleWorks, said(session.FromTitle, 8, "", ""), asksLater
	goesOn.Monotonic, quiet.Monotonic, asksAgain.Monotonic, asksAgain.Seq = 2*time.Second, 3*time.Second, 4*time.Second, 9
	late := titleBlocked
	late.Monotonic = time.Minute
	for _, row := range []struct {
		name                string
		sources             []string
		events              []session.Event
		activity, attention string
		source              string // that decides of the activity
		from                string // who tells the attention
	}{
		{"everybody, without a word of it", nil, list(permission, titleWorks), "waiting", "permission", "report", "report"},
		{"the title first", []string{"title", "report"}, list(permission, titleWorks), "working", "", "title", ""},
		{"the title alone", []string{"title"}, list(silent, permission), "idle", "", "output", ""},
		{"the output in any case", []string{"bell"}, list(silent, permission, rings), "waiting", "bell", "bell", "bell"},
		{"the title says that it waits, a report for what", []string{"title", "report"}, list(titleBlocked, asksLater), "waiting", "permission", "title", "report"},
		{"a report of another time says nothing of it", []string{"title", "report"}, list(longAgo, late), "waiting", "question", "title", "title"},
		{"nor one of who is not heard", []string{"title", "bell"}, list(titleBlocked, asksLater), "waiting", "question", "title", "title"},
		{"the title says that its turn has ended, a report that it has by an error", []string{"title", "report"}, list(titleEnded, failedLater), "idle", "error", "title", "report"},
		{"not one of another time", []string{"title", "report"}, list(failedLongAgo, endedLate), "idle", "turn-ended", "title", "title"},

		{"the title says that it goes on, and then nothing more", []string{"title", "report"}, list(silent, asksLater, goesOn, quiet), "idle", "", "output", ""},
		{"and then it asks again", []string{"title", "report"}, list(silent, asksLater, goesOn, quiet, asksAgain), "waiting", "permission", "report", "report"},
		{"who is weaker has no say in it", []string{"report", "title"}, list(silent, asksLater, goesOn), "waiting", "permission", "report", "report"},

		{"a dialog on the screen", nil, list(silent, shows), "waiting", "setup", "screen", "screen"},
		{"whatever is heard", []string{"bell"}, list(silent, shows), "waiting", "setup", "screen", "screen"},
		{"after a hook that says it has begun", nil, list(silent, said(session.FromReport, 3, session.Idle, ""), shows), "waiting", "setup", "screen", "screen"},
		{"under a title that says it is ready", []string{"title"}, list(silent, titleReady, shows), "waiting", "setup", "screen", "screen"},
		{"not of an agent that speaks", nil, list(silent, titleWorks, shows), "working", "", "title", ""},
		{"not of one that has reported", nil, list(silent, reportsOn, shows), "working", "", "report", ""},
		{"it was answered", nil, list(silent, shows, session.Answered{Run: run, Words: session.Seqs{Screen: 6}}), "idle", "", "output", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			begin := asked
			begin.Sources = row.sources
			s := after(newSession(), list(begin, scope, tmux, agent, row.events))
			activity, source, _ := s.Active()
			assert.Equal(t, row.activity, activity)
			assert.Equal(t, row.source, string(source))
			a := s.Attention()
			assert.Equal(t, row.attention, a.Reason)
			assert.Equal(t, row.from, string(a.Source))
		})
	}
	assert.Equal(t, "output", session.FromScreen.Public(), "for clients there are the six")
	assert.Equal(t, "bell", session.FromBell.Public())
}

// TestExplainInTheOrderOfAuthority: who decides, and why nobody else does.
func TestExplainInTheOrderOfAuthority(t *testing.T) {
	asks := said(session.FromOSC7501, 4, session.Waiting, session.Permission)
	asks.Message = "approve Bash: touch y"
	notified := said(session.FromNotify, 3, session.Working, "")
	shows := said(session.FromScreen, 6, session.Waiting, session.Setup)
	begin := asked
	begin.Sources = []string{"title", "osc7501", "bell"}
	cleared := said(session.FromTitle, 7, "", "")
	events := list(begin, scope, tmux, agent, silent, rings, asks, notified, shows, cleared)
	said := func(s *session.Session) []session.Told {
		told := s.Explain()
		return told[slices.IndexFunc(told, func(t session.Told) bool { return t.Subject == "activity" }):]
	}
	assert.Equal(t, []session.Told{
		{"activity", "osc7501", at(4), "waiting"},
		{"activity", "title", at(7), "nothing"},
		{"activity", "screen", at(6), "waiting (the agent reports its own status)"},
		{"activity", "output", at(2), "idle (overruled by osc7501)"},
		{"activity", "notify", at(3), "working (ignored: not in the agent's Sources=)"},
		{"attention", "osc7501", at(4), "permission: approve Bash: touch y"},
		{"attention", "bell", at(3), "bell (overruled by osc7501)"},
		{"attention", "screen", at(6), "setup (the agent reports its own status)"},
	}, said(after(newSession(), events)))
	assert.Contains(t, said(after(newSession(), list(events, seen(events)))),
		session.Told{Subject: "attention", Source: "osc7501", At: at(4), Value: "permission: approve Bash: touch y (acknowledged)"})
}

// TestAReportThatWasOvertakenStaysSo with the next daemon, which knows of what others have said only what they say last.
func TestAReportThatWasOvertakenStaysSo(t *testing.T) {
	reported, goesOn, quiet := permission, said(session.FromOSC7501, 6, session.Working, ""), said(session.FromOSC7501, 7, "", "")
	reported.Monotonic, goesOn.Monotonic, quiet.Monotonic = time.Second, 2*time.Second, 3*time.Second
	s := after(newSession(), list(running, reported, goesOn, quiet))
	assert.Empty(t, s.Attention().Reason)
	text, err := json.Marshal(s)
	require.NoError(t, err)
	var read session.Session
	require.NoError(t, json.Unmarshal(text, &read))
	read.Apply(quiet)
	assert.Empty(t, read.Attention().Reason)
	again := said(session.FromReport, 8, session.Waiting, session.Question)
	again.Monotonic = 4 * time.Second
	read.Apply(again)
	assert.Equal(t, session.Question, read.Attention().Reason)
}
