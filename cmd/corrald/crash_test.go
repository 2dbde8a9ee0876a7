package main

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/proc"
	"github.com/corrald/corral/internal/testbed"
)

// The failpoints of each operation of the daemon, in order, with the state that a session must have
// when the daemon was killed there and started again. "" means that there is no such session: it
// was never created, or is removed. The failpoints of a save are hit many times in a session's
// life: see TestDaemonCrash_DuringSave.
var (
	startSteps = []crashStep{
		{"create.directory-made", ""},
		{"start.record-saved", "failed"},
		{"start.spec-written", "failed"},
		{"start.tmux-started", "failed"},
		{"start.scope-asked", "failed"},
		{"start.scope-started", "failed"},
		{"show.tmux-listens", "failed"},
		{"start.session-opened", "running"},
		{"start.agent-heard", "running"},
	}
	// After each of these either the session exists, created, or neither it nor its worktree exists.
	worktreeSteps = []crashStep{
		{"create.worktree-made", ""},
		{"create.directory-made", ""},
		{"create.worktree-noted", "created"},
		// and "remove.worktree", after which the session is stopped
	}
	setupSteps = []crashStep{ // of a worktree: the setup begins again
		{"setup.begun", "running"},
		{"setup.ended", "running"},
	}
	conversationSteps = []crashStep{ // of an agent whose conversation is created before its run
		{"start.conversation-asked", "failed"},
		{"start.conversation-made", "failed"},
		{"start.record-saved", "failed"},
		{"start.session-opened", "running"},
	}
	stopSteps = []crashStep{
		{"stop.asked", "stopped"},
		{"stop.agent-asked", "stopped"},
		{"stop.all-asked", "stopped"},
		{"stop.gone", "stopped"},
	}
	rejoinSteps = []crashStep{
		{"rejoin.asked", "stale"},
		{"enter.tmux-started", "stale"},
		{"show.tmux-listens", "stale"},
		{"enter.session-opened", "running"},
	}
	enterSteps = []crashStep{
		{"start.record-saved", "failed"},
		{"start.spec-written", "failed"},
		{"enter.tmux-started", "failed"},
		{"show.tmux-listens", "failed"},
		{"enter.session-opened", "running"},
		{"start.agent-heard", "running"},
	}
	adoptSteps = []string{"adopt.loaded", "adopt.watched", "adopt.listed", "adopt.applied", "adopt.saved"}
	saveSteps  = []string{"save.before", "save.linked", "save.kept", "file.written", "save.after", "remove.record-gone"}
)

// crashStep is a failpoint, and the state of the session afterwards.
type crashStep struct{ point, state string }

func TestDaemonCrash_DuringStart(t *testing.T) {
	d := startDaemon(t)
	for n, step := range startSteps {
		t.Run(step.point, func(t *testing.T) {
			id := fmt.Sprintf("start-%d", n)
			d.relaunchWithFailpoint(t, step.point)
			_, _ = d.tryCreate(t, id, d.witness(id))
			d.waitKilled(t)
			d.launch()
			d.assertTrueState(t, id, step.state)
		})
	}
}

// TestDaemonCrash_DuringResumeOfSuspendedSession checks that a session stays suspended until its
// new run has begun, so that a login that restores it is continued by the next daemon.
func TestDaemonCrash_DuringResumeOfSuspendedSession(t *testing.T) {
	d := startDaemon(t)
	for n, step := range startSteps[1:] {
		t.Run(step.point, func(t *testing.T) {
			if step.state == "failed" {
				step.state = "suspended"
			}
			id := fmt.Sprintf("again-%d", n)
			s := d.create(t, id, d.witness(id))
			s.must("Suspend")
			d.relaunchWithFailpoint(t, step.point)
			_ = s.do("Resume")
			d.waitKilled(t)
			d.launch()
			d.assertTrueState(t, id, step.state)
		})
	}
}

func TestDaemonCrash_DuringStop(t *testing.T) {
	d := startDaemon(t)
	for n, step := range stopSteps {
		t.Run(step.point, func(t *testing.T) {
			id := fmt.Sprintf("stop-%d", n)
			d.relaunchWithFailpoint(t, step.point)
			s := d.create(t, id, d.witness(id))
			d.waitAgents(t, id, 1)
			_ = s.do("Stop", uint64(0))
			d.waitKilled(t)
			d.launch()
			d.assertTrueState(t, id, step.state)
		})
	}
}

