package supervisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi/word"
	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/supervisor/session"
)

// limitTo configures MaxRunning= of corral.conf, and that of the agent command.
func (b *bed) limitTo(all, command int) {
	b.t.Helper()
	conf := config.Default()
	conf.MaxRunning = all
	require.NoError(b.t, b.sup.Reload(conf, map[string]config.Agent{
		"command": {Name: "command", MaxRunning: command},
		"claude":  {Name: "claude", Command: []string{"claude"}, ResumeCommand: []string{"claude", "--resume"}},
	}))
}

// superviseQueue is supervise with these limits. Queued sessions begin.
func superviseQueue(t *testing.T, all, command int, f func(b *bed)) {
	supervise(t, func(b *bed) {
		b.limitTo(all, command)
		require.NoError(t, b.sup.BeginQueued())
		f(b)
	})
}

// create1 creates a session of an agent, and starts it unless it is queued.
func (b *bed) create1(id, agent string) {
	b.t.Helper()
	require.NoError(b.t, b.create(agent, Spec{ID: id, Command: []string{"true"}}))
}

// queue returns the ids of the queued sessions as clients see them, in order.
func (b *bed) queue() (ids []string) {
	b.t.Helper()
	synctest.Wait()
	all, err := b.sup.Sessions()
	require.NoError(b.t, err)
	all = slices.DeleteFunc(all, func(n *Snapshot) bool { return n.Queued.IsZero() })
	slices.SortFunc(all, func(a, b *Snapshot) int { return a.Queued.Compare(b.Queued) })
	for _, n := range all {
		ids = append(ids, n.ID)
	}
	return ids
}

// runs returns the ids of the sessions in the state running, sorted.
func (b *bed) runs() string {
	b.t.Helper()
	synctest.Wait()
	all, err := b.sup.Sessions()
	require.NoError(b.t, err)
	var ids []string
	for _, n := range all {
		if n.State == word.Running {
			ids = append(ids, n.ID)
		}
	}
	slices.Sort(ids)
	return strings.Join(ids, " ")
}

// TestMaxRunning_StartsQueuedSessionsInOrder: when one ends, is suspended or is removed. A session
// that is stopped or removed leaves the queue.
func TestMaxRunning_StartsQueuedSessionsInOrder(t *testing.T) {
	superviseQueue(t, 2, 0, func(b *bed) {
		ctx := b.t.Context()
		for _, id := range strings.Fields("a b c d e f g") {
			b.create1(id, "claude")
		}
		assert.Equal(t, "a b", b.runs())
		assert.Equal(t, "created", b.state("c"))
		assert.Equal(t, strings.Fields("c d e f g"), b.queue())
		all, err := b.sup.Sessions()
		require.NoError(t, err)
		assert.Equal(t, "2 running, 5 queued", CountOf(all).String())

		require.NoError(t, b.sup.Stop(ctx, "d", 0))
		require.NoError(t, b.sup.Remove(ctx, "e", false))
		assert.Equal(t, strings.Fields("c f g"), b.queue())
		assert.Equal(t, "created", b.state("d"))

		b.exit("a", 0)
		assert.Equal(t, "b c", b.runs())
		b.call("suspend", func(ctx context.Context) error { return b.sup.Suspend(ctx, "b") })
		assert.Equal(t, "c", b.runs(), "b is stopping, and counts until its agent has exited")
		b.exit("b", 0)
		assert.Equal(t, "c f", b.runs())

		require.NoError(t, b.sup.Start(ctx, "d"))
		assert.Equal(t, strings.Fields("g d"), b.queue())
		require.NoError(t, b.sup.Start(ctx, "g"), "it keeps its place")
		assert.Equal(t, strings.Fields("g d"), b.queue())
		b.exit("c", 3)
		b.exit("f", 3)
		assert.Equal(t, "d g", b.runs())
		assert.Empty(t, b.queue())
	})
}

