package main

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/supervisor/store"
)

// stopTimeout is TimeoutStopSec= of corrald.service.
const stopTimeout = 30 * time.Second

// TestSIGTERM_MarksAndSavesEverySession checks that every running session is recorded as suspended,
// with the time, before the daemon exits, and that the agents are not affected and are running for
// the next daemon. CORRAL_CROWD=LIVE,IDLE sets the numbers of running sessions and of sessions that
// were never started.
func TestSIGTERM_MarksAndSavesEverySession(t *testing.T) {
	live, idle := 100, 100
	if text := os.Getenv("CORRAL_CROWD"); text != "" {
		_, err := fmt.Sscanf(text, "%d,%d", &live, &idle)
		require.NoError(t, err, "CORRAL_CROWD=%s", text)
	}
	d := startDaemon(t, "MaxSessions="+strconv.Itoa(live+idle))
	d.crowd(t, "live", live, true)
	d.crowd(t, "idle", idle, false)
	before := map[string]int{}
	for n := range live {
		p := d.session(t, fmt.Sprintf("live-%d", n)).waitState("running")
		before[p.text("Id")] = p.number("MainPID")
	}

	begin := time.Now()
	require.Equal(t, 0, d.kill(syscall.SIGTERM))
	took := time.Since(begin)
	t.Logf("%d live and %d idle sessions: marked, saved and ended after %v", live, idle, took.Round(time.Millisecond))
	assert.Less(t, took, stopTimeout)

	saved, err := store.Read(d.dir + "/state/corral")
	require.NoError(t, err)
	require.Len(t, saved, live+idle)
	for _, rec := range saved {
		view := rec.View()
		if _, lives := before[rec.ID]; !lives {
			require.EqualValues(t, "created", view.State, rec.ID)
			continue
		}
		require.EqualValues(t, "suspended", view.State, rec.ID)
		require.False(t, view.Since.Before(begin.Truncate(time.Second)), "%s: suspended at %v", rec.ID, view.Since)
		require.NoError(t, syscall.Kill(before[rec.ID], 0), "%s: its agent is alive", rec.ID)
	}

	begin = time.Now()
	d.launch()
	t.Logf("adopted again after %v", time.Since(begin).Round(time.Millisecond))
	for id, pid := range before {
		p := d.session(t, id).properties()
		require.Equal(t, "running", p.text("State"), id)
		require.Equal(t, pid, p.number("MainPID"), id)
	}
}

// crowd creates sessions NAME-0, NAME-1, …, several at a time.
func (d *corrald) crowd(t *testing.T, name string, n int, start bool) {
	t.Helper()
	d.crowdWith(t, name, n, func(int) spec { return spec{"Command": []string{"sleep", "1000"}, "Start": start} })
}

// crowdWith is crowd for sessions with different details.
func (d *corrald) crowdWith(t *testing.T, name string, n int, of func(i int) spec) {
	t.Helper()
	const atATime = 16
	failed, slots := make(chan error, n), make(chan bool, atATime)
	for i := range n {
		slots <- true
		go func() {
			_, err := d.tryCreate(t, fmt.Sprintf("%s-%d", name, i), of(i))
			<-slots
			failed <- err
		}()
	}
	for range n {
		require.NoError(t, <-failed)
	}
}