// TestDaemonCrash_DuringSave kills the daemon at each failpoint of each save, from a session's
// creation to its removal: at the first hit, at the second, and so on, until the daemon survives
// the whole life of a session.
func TestDaemonCrash_DuringSave(t *testing.T) {
	d := startDaemon(t)
	for _, point := range saveSteps {
		for n, survived := 1, false; !survived; n++ {
			require.Less(t, n, 50, "%s: the saves of one session do not end", point)
			t.Run(fmt.Sprintf("%s/%d", point, n), func(t *testing.T) {
				id := strings.ReplaceAll(fmt.Sprintf("%s-%d", point, n), ".", "-")
				d.relaunchWithFailpoint(t, fmt.Sprintf("%s:%d", point, n))
				s, err := d.tryCreate(t, id, d.witness(id))
				if err == nil {
					d.waitAgents(t, id, 1)
				}
				for _, method := range []string{"Stop", "Remove"} {
					if err == nil {
						err = s.do(method, uint64(0))
					}
				}
				if survived = err == nil; survived {
					d.assertNothingLeft(t, id)
					return
				}
				d.waitKilled(t)
				d.launch()
				d.assertTrueState(t, id, anyState)
			})
		}
	}
}

// TestDaemonCrash_DuringAdoption kills a daemon while it adopts three sessions: one that runs, one
// that has ended in the meantime, and one that has lost its tmux.
func TestDaemonCrash_DuringAdoption(t *testing.T) {
	d := startDaemon(t)
	for n, point := range append(adoptSteps, "save.before:1", "save.linked:2", "save.kept:1",
		"file.written:2", "save.after:1") {
		t.Run(point, func(t *testing.T) {
			ids := []string{fmt.Sprintf("live-%d", n), fmt.Sprintf("leaving-%d", n), fmt.Sprintf("lost-%d", n)}
			pids := map[string]int{}
			for _, id := range ids {
				d.create(t, id, d.witness(id))
				pids[id] = d.waitAgents(t, id, 1)[0]
			}
			tmux := d.session(t, ids[2]).process(tmuxName)
			d.kill(syscall.SIGKILL)
			kill(t, pids[ids[1]], syscall.SIGUSR1)
			testbed.WaitFile(t, d.stateDir(ids[1])+"/exit_status", nil)
			kill(t, tmux, syscall.SIGKILL)
			testbed.WaitExit(t, tmux)
			d.startWithFailpoint(t, point)
			d.waitKilled(t)
			d.launch()
			d.session(t, ids[1]).assertOutcome(outcome{"failed", "exit-code", 1, 9, "command exited with code 9", "error"})
			d.session(t, ids[1]).must("Remove", uint64(0))
			for id, state := range map[string]string{ids[0]: "running", ids[2]: "stale"} {
				assert.Equal(t, pids[id], d.session(t, id).properties().number("MainPID"))
				d.assertTrueState(t, id, state)
			}
		})
	}
}

// TestDaemonCrash_DuringResumeOfStaleSession resumes a session that has lost its tmux but not its
// agent.
func TestDaemonCrash_DuringResumeOfStaleSession(t *testing.T) {
	d := startDaemon(t)
	for n, step := range rejoinSteps {
		t.Run(step.point, func(t *testing.T) {
			id := fmt.Sprintf("resume-%d", n)
			d.relaunchWithFailpoint(t, step.point+d.hitSuffix(step.point))
			s := d.create(t, id, d.witness(id))
			pid := d.waitAgents(t, id, 1)[0]
			kill(t, s.process(tmuxName), syscall.SIGKILL)
			s.waitState("stale")
			_ = s.do("Resume")
			d.waitKilled(t)
			d.launch()
			assert.Equal(t, pid, s.properties().number("MainPID"), "the same agent")
			d.assertTrueState(t, id, step.state)
		})
	}
}