// TestMaxRunning_OfTheConfigurationAndOfTheAgentApply both. A session whose agent's limit is
// reached does not hold up the others.
func TestMaxRunning_OfTheConfigurationAndOfTheAgentApply(t *testing.T) {
	superviseQueue(t, 3, 1, func(b *bed) {
		b.create1("a", "command")
		b.create1("b", "command")
		b.create1("x", "claude")
		b.create1("y", "claude")
		b.create1("z", "claude")
		assert.Equal(t, "a x y", b.runs())
		assert.Equal(t, []string{"b", "z"}, b.queue())
		b.exit("x", 0)
		assert.Equal(t, "a y z", b.runs(), "b has to wait for a")
		b.exit("a", 0)
		assert.Equal(t, "b y z", b.runs())
	})
}

// TestMaxRunning_CanBeBypassed by a start or a resume at once.
func TestMaxRunning_CanBeBypassed(t *testing.T) {
	superviseQueue(t, 1, 0, func(b *bed) {
		ctx := b.t.Context()
		b.create1("a", "command")
		b.create1("b", "command")
		b.create1("c", "command")
		require.NoError(t, b.create("command", Spec{ID: "d", Command: []string{"true"}, Now: true}))
		require.NoError(t, b.sup.Begin(ctx, "c", word.Start, BeginOptions{Now: true}))
		assert.Equal(t, "a c d", b.runs())
		assert.Equal(t, []string{"b"}, b.queue())
		b.exit("a", 0)
		b.exit("c", 0)
		assert.Equal(t, "d", b.runs())
		b.exit("d", 0)
		assert.Equal(t, "b", b.runs())
	})
}

// TestMaxRunning_ARestartKeepsItsPlace, also if others wait.
func TestMaxRunning_ARestartKeepsItsPlace(t *testing.T) {
	superviseQueue(t, 1, 0, func(b *bed) {
		b.create1("a", "command")
		b.create1("b", "command")
		b.call("restart", func(ctx context.Context) error { return b.sup.Restart(ctx, "a") })
		b.exit("a", 0)
		assert.Equal(t, []string{"b"}, b.queue())
		b.endScope("a")
		assert.Equal(t, "a", b.runs())
		b.exit("a", 0)
		assert.Equal(t, "b", b.runs())
		require.NoError(t, b.sup.Restart(b.t.Context(), "a"), "it has ended: this is a start")
		assert.Equal(t, []string{"a"}, b.queue())
	})
}

// TestMaxRunning_CountsStarts while they are in progress, and not once they have failed.
func TestMaxRunning_CountsStarts(t *testing.T) {
	superviseQueue(t, 1, 0, func(b *bed) {
		proceed := make(chan error)
		b.system.start = func(p Plan, report func(session.Event)) error {
			if err := <-proceed; err != nil {
				return err
			}
			return runs(p, report)
		}
		b.call("a", func(context.Context) error { return b.create("command", Spec{ID: "a", Command: []string{"true"}}) })
		b.create1("b", "command")
		b.create1("c", "command")
		assert.Equal(t, "starting", b.state("a"))
		assert.Equal(t, []string{"b", "c"}, b.queue())
		proceed <- errors.New("no memory")
		assert.Equal(t, "failed", b.state("a"))
		assert.Equal(t, "starting", b.state("b"))
		assert.Equal(t, []string{"c"}, b.queue())
		proceed <- errors.New("no memory")
		assert.Equal(t, "failed", b.state("b"))
		snap, err := b.sup.Session("b")
		require.NoError(t, err)
		assert.False(t, snap.ByRequest, "no client was given the error: the user is notified")
		proceed <- nil
		assert.Equal(t, "c", b.runs())
	})
}

