package session_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/corrald/corral/dbusapi/word"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/supervisor/session"
)

// The status reports of these tests.
var (
	permission     = statusReport(session.FromReport, 5, word.Waiting, word.Permission)
	turnEnded      = statusReport(session.FromReport, 6, word.Idle, word.TurnEnded)
	reportsWorking = statusReport(session.FromReport, 7, word.Working, "")
	exact          = statusReport(session.FromOSC7501, 5, word.Waiting, word.Permission)
	rings          = statusReport(session.FromBell, 3, "", word.Bell)
	ringsAgain     = statusReport(session.FromBell, 8, "", word.Bell)
	asks           = statusReport(session.FromNotify, 3, word.Waiting, word.Question)
	asksAgain      = statusReport(session.FromNotify, 8, word.Waiting, word.Question)
	bellCleared    = statusReport(session.FromBell, 4, "", "") // the agent prints again
)

// acknowledged returns the event that a person acknowledges everything for which the session
// requests attention after these events.
func acknowledged(events []session.Event) session.Event {
	return after(newSession(), events).Acknowledgement()
}

// answered returns the event that the agent is given input after these events.
func answered(events []session.Event) session.Event {
	return session.Answered{Run: run, Reports: after(newSession(), events).OpenRequests()}
}

// TestActivity_IsThatOfTheStrongestSource checks that the strongest source which reports something
// decides, and that only a live agent has an activity.
func TestActivity_IsThatOfTheStrongestSource(t *testing.T) {
	for _, row := range []struct {
		name     string
		events   []session.Event
		activity string
		source   session.Source
		since    time.Time
	}{
		{"nothing was reported", running, "unknown", "", time.Time{}},
		{"idle", list(running, silent), "idle", "output", at(2)},
		{"working", list(running, silent, statusReport(session.FromOutput, 3, word.Working, "")),
			"working", "output", at(3)},
		{"received late", list(running, statusReport(session.FromOutput, 3, word.Working, ""), silent),
			"working", "output", at(3)},
		{"ended", list(running, silent, exit(1, 0)), "unknown", "", time.Time{}},
		{"its shim died", list(running, silent, shimDied), "unknown", "", time.Time{}},
		{"of another run",
			list(running, session.StatusReported{Run: "run-0", Source: session.FromOutput, Report: silent.Report}),
			"unknown", "", time.Time{}},
		{"a new run has no reports yet",
			list(running, silent, permission, empty,
				session.RunBegun{Run: "run-2"}, session.AgentStarted{Run: "run-2", At: at(70)}),
			"unknown", "", time.Time{}},
		{"a hook is stronger than the output", list(running, permission, prints), "waiting", "report", at(5)},
		{"OSC 7501 is stronger than a hook",
			list(running, statusReport(session.FromOSC7501, 4, word.Working, ""), permission), "working", "osc7501", at(4)},
		{"the agent continues", list(running, silent, permission, reportsWorking), "working", "report", at(7)},
		{"it was answered: the output decides", list(running, silent, permission, answered(list(running, permission))),
			"idle", "output", at(2)},
		{"answered, but OSC 7501 still reports the question", list(running, silent, exact, answered(list(running, exact))),
			"waiting", "osc7501", at(5)},
		{"it asks again after it was answered",
			list(running, silent, permission, answered(list(running, permission)),
				statusReport(session.FromReport, 8, word.Waiting, word.Question)),
			"waiting", "report", at(8)},
		{"it was acknowledged: it still waits", list(running, silent, permission, acknowledged(list(running, permission))),
			"waiting", "report", at(5)},
		{"it rings the bell, and prints", list(running, prints, rings), "working", "output", at(1)},
		{"it rings the bell, and becomes silent", list(running, silent, rings), "waiting", "bell", at(2)},
		{"it rang the bell, and has continued", list(running, silent, rings, bellCleared), "idle", "output", at(2)},
		{"it rang the bell, which was acknowledged", list(running, silent, rings, acknowledged(list(running, rings))),
			"idle", "output", at(2)},
		{"a status text reports no activity",
			list(running, silent, session.StatusReported{
				Run: run, Source: session.FromNotify, Report: session.Report{Message: "indexing", Seq: 1},
			}),
			"idle", "output", at(2)},
	} {
		t.Run(row.name, func(t *testing.T) {
			activity, source, since := after(newSession(), row.events).Activity()
			assert.Equal(t, row.activity, activity)
			assert.Equal(t, row.source, source)
			assert.Equal(t, row.since, since)
		})
	}
}

