package supervisor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/supervisor/session"
)

// stopCalled creates a session that runs and calls Stop for it.
func (b *bed) stopCalled(grace time.Duration) {
	b.t.Helper()
	b.start("shop")
	b.call("stop", func(ctx context.Context) error { return b.sup.Stop(ctx, "shop", grace) })
	assert.Equal(b.t, []string{"0s save shop: stopping", "0s publish shop: running -> stopping", "0s ask agent shop"}, inOrder(b.heard(), "ask"))
}

// inOrder puts lines with this verb last: an effect and the publishing of one turn begin at the same time.
func inOrder(told []string, verb string) []string {
	var first, last []string
	for _, line := range told {
		if len(line) > 3 && line[3:3+min(len(verb), len(line)-3)] == verb {
			last = append(last, line)
		} else {
			first = append(first, line)
		}
	}
	return append(first, last...)
}

func TestAStopAsksTheAgentThenAllThenKills(t *testing.T) {
	supervise(t, func(b *bed) {
		b.stopCalled(0)
		<-time.After(25 * time.Second)
		assert.Equal(t, []string{
			"1s hang up shop", "1s publish shop: stopping",
			"8s signal all shop SIGTERM", "8s publish shop: stopping",
			"10s kill shop", "20s kill shop",
		}, sorted(b.heard()))
		<-time.After(20 * time.Second)
		assert.Equal(t, []string{"40s kill shop"}, b.heard(), "as long as it is there")
		b.empty("shop")
		assert.Equal(t, []string{"45s save shop: stopped", "45s publish shop: stopping -> stopped", "45s answer 1", "45s stop: ok"}, b.heard())
		<-time.After(time.Hour)
		assert.Empty(t, b.heard())
	})
}

// sorted puts a publishing after the effect of the same turn: they begin at the same time.
func sorted(told []string) []string {
	for i := range len(told) - 1 {
		if len(told[i]) > 10 && told[i][:10] == told[i+1][:2]+" publish"[:8] {
			told[i], told[i+1] = told[i+1], told[i]
		}
	}
	return told
}

func TestTheGraceIsTheCallers(t *testing.T) {
	supervise(t, func(b *bed) {
		b.stopCalled(2 * time.Second)
		<-time.After(3 * time.Second)
		told := b.heard()
		assert.Contains(t, told, "0.5s hang up shop")
		assert.Contains(t, told, "1s signal all shop SIGTERM")
		assert.Contains(t, told, "2s kill shop")
		b.empty("shop")
	})
}

func TestASecondStopCanBeLessPatient(t *testing.T) {
	supervise(t, func(b *bed) {
		b.stopCalled(time.Hour)
		<-time.After(10 * time.Second)
		b.heard()
		b.call("again", func(ctx context.Context) error { return b.sup.Stop(ctx, "shop", time.Second) })
		told := b.heard()
		assert.Contains(t, told, "10s signal all shop SIGTERM")
		assert.Contains(t, told, "10s kill shop", "the grace counts from when it was first asked")
		b.empty("shop")
		assert.Subset(t, b.heard(), []string{"10s stop: ok", "10s again: ok"})
	})
}

func TestWhatTheAgentLeavesIsAskedAsSoonAsItIsGone(t *testing.T) {
	supervise(t, func(b *bed) {
		b.stopCalled(0)
		<-time.After(300 * time.Millisecond)
		b.exit("shop", 143)
		told := b.heard()
		assert.Contains(t, told, "0.3s save shop: stopping")
		assert.Contains(t, told, "0.3s signal all shop SIGTERM")
		<-time.After(9 * time.Second)
		assert.Empty(t, b.heard(), "an agent that is gone is not hung up on")
		b.empty("shop")
		assert.Equal(t, "stopped", b.state("shop"))
	})
}