// TestMaxRunning_NobodyOvertakesTheQueue, although a place is free when a start is requested: the
// exit and the request are processed in one iteration. Nor does anybody take the workspace of a
// session that leaves the queue.
func TestMaxRunning_NobodyOvertakesTheQueue(t *testing.T) {
	superviseQueue(t, 1, 0, func(b *bed) {
		dir := t.TempDir()
		b.create1("a", "command")
		b.startIn("b", dir, true)
		late := Spec{ID: "late", Command: []string{"true"}, WorkingDirectory: dir, Exclusive: true, NoStart: true}
		require.NoError(t, b.create("command", late))
		require.NoError(t, b.create("command", Spec{ID: "next", Command: []string{"true"}, NoStart: true}))
		b.exitWithoutEvent("a", 0)
		replies := make(chan error, 2)
		b.onLoop(func() {
			b.sup.loop.sessions.byID["a"].run.exit.read()
			for _, id := range []string{"late", "next"} {
				e := b.sup.loop.sessions.byID[id]
				_, err := b.sup.loop.beginOrQueue(e, session.OpStart, checkStartable, nil, BeginOptions{})
				replies <- err
			}
		})
		assert.Equal(t, WorkspaceBusy, kindOf(<-replies))
		require.NoError(t, <-replies)
		assert.Equal(t, "b", b.runs())
		assert.Equal(t, []string{"next"}, b.queue())
		assert.Equal(t, InvalidState, kindOf(b.sup.Start(b.t.Context(), "b")), "it has begun")
	})
}

// TestMaxRunning_ThatIsChangedAppliesAtOnce: more sessions start, and none is stopped.
func TestMaxRunning_ThatIsChangedAppliesAtOnce(t *testing.T) {
	superviseQueue(t, 1, 0, func(b *bed) {
		for _, id := range strings.Fields("a b c d e") {
			b.create1(id, "command")
		}
		b.limitTo(3, 0)
		assert.Equal(t, "a b c", b.runs())
		b.limitTo(1, 0)
		b.exit("a", 0)
		assert.Equal(t, "b c", b.runs())
		b.limitTo(0, 3)
		assert.Equal(t, "b c d", b.runs())
		b.limitTo(0, 0)
		assert.Equal(t, "b c d e", b.runs())
	})
}

// TestMaxRunning_DoesNotCountAnAgentAtItsUsageLimit, until it continues: then more sessions run
// than the limit permits, because no running one is stopped.
func TestMaxRunning_DoesNotCountAnAgentAtItsUsageLimit(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.startLimited(config.Agent{})
		b.onLoop(func() { b.system.start = nil })
		b.limitTo(1, 0)
		require.NoError(t, b.sup.BeginQueued())
		b.create1("b", "command")
		b.create1("c", "command")
		assert.Equal(t, "b shop", b.runs())
		assert.Equal(t, []string{"c"}, b.queue())
		b.report(word.Working, "", "")
		b.exit("b", 0)
		assert.Equal(t, "shop", b.runs())
		assert.Equal(t, []string{"c"}, b.queue())
		s.reportLimit()
		assert.Equal(t, "c shop", b.runs())
		s.disconnect()
	})
}

// TestMaxRunning_QueuesTheResumeForAText: the text is kept, and given to the agent once it is
// resumed. A second text is refused, and so is one that is not followed by Enter.
func TestMaxRunning_QueuesTheResumeForAText(t *testing.T) {
	superviseQueue(t, 1, 0, func(b *bed) {
		ctx := b.t.Context()
		b.startThenSuspend("shop")
		b.create1("other", "command")
		input := Input{Enter: true, Resume: true}
		require.EqualError(t, b.sup.Send(ctx, "shop", "half", Input{Resume: true}),
			`cannot send to session "shop": it is queued`)
		require.NoError(t, b.sup.Send(ctx, "shop", "go on", input))
		require.NoError(t, b.sup.Send(ctx, "shop", "go on", input))
		require.ErrorContains(t, b.sup.Send(ctx, "shop", "and on", input), "another text is typed once it runs")
		assert.Equal(t, "suspended", b.state("shop"))
		assert.Equal(t, []string{"shop"}, b.queue())
		rec := b.records.last("shop")
		assert.Equal(t, "go on", rec.Unsent)
		assert.True(t, rec.Wanted(), "it does not expire")
		_, err := b.sup.AttachCommand(ctx, "shop")
		require.EqualError(t, err, `cannot attach to session "shop": it is queued`)

		var prompt string
		b.onLoop(func() {
			b.system.start = func(p Plan, report func(session.Event)) error {
				prompt = p.Spec.Prompt
				return runs(p, report)
			}
		})
		b.exit("other", 0)
		assert.Equal(t, "shop", b.runs())
		assert.Equal(t, "go on", prompt)
	})
}

