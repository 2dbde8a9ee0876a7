package session_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/corrald/corral/dbusapi/word"
	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/supervisor/session"
)

// t0 is when the sessions of the tests are created; at(n) is n seconds later.
var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(seconds int) time.Time { return t0.Add(time.Duration(seconds) * time.Second) }

// moment is the same, as the time of an event.
func moment(second int) session.Moment { return session.Moment{At: at(second)} }

const run = "run-1"

var agentProcess = session.Process{PID: 12, Start: 120}

// Events of one run.
var (
	runBegun    = session.RunBegun{Run: run, BootID: "boot", Unit: "app-corral-claude-shop.scope", At: at(1)}
	scope       = session.ScopeStarted{Run: run, InvocationID: "invocation", ControlGroup: "/corral"}
	tmux        = session.TmuxStarted{Run: run, Process: session.Process{PID: 10, Start: 100}}
	agent       = session.AgentStarted{Run: run, Shim: session.Process{PID: 11}, Agent: agentProcess, At: at(2)}
	tmuxDied    = session.TmuxDied{Run: run, Process: session.Process{PID: 10, Start: 100}}
	newTmux     = session.TmuxStarted{Run: run, Process: session.Process{PID: 20, Start: 200}}
	leftRunning = session.LeftRunning{Run: run, At: at(32)}
	foundAlive  = session.FoundAlive{Run: run}
	empty       = session.ScopeEnded{Run: run, Result: "success", At: at(60)}
	wentDown    = session.MachineWentDown{Run: run, At: at(90)}
	gone        = session.WorkspaceObserved{Gone: true}
	back        = session.WorkspaceObserved{}
	stop        = session.IntentSet{Run: run, Intent: session.Stop, Moment: moment(30)}
	suspend     = session.IntentSet{Run: run, Intent: session.Suspend, Why: "idle for an hour", Moment: moment(30)}
	prints      = statusReport(session.FromOutput, 1, word.Working, "")
	silent      = statusReport(session.FromOutput, 2, word.Idle, "")
	archive     = session.SessionArchived{At: at(100)}
	timeIsUp    = session.ScopeResult{Run: run, Result: word.Timeout, Moment: moment(30)}
	shimDied    = session.ShimDied{Run: run, TmuxSurvived: true, At: at(40)}
	allDied     = session.ShimDied{Run: run, At: at(40)}
	startFailed = session.StartFailed{Run: run, Reason: `workspace "/home/u/shop" does not exist`, Moment: moment(3)}
	oomEnd      = session.ScopeEnded{Run: run, Result: "oom-kill", At: at(60)}
	timeoutAt   = session.ScopeEnded{Run: run, Result: "timeout", At: at(60)}
)

// statusReport is the report of a source with this Seq, made as many seconds after t0.
func statusReport(source session.Source, seq int, activity, reason string) session.StatusReported {
	return session.StatusReported{
		Run: run, Source: source,
		Report: session.Report{Activity: activity, Reason: reason, At: at(seq), Seq: uint64(seq)},
	}
}

// exit is the shim's record of an exit at second 20.
func exit(code exitstatus.Code, value int) session.AgentExited {
	return session.AgentExited{Status: exitstatus.Status{
		RunID: run, PID: agentProcess.PID, Code: code, Value: value, Started: at(2), Exited: at(20),
	}}
}

// systemdStops is a stop of the scope by systemd, which sent the signals and recorded this second.
func systemdStops(second int) session.IntentSet {
	return session.IntentSet{
		Run: run, Intent: session.Stop, Why: "its scope was stopped", SignalledBySystemd: true, Moment: moment(second),
	}
}

// late is the same at second 35, after the requests of these tests.
func late(e session.AgentExited) session.AgentExited {
	e.Status.Exited = at(35)
	return e
}

func notStarted(why string) session.AgentExited {
	e := exit(exitstatus.NotStarted, 0)
	e.Status.Error, e.Status.PID = why, 0
	return e
}