func TestAStopOfWhatDoesNotRunDoesNothing(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("shop")
		b.exit("shop", 0)
		b.empty("shop")
		b.heard()
		require.NoError(t, b.sup.Stop(b.t.Context(), "shop", 0))
		assert.Empty(t, b.heard())
		assert.Equal(t, NoSuchSession, kindOf(b.sup.Stop(b.t.Context(), "other", 0)))
	})
}

func TestAStopOfWhatHasEndedEndsWhatIsLeft(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("shop")
		b.exit("shop", 0)
		b.heard()
		b.call("stop", func(ctx context.Context) error { return b.sup.Stop(ctx, "shop", 0) })
		assert.Contains(t, b.heard(), "0s signal all shop SIGTERM")
		b.empty("shop")
		assert.Equal(t, "completed", b.state("shop"), "it keeps what it says")
	})
}

func TestAStartThatHangsIsEnded(t *testing.T) {
	supervise(t, func(b *bed) {
		b.world.start = func(p Plan, tell func(session.Event)) error { scopeRuns(p, tell); return nil }
		b.call("create", func(ctx context.Context) error {
			_, err := b.sup.Create(ctx, "claude", Spec{ID: "shop"})
			return err
		})
		b.heard()
		<-time.After(startTimeout - time.Millisecond)
		assert.Equal(t, []string{"2s continue shop"}, b.heard(), "its shim may be stopped")
		<-time.After(2 * time.Second)
		told := b.heard()
		assert.Contains(t, told, "30s publish shop: starting -> failed")
		assert.Contains(t, told, `30s create: cannot start "shop": its agent did not appear within 30s`)
		assert.Contains(t, told, "30s signal all shop SIGTERM")
		assert.Contains(t, told, "31s kill shop")
		b.sup.ScopeEnded(UnitName("claude", "shop"), "", "success")
		snap, err := b.sup.Session("shop")
		require.NoError(t, err)
		assert.Equal(t, []string{"failed", "start-failed"}, []string{snap.State, snap.Result})
	})
}

func TestAStartThatFailsSaysWhy(t *testing.T) {
	supervise(t, func(b *bed) {
		b.world.start = func(p Plan, tell func(session.Event)) error {
			tell(session.ScopeStarted{Run: p.Spec.RunID})
			return errors.New("tmux is not installed")
		}
		_, err := b.sup.Create(b.t.Context(), "claude", Spec{ID: "shop"})
		assert.Equal(t, StartFailed, kindOf(err))
		require.EqualError(t, err, `cannot start "shop": tmux is not installed`)
		assert.Equal(t, "failed", b.state("shop"))
		<-time.After(time.Hour)
		b.heard()
		b.world.start = nil
		require.NoError(t, b.sup.Start(b.t.Context(), "shop"), "a person may try again")
	})
}

func TestACommandThatCannotBeExecutedLeavesNoScope(t *testing.T) {
	supervise(t, func(b *bed) {
		b.world.start = func(p Plan, tell func(session.Event)) error { scopeRuns(p, tell); return nil }
		b.call("create", func(ctx context.Context) error {
			_, err := b.sup.Create(ctx, "claude", Spec{ID: "shop"})
			return err
		})
		b.heard()
		rec := b.records.last("shop")
		b.record(rec, exitstatus.Status{RunID: rec.Run.ID, Code: exitstatus.NotStarted, Error: `"claude" not found`, Exited: time.Now()})
		b.files.tell(b.records.SessionDir("shop"), exitstatus.FileName, unix.IN_MOVED_TO)
		told := b.heard()
		assert.Contains(t, told, `0s create: cannot start "shop": "claude" not found`)
		assert.Contains(t, told, "0s signal all shop SIGTERM")
		<-time.After(2 * time.Second)
		assert.Contains(t, b.heard(), "1s kill shop")
	})
}

