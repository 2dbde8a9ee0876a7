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

// TestExclusive_WorkspaceHasOneHolder: one session at a time holds it, a second is told which; it
// is free again once the holder's run has ended, however that came.
func TestExclusive_WorkspaceHasOneHolder(t *testing.T) {
	d := startDaemon(t)
	work := testbed.Dir(t)
	holder := d.create(t, "holder", exclusive(work))
	busy := func() {
		t.Helper()
		_, err := d.tryCreate(t, "second", exclusive(work))
		refused(t, err, "WorkspaceBusy", "holder", work)
		assert.NotContains(t, d.ids(t), "second", "what is refused leaves nothing")
	}
	busy()
	shared := d.create(t, "shared", spec{"Command": []string{"sleep", "1000"}, "WorkingDirectory": work})
	shared.is(outcome{"running", "", 0, 0, "", "active"}) // only exclusive sessions keep out of each other's way

	waiting := exclusive(work)
	waiting["Start"] = false
	next := d.create(t, "next", waiting)
	refused(t, next.do("Start"), "WorkspaceBusy", "holder")

	for signal, code := range map[syscall.Signal]int{syscall.SIGTERM: 0, syscall.SIGKILL: -1} {
		require.Equal(t, code, d.kill(signal))
		d.launch()
		holder.become("running")
		busy() // it is held across a restart
	}

	kill(t, holder.one(tmuxName), syscall.SIGKILL)
	holder.become("stale")
	busy() // its agent lives

	for _, end := range []struct {
		name string
		end  func()
	}{
		{"killed", func() { kill(t, holder.facts().number("MainPID"), syscall.SIGKILL); holder.become("failed") }},
		{"stopped", func() { holder.must("Stop", uint64(0)) }},
		{"suspended", func() { holder.must("Suspend") }},
		{"its scope killed", func() {
			testbed.Systemctl(t, "kill", "--signal=KILL", holder.unit())
			holder.become("failed")
		}},
		{"gone while the daemon was away", func() {
			pid := holder.facts().number("MainPID")
			require.Equal(t, -1, d.kill(syscall.SIGKILL))
			kill(t, pid, syscall.SIGKILL)
			testbed.WaitFile(t, d.stateDir("holder")+"/exit_status", nil)
			d.launch()
			holder.become("failed")
		}},
	} {
		t.Run(end.name, func(t *testing.T) {
			end.end()
			next.must("Start")
			refused(t, holder.do("Start"), "WorkspaceBusy", "next")
			next.must("Stop", uint64(0))
			holder.must("Start")
			busy()
		})
	}
	holder.must("Remove", uint64(1))
	next.must("Start")
}

// TestExclusive_ConcurrentStartsHaveOneWinner: of many that want it at once, one gets it.
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
			refused(t, err, "WorkspaceBusy", "racer-")
		}
	}
	assert.Equal(t, 1, won)
	assert.Len(t, d.ids(t), 1)
}