// TestAttention_LastsSinceTheFirstBell checks that an agent which rings the bell repeatedly before
// it is acknowledged requests attention since the first time, so that the user is not notified
// again.
func TestAttention_LastsSinceTheFirstBell(t *testing.T) {
	assert.Equal(t, at(3), after(newSession(), list(running, rings, ringsAgain)).Attention().Since)
	again := list(running, rings, acknowledged(list(running, rings)), ringsAgain)
	assert.Equal(t, at(8), after(newSession(), again).Attention().Since)
}

func TestAttention(t *testing.T) {
	crashed := list(running, exit(1, 3), empty)
	for _, row := range []struct {
		name   string
		events []session.Event
		reason string
		source session.Source
	}{
		{"the agent works", list(running, prints), "", ""},
		{"the agent is idle", list(running, silent), "", ""},
		{"it asks for permission", list(running, permission), "permission", "report"},
		{"its turn has ended", list(running, turnEnded), "turn-ended", "report"},
		{"it continues", list(running, permission, reportsWorking), "", ""},
		{"the question was acknowledged: it stays", list(running, permission, acknowledged(list(running, permission))),
			"permission", "report"},
		{"the end of the turn was acknowledged: it stays", list(running, turnEnded, acknowledged(list(running, turnEnded))),
			"turn-ended", "report"},
		{"acknowledged, and the agent continues",
			list(running, permission, acknowledged(list(running, permission)), reportsWorking), "", ""},
		{"acknowledged, then answered",
			list(running, permission, acknowledged(list(running, permission)), answered(list(running, permission))), "", ""},
		{"the bell was acknowledged", list(running, rings, acknowledged(list(running, rings))), "", ""},
		{"acknowledged, before it asked again",
			list(running, permission, acknowledged(list(running, permission)), turnEnded), "turn-ended", "report"},
		{"answered", list(running, permission, answered(list(running, permission))), "", ""},
		{"answered, but OSC 7501 still reports the question", list(running, exact, answered(list(running, exact))),
			"permission", "osc7501"},
		{"an earlier question was answered", list(running, permission, answered(list(running)), turnEnded),
			"turn-ended", "report"},
		{"it rings the bell", list(running, rings), "bell", "bell"},
		{"it rang the bell, and has continued", list(running, rings, bellCleared), "", ""},
		{"the bell was acknowledged, and rings again", list(running, rings, acknowledged(list(running, rings)), ringsAgain),
			"bell", "bell"},
		{"the bell rang twice, and was acknowledged",
			list(running, rings, ringsAgain, acknowledged(list(running, rings, ringsAgain))), "", ""},
		{"it asked, was answered, and asks the same again", list(running, asks, answered(list(running, asks)), asksAgain),
			"question", "notify"},
		{"a report of a hook replaces the bell", list(running, rings, permission), "permission", "report"},
		{"a hook reports that it works: the bell is ignored", list(running, rings, reportsWorking), "", ""},
		{"a bell is acknowledged together with a question",
			list(running, rings, permission,
				acknowledged(list(running, rings, permission)), answered(list(running, permission))),
			"", ""},
		{"the agent has exited", list(running, permission, stop, empty), "", ""},

		{"failed", crashed, "failed", ""},
		{"failed, with a question", list(running, permission, exit(1, 3)), "failed", ""},
		{"failed, and acknowledged", list(crashed, acknowledged(crashed)), "", ""},
		{"failed again after that",
			list(crashed, acknowledged(crashed), session.RunBegun{Run: "run-2", At: at(61)},
				session.StartFailed{Run: "run-2", Reason: "no", Moment: moment(62)}),
			"failed", ""},
		{"completed", list(running, exit(1, 0)), "completed", ""},
		{"completed, and acknowledged", list(running, exit(1, 0), acknowledged(list(running, exit(1, 0))), empty), "", ""},
		{"stale", list(running, tmuxDied), "stale", ""},
		{"stale, acknowledged, and it asks", list(running, tmuxDied, acknowledged(list(running, tmuxDied)), permission),
			"permission", "report"},
		{"stale, acknowledged, and then failed", list(running, tmuxDied, acknowledged(list(running, tmuxDied)), empty),
			"failed", ""},
		{"orphaned", list(running, gone), "orphaned", ""},
		{"stopped on request", list(running, stop, empty), "", ""},
		{"suspended", list(running, suspend, empty), "", ""},
		{"failed and archived", list(crashed, archive), "", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			a := after(newSession(), row.events).Attention()
			assert.Equal(t, row.reason, a.Reason)
			assert.Equal(t, row.source, a.Source)
			assert.Equal(t, row.reason == "", a == session.Attention{})
		})
	}
}