func outOfMemory(limit uint64) session.AgentExited {
	e := exit(exitstatus.Killed, 9)
	e.Status.OOMKills, e.Status.MemoryMax = 1, limit
	return e
}

// list concatenates single events and lists of events.
func list(events ...any) []session.Event {
	var all []session.Event
	for _, e := range events {
		if more, ok := e.([]session.Event); ok {
			all = append(all, more...)
		} else {
			all = append(all, e.(session.Event))
		}
	}
	return all
}

var running = list(runBegun, scope, tmux, agent)

func newSession() *session.Session {
	return &session.Session{
		ID: "shop", Agent: "claude", Command: []string{"claude"}, WorkingDirectory: "/home/u/shop", Created: t0,
	}
}

func after(s *session.Session, events []session.Event) *session.Session {
	for _, e := range events {
		s.Apply(e)
	}
	return s
}

// TestView covers the two tables of the product description, that of the states and that of what
// can happen, and the tables of the five systems that Corral originates from: the names of their
// rows begin with the source.
func TestView(t *testing.T) {
	const lost, down = "tmux session no longer exists", "the machine went down"
	type view struct {
		state          session.State
		result, reason string
	}
	lostTmux := view{session.Stale, "session-lost", "scope running, session dead"}
	childOutOfMemory := outOfMemory(512 << 20)
	childOutOfMemory.Status.Code, childOutOfMemory.Status.Value = exitstatus.Exited, 3
	lateStop := session.IntentSet{Run: run, Intent: session.Stop, Moment: moment(40)}
	for _, row := range []struct {
		name      string
		resumable bool
		events    []session.Event
		want      view
	}{
		// The states.
		{"never started", false, nil, view{session.Created, "", ""}},
		{"a run was requested", false, list(runBegun), view{session.Starting, "", ""}},
		{"a run was requested, its scope is active", false, list(runBegun, scope), view{session.Starting, "", ""}},
		{"a run was requested, scope and tmux are alive, the agent has not appeared", false, list(runBegun, scope, tmux),
			view{session.Starting, "", ""}},
		{"scope, tmux and agent are alive", false, running, view{session.Running, "", ""}},
		{"a stop was requested, the scope is not empty yet", false, list(running, stop), view{session.Stopping, "", ""}},
		{"a stop was requested, the agent has exited, the scope is not empty yet", false,
			list(running, stop, late(exit(exitstatus.Killed, 15))), view{session.Stopping, "", ""}},
		{"a suspend was requested, the scope is not empty yet", false, list(running, suspend),
			view{session.Stopping, "", ""}},
		{"ended as the user requested", false, list(running, stop, late(exit(exitstatus.Killed, 15)), empty),
			view{session.Stopped, "success", ""}},
		{"ended as the user requested while it was starting", false, list(runBegun, scope, stop, empty),
			view{session.Stopped, "success", ""}},
		{"ended by systemctl --user stop of the scope", false,
			list(running, session.IntentSet{
				Run: run, Intent: session.Stop, Why: "its scope was stopped", Moment: moment(30),
			}, empty),
			view{session.Stopped, "success", "its scope was stopped"}},
		{"killed by systemctl --user stop, which systemd records a second later", false,
			list(running, exit(exitstatus.Killed, 15), systemdStops(21), empty),
			view{session.Stopped, "success", "its scope was stopped"}},
		{"the same, received in the other order", false,
			list(running, systemdStops(21), exit(exitstatus.Killed, 15), empty),
			view{session.Stopped, "success", "its scope was stopped"}},
		{"killed long before systemctl --user stop", false,
			list(running, systemdStops(23), exit(exitstatus.Killed, 15), empty),
			view{session.Failed, "signal", "command was killed by SIGTERM"}},
		{"exited by itself a second before systemctl --user stop", false,
			list(running, exit(exitstatus.Exited, 3), systemdStops(21), empty),
			view{session.Failed, "exit-code", "command exited with code 3"}},
		{"the agent exited with 0, its tmux session is still open", false, list(running, exit(exitstatus.Exited, 0)),
			view{session.Completed, "success", ""}},
		{"the tmux session is dead, the scope is not empty, no exit was recorded", false, list(running, tmuxDied), lostTmux},
		{"ended to be resumed", false, list(running, suspend, late(exit(exitstatus.Exited, 0)), empty),
			view{session.Suspended, "success", "idle for an hour"}},
		{"the workspace vanished while the session was live", false, list(running, gone),
			view{session.Orphaned, "", `workspace "/home/u/shop" is gone`}},
		{"the workspace vanished before the first start", false, list(gone),
			view{session.Orphaned, "", `workspace "/home/u/shop" is gone`}},
		{"the workspace came back before the first start", false, list(gone, back), view{session.Created, "", ""}},
		{"the workspace vanished while the session was starting", false, list(runBegun, scope, tmux, gone),
			view{session.Orphaned, "", `workspace "/home/u/shop" is gone`}},
		{"the workspace vanished while the session was starting, which the shim reports first", false,
			list(runBegun, scope, tmux, gone, startFailed),
			view{session.Failed, "start-failed", `workspace "/home/u/shop" does not exist`}},
		{"the workspace came back while the session was starting", false, list(runBegun, scope, tmux, gone, back),
			view{session.Starting, "", ""}},
		{"archived, never started, its workspace was gone", false, list(gone, archive), view{session.Archived, "", ""}},
		{"the workspace came back", false, list(running, gone, back), view{session.Running, "", ""}},
		{"the workspace of a session that has ended vanished", false, list(running, exit(exitstatus.Exited, 0), gone),
			view{session.Completed, "success", ""}},
		{"the workspace vanished under a session that is being stopped", false, list(running, stop, gone),
			view{session.Stopping, "", ""}},
		{"archived after it has failed", false, list(running, exit(exitstatus.Exited, 3), empty, archive),
			view{session.Archived, "exit-code", "command exited with code 3"}},
		{"archived, never started", false, list(archive), view{session.Archived, "", ""}},

		// What happened.
		{"exit 0", false, list(running, exit(exitstatus.Exited, 0), empty), view{session.Completed, "success", ""}},
		{"exit 3", false, list(running, exit(exitstatus.Exited, 3)),
			view{session.Failed, "exit-code", "command exited with code 3"}},
		{"exit 255", false, list(running, exit(exitstatus.Exited, 255)),
			view{session.Failed, "exit-code", "command exited with code 255"}},
		{"SIGKILL", false, list(running, exit(exitstatus.Killed, 9)),
			view{session.Failed, "signal", "command was killed by SIGKILL"}},
		{"SIGHUP that nobody requested", false, list(running, exit(exitstatus.Killed, 1)),
			view{session.Failed, "signal", "command was killed by SIGHUP"}},
		{"a real-time signal has no name", false, list(running, exit(exitstatus.Killed, 40)),
			view{session.Failed, "signal", "command was killed by signal 40"}},
		{"SIGSEGV with a core", false, list(running, exit(exitstatus.Dumped, 11)),
			view{session.Failed, "core-dump", "command was killed by SIGSEGV (core dumped)"}},
		{"the kernel's OOM killer", false, list(running, outOfMemory(512<<20)),
			view{session.Failed, "oom-kill", "out of memory (limit 512M)"}},
		{"the kernel's OOM killer, of a scope with a limit between the units", false, list(running, outOfMemory(1536<<20)),
			view{session.Failed, "oom-kill", "out of memory (limit 1.5G)"}},
		{"the kernel's OOM killer, no limit", false, list(running, outOfMemory(0)),
			view{session.Failed, "oom-kill", "out of memory"}},
		{"systemd-oomd kills everything in the scope", false, list(running, exit(exitstatus.Killed, 9), oomEnd),
			view{session.Failed, "oom-kill", "out of memory"}},
		{"a compiler ran out of memory and systemd ended the scope", false,
			list(running, exit(exitstatus.Killed, 15), oomEnd), view{session.Failed, "oom-kill", "out of memory"}},
		{"out of memory, no exit recorded", false, list(running, oomEnd), view{session.Failed, "oom-kill", "out of memory"}},
		{"a child ran out of memory, the agent continued and exited with 3", false, list(running, childOutOfMemory, empty),
			view{session.Failed, "exit-code", "command exited with code 3"}},
		{"RuntimeMaxSec, the agent has not exited yet", false, list(running, timeIsUp), view{session.Stopping, "", ""}},
		{"RuntimeMaxSec", false, list(running, timeIsUp, late(exit(exitstatus.Killed, 15)), empty),
			view{session.Failed, "timeout", "it ran for as long as RuntimeMaxSec allows"}},
		{"RuntimeMaxSec, and the agent exits with 0", false,
			list(running, timeIsUp, late(exit(exitstatus.Exited, 0)), timeoutAt),
			view{session.Failed, "timeout", "it ran for as long as RuntimeMaxSec allows"}},
		{"RuntimeMaxSec while the daemon was away", false, list(running, exit(exitstatus.Killed, 15), timeoutAt),
			view{session.Failed, "timeout", "it ran for as long as RuntimeMaxSec allows"}},
		{"RuntimeMaxSec, no exit recorded", false, list(running, timeoutAt),
			view{session.Failed, "timeout", "it ran for as long as RuntimeMaxSec allows"}},
		{"RuntimeMaxSec, then a stop", false,
			list(running, timeIsUp, session.IntentSet{Run: run, Intent: session.Stop, Moment: moment(31)}, empty),
			view{session.Failed, "timeout", "it ran for as long as RuntimeMaxSec allows"}},
		{"command not found", false, list(runBegun, scope, tmux, notStarted(`"clade" not found`)),
			view{session.Failed, "start-failed", `"clade" not found`}},
		{"workspace missing", false, list(runBegun, startFailed, session.ScopeEnded{Run: run, At: at(3)}),
			view{session.Failed, "start-failed", `workspace "/home/u/shop" does not exist`}},
		{"tmux server killed, agent alive", false, list(running, tmuxDied), lostTmux},
		{"tmux server killed, then the agent exited with 0", false, list(running, tmuxDied, exit(exitstatus.Exited, 0)),
			view{session.Completed, "success", ""}},
		{"shim killed, tmux still there", false, list(running, shimDied),
			view{session.Failed, "agent-lost", "shell process exited"}},
		{"shim killed, tmux still there, closed later", false, list(running, shimDied, tmuxDied, empty),
			view{session.Failed, "agent-lost", "shell process exited"}},
		{"everything in the scope killed, no exit recorded", false, list(running, allDied, tmuxDied, empty),
			view{session.Failed, "session-lost", lost}},
		{"power loss, cannot be resumed", false, list(running, wentDown), view{session.Failed, "session-lost", down}},
		{"power loss, can be resumed", true, list(running, wentDown), view{session.Suspended, "session-lost", down}},
		{"reboot after the daemon had marked it suspended", false, list(running, suspend, wentDown),
			view{session.Suspended, "success", "idle for an hour"}},
		{"power loss after an exit that was recorded", true, list(running, exit(exitstatus.Exited, 3), wentDown),
			view{session.Failed, "exit-code", "command exited with code 3"}},

		{"the agent appears too late and is ended", false,
			list(runBegun, scope, tmux, startFailed, agent, exit(exitstatus.Killed, 15), empty),
			view{session.Failed, "start-failed", `workspace "/home/u/shop" does not exist`}},
		{"the agent exited before its start was considered failed", false,
			list(runBegun, exit(exitstatus.Exited, 0), session.StartFailed{
				Run: run, Reason: "tmux hangs", Moment: moment(21),
			}, empty),
			view{session.Completed, "success", ""}},

		{"SIGTERM to corrald alone: it is marked", true, list(running, leftRunning),
			view{session.Suspended, "", "corrald was shut down"}},
		{"SIGTERM to corrald alone: it is found alive", true, list(running, leftRunning, foundAlive),
			view{session.Running, "", ""}},
		{"SIGTERM to corrald alone: it has vanished meanwhile", false, list(running, leftRunning, empty),
			view{session.Suspended, "session-lost", "corrald was shut down"}},
		{"SIGTERM to corrald alone: it has exited meanwhile", true,
			list(running, leftRunning, late(exit(exitstatus.Exited, 3)), empty),
			view{session.Failed, "exit-code", "command exited with code 3"}},
		{"SIGTERM to corrald, after the agent had exited", false,
			list(running, exit(exitstatus.Exited, 0), leftRunning, empty), view{session.Completed, "success", ""}},

		// Ended states do not change.
		{"completed, tmux closed later", false, list(running, exit(exitstatus.Exited, 0), tmuxDied, empty),
			view{session.Completed, "success", ""}},
		{"completed, its scope ran out of time later", false,
			list(running, exit(exitstatus.Exited, 0), timeIsUp, timeoutAt), view{session.Completed, "success", ""}},
		{"failed, its scope ran out of time later", false, list(running, exit(exitstatus.Exited, 3), timeIsUp, timeoutAt),
			view{session.Failed, "exit-code", "command exited with code 3"}},
		{"completed, its scope ran out of time while the daemon was away", false,
			list(running, exit(exitstatus.Exited, 0), timeoutAt), view{session.Completed, "success", ""}},
		{"completed, a leftover dev server ran out of memory", false, list(running, exit(exitstatus.Exited, 0), oomEnd),
			view{session.Completed, "success", ""}},
		{"failed, a leftover dev server ran out of memory", false, list(running, exit(exitstatus.Exited, 3), oomEnd),
			view{session.Failed, "exit-code", "command exited with code 3"}},
		{"completed, then stopped", false, list(running, exit(exitstatus.Exited, 0), stop, empty),
			view{session.Completed, "success", ""}},
		{"exited by itself before the stop, received after it", false, list(running, stop, exit(exitstatus.Exited, 3)),
			view{session.Failed, "exit-code", "command exited with code 3"}},
		{"suspended, then stopped before it had ended", false, list(running, suspend, stop, empty),
			view{session.Stopped, "success", ""}},
		{"stopped, then suspended before it had ended", false, list(running, stop, suspend, empty),
			view{session.Stopped, "success", ""}},
		{"suspended, exited, then stopped before the exit was received", false,
			list(running, suspend, lateStop, late(exit(exitstatus.Exited, 143)), empty), view{session.Stopped, "success", ""}},

		// ADR 22: tmux session, shell process, children, exit status. Children do not matter here: the
		// exit does, and activity is not part of the state.
		{"ADR 22: tmux session closed", false, list(running, tmuxDied, empty), view{session.Failed, "session-lost", lost}},
		{"ADR 22: open, shell process dead", false, list(running, shimDied),
			view{session.Failed, "agent-lost", "shell process exited"}},
		{"ADR 22: open, shell alive, exit status 0", false, list(running, exit(exitstatus.Exited, 0)),
			view{session.Completed, "success", ""}},
		{"ADR 22: open, shell alive, exit status N", false, list(running, exit(exitstatus.Exited, 42)),
			view{session.Failed, "exit-code", "command exited with code 42"}},
		{"ADR 22: open, shell alive, output changing", false, list(running, prints), view{session.Running, "", ""}},
		{"ADR 22: open, shell alive, no output for three seconds", false, list(running, silent),
			view{session.Running, "", ""}},
		{"ADR 22: no exit status to be had is not success", false, list(running, allDied, empty),
			view{session.Failed, "session-lost", lost}},
		{"ADR 22: nor is it before the scope is known to be empty", false, list(running, allDied),
			view{session.Running, "", ""}},

		// ADR 31: its eight states; the terminal ones stay.
		{"ADR 31: created to starting", false, list(runBegun), view{session.Starting, "", ""}},
		{"ADR 31: starting to failed", false, list(runBegun, startFailed),
			view{session.Failed, "start-failed", `workspace "/home/u/shop" does not exist`}},
		{"ADR 31: running to stopping", false, list(running, stop), view{session.Stopping, "", ""}},
		{"ADR 31: running to completed", false, list(running, exit(exitstatus.Exited, 0)),
			view{session.Completed, "success", ""}},
		{"ADR 31: running to orphaned", false, list(running, gone),
			view{session.Orphaned, "", `workspace "/home/u/shop" is gone`}},
		{"ADR 31: stopping to stopped", false, list(running, stop, empty), view{session.Stopped, "success", ""}},

		// CR-070: STALE.
		{"CR-070: running to stale when tmux dies", false, list(running, tmuxDied), lostTmux},
		{"CR-070: stale, teardown", false, list(running, tmuxDied, stop, empty), view{session.Stopped, "success", ""}},
		{"CR-070: stale, its container ended by itself", false, list(running, tmuxDied, empty),
			view{session.Failed, "session-lost", lost}},
		{"CR-070: stale, restarted: a new tmux around the same agent", false, list(running, tmuxDied, newTmux),
			view{session.Running, "", ""}},
		{"CR-070: the end of the old tmux is reported after the start of the new one", false,
			list(running, newTmux, tmuxDied), view{session.Running, "", ""}},
		{"CR-070: stale, ended and started anew", false,
			list(running, tmuxDied, stop, empty,
				session.RunBegun{Run: "run-2", At: at(61)}, session.AgentStarted{Run: "run-2", At: at(62)}),
			view{session.Running, "", ""}},

		// A crash of one session: only a person restarts it.
		{"crash isolation: it fails, with code and signal", false, list(running, exit(exitstatus.Dumped, 11), empty),
			view{session.Failed, "core-dump", "command was killed by SIGSEGV (core dumped)"}},
		{"crash isolation: restarted by a person", false,
			list(running, exit(exitstatus.Dumped, 11), empty, session.RunBegun{Run: "run-2", At: at(61)}),
			view{session.Starting, "", ""}},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := newSession()
			if row.resumable {
				s.ResumeCommand = []string{"claude", "--resume"}
			}
			v := after(s, row.events).View()
			assert.Equal(t, row.want, view{v.State, v.Result, v.Reason})
		})
	}
}

