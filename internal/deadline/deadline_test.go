package deadline

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/clock"
)

const patience = 10 * time.Second

// await waits until ch is closed or receives a value.
func await[T any](t *testing.T, ch <-chan T) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(patience):
		require.Fail(t, "the channel received nothing")
	}
}

// remaining returns the time until the timerfd fires as the kernel reports it, 0 if it is disarmed.
func remaining(t *testing.T) time.Duration {
	t.Helper()
	processTimers.mu.Lock()
	defer processTimers.mu.Unlock()
	var spec unix.ItimerSpec
	require.NoError(t,
		processTimers.raw.Control(func(fd uintptr) { assert.NoError(t, unix.TimerfdGettime(int(fd), &spec)) }))
	return time.Duration(spec.Value.Nano())
}

func TestTimer_FiresInOrder(t *testing.T) {
	order := make(chan int, 3)
	start := time.Now()
	first := make(chan struct{})
	AfterFunc(60*time.Millisecond, func() { order <- 3 })
	AfterFunc(-time.Second, func() { order <- 1; close(first) })
	await(t, first)
	AfterFunc(time.Until(start.Add(30*time.Millisecond)), func() { order <- 2 })
	for want := range 3 {
		select {
		case got := <-order:
			assert.Equal(t, want+1, got)
		case <-time.After(patience):
			require.Fail(t, "a timer did not go off")
		}
	}
	assert.GreaterOrEqual(t, time.Since(start), 60*time.Millisecond)
}

func TestTimer_CausesNoWakeupAfterStop(t *testing.T) {
	far := AfterFunc(time.Hour, func() { assert.Fail(t, "it was stopped") })
	near := AfterFunc(time.Minute, func() { assert.Fail(t, "it was stopped") })
	assert.InDelta(t, time.Minute, remaining(t), float64(10*time.Second))
	assert.True(t, near.Stop())
	assert.InDelta(t, time.Hour, remaining(t), float64(10*time.Second), "the timerfd is set to the next timer")
	assert.False(t, near.Stop(), "it was stopped already")
	assert.True(t, far.Stop())
	assert.Zero(t, remaining(t), "the timerfd is disarmed")

	gone := make(chan struct{})
	timer := AfterFunc(0, func() { close(gone) })
	await(t, gone)
	assert.False(t, timer.Stop(), "too late")
	assert.Zero(t, remaining(t))
}

func TestContext_IsDoneAtDeadline(t *testing.T) {
	ctx, cancel := Context(t.Context(), 20*time.Millisecond)
	defer cancel()
	child, end := context.WithCancel(ctx)
	defer end()
	at, ok := ctx.Deadline()
	assert.True(t, ok)
	assert.WithinDuration(t, time.Now(), at, patience)
	require.NoError(t, ctx.Err())
	await(t, child.Done())
	require.ErrorIs(t, ctx.Err(), context.DeadlineExceeded)
	require.ErrorIs(t, child.Err(), context.DeadlineExceeded, "a derived context has the same error")
	require.ErrorIs(t, context.Cause(child), context.DeadlineExceeded)
	assert.Zero(t, remaining(t))
}

func TestContext_IsCancelledByCallerAndParent(t *testing.T) {
	ctx, cancel := Context(t.Context(), time.Hour)
	cancel()
	await(t, ctx.Done())
	require.ErrorIs(t, ctx.Err(), context.Canceled)
	require.NotErrorIs(t, ctx.Err(), context.DeadlineExceeded)
	assert.Zero(t, remaining(t))

	parent, endParent := context.WithCancel(t.Context())
	ctx, cancel = Context(parent, time.Hour)
	endParent()
	await(t, ctx.Done())
	require.ErrorIs(t, ctx.Err(), context.Canceled)
	cancel()
	assert.Zero(t, remaining(t))

	outer, endOuter := Context(t.Context(), time.Minute)
	defer endOuter()
	inner, endInner := Context(outer, time.Hour)
	defer endInner()
	at, _ := outer.Deadline()
	earlier, _ := inner.Deadline()
	assert.Equal(t, at, earlier, "the earlier deadline of the parent applies")
}

// TestRun_EndsTheProcessWhenTimersCannotBeRead: a process whose timers no longer fire must not keep
// running.
func TestRun_EndsTheProcessWhenTimersCannotBeRead(t *testing.T) {
	if os.Getenv("CORRAL_TEST_BROKEN_TIMERS") != "" {
		AfterFunc(time.Hour, func() {})
		_ = processTimers.file.Close()
		select {}
	}
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout=1m")
	child.Env = append(os.Environ(), "CORRAL_TEST_BROKEN_TIMERS=1")
	output, err := child.CombinedOutput()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	assert.Equal(t, 2, exit.ExitCode())
	assert.Contains(t, string(output), "cannot wait for the timers of this process: read deadlines: file already closed")
}

// TestTimer_IsPostponedOnceAfterProcessWasStopped: a timer that expired long ago fires later, one
// that has just expired fires at once.
func TestTimer_IsPostponedOnceAfterProcessWasStopped(t *testing.T) {
	var q queue
	require.NoError(t, q.open())
	var gone []string
	timer := func(name string, ago time.Duration) *Timer {
		return &Timer{at: clock.Monotonic() - ago, f: func() { gone = append(gone, name) }}
	}
	run := func() {
		gone = nil
		for _, f := range q.due() {
			f()
		}
	}
	old := timer("old", time.Hour)
	for _, timer := range []*Timer{old, timer("new", 0), timer("later", -time.Hour)} {
		q.insert(timer)
	}
	run()
	assert.Equal(t, []string{"new"}, gone)
	assert.Greater(t, old.at, clock.Monotonic(), "the timer is postponed")
	old.at = clock.Monotonic() - time.Hour // the process was stopped again
	run()
	assert.Equal(t, []string{"old"}, gone, "it is put off once")
}