// TestDaemonCrash_DuringStartBesideLeftovers starts a run in the scope of leftover processes, which
// must survive whether or not the start succeeds.
func TestDaemonCrash_DuringStartBesideLeftovers(t *testing.T) {
	d := startDaemon(t)
	for n, step := range enterSteps {
		t.Run(step.point, func(t *testing.T) {
			id := fmt.Sprintf("beside-%d", n)
			sp := d.witness(id)
			sp["Command"].([]string)[2] = `setsid -f nohup sh -c 'echo $$ >"$0.left"; exec sleep 1003' "$0"; ` +
				sp["Command"].([]string)[2]
			point := step.point
			if strings.HasPrefix(point, "start.") || point == "show.tmux-listens" {
				point += ":2" // the first hit is that of the session's creation
			}
			d.relaunchWithFailpoint(t, point)
			s := d.create(t, id, sp)
			d.waitAgents(t, id, 1)
			left, err := strconv.Atoi(strings.TrimSpace(s.awaitFile(id + ".agents.left")))
			require.NoError(t, err)
			tmux, shim := s.process(tmuxName), s.process("corral-shim")
			kill(t, tmux, syscall.SIGSTOP) // both exit before the exit of either is reported
			kill(t, shim, syscall.SIGKILL)
			kill(t, tmux, syscall.SIGKILL)
			s.waitState("stale")
			_ = s.do("Resume")
			d.waitKilled(t)
			if step.state == "running" {
				d.waitAgents(t, id, 2) // an agent that starts after the next daemon would be killed by it
			}
			d.launch()
			assert.True(t, isRunning(left), "the leftover process is alive")
			d.assertTrueState(t, id, step.state)
		})
	}
}

// hitSuffix returns the suffix that selects a failpoint's second hit if the session's creation was
// the first.
func (d *corrald) hitSuffix(point string) string {
	if point == "show.tmux-listens" {
		return ":2"
	}
	return ""
}

// witness returns the details of a session whose agent records its process id, exits with 7 on
// SIGTERM, and with 9 on SIGUSR1, as if by itself.
func (d *corrald) witness(id string) spec {
	script := `trap 'exit 7' TERM; trap 'exit 9' USR1; echo $$ >>"$0"; while :; do sleep 1000 & wait; done`
	return spec{"Command": []string{"sh", "-c", script, d.dir + "/" + id + ".agents"}}
}

// waitAgents waits until n agents were executed for the session, and returns their process ids.
func (d *corrald) waitAgents(t *testing.T, id string, n int) []int {
	t.Helper()
	path := d.dir + "/" + id + ".agents"
	testbed.WaitFile(t, path, func(content []byte) bool { return strings.Count(string(content), "\n") >= n })
	return d.agentPIDs(t, id)
}

// agentPIDs returns the process ids of all agents that the session has had.
func (d *corrald) agentPIDs(t *testing.T, id string) []int {
	t.Helper()
	content, err := os.ReadFile(d.dir + "/" + id + ".agents")
	if err != nil {
		require.ErrorIs(t, err, os.ErrNotExist)
	}
	var pids []int
	for line := range strings.FieldsSeq(string(content)) {
		pid, err := strconv.Atoi(line)
		require.NoError(t, err)
		pids = append(pids, pid)
	}
	return pids
}

// startWithFailpoint starts a daemon that is killed at a failpoint. It does not wait for anything.
func (d *corrald) startWithFailpoint(t *testing.T, point string) {
	t.Helper()
	d.process = exec.Command(testbed.Programs(t).Corrald)
	d.process.Env = append(d.env, "CORRAL_FAILPOINT="+point)
	d.process.Stdout, d.process.Stderr = d.log, d.log
	require.NoError(t, d.process.Start())
}

// relaunchWithFailpoint replaces the daemon by one that is killed at a failpoint, and waits until
// that one owns its bus name or is dead.
func (d *corrald) relaunchWithFailpoint(t *testing.T, point string) {
	t.Helper()
	if d.process != nil {
		d.kill(syscall.SIGKILL)
	}
	d.startWithFailpoint(t, point)
	pid := d.process.Process.Pid
	testbed.Poll(t, "corrald is on the bus or is dead", func() bool {
		var id string
		st, err := proc.Stat(pid)
		return err == nil && st.State == 'Z' ||
			d.bus.BusObject().Call("org.freedesktop.DBus.GetNameOwner", 0, dbusapi.BusName).Store(&id) == nil
	})
}

// waitKilled waits until the daemon was killed at its failpoint and has left the bus.
func (d *corrald) waitKilled(t *testing.T) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- d.process.Wait() }()
	_ = testbed.Receive(t, done, "end of the daemon")
	require.Equal(t, syscall.SIGKILL, d.process.ProcessState.Sys().(syscall.WaitStatus).Signal(),
		"corrald exited by itself")
	d.process = nil
	for {
		mark := d.signals.mark()
		var owned bool
		require.NoError(t, d.bus.BusObject().Call("org.freedesktop.DBus.NameHasOwner", 0, dbusapi.BusName).Store(&owned))
		if !owned {
			return
		}
		d.await(t, mark, "corrald leaving the bus", isOwnerChange)
	}
}

// anyState is accepted as any state, for failpoints after which the state depends on how far the
// daemon had come.
const anyState = "any"