// TestLifecycle checks the last column of the product description's table, the model of four
// states: a session whose agent has exited stays active, because it can be continued.
func TestLifecycle(t *testing.T) {
	want := map[session.State]string{
		session.Created: "active", session.Starting: "active", session.Running: "active",
		session.Stopping: "active", session.Stopped: "active", session.Completed: "active", session.Failed: "error",
		session.Stale: "active", session.Suspended: "suspended", session.Orphaned: "error",
		session.Archived: "archived",
	}
	got := map[session.State]string{}
	for _, s := range states {
		got[s] = s.Lifecycle()
	}
	assert.Equal(t, want, got)
}

func TestEndCause(t *testing.T) {
	intent := func(intent session.Intent, why string, idle bool) session.IntentSet {
		return session.IntentSet{Run: run, Intent: intent, Why: why, Idle: idle, Moment: moment(30)}
	}
	running := []session.Event{runBegun, scope, tmux, agent}
	for _, row := range []struct {
		name   string
		events []session.Event
		want   string
	}{
		{"never started", nil, ""},
		{"running", running, ""},
		{"exited", list(running, exit(exitstatus.Exited, 3), empty), ""},
		{"suspended by a client", list(running, intent(session.Suspend, "", false), empty), ""},
		{"idle for too long", list(running, intent(session.Suspend, "its agent was idle for 1h", true), empty), word.Idle},
		{"the login session ended", list(running, intent(session.Suspend, "the login session ended", false), empty),
			word.Shutdown},
		{"being suspended", list(running, intent(session.Suspend, "the login session ended", false)), ""},
		{"left running by a daemon", list(running, leftRunning), word.Shutdown},
		{"the machine went down", list(running, wentDown, empty), word.Shutdown},
		{"all processes were killed", list(running, empty), word.Killed},
		{"tmux died, the agent is running", list(running, tmuxDied), ""},
		{"stopped by a client", list(running, stop, empty), ""},
		{"stopped with systemctl", list(running, intent(session.Stop, session.ByScopeStop, false), empty), word.ScopeStopped},
		{"its terminal was closed", list(running, intent(session.Stop, session.TerminalClosed, false), empty),
			word.TerminalClosed},
		{"archived after the machine went down", list(running, wentDown, empty, archive), word.Shutdown},
	} {
		assert.Equal(t, row.want, after(newSession(), row.events).EndCause(), row.name)
	}
}

