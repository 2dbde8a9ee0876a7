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

// The steps of what a daemon does, in order, with the state that a session has to be in when the
// daemon was killed there and is back. "" is for none: it was never created, or is removed. Those
// of a save come many times in a session's life: see TestDaemonCrash_DuringSave.
var (
	startSteps = []stepThen{
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
	worktreeSteps = []stepThen{ // from here on the session is there, created, or it is not, and neither is its worktree
		{"create.worktree-made", ""},
		{"create.directory-made", ""},
		{"create.worktree-noted", "created"},
		// and "remove.worktree", after which it is stopped
	}
	conversationSteps = []stepThen{ // of an agent whose conversation is made before its run
		{"start.conversation-asked", "failed"},
		{"start.conversation-made", "failed"},
		{"start.record-saved", "failed"},
		{"start.session-opened", "running"},
	}
	stopSteps = []stepThen{
		{"stop.asked", "stopped"},
		{"stop.agent-asked", "stopped"},
		{"stop.all-asked", "stopped"},
		{"stop.gone", "stopped"},
	}
	rejoinSteps = []stepThen{
		{"rejoin.asked", "stale"},
		{"enter.tmux-started", "stale"},
		{"show.tmux-listens", "stale"},
		{"enter.session-opened", "running"},
	}
	enterSteps = []stepThen{
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

// stepThen is a step, and the state that has to follow.
type stepThen struct{ point, state string }

func TestDaemonCrash_DuringStart(t *testing.T) {
	d := startDaemon(t)
	for n, step := range startSteps {
		t.Run(step.point, func(t *testing.T) {
			id := fmt.Sprintf("start-%d", n)
			d.relaunchToDie(t, step.point)
			_, _ = d.tryCreate(t, id, d.witness(id))
			d.dead(t)
			d.launch()
			d.truth(t, id, step.state)
		})
	}
}

// TestDaemonCrash_DuringResumeOfSuspendedSession, which it is until it runs: a login that brings it
// back goes on with the next daemon.
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
			d.relaunchToDie(t, step.point)
			_ = s.do("Resume")
			d.dead(t)
			d.launch()
			d.truth(t, id, step.state)
		})
	}
}

func TestDaemonCrash_DuringStop(t *testing.T) {
	d := startDaemon(t)
	for n, step := range stopSteps {
		t.Run(step.point, func(t *testing.T) {
			id := fmt.Sprintf("stop-%d", n)
			d.relaunchToDie(t, step.point)
			s := d.create(t, id, d.witness(id))
			d.agents(t, id, 1)
			_ = s.do("Stop", uint64(0))
			d.dead(t)
			d.launch()
			d.truth(t, id, step.state)
		})
	}
}

// TestDaemonCrash_DuringSave: at each step of each save, from a session's creation to its removal.
// What is done goes on until the daemon lives to its end.
func TestDaemonCrash_DuringSave(t *testing.T) {
	d := startDaemon(t)
	for _, point := range saveSteps {
		for n, survived := 1, false; !survived; n++ {
			require.Less(t, n, 50, "%s: there is no end to the saves of one session", point)
			t.Run(fmt.Sprintf("%s/%d", point, n), func(t *testing.T) {
				id := strings.ReplaceAll(fmt.Sprintf("%s-%d", point, n), ".", "-")
				d.relaunchToDie(t, fmt.Sprintf("%s:%d", point, n))
				s, err := d.tryCreate(t, id, d.witness(id))
				if err == nil {
					d.agents(t, id, 1)
				}
				for _, method := range []string{"Stop", "Remove"} {
					if err == nil {
						err = s.do(method, uint64(0))
					}
				}
				if survived = err == nil; survived {
					d.nothing(t, id)
					return
				}
				d.dead(t)
				d.launch()
				d.truth(t, id, anyState)
			})
		}
	}
}

// TestDaemonCrash_DuringAdoption what another one left: a session that lives, one that has ended
// meanwhile, and one that has lost its tmux.
func TestDaemonCrash_DuringAdoption(t *testing.T) {
	d := startDaemon(t)
	for n, point := range append(adoptSteps, "save.before:1", "save.linked:2", "save.kept:1", "file.written:2", "save.after:1") {
		t.Run(point, func(t *testing.T) {
			ids := []string{fmt.Sprintf("live-%d", n), fmt.Sprintf("leaving-%d", n), fmt.Sprintf("lost-%d", n)}
			pids := map[string]int{}
			for _, id := range ids {
				d.create(t, id, d.witness(id))
				pids[id] = d.agents(t, id, 1)[0]
			}
			tmux := d.subject(t, ids[2]).one(tmuxName)
			d.kill(syscall.SIGKILL)
			kill(t, pids[ids[1]], syscall.SIGUSR1)
			testbed.WaitFile(t, d.stateDir(ids[1])+"/exit_status", nil)
			kill(t, tmux, syscall.SIGKILL)
			testbed.WaitExit(t, tmux)
			d.start(t, point)
			d.dead(t)
			d.launch()
			d.subject(t, ids[1]).is(outcome{"failed", "exit-code", 1, 9, "command exited with code 9", "error"})
			d.subject(t, ids[1]).must("Remove", uint64(0))
			for id, state := range map[string]string{ids[0]: "running", ids[2]: "stale"} {
				assert.Equal(t, pids[id], d.subject(t, id).facts().number("MainPID"))
				d.truth(t, id, state)
			}
		})
	}
}

