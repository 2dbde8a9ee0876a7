package main

import (
	"fmt"
	"os"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/testbed"
)

// TestQueue_SurvivesDaemons checks that a queued session starts in its turn with the environment of
// its caller, and without that if its place became free while no daemon was running.
func TestQueue_SurvivesDaemons(t *testing.T) {
	d := startDaemon(t, "MaxRunning=1")
	script := "echo caller=$CALLER; trap 'exit 0' USR1; while :; do sleep 0.1; done"
	sessions := map[string]*testSession{}
	for _, id := range []string{"one", "two", "three"} {
		sessions[id] = d.create(t, id, spec{
			"Command":           []string{"sh", "-c", script},
			"CallerEnvironment": []string{"CALLER=" + id, "PATH=" + os.Getenv("PATH")},
		})
	}
	assert.Equal(t, "running", sessions["one"].properties().text("State"))
	assert.Equal(t, []int{1, 2}, []int{
		sessions["two"].properties().number("QueuePosition"), sessions["three"].properties().number("QueuePosition"),
	})
	end := func(id string) { kill(t, sessions[id].properties().number("MainPID"), syscall.SIGUSR1) }
	end("one")
	two := sessions["two"].waitState("running")
	assert.Zero(t, two["QueuedTimestamp"].Value())
	waitFile(t, d.stateDir("two")+"/output.log", "caller=two")

	pid := two.number("MainPID")
	d.kill(syscall.SIGKILL)
	kill(t, pid, syscall.SIGUSR1)
	testbed.Poll(t, "the agent has ended", func() bool { return syscall.Kill(pid, 0) != nil })
	d.launch()
	sessions["three"].waitState("running")
	waitFile(t, d.stateDir("three")+"/output.log", "caller=\r\n")
}

// TestQueue_NeverExceedsTheLimit while many clients start sessions that end soon: at no time are
// more agents alive than the limit permits, and all have run in the end.
func TestQueue_NeverExceedsTheLimit(t *testing.T) {
	const limit, count = 3, 30
	d := startDaemon(t, fmt.Sprintf("MaxRunning=%d", limit))
	alive := d.dir + "/alive"
	require.NoError(t, os.Mkdir(alive, 0o700))
	script := `touch "$1/$$"; ls "$1" | wc -l >>"$1.counts"; sleep 0.05; rm "$1/$$"`
	var all sync.WaitGroup
	for n := range count {
		all.Go(func() {
			_, err := d.tryCreate(t, fmt.Sprintf("s%d", n), spec{"Command": []string{"sh", "-c", script, "sh", alive}})
			assert.NoError(t, err)
		})
	}
	all.Wait()
	for n := range count {
		d.session(t, fmt.Sprintf("s%d", n)).waitState("completed")
	}
	assert.NotRegexp(t, `(?m)^([4-9]|\d\d)$`, readFile(t, alive+".counts"))
}