// TestAttention_StaysWhenAcknowledged checks that a request keeps its text and its time, and that
// only what was not acknowledged is new to the user.
func TestAttention_StaysWhenAcknowledged(t *testing.T) {
	asks := permission
	asks.Message = "Run rm -rf build?"
	again := statusReport(session.FromReport, 9, word.Waiting, word.Permission)
	titleAsks, hookAsks := statusReport(session.FromTitle, 5, word.Waiting, word.Question), asks
	titleAsks.Monotonic, hookAsks.Monotonic = time.Second, time.Second
	titleFirst := runBegun
	titleFirst.Sources = []string{"title", "report"}
	titleBegun := list(titleFirst, scope, tmux, agent, titleAsks)
	for _, row := range []struct {
		name         string
		events       []session.Event
		want         session.Attention
		acknowledged bool
	}{
		{"the question was not acknowledged", list(running, asks),
			session.Attention{Reason: "permission", Message: asks.Message, Source: "report", Since: at(5)}, false},
		{"it was acknowledged", list(running, asks, acknowledged(list(running, asks))),
			session.Attention{Reason: "permission", Message: asks.Message, Source: "report", Since: at(5)}, true},
		{"it is asked again after that", list(running, asks, acknowledged(list(running, asks)), again),
			session.Attention{Reason: "permission", Source: "report", Since: at(9)}, false},
		{"the end of the turn was acknowledged", list(running, turnEnded, acknowledged(list(running, turnEnded))),
			session.Attention{Reason: "turn-ended", Source: "report", Since: at(6)}, true},
		{"the title was acknowledged, then a hook reports the question",
			list(titleBegun, acknowledged(titleBegun), hookAsks),
			session.Attention{Reason: "permission", Message: asks.Message, Source: "report", Since: at(5)}, false},
		{"both were acknowledged", list(titleBegun, hookAsks, acknowledged(list(titleBegun, hookAsks))),
			session.Attention{Reason: "permission", Message: asks.Message, Source: "report", Since: at(5)}, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.want.Acknowledged = row.acknowledged
			assert.Equal(t, row.want, after(newSession(), row.events).Attention())
		})
	}
	t.Run("an acknowledgement is part of the record", func(t *testing.T) {
		text, err := json.Marshal(after(newSession(), list(running, asks, acknowledged(list(running, asks)))))
		require.NoError(t, err)
		var read session.Session
		require.NoError(t, json.Unmarshal(text, &read))
		assert.True(t, read.Attention().Acknowledged)
		assert.Equal(t, asks.Message, read.Attention().Message)
	})
}

func TestView_IsStartingUntilTheAgentIsReady(t *testing.T) {
	notify := runBegun
	notify.Notify = true
	ready := session.AgentReady{Run: run, At: at(9)}
	s := after(newSession(), list(notify, scope, tmux, agent))
	assert.Equal(t, session.Starting, s.View().State)
	assert.True(t, s.Run.AgentAlive())
	s.Apply(ready)
	assert.Equal(t, session.View{State: session.Running, Since: at(9)}, s.View())
	early := list(notify, ready, scope, tmux, agent)
	assert.Equal(t, session.Running, after(newSession(), early).View().State, "received early")
	assert.Equal(t, at(2), after(newSession(), list(running, ready)).View().Since, "without Type=notify")
	failed := list(notify, scope, tmux, agent, exit(1, 3))
	assert.Equal(t, session.Failed, after(newSession(), failed).View().State, "exited before")
}

func TestReports_EndWithTheRun(t *testing.T) {
	s := after(newSession(), list(running, permission, rings, acknowledged(list(running, rings)), exit(1, 3), empty))
	s.Apply(s.Acknowledgement())
	s.Apply(session.RunBegun{Run: "run-2", At: at(61)})
	require.Len(t, s.Past, 1)
	assert.Zero(t, s.Past[0].Reported, "the reports of an earlier run are not kept")
	assert.Empty(t, s.OpenRequests())
	assert.Empty(t, s.Seen)
}