func TestARestartStopsThenStarts(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("shop")
		first := b.records.last("shop").Run.ID
		b.call("restart", func(ctx context.Context) error { return b.sup.Restart(ctx, "shop") })
		assert.Contains(t, b.heard(), "0s ask agent shop")
		assert.Equal(t, InvalidState, kindOf(b.sup.Start(b.t.Context(), "shop")))
		assert.Equal(t, InvalidState, kindOf(b.sup.Restart(b.t.Context(), "shop")))
		b.exit("shop", 143)
		assert.NotContains(t, b.heard(), "0s start shop", "something is left in the scope")
		b.empty("shop")
		told := b.heard()
		assert.Equal(t, "0s save shop: starting", told[0])
		assert.Contains(t, told, "0s start shop")
		assert.Equal(t, []string{"0s answer 1", "0s restart: ok"}, told[len(told)-2:])
		rec := b.records.last("shop")
		assert.NotEqual(t, first, rec.Run.ID)
		require.Len(t, rec.Past, 1)
		assert.Equal(t, first, rec.Past[0].ID)
		assert.Equal(t, 143, rec.Past[0].Exit.Value)
		<-time.After(time.Hour)
		assert.Empty(t, b.heard(), "the ending of the first run does not reach into the second")
	})
}

func TestAStartEndsWhatAnEarlierRunLeft(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("shop")
		b.exit("shop", 1)
		b.heard()
		b.call("start", func(ctx context.Context) error { return b.sup.Start(ctx, "shop") })
		told := b.heard()
		assert.Contains(t, told, "0s signal all shop SIGTERM")
		assert.NotContains(t, told, "0s start shop")
		b.empty("shop")
		told = b.heard()
		assert.Contains(t, told, "0s start shop")
		assert.Contains(t, told, "0s start: ok")
	})
}

func TestRemoving(t *testing.T) {
	t.Run("what runs is refused", func(t *testing.T) {
		supervise(t, func(b *bed) {
			b.start("shop")
			assert.Equal(t, InvalidState, kindOf(b.sup.Remove(b.t.Context(), "shop", false)))
			assert.Empty(t, b.heard())
		})
	})
	t.Run("by force it is stopped first", func(t *testing.T) {
		supervise(t, func(b *bed) {
			b.start("shop")
			b.call("remove", func(ctx context.Context) error { return b.sup.Remove(ctx, "shop", true) })
			assert.Contains(t, b.heard(), "0s ask agent shop")
			b.empty("shop")
			told := b.heard()
			last := told[len(told)-4:]
			assert.Equal(t, "0s forget shop", last[0], "its record before anybody is told")
			assert.ElementsMatch(t, []string{"0s publish shop: removed", "0s answer 1", "0s remove: ok"}, last[1:])
			assert.Contains(t, told[:len(told)-4], "0s clear app-corral-command-shop.scope", "and what it left before its name is free")
			_, err := b.sup.Session("shop")
			assert.Equal(t, NoSuchSession, kindOf(err))
			b.start("shop")
		})
	})
	t.Run("what comes late of it is nobody's", func(t *testing.T) {
		supervise(t, func(b *bed) {
			b.start("shop")
			b.exit("shop", 0)
			b.empty("shop")
			require.NoError(t, b.sup.Remove(b.t.Context(), "shop", false))
			b.heard()
			b.empty("shop")
			b.sup.ScopeStopRequested(UnitName("command", "shop"), "")
			b.fds.all()
			assert.Empty(t, b.heard())
		})
	})
}

func TestArchiving(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("shop")
		assert.Equal(t, InvalidState, kindOf(b.sup.Archive(b.t.Context(), "shop")))
		b.exit("shop", 0)
		b.heard()
		b.call("archive", func(ctx context.Context) error { return b.sup.Archive(ctx, "shop") })
		assert.Contains(t, b.heard(), "0s signal all shop SIGTERM")
		b.empty("shop")
		assert.Equal(t, []string{"0s save shop: archived", "0s publish shop: completed -> archived", "0s answer 1", "0s archive: ok"}, b.heard())
		assert.Equal(t, InvalidState, kindOf(b.sup.Start(b.t.Context(), "shop")))
		assert.Equal(t, InvalidState, kindOf(b.sup.Restart(b.t.Context(), "shop")))
		assert.Equal(t, "archived", b.state("shop"))
	})
}