func TestView_SinceIsWhenItHappened(t *testing.T) {
	for _, row := range []struct {
		name   string
		events []session.Event
		want   time.Time
	}{
		{"created", nil, t0},
		{"starting", list(runBegun), at(1)},
		{"running", running, at(2)},
		{"stopping", list(running, stop), at(30)},
		{"stopping, since RuntimeMaxSec expired", list(running, timeIsUp), at(30)},
		{"stopping, since the first request",
			list(running, suspend, session.IntentSet{Run: run, Intent: session.Stop, Moment: moment(40)}), at(30)},
		{"stopped", list(running, stop, empty), at(60)},
		{"completed, when the agent exited and not when that was received",
			list(running, exit(exitstatus.Exited, 0), empty), at(20)},
		{"agent-lost", list(running, shimDied, empty), at(40)},
		{"session-lost", list(running, empty), at(60)},
		{"start-failed, at the first reason",
			list(runBegun, session.StartFailed{Run: run, Reason: "second", Moment: moment(4)}, startFailed), at(3)},
		{"archived", list(running, exit(exitstatus.Exited, 0), empty, archive), at(100)},
		{"stale: not known", list(running, tmuxDied), time.Time{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			assert.Equal(t, row.want, after(newSession(), row.events).View().Since)
		})
	}
}