// TestDaemonCrash_DuringResumeOfStaleSession a session that has lost its tmux, around the agent
// that lives.
func TestDaemonCrash_DuringResumeOfStaleSession(t *testing.T) {
	d := startDaemon(t)
	for n, step := range rejoinSteps {
		t.Run(step.point, func(t *testing.T) {
			id := fmt.Sprintf("resume-%d", n)
			d.relaunchToDie(t, step.point+d.before(step.point))
			s := d.create(t, id, d.witness(id))
			pid := d.agents(t, id, 1)[0]
			kill(t, s.one(tmuxName), syscall.SIGKILL)
			s.become("stale")
			_ = s.do("Resume")
			d.dead(t)
			d.launch()
			assert.Equal(t, pid, s.facts().number("MainPID"), "the same agent")
			d.truth(t, id, step.state)
		})
	}
}

// TestDaemonCrash_DuringStartBesideLeftovers, in the scope that they are in: they live on, whatever
// becomes of the start.
func TestDaemonCrash_DuringStartBesideLeftovers(t *testing.T) {
	d := startDaemon(t)
	for n, step := range enterSteps {
		t.Run(step.point, func(t *testing.T) {
			id := fmt.Sprintf("beside-%d", n)
			sp := d.witness(id)
			sp["Command"].([]string)[2] = `setsid -f nohup sh -c 'echo $$ >"$0.left"; exec sleep 1003' "$0"; ` + sp["Command"].([]string)[2]
			point := step.point
			if strings.HasPrefix(point, "start.") || point == "show.tmux-listens" {
				point += ":2" // the first is that of the session's creation
			}
			d.relaunchToDie(t, point)
			s := d.create(t, id, sp)
			d.agents(t, id, 1)
			left, err := strconv.Atoi(strings.TrimSpace(s.file(id + ".agents.left")))
			require.NoError(t, err)
			tmux, shim := s.one(tmuxName), s.one("corral-shim")
			kill(t, tmux, syscall.SIGSTOP) // both go before anybody is told of one
			kill(t, shim, syscall.SIGKILL)
			kill(t, tmux, syscall.SIGKILL)
			s.become("stale")
			_ = s.do("Resume")
			d.dead(t)
			if step.state == "running" {
				d.agents(t, id, 2) // what comes after the next daemon is ended by it
			}
			d.launch()
			st, err := proc.Stat(left)
			assert.True(t, err == nil && st.State != 'Z', "what was left lives on")
			d.truth(t, id, step.state)
		})
	}
}

// before returns the suffix that has a point mean its second hit where the session's creation has
// hit it already.
func (d *corrald) before(point string) string {
	if point == "show.tmux-listens" {
		return ":2"
	}
	return ""
}

// witness is a session whose agent writes down that it is there, ends with 7 when it is asked to,
// and with 9 by itself when a test wants that.
func (d *corrald) witness(id string) spec {
	script := `trap 'exit 7' TERM; trap 'exit 9' USR1; echo $$ >>"$0"; while :; do sleep 1000 & wait; done`
	return spec{"Command": []string{"sh", "-c", script, d.dir + "/" + id + ".agents"}}
}

// agents waits until n agents have been executed for the session, and returns their process ids.
func (d *corrald) agents(t *testing.T, id string, n int) []int {
	t.Helper()
	path := d.dir + "/" + id + ".agents"
	testbed.WaitFile(t, path, func(content []byte) bool { return strings.Count(string(content), "\n") >= n })
	return d.executed(t, id)
}