func TestSystemdWantsAScopeToBeStopped(t *testing.T) {
	for _, row := range []struct {
		name                  string
		world                 func(*world)
		state, result, reason string
	}{
		{"its time is up", func(w *world) { w.result = "timeout" }, "failed", "timeout", "it ran for as long as RuntimeMaxSec allows"},
		{"the login session ends", func(w *world) { w.result, w.stops = "success", true }, "suspended", "success", "the login session ended"},
		{"somebody stops it", func(w *world) { w.result = "success" }, "stopped", "success", "its scope was stopped"},
		{"nobody can say why", func(w *world) { w.causeErr = errors.New("no answer") }, "stopped", "success", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			supervise(t, func(b *bed) {
				row.world(b.world)
				b.start("shop")
				b.sup.ScopeStopRequested(UnitName("command", "shop"), "")
				b.sup.ScopeStopRequested(UnitName("command", "shop"), "")
				assert.Equal(t, "stopping", b.state("shop"))
				told := b.heard()
				assert.Equal(t, 1, count(told, "0s ask agent shop"))
				<-time.After(100 * time.Millisecond)
				b.exit("shop", 0)
				assert.Contains(t, b.heard(), "0.1s signal all shop SIGTERM")
				b.empty("shop")
				synctest.Wait()
				snap, err := b.sup.Session("shop")
				require.NoError(t, err)
				assert.Equal(t, []string{row.state, row.result, row.reason}, []string{snap.State, snap.Result, snap.Reason})
			})
		})
	}
}

// TestLeftoversThatDoNotStopInTime: systemd calls that a timeout, too, which says nothing of an agent that had ended. Nor does the wish to stop them, although
// it may be heard of before the end that it came after.
func TestLeftoversThatDoNotStopInTime(t *testing.T) {
	for name, exit := range map[string]func(b *bed){
		"the exit is known":          func(b *bed) { b.exit("shop", 3) },
		"the exit is heard of later": func(b *bed) { b.exitUnseen("shop", 3) },
	} {
		t.Run(name, func(t *testing.T) {
			supervise(t, func(b *bed) {
				b.start("shop")
				exit(b)
				<-time.After(time.Millisecond)
				b.world.result = "success"
				b.sup.ScopeStopRequested(UnitName("command", "shop"), "")
				<-time.After(10 * time.Second)
				b.sup.ScopeEnded(UnitName("command", "shop"), "", "timeout")
				synctest.Wait()
				snap, err := b.sup.Session("shop")
				require.NoError(t, err)
				assert.Equal(t, []string{"failed", "exit-code", "command exited with code 3"}, []string{snap.State, snap.Result, snap.Reason})
			})
		})
	}
}

// TestSystemdStopsAScopeItself: it has told everybody in it, and asks nobody whom to ask first.
func TestSystemdStopsAScopeItself(t *testing.T) {
	for _, row := range []struct {
		name, cause   string
		state, result string
	}{
		{"somebody stops it", "success", "stopped", "success"},
		{"its time is up", "timeout", "failed", "timeout"},
		{"there is no memory for it", "oom-kill", "completed", "success"}, // the agent had a moment to end well
	} {
		t.Run(row.name, func(t *testing.T) {
			supervise(t, func(b *bed) {
				b.start("shop")
				b.sup.ScopeStopping(UnitName("command", "shop"), "", StopCause{row.cause, b.sup.Monotonic()})
				assert.Zero(t, count(b.heard(), "0s ask agent shop"), "one SIGTERM is enough")
				<-time.After(100 * time.Millisecond)
				b.exit("shop", 0)
				b.empty("shop")
				synctest.Wait()
				snap, err := b.sup.Session("shop")
				require.NoError(t, err)
				assert.Equal(t, []string{row.state, row.result}, []string{snap.State, snap.Result})
			})
		})
	}
}