func TestPast_IsLimited(t *testing.T) {
	s := newSession()
	for i := range session.MaxPast + 5 {
		id := string(rune('a' + i))
		s.Apply(session.RunBegun{Run: id, At: at(i)})
		s.Apply(session.RunBegun{Run: id, At: at(i)})
	}
	assert.Len(t, s.Past, session.MaxPast)
	assert.EqualValues(t, session.MaxPast+5, s.NRuns)
	assert.Equal(t, "e", s.Past[0].ID, "the oldest are removed")
}

func TestApply_IgnoresEventsOfOtherRuns(t *testing.T) {
	next := session.RunBegun{Run: "run-2", At: at(61)}
	s := after(newSession(), list(running, exit(exitstatus.Exited, 3), empty, next))
	before := s.Clone()
	others := list(running[1:], exit(exitstatus.Exited, 0),
		empty, tmuxDied, shimDied, startFailed, stop, wentDown, timeIsUp)
	for _, e := range others {
		s.Apply(e)
		assert.Equal(t, before, s, "%T", e)
	}
}

func TestClone_SharesNothing(t *testing.T) {
	s := after(newSession(), list(running, exit(exitstatus.Exited, 3)))
	s.Labels, s.Past = map[string]string{"a": "b"}, []session.Run{{ID: "run-0"}}
	c := s.Clone()
	c.Labels["a"], c.Command[0], c.Past[0].ID, c.Run.ID, c.Run.Exit.Value = "c", "other", "other", "other", 4
	assert.Equal(t, "b", s.Labels["a"])
	assert.Equal(t, "claude", s.Command[0])
	assert.Equal(t, "run-0", s.Past[0].ID)
	assert.Equal(t, run, s.Run.ID)
	assert.Equal(t, 3, s.Run.Exit.Value)
}

func TestFormatBytes(t *testing.T) {
	for n, want := range map[uint64]string{
		0: "0B", 1023: "1023B", 1024: "1K", 512 << 20: "512M", 3 << 29: "1.5G", 1 << 60: "1E",
	} {
		assert.Equal(t, want, session.FormatBytes(n))
	}
}