// TestMaxRunning_QueuesASessionThatContinuesAfterItsLimit, if it was suspended meanwhile.
func TestMaxRunning_QueuesASessionThatContinuesAfterItsLimit(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.startLimited(config.Agent{})
		b.call("suspend", func(ctx context.Context) error { return b.sup.Suspend(ctx, "shop") })
		b.exit("shop", 0)
		b.endScope("shop")
		s.disconnect()
		conf := config.Default()
		conf.MaxRunning, conf.OnLimit, conf.ContinueText = 1, config.LimitContinue, "go on"
		require.NoError(t, b.sup.Reload(conf, map[string]config.Agent{"command": {Name: "command"}}))
		require.NoError(t, b.sup.BeginQueued())
		var prompt string
		b.onLoop(func() {
			b.system.start = func(p Plan, report func(session.Event)) error {
				prompt = p.Spec.Prompt
				return runs(p, report)
			}
		})
		b.create1("other", "command")
		<-time.After(2 * time.Hour)
		require.NoError(t, s.continueIfDue())
		assert.Equal(t, []string{"shop"}, b.queue())
		assert.Equal(t, NotWaiting, kindOf(s.continueIfDue()), "once")
		b.exit("other", 0)
		assert.Equal(t, "shop", b.runs())
		assert.Equal(t, "go on", prompt)
	})
}

// TestMaxRunning_WaitsForABusyWorkspace: a session that cannot begin does not hold up the others.
func TestMaxRunning_WaitsForABusyWorkspace(t *testing.T) {
	superviseQueue(t, 2, 0, func(b *bed) {
		dir := t.TempDir()
		b.create1("a", "command")
		b.create1("b", "command")
		b.startIn("first", dir, true)
		b.startIn("second", dir, true)
		b.create1("c", "command")
		b.exit("a", 0)
		b.exit("b", 0)
		assert.Equal(t, "c first", b.runs())
		assert.Equal(t, []string{"second"}, b.queue())
		b.exit("first", 0)
		assert.Equal(t, "c second", b.runs())
	})
}

// TestMaxRunning_WaitsForAMissingWorkspace of a session that never ran: it is orphaned meanwhile.
func TestMaxRunning_WaitsForAMissingWorkspace(t *testing.T) {
	superviseQueue(t, 1, 0, func(b *bed) {
		b.create1("a", "command")
		b.create1("b", "command")
		b.create1("c", "command")
		b.onLoop(func() { b.sup.loop.workspaceObserved("b", true, session.Inode{}) })
		assert.Equal(t, "orphaned", b.state("b"))
		b.exit("a", 0)
		assert.Equal(t, "c", b.runs())
		b.exit("c", 0)
		b.onLoop(func() { b.sup.loop.workspaceObserved("b", false, session.Inode{}) })
		assert.Equal(t, "b", b.runs())
	})
}