func TestExplain(t *testing.T) {
	for _, row := range []struct {
		name   string
		events []session.Event
		want   []session.Evidence
	}{
		{"created", nil, []session.Evidence{{"state", "user", t0, "created"}, {"activity", "", time.Time{}, "unknown"}}},
		{"waiting", list(running, silent, rings, permission), []session.Evidence{
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
		{"suspended", list(running, permission, suspend, empty), []session.Evidence{
			{"state", "tmux", time.Time{}, "its server is dead"},
			{"state", "user", t0, "created"},
			{"state", "user", at(1), "start asked"},
			{"state", "shim", at(2), "agent started (PID 12)"},
			{"state", "corrald", at(30), "suspend asked (idle for an hour)"},
			{"state", "systemd", at(60), "the scope is gone (success)"},
			{"activity", "", time.Time{}, "unknown"},
		}},
		{"answered, then failed", list(running, exit(2, 9), gone), []session.Evidence{
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
		{"answered", list(running, silent, permission, answered(list(running, permission))), []session.Evidence{
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

// TestSources_FollowTheAgentDefinition checks which sources count, and in which order.
func TestSources_FollowTheAgentDefinition(t *testing.T) {
	titleWorks := statusReport(session.FromTitle, 4, word.Working, "")
	titleReady := statusReport(session.FromTitle, 3, word.Idle, "")
	titleBlocked := statusReport(session.FromTitle, 5, word.Waiting, word.Question)
	asksLater := permission
	asksLater.Message, asksLater.Monotonic = "touch y?", time.Second
	longAgo := statusReport(session.FromReport, 1, word.Waiting, word.Auth)
	titleEnded := statusReport(session.FromTitle, 5, word.Idle, word.TurnEnded)
	failedLongAgo := statusReport(session.FromReport, 1, word.Idle, word.Error)
	failedLater, endedLate := failedLongAgo, titleEnded
	failedLater.Monotonic, endedLate.Monotonic = time.Second, time.Minute
	shows := statusReport(session.FromScreen, 6, word.Waiting, word.Setup)
	continues, quiet, asksAgain := titleWorks, statusReport(session.FromTitle, 8, "", ""), asksLater
	continues.Monotonic, quiet.Monotonic = 2*time.Second, 3*time.Second
	asksAgain.Monotonic, asksAgain.Seq = 4*time.Second, 9
	late := titleBlocked
	late.Monotonic = time.Minute
	for _, row := range []struct {
		name                string
		sources             []string
		events              []session.Event
		activity, attention string
		source              string // of the activity
		from                string // the source of the attention
	}{
		{"all sources, if Sources= is not set", nil,
			list(permission, titleWorks), "waiting", "permission", "report", "report"},
		{"the title first", []string{"title", "report"}, list(permission, titleWorks), "working", "", "title", ""},
		{"the title alone", []string{"title"}, list(silent, permission), "idle", "", "output", ""},
		{"the output in any case", []string{"bell"}, list(silent, permission, rings), "waiting", "bell", "bell", "bell"},
		{"the title reports that it waits, a hook for what", []string{"title", "report"}, list(titleBlocked, asksLater),
			"waiting", "permission", "title", "report"},
		{"a hook report of another time is ignored", []string{"title", "report"}, list(longAgo, late),
			"waiting", "question", "title", "title"},
		{"as is one of a source that is not trusted", []string{"title", "bell"}, list(titleBlocked, asksLater),
			"waiting", "question", "title", "title"},
		{"the title reports that its turn has ended, a hook that it ended with an error", []string{"title", "report"},
			list(titleEnded, failedLater), "idle", "error", "title", "report"},
		{"an error of another time is ignored", []string{"title", "report"}, list(failedLongAgo, endedLate),
			"idle", "turn-ended", "title", "title"},

		{"the title reports that it works, and then nothing more", []string{"title", "report"},
			list(silent, asksLater, continues, quiet), "idle", "", "output", ""},
		{"it then asks again", []string{"title", "report"}, list(silent, asksLater, continues, quiet, asksAgain),
			"waiting", "permission", "report", "report"},
		{"a weaker source does not supersede", []string{"report", "title"}, list(silent, asksLater, continues),
			"waiting", "permission", "report", "report"},

		{"a dialog on the screen", nil, list(silent, shows), "waiting", "setup", "screen", "screen"},
		{"a dialog, whatever the trusted sources", []string{"bell"}, list(silent, shows),
			"waiting", "setup", "screen", "screen"},
		{"a dialog after a hook that reports the start", nil,
			list(silent, statusReport(session.FromReport, 3, word.Idle, ""), shows), "waiting", "setup", "screen", "screen"},
		{"a dialog below a title that reports an idle agent", []string{"title"}, list(silent, titleReady, shows),
			"waiting", "setup", "screen", "screen"},
		{"a dialog of an agent whose title reports that it works", nil,
			list(silent, titleWorks, shows), "working", "", "title", ""},
		{"a dialog of an agent whose hook has reported", nil,
			list(silent, reportsWorking, shows), "working", "", "report", ""},
		{"the dialog was answered", nil,
			list(silent, shows, session.Answered{Run: run, Reports: session.Seqs{Screen: 6}}), "idle", "", "output", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			begin := runBegun
			begin.Sources = row.sources
			s := after(newSession(), list(begin, scope, tmux, agent, row.events))
			activity, source, _ := s.Activity()
			assert.Equal(t, row.activity, activity)
			assert.Equal(t, row.source, string(source))
			a := s.Attention()
			assert.Equal(t, row.attention, a.Reason)
			assert.Equal(t, row.from, string(a.Source))
		})
	}
	assert.Equal(t, "output", session.FromScreen.Public(), "the property has six values")
	assert.Equal(t, "bell", session.FromBell.Public())
}

// TestExplain_OrdersSourcesByStrength checks that the deciding source comes first, and the others
// have a reason why they do not decide.
func TestExplain_OrdersSourcesByStrength(t *testing.T) {
	asks := statusReport(session.FromOSC7501, 4, word.Waiting, word.Permission)
	asks.Message = "approve Bash: touch y"
	notified := statusReport(session.FromNotify, 3, word.Working, "")
	shows := statusReport(session.FromScreen, 6, word.Waiting, word.Setup)
	begin := runBegun
	begin.Sources = []string{"title", "osc7501", "bell"}
	cleared := statusReport(session.FromTitle, 7, "", "")
	events := list(begin, scope, tmux, agent, silent, rings, asks, notified, shows, cleared)
	explained := func(s *session.Session) []session.Evidence {
		all := s.Explain()
		return all[slices.IndexFunc(all, func(e session.Evidence) bool { return e.Subject == "activity" }):]
	}
	assert.Equal(t, []session.Evidence{
		{"activity", "osc7501", at(4), "waiting"},
		{"activity", "title", at(7), "nothing"},
		{"activity", "screen", at(6), "waiting (the agent reports its own status)"},
		{"activity", "output", at(2), "idle (overruled by osc7501)"},
		{"activity", "notify", at(3), "working (ignored: not in the agent's Sources=)"},
		{"attention", "osc7501", at(4), "permission: approve Bash: touch y"},
		{"attention", "bell", at(3), "bell (overruled by osc7501)"},
		{"attention", "screen", at(6), "setup (the agent reports its own status)"},
	}, explained(after(newSession(), events)))
	assert.Contains(t, explained(after(newSession(), list(events, acknowledged(events)))), session.Evidence{
		Subject: "attention", Source: "osc7501", At: at(4),
		Value: "permission: approve Bash: touch y (acknowledged)",
	})
}

// TestReport_StaysSupersededAfterRestart checks a report of a hook under the next daemon, which
// receives only the last report of each other source.
func TestReport_StaysSupersededAfterRestart(t *testing.T) {
	reported := permission
	continues := statusReport(session.FromOSC7501, 6, word.Working, "")
	quiet := statusReport(session.FromOSC7501, 7, "", "")
	reported.Monotonic, continues.Monotonic, quiet.Monotonic = time.Second, 2*time.Second, 3*time.Second
	s := after(newSession(), list(running, reported, continues, quiet))
	assert.Empty(t, s.Attention().Reason)
	text, err := json.Marshal(s)
	require.NoError(t, err)
	var read session.Session
	require.NoError(t, json.Unmarshal(text, &read))
	read.Apply(quiet)
	assert.Empty(t, read.Attention().Reason)
	again := statusReport(session.FromReport, 8, word.Waiting, word.Question)
	again.Monotonic = 4 * time.Second
	read.Apply(again)
	assert.Equal(t, word.Question, read.Attention().Reason)
}

// timedReport is statusReport with its time by CLOCK_MONOTONIC, too.
func timedReport(source session.Source, second int, activity, reason string) session.StatusReported {
	e := statusReport(source, second, activity, reason)
	e.Monotonic, e.Message = time.Duration(second)*time.Second, "what it says"
	return e
}

// TestAttention_WithWhatTheScreenShows covers agents of which no hook reports everything.
func TestAttention_WithWhatTheScreenShows(t *testing.T) {
	report, screen, output := session.FromReport, session.FromScreen, session.FromOutput
	prints := timedReport(output, 4, word.Working, "")
	retrying := timedReport(report, 6, word.Working, word.Error)
	idleAt := func(second int) session.Event { return timedReport(screen, second, word.Idle, "") }
	hidden := func(second int) session.Event { return timedReport(screen, second, "", "") }
	for _, row := range []struct {
		name                                 string
		events                               []session.Event
		activity, reason, source, statusText string
	}{
		{"the agent was interrupted", list(prints, timedReport(report, 5, word.Working, ""), idleAt(7)), "idle", "", "", ""},
		{"it was idle before", list(prints, idleAt(4), timedReport(report, 5, word.Working, "")), "working", "", "", ""},
		{"it works again", list(prints, timedReport(report, 5, word.Working, ""), idleAt(7), hidden(8),
			timedReport(report, 8, word.Working, "")), "working", "", "", ""},
		{"a permission was denied", list(prints, timedReport(report, 5, word.Waiting, word.Permission), idleAt(7)),
			"idle", "", "", ""},
		{"a permission was given, and the screen was not searched since", list(prints, idleAt(4),
			timedReport(report, 5, word.Waiting, word.Permission), session.Answered{Run: run, Reports: session.Seqs{Report: 5}}),
			"working", "", "", ""},
		{"its turn has ended", list(prints, timedReport(report, 5, word.Idle, word.TurnEnded), idleAt(7)),
			"idle", word.TurnEnded, "report", ""},
		{"the hook reports late, and the agent is silent", list(prints, idleAt(7), timedReport(report, 8, word.Working, ""),
			timedReport(output, 7, word.Idle, "")), "idle", "", "", ""},
		{"it tries again", list(prints, retrying), "working", "", "", "retrying (what it says)"},
		{"it tries again, as the screen shows", list(prints, timedReport(session.FromOSC7501, 5, word.Working, ""),
			timedReport(screen, 7, word.Working, word.Error)), "working", "", "", "retrying (what it says)"},
		{"it has given up", list(prints, retrying, idleAt(7)), "idle", word.Error, "report", ""},
		{"it has given up, which only its silence shows", list(prints, retrying, timedReport(output, 5, word.Idle, "")),
			"idle", word.Error, "report", ""},
		{"it has succeeded", list(prints, retrying, timedReport(report, 9, word.Idle, word.TurnEnded), idleAt(9)),
			"idle", word.TurnEnded, "report", ""},
		{"a dialog about a limit", list(prints, timedReport(session.FromTitle, 5, word.Working, ""),
			timedReport(screen, 7, word.Waiting, word.Limit)), "waiting", word.Limit, "output", ""},
		{"it continues after that", list(prints, timedReport(screen, 7, word.Waiting, word.Limit),
			timedReport(session.FromTitle, 9, word.Working, "")), "working", "", "", ""},
		{"a hook reports a limit, beside the end of the turn", list(prints,
			timedReport(session.FromOSC7501, 8, word.Idle, word.Error),
			timedReport(report, 7, word.Idle, word.Limit)), "idle", word.Limit, "report", ""},
		{"a limit of an earlier turn", list(prints, timedReport(report, 2, word.Idle, word.Limit),
			timedReport(session.FromOSC7501, 8, word.Idle, word.TurnEnded)), "idle", word.TurnEnded, "osc7501", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := after(newSession(), append(list(running), row.events...))
			activity, _, _ := s.Activity()
			a := s.Attention()
			assert.Equal(t, []string{row.activity, row.reason, row.source, row.statusText},
				[]string{activity, a.Reason, a.Source.Public(), s.StatusText()})
		})
	}
}

// TestNextReport_IsNewAfterTheScreenWasIdle: a hook that reports the same once more begins a new
// turn.
func TestNextReport_IsNewAfterTheScreenWasIdle(t *testing.T) {
	working := timedReport(session.FromReport, 5, word.Working, "")
	s := after(newSession(), list(running, working))
	_, changed := s.NextReport(working.Report)
	assert.False(t, changed)
	s = after(newSession(), list(running, working, timedReport(session.FromScreen, 7, word.Idle, "")))
	_, changed = s.NextReport(working.Report)
	assert.True(t, changed)
}