// assertTrueState checks that the daemon reports the actual state of a session, and that the
// session can be used afterwards.
func (d *corrald) assertTrueState(t *testing.T, id, want string) {
	t.Helper()
	s := d.session(t, id)
	state := ""
	if slices.Contains(d.ids(t), id) {
		state = s.wait("in a stable state", func(p properties) bool {
			return !slices.Contains([]string{"starting", "stopping"}, p.text("State"))
		}).text("State")
	}
	if want != anyState {
		require.Equal(t, want, state, "%v", s.propertiesIn(state))
	}
	p := s.propertiesIn(state)
	switch state {
	case "":
		d.assertNothingLeft(t, id)
		d.create(t, id, d.witness(id))
	case "running", "stale":
		assert.Equal(t, []int{p.number("MainPID")}, d.livingAgents(t, id))
		if state == "stale" {
			s.must("Resume")
			assert.Equal(t, p.number("MainPID"), s.properties().number("MainPID"), "the same agent")
			s.assertOutcome(outcome{"running", "", 0, 0, "", "active"})
		}
	case "failed":
		assert.Equal(t, outcome{"failed", "start-failed", 0, 0, "corrald was interrupted while it started", "error"},
			outcomeOf(p))
		assert.Empty(t, d.livingAgents(t, id))
		if p.number("NRuns") == 1 {
			testbed.Poll(t, "nothing is left of "+id, func() bool { return d.remainsOf(t, id) == "" })
		}
		s.must("Start")
	case "suspended":
		assert.Equal(t, outcome{"suspended", "success", 0, 0, "corrald was interrupted while it started", "suspended"},
			outcomeOf(p))
		assert.Empty(t, d.livingAgents(t, id))
		s.must("Resume")
	case "stopped":
		assert.Equal(t, outcome{"stopped", "success", 1, 7, "", "active"}, outcomeOf(p))
		assert.Empty(t, d.livingAgents(t, id))
		s.waitNoScope()
		s.must("Start")
	default:
		t.Errorf("session %s is %v", id, outcomeOf(p))
	}
	s.assertOutcome(outcome{"running", "", 0, 0, "", "active"})
	pid := s.properties().number("MainPID")
	testbed.WaitFile(t, d.dir+"/"+id+".agents", func(content []byte) bool {
		return strings.HasSuffix(string(content), fmt.Sprintf("%d\n", pid))
	})
	assert.Equal(t, []int{pid}, d.livingAgents(t, id))
	s.must("Stop", uint64(0))
	s.assertOutcome(outcome{"stopped", "success", 1, 7, "", "active"})
	s.must("Remove", uint64(0))
	d.assertNothingLeft(t, id)
}

// propertiesIn returns the properties of a session, nil if it does not exist (state "").
func (s *testSession) propertiesIn(state string) properties {
	if state == "" {
		return nil
	}
	return s.properties()
}

// livingAgents returns which of the session's agents are alive.
func (d *corrald) livingAgents(t *testing.T, id string) []int {
	t.Helper()
	return slices.DeleteFunc(d.agentPIDs(t, id), func(pid int) bool {
		args, err := proc.Arguments(pid)
		return err != nil || !slices.Contains(args, d.dir+"/"+id+".agents")
	})
}

// assertNothingLeft checks that nothing of a session exists: no agent, no scope, no process, no
// directory.
func (d *corrald) assertNothingLeft(t *testing.T, id string) {
	t.Helper()
	assert.NotContains(t, d.ids(t), id)
	assert.Empty(t, d.livingAgents(t, id))
	testbed.Poll(t, "nothing is left of "+id, func() bool { return d.remainsOf(t, id) == "" })
	assert.NoDirExists(t, d.stateDir(id))
}

// remainsOf returns the first thing that still exists of a session apart from its record: its
// scope, its runtime directory, or the command line of its tmux; "" if there is none.
func (d *corrald) remainsOf(t *testing.T, id string) string {
	t.Helper()
	if units := testbed.Systemctl(t, "list-units", "--all", "--plain", "--no-legend",
		d.session(t, id).unit()); units != "" {
		return units
	}
	if _, err := os.Stat(d.runtimeDir(id)); err == nil {
		return d.runtimeDir(id)
	}
	pids, err := proc.All()
	require.NoError(t, err)
	for _, pid := range pids {
		if args, err := proc.Arguments(pid); err == nil && slices.Contains(args, d.runtimeDir(id)+"/tmux") {
			return strings.Join(args, " ")
		}
	}
	return ""
}