// TestAnAgentEndsBeforeItIsKnownWhy its scope is stopped: what came first is told by systemd's clock, however late it is heard of.
func TestAnAgentEndsBeforeItIsKnownWhy(t *testing.T) {
	for _, row := range []struct {
		name, cause   string
		since         time.Duration // before the agent's end
		gone          bool          // so is its scope
		stops         bool          // all of the user's manager does
		state, reason string
	}{
		{"it was stopped", "success", time.Millisecond, false, false, "stopped", "its scope was stopped"},
		{"it was stopped, and is gone", "success", time.Millisecond, true, false, "stopped", "its scope was stopped"},
		{"the login session ended", "success", time.Millisecond, true, true, "suspended", "the login session ended"},
		{"its time was up", "timeout", time.Millisecond, false, false, "failed", "it ran for as long as RuntimeMaxSec allows"},
		{"it had ended by itself", "success", -time.Millisecond, false, false, "completed", ""},
		{"it had ended by itself before its time was up", "timeout", -time.Millisecond, false, false, "completed", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			supervise(t, func(b *bed) {
				b.start("shop")
				b.world.stops = row.stops
				b.exit("shop", 0)
				answer := make(chan struct{})
				b.world.asked = answer
				b.sup.ScopeStopping(UnitName("command", "shop"), "", StopCause{row.cause, b.sup.Monotonic() - row.since})
				if row.gone {
					b.empty("shop")
				}
				close(answer)
				synctest.Wait()
				if !row.gone {
					b.empty("shop")
				}
				assert.Equal(t, row.state, b.state("shop"))
				snap, err := b.sup.Session("shop")
				require.NoError(t, err)
				assert.Equal(t, row.reason, snap.Reason)
			})
		})
	}
}

// TestLeftoversAreArchived: a session that has lost everything but what its agent has left running has no agent.
func TestLeftoversAreArchived(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("shop")
		assert.Equal(t, InvalidState, kindOf(b.sup.Archive(b.t.Context(), "shop")))
		require.NoError(t, b.sup.do(func() {
			e := b.sup.sessions["shop"]
			b.sup.apply(e, session.TmuxDied{Run: e.rec.Run.ID})
		}))
		require.Equal(t, "stale", b.state("shop"))
		assert.Equal(t, InvalidState, kindOf(b.sup.Archive(b.t.Context(), "shop")), "its agent lives")
		require.NoError(t, b.sup.do(func() {
			e := b.sup.sessions["shop"]
			b.sup.apply(e, session.ShimDied{Run: e.rec.Run.ID, At: time.Now()})
		}))
		require.Equal(t, "stale", b.state("shop"))
		b.call("archive", func(ctx context.Context) error { return b.sup.Archive(ctx, "shop") })
		b.empty("shop")
		assert.Contains(t, b.heard(), "0s archive: ok")
		assert.Equal(t, "archived", b.state("shop"))
	})
}

// TestAnIDThatIsNotFree: there is a directory of that name, of which no record can be read.
func TestAnIDThatIsNotFree(t *testing.T) {
	supervise(t, func(b *bed) {
		dir := filepath.Join(t.TempDir(), "shop")
		require.NoError(t, os.Mkdir(dir, 0o700))
		require.NoError(t, os.MkdirAll(b.records.SessionDir("shop"), 0o700))
		id, err := b.sup.Create(b.t.Context(), "command", Spec{Command: []string{"true"}, WorkingDirectory: dir})
		require.NoError(t, err)
		assert.Equal(t, "shop-2", id)
	})
}

func count(lines []string, line string) int {
	n := 0
	for _, l := range lines {
		if l == line {
			n++
		}
	}
	return n
}