// TestMaxRunning_TheQueueSurvivesADaemon and keeps its order. Nothing leaves it before BeginQueued:
// the sessions of the login come first. A session that has run since under a version without a
// queue is not queued.
func TestMaxRunning_TheQueueSurvivesADaemon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		ctx, cancel := context.WithCancel(t.Context())
		done := b.runInBackground(ctx)
		b.limitTo(1, 0)
		require.NoError(t, b.sup.BeginQueued())
		for _, id := range strings.Fields("a z y x old") {
			b.create1(id, "command")
		}
		assert.Equal(t, strings.Fields("z y x old"), b.queue())
		cancel()
		assert.True(t, isClosed(done))
		saved := []*session.Session{}
		for _, rec := range b.records.saved {
			rec = copied(rec)
			if rec.ID == "old" {
				rec.NRuns++
			}
			saved = append(saved, rec)
		}
		slices.SortFunc(saved, func(a, b *session.Session) int { return cmp.Compare(a.ID, b.ID) })

		b = newBed(t)
		b.options.BootID, b.options.Config.MaxRunning = "next boot", 1
		b.sup = New(b.options)
		for _, rec := range saved {
			require.NoError(t, b.records.Create(rec.ID))
		}
		ctx, cancel = context.WithCancel(t.Context())
		require.NoError(t, b.sup.Adopt(ctx, saved))
		done = b.runInBackground(ctx)
		assert.Empty(t, b.runs())
		assert.Equal(t, strings.Fields("z y x"), b.queue())
		b.create1("login", "command")
		require.NoError(t, b.sup.BeginQueued())
		assert.Equal(t, "login", b.runs())
		b.exit("login", 0)
		assert.Equal(t, "z", b.runs())
		b.exit("z", 0)
		assert.Equal(t, "y", b.runs())
		cancel()
		assert.True(t, isClosed(done))
	})
}

// TestMaxRunning_ACancelledShutdownReturnsThePlaces to the sessions that were suspended for it.
func TestMaxRunning_ACancelledShutdownReturnsThePlaces(t *testing.T) {
	superviseQueue(t, 1, 0, func(b *bed) {
		b.create1("a", "command")
		b.create1("b", "command")
		b.call("shutdown", func(ctx context.Context) error {
			_, err := b.sup.SuspendForShutdown(ctx)
			return err
		})
		b.exit("a", 0)
		b.endScope("a")
		assert.Equal(t, "suspended", b.state("a"))
		assert.Equal(t, []string{"b"}, b.queue())
		_, err := b.sup.ShutdownCancelled(b.t.Context())
		require.NoError(t, err)
		assert.Equal(t, "a", b.runs())
		b.exit("a", 0)
		assert.Equal(t, "b", b.runs())
	})
}

// TestMaxRunning_AFullDiskDoesNotEmptyTheQueue: the start of one session fails. The others wait
// until its record can be saved.
func TestMaxRunning_AFullDiskDoesNotEmptyTheQueue(t *testing.T) {
	superviseQueue(t, 1, 0, func(b *bed) {
		for _, id := range strings.Fields("a b c d") {
			b.create1(id, "command")
		}
		b.exitWithoutEvent("a", 0)
		b.onLoop(func() {
			b.records.fails = diskIsFull
			b.sup.loop.sessions.byID["a"].run.exit.read()
		})
		assert.Equal(t, "failed", b.state("b"))
		assert.Equal(t, []string{"c", "d"}, b.queue())
		b.onLoop(func() { b.records.fails = nil })
		<-time.After(maxRetry)
		assert.Equal(t, "c", b.runs())
	})
}

// TestMaxRunning_AThousandQueuedSessionsCostOnlyTheNext: when one ends, only that one and the next
// are published and saved.
func TestMaxRunning_AThousandQueuedSessionsCostOnlyTheNext(t *testing.T) {
	superviseQueue(t, 1, 0, func(b *bed) {
		for n := range 1000 {
			b.create1(fmt.Sprintf("s%03d", n), "command")
		}
		b.takeTrace()
		b.exit("s000", 0)
		trace := b.takeTrace()
		assert.Contains(t, trace, "0s publish s000: running -> completed, s001: created -> starting")
		for _, line := range trace {
			assert.True(t, strings.Contains(line, "s000") || strings.Contains(line, "s001"), line)
		}
		assert.Len(t, b.queue(), 998)
	})
}
