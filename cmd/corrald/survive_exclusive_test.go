package main

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/testbed"
)

func exclusive(work string) spec {
	return spec{"Command": []string{"sleep", "1000"}, "WorkingDirectory": work, "Exclusive": true}
}

// TestExclusive_WorkspaceHasOneHolder checks that one session at a time holds the workspace, that
// the error for a second one names the holder, and that the workspace is free again once the
// holder's run has ended, for whichever reason.
func TestExclusive_WorkspaceHasOneHolder(t *testing.T) {
	d := startDaemon(t)
	work := testbed.Dir(t)
	holder := d.create(t, "holder", exclusive(work))
	busy := func() {
		t.Helper()
		_, err := d.tryCreate(t, "second", exclusive(work))
		assertRefused(t, err, "WorkspaceBusy", "holder", work)
		assert.NotContains(t, d.ids(t), "second", "a refused session is not created")
	}
	busy()
	shared := d.create(t, "shared", spec{"Command": []string{"sleep", "1000"}, "WorkingDirectory": work})
	shared.assertOutcome(outcome{"running", "", 0, 0, "", "active"}) // only exclusive sessions exclude each other

	waiting := exclusive(work)
	waiting["Start"] = false
	next := d.create(t, "next", waiting)
	assertRefused(t, next.do("Start"), "WorkspaceBusy", "holder")

	for signal, code := range map[syscall.Signal]int{syscall.SIGTERM: 0, syscall.SIGKILL: -1} {
		require.Equal(t, code, d.kill(signal))
		d.launch()
		holder.waitState("running")
		busy() // it is held across a restart
	}

	kill(t, holder.process(tmuxName), syscall.SIGKILL)
	holder.waitState("stale")
	busy() // its agent runs

	for _, end := range []struct {
		name string
		end  func()
	}{
		{"killed", func() { kill(t, holder.properties().number("MainPID"), syscall.SIGKILL); holder.waitState("failed") }},
		{"stopped", func() { holder.must("Stop", uint64(0)) }},
		{"suspended", func() { holder.must("Suspend") }},
		{"its scope killed", func() {
			testbed.Systemctl(t, "kill", "--signal=KILL", holder.unit())
			holder.waitState("failed")
		}},
		{"gone while the daemon was away", func() {
			pid := holder.properties().number("MainPID")
			require.Equal(t, -1, d.kill(syscall.SIGKILL))
			kill(t, pid, syscall.SIGKILL)
			testbed.WaitFile(t, d.stateDir("holder")+"/exit_status", nil)
			d.launch()
			holder.waitState("failed")
		}},
	} {
		t.Run(end.name, func(t *testing.T) {
			end.end()
			next.must("Start")
			assertRefused(t, holder.do("Start"), "WorkspaceBusy", "next")
			next.must("Stop", uint64(0))
			holder.must("Start")
			busy()
		})
	}
	holder.must("Remove", uint64(1))
	next.must("Start")
}

// TestExclusive_ConcurrentStartsHaveOneWinner creates many exclusive sessions of one workspace at
// the same time.
func TestExclusive_ConcurrentStartsHaveOneWinner(t *testing.T) {
	d := startDaemon(t)
	work := testbed.Dir(t)
	const many = 10
	errs := make(chan error, many)
	for n := range many {
		go func() {
			_, err := d.tryCreate(t, fmt.Sprintf("racer-%d", n), exclusive(work))
			errs <- err
		}()
	}
	won := 0
	for range many {
		if err := <-errs; err == nil {
			won++
		} else {
			assertRefused(t, err, "WorkspaceBusy", "racer-")
		}
	}
	assert.Equal(t, 1, won)
	assert.Len(t, d.ids(t), 1)
}