// executed returns the process ids of all agents that the session has had.
func (d *corrald) executed(t *testing.T, id string) []int {
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

// start starts a daemon that is killed at a point, and waits for nothing.
func (d *corrald) start(t *testing.T, point string) {
	t.Helper()
	d.process = exec.Command(testbed.Programs(t).Corrald)
	d.process.Env = append(d.env, "CORRAL_FAILPOINT="+point)
	d.process.Stdout, d.process.Stderr = d.log, d.log
	require.NoError(t, d.process.Start())
}

// relaunchToDie replaces the daemon by one that is killed at a point, and waits until it answers,
// or is dead already.
func (d *corrald) relaunchToDie(t *testing.T, point string) {
	t.Helper()
	if d.process != nil {
		d.kill(syscall.SIGKILL)
	}
	d.start(t, point)
	pid := d.process.Process.Pid
	testbed.Poll(t, "corrald answers or is dead", func() bool {
		var id string
		st, err := proc.Stat(pid)
		return err == nil && st.State == 'Z' ||
			d.bus.BusObject().Call("org.freedesktop.DBus.GetNameOwner", 0, dbusapi.BusName).Store(&id) == nil
	})
}

// dead waits until the daemon has come to its point, and the bus knows that it is gone.
func (d *corrald) dead(t *testing.T) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- d.process.Wait() }()
	_ = testbed.Receive(t, done, "end of the daemon")
	require.Equal(t, syscall.SIGKILL, d.process.ProcessState.Sys().(syscall.WaitStatus).Signal(), "corrald came to an end of its own")
	d.process = nil
	for {
		mark := d.heard.mark()
		var owned bool
		require.NoError(t, d.bus.BusObject().Call("org.freedesktop.DBus.NameHasOwner", 0, dbusapi.BusName).Store(&owned))
		if !owned {
			return
		}
		d.await(t, mark, "corrald's leaving the bus", nameOwner)
	}
}

// anyState is for when it depends on what the daemon had come to.
const anyState = "any"

// truth holds that what the daemon says of a session is what has become of it, and that it can be
// used afterwards.
func (d *corrald) truth(t *testing.T, id, want string) {
	t.Helper()
	s := d.subject(t, id)
	state := ""
	if slices.Contains(d.ids(t), id) {
		state = s.wait("at rest", func(f facts) bool { return !slices.Contains([]string{"starting", "stopping"}, f.text("State")) }).text("State")
	}
	if want != anyState {
		require.Equal(t, want, state, "%v", s.said(state))
	}
	f := s.said(state)
	switch state {
	case "":
		d.nothing(t, id)
		d.create(t, id, d.witness(id))
	case "running", "stale":
		assert.Equal(t, []int{f.number("MainPID")}, d.living(t, id))
		if state == "stale" {
			s.must("Resume")
			assert.Equal(t, f.number("MainPID"), s.facts().number("MainPID"), "the same agent")
			s.is(outcome{"running", "", 0, 0, "", "active"})
		}
	case "failed":
		assert.Equal(t, outcome{"failed", "start-failed", 0, 0, "corrald was interrupted while it started", "error"}, outcomeOf(f))
		assert.Empty(t, d.living(t, id))
		if f.number("NRuns") == 1 {
			testbed.Poll(t, "nothing is left of "+id, func() bool { return d.leftOf(t, id) == "" })
		}
		s.must("Start")
	case "suspended":
		assert.Equal(t, outcome{"suspended", "success", 0, 0, "corrald was interrupted while it started", "suspended"}, outcomeOf(f))
		assert.Empty(t, d.living(t, id))
		s.must("Resume")
	case "stopped":
		assert.Equal(t, outcome{"stopped", "success", 1, 7, "", "active"}, outcomeOf(f))
		assert.Empty(t, d.living(t, id))
		s.noScope()
		s.must("Start")
	default:
		t.Errorf("session %s is %v", id, outcomeOf(f))
	}
	s.is(outcome{"running", "", 0, 0, "", "active"})
	pid := s.facts().number("MainPID")
	testbed.WaitFile(t, d.dir+"/"+id+".agents", func(content []byte) bool { return strings.HasSuffix(string(content), fmt.Sprintf("%d\n", pid)) })
	assert.Equal(t, []int{pid}, d.living(t, id))
	s.must("Stop", uint64(0))
	s.is(outcome{"stopped", "success", 1, 7, "", "active"})
	s.must("Remove", uint64(0))
	d.nothing(t, id)
}

// said returns the properties of a session that is there.
func (s *subject) said(state string) facts {
	if state == "" {
		return nil
	}
	return s.facts()
}

// living returns which of the session's agents live.
func (d *corrald) living(t *testing.T, id string) []int {
	t.Helper()
	return slices.DeleteFunc(d.executed(t, id), func(pid int) bool {
		args, err := proc.Arguments(pid)
		return err != nil || !slices.Contains(args, d.dir+"/"+id+".agents")
	})
}

// nothing holds that there is nothing of a session: no agent, no scope, no process, no directory.
func (d *corrald) nothing(t *testing.T, id string) {
	t.Helper()
	assert.NotContains(t, d.ids(t), id)
	assert.Empty(t, d.living(t, id))
	testbed.Poll(t, "nothing is left of "+id, func() bool { return d.leftOf(t, id) == "" })
	assert.NoDirExists(t, d.stateDir(id))
}

// leftOf returns what is there of a session beside its record, "" if that is nothing.
func (d *corrald) leftOf(t *testing.T, id string) string {
	t.Helper()
	if units := testbed.Systemctl(t, "list-units", "--all", "--plain", "--no-legend", d.subject(t, id).unit()); units != "" {
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
