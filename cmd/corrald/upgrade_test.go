//go:build upgrade

package main

import (
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/testbed"
)

// TestUpgrade_KeepsSessions starts sessions with the corrald and the shim of an older commit,
// UPGRADE_FROM, ends that daemon, and checks that the one of this checkout reports the same about
// each session and can do everything with it: it delivers input, follows the agent's reports,
// stops, restarts, suspends, resumes and removes. A downgrade must lose nothing either, so the
// test is run in both directions.
func TestUpgrade_KeepsSessions(t *testing.T) {
	commit := os.Getenv("UPGRADE_FROM")
	require.NotEmpty(t, commit, "use make upgrade-test FROM=COMMIT")
	before, now := testbed.ProgramsOf(t, commit), testbed.Programs(t)
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		name := unix.SignalName(signal)
		t.Run("upgrade after "+name, func(t *testing.T) { testUpgrade(t, before, now, signal) })
		t.Run("downgrade after "+name, func(t *testing.T) { testUpgrade(t, now, before, signal) })
	}
}

// use makes the next launch of the daemon use these programs.
func (d *corrald) use(programs testbed.Binaries) {
	d.program = programs.Corrald
	d.env = append(d.env, "CORRAL_SHIM="+programs.Shim)
}

func testUpgrade(t *testing.T, from, to testbed.Binaries, signal syscall.Signal) {
	d := startProgram(t, from.Corrald)
	d.kill(syscall.SIGTERM)
	d.use(from)
	d.launch()
	d.defineScript("talker", talker, talkerScript)

	live := d.create(t, "live", spec{
		"Command": []string{"bash", "-c", `trap 'exit 7' TERM
			while :; do read -r line && { echo "$line" >"$0.new"; mv "$0.new" "$0"; }; done`, d.dir + "/received"},
		"Labels": map[string]string{"team": "web"}, "Environment": []string{"COLOR=blue"},
	})
	again := d.create(t, "again", d.witness("again"))
	asks := d.startWriter(t, "asks")
	asks.write(status("state=blocked:kind=permission" + message("approve Bash: touch y")))
	asks.waitStatus("waiting", "permission", "approve Bash: touch y", "osc7501")
	frozen := d.savingSession(t, "frozen")
	frozen.must("Freeze")
	talks := func(id string) *testSession {
		s, err := d.createWithAgent(t, "talker", id, nil)
		require.NoError(t, err)
		s.sendLine("hello")
		s.awaitFile(id + ".read")
		return s
	}
	suspended, suspends := talks("suspended"), talks("suspends")
	suspended.must("Suspend")
	created := d.create(t, "created", spec{"Command": []string{"sleep", "1000"}, "Start": false})
	completed := d.run(t, "completed", "exit 0")
	failed := d.run(t, "failed", "exit 3")
	archived := d.run(t, "archived", "exit 0")
	for s, state := range map[*testSession]string{completed: "completed", failed: "failed", archived: "completed"} {
		s.waitState(state)
	}
	archived.must("Archive")
	gone := testbed.Dir(t)
	orphaned := d.create(t, "orphaned", spec{"Command": []string{"sleep", "1000"}, "WorkingDirectory": gone})
	require.NoError(t, os.Rename(gone, gone+"-away"))
	orphaned.waitState("orphaned")
	stale := d.run(t, "stale", "exec sleep 1000")
	kill(t, stale.process(tmuxName), syscall.SIGKILL)
	stale.waitState("stale")
	stopping := d.create(t, "stopping", spec{"Command": []string{"bash", "-c",
		`trap '>"$0.asked"; read -r go <"$0"; exit 5' TERM; echo up >"$0.up"; while :; do sleep 1000 & wait; done`,
		d.pipe(t, "stopping")}})
	testbed.WaitFile(t, filepath.Join(d.dir, "stopping.pipe.up"), nil)
	stop := make(chan error, 1)
	go func() { stop <- stopping.do("Stop", uint64(0)) }()
	testbed.WaitFile(t, filepath.Join(d.dir, "stopping.pipe.asked"), nil)
	leaving := d.startLeavers(t)

	same := []*testSession{
		live, again, asks.testSession, frozen, suspended, suspends, created, completed, failed, archived, orphaned, stale,
	}
	known := make([]properties, len(same))
	for i, s := range same {
		known[i] = s.properties()
	}
	changing := measured
	if signal == syscall.SIGTERM { // the sessions are suspended in between
		changing = append(slices.Clone(measured), "StateChangeTimestamp", "StateChangeTimestampMonotonic",
			"AttentionTimestamp")
	}
	d.kill(signal)
	require.Error(t, <-stop)
	for _, l := range leaving {
		kill(t, l.pid, l.signal)
		testbed.WaitFile(t, d.stateDir(l.id)+"/exit_status", nil)
	}
	d.use(to)
	d.launch()

	for i, s := range same {
		s.assertSame(known[i], changing)
	}
	for _, l := range leaving {
		l.assertOutcome(l.want)
	}
	require.NoError(t, os.WriteFile(filepath.Join(d.dir, "stopping.pipe"), []byte("go\n"), 0))
	stopping.waitOutcome(outcome{"stopped", "success", 1, 5, "", "active"})

	live.must("SendInput", "still there?", dbusapi.InputEnter)
	assert.Equal(t, "still there?\n", live.awaitFile("received"))
	live.must("Stop", uint64(0))
	live.assertOutcome(outcome{"stopped", "success", 1, 7, "", "active"})
	again.must("Restart")
	assert.Len(t, d.waitAgents(t, "again", 2), 2)
	again.must("Stop", uint64(0))
	asks.waitStatus("waiting", "permission", "approve Bash: touch y", "osc7501")
	asks.write(status("state=working"))
	asks.waitStatus("working", "", "", "osc7501")
	frozen.must("Thaw")
	frozen.must("Stop", uint64(0))
	assert.Equal(t, "saved\n", readFile(t, d.dir+"/frozen-saved"))
	suspends.must("Suspend")
	for _, s := range []*testSession{suspended, suspends} {
		id := s.properties().text("ConversationId")
		s.must("Resume")
		assert.Equal(t, "--resume "+id, s.waitRuns(2)[1])
		assert.True(t, s.properties().isTrue("Resumed"))
	}
	created.must("Start")
	failed.must("Restart")
	failed.waitState("failed")
	assert.Equal(t, 2, failed.properties().number("NRuns"))
	require.NoError(t, os.Rename(gone+"-away", gone))
	orphaned.waitState("running")
	stale.must("Stop", uint64(0))
	stale.assertOutcome(outcome{"stopped", "success", 2, 15, "", "active"})

	ids := d.ids(t)
	for _, id := range ids {
		require.NoError(t, d.manager("RemoveSession", []any{id, dbusapi.RemoveForce}), "session %s", id)
	}
	assert.Len(t, ids, len(same)+len(leaving)+1)
	assert.Empty(t, d.ids(t))
}

// measured are the properties of a session that change by themselves. The activity that is derived
// from output does so after a while, and a daemon cannot ask the shim of a frozen session for it.
var measured = []string{
	"MemoryCurrent", "MemoryPeak", "CPUUsageNSec", "TasksCurrent", "LastActivityTimestamp", "IdleHint", "IdleSinceHint",
	"TotalRuntimeUSec", "Activity", "AttentionSource",
}

// assertSame compares the properties of a session with what another daemon has reported, except
// those that are changing, and those that only one of the daemons knows.
func (s *testSession) assertSame(before properties, changing []string) {
	s.t.Helper()
	for name, value := range s.properties() {
		if old, known := before[name]; known && !slices.Contains(changing, name) {
			assert.Equal(s.t, old, value, "%s of session %s", name, s.id)
		}
	}
}
