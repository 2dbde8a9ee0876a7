package supervisor

import (
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
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/supervisor/session"
	"github.com/corrald/corral/supervisor/store"
)

// withShutdown runs f with a running session, shop, and a failed one, broken, after the daemon was
// requested to end. The function that it passes to f returns whether the event loop has ended.
func withShutdown(t *testing.T, stops bool, f func(b *bed, ended func() bool)) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.system.stops = stops
		ctx, cancel := context.WithCancel(t.Context())
		done := b.runInBackground(ctx)
		b.start("shop")
		b.start("broken")
		b.exit("broken", 1)
		b.endScope("broken")
		b.takeTrace()
		cancel()
		synctest.Wait()
		f(b, func() bool { return isClosed(done) })
		<-done
	})
}

func TestShutdown_OfTheDaemonAloneLeavesAgentsRunning(t *testing.T) {
	withShutdown(t, false, func(b *bed, ended func() bool) {
		assert.True(t, ended(), "the event loop does not wait for agents")
		assert.Equal(t, []string{"0s save shop: suspended", "0s publish shop: running -> suspended"}, b.takeTrace(),
			"no agent is signalled")
		rec := b.records.last("shop")
		assert.Equal(t, session.Suspended, rec.View().State)
		rec.Apply(session.FoundAlive{Run: rec.Run.ID})
		assert.Equal(t, session.Running, rec.View().State, "as before, once the next daemon has found it")
	})
}

func TestShutdown_SavesAnExitBeforeItsScopeEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		ctx, cancel := context.WithCancel(t.Context())
		done := b.runInBackground(ctx)
		b.startThenStop(0)
		b.exit("shop", 143)
		b.takeTrace()
		cancel()
		<-done
		assert.Contains(t, b.takeTrace(), "0s save shop: stopping")
		assert.NotNil(t, b.records.last("shop").Run.Exit)
	})
}

func TestShutdown_OfTheLoginSessionStopsAgents(t *testing.T) {
	withShutdown(t, true, func(b *bed, ended func() bool) {
		assert.False(t, ended(), "agents have their grace period")
		assert.Equal(t, []string{
			"0s save shop: stopping", "0s publish shop: running -> stopping", "0s terminate shop",
		}, moveLast(b.takeTrace(), "terminate"))
		<-time.After(2 * time.Second)
		assert.Contains(t, b.takeTrace(), "1s SIGHUP shop", "the escalation continues")
		b.exit("shop", 0)
		assert.False(t, ended())
		assert.Contains(t, b.takeTrace(), "2s signal all shop SIGTERM")
		b.endScope("shop")
		assert.True(t, ended())
		v := b.records.last("shop").View()
		assert.Equal(t, session.View{
			State: session.Suspended, Result: "success", Reason: "the login session ended", Since: v.Since,
		}, v)
		assert.Equal(t, session.Failed, b.records.last("broken").View().State, "an ended session keeps its state")
	})
}

func TestShutdown_DoesNotWaitForeverForAnAgent(t *testing.T) {
	withShutdown(t, true, func(b *bed, ended func() bool) {
		<-time.After(b.sup.loop.settings.config.StopTimeout + shutdownMargin - time.Millisecond)
		assert.False(t, ended())
		assert.Contains(t, b.takeTrace(), "10s kill shop")
		<-time.After(time.Millisecond)
		assert.True(t, ended(), "the agent does not delay the shutdown forever")
		assert.Equal(t, session.Suspend, b.records.last("shop").Run.Intent, "the session is recorded as to be suspended")
	})
}

func TestSuspendForShutdown_LastsUntilItIsCanceled(t *testing.T) {
	supervise(t, func(b *bed) {
		b.sup.loop.callbacks.AnnounceShutdown = func(on bool) { b.trace("shutting down: %t", on) }
		for _, id := range []string{"first", "second", "stopped", "suspended"} {
			b.start(id)
		}
		b.call("suspend", func(ctx context.Context) error { return b.sup.Suspend(ctx, "suspended") })
		b.takeTrace()
		b.exit("suspended", 0)
		b.endScope("suspended")
		b.takeTrace()

		b.call("last call", func(ctx context.Context) error {
			ids, err := b.sup.SuspendForShutdown(ctx)
			assert.Equal(t, []string{"first", "second", "stopped"}, ids)
			return err
		})
		trace := b.takeTrace()
		assert.Equal(t, "0s shutting down: true", trace[0], "the shutdown is announced first")
		for _, id := range []string{"first", "second", "stopped"} {
			b.exit(id, 0)
			b.endScope(id)
		}
		assert.Contains(t, b.takeTrace(), "0s last call: ok")
		refused := func(name string, f func(ctx context.Context) error) {
			t.Helper()
			assert.Equal(t, ShuttingDown, kindOf(f(b.t.Context())), name)
		}
		refused("create", func(ctx context.Context) error {
			_, err := b.sup.Create(ctx, "command", Spec{Command: []string{"true"}})
			return err
		})
		for name, f := range map[string]func(context.Context, string) error{
			"start": b.sup.Start, "resume": b.sup.Resume, "restart": b.sup.Restart,
		} {
			refused(name, func(ctx context.Context) error { return f(ctx, "first") })
		}
		refused("resume all", func(ctx context.Context) error { _, err := b.sup.ResumeAll(ctx); return err })
		assert.NoError(t, b.sup.Stop(b.t.Context(), "first", 0), "sessions can still be stopped")
		assert.NoError(t, b.sup.Archive(b.t.Context(), "stopped"))
		b.takeTrace()

		b.call("called off", func(ctx context.Context) error {
			ids, err := b.sup.ShutdownCancelled(ctx)
			assert.Equal(t, []string{"first", "second"}, ids)
			return err
		})
		trace = b.takeTrace()
		assert.Equal(t, "0s shutting down: false", trace[0])
		assert.Contains(t, trace, "0s called off: ok")
		assert.Equal(t, []string{"running", "running", "archived", "suspended"},
			[]string{b.state("first"), b.state("second"), b.state("stopped"), b.state("suspended")},
			"a session that a client suspended stays suspended")
		b.start("third")

		ids, err := b.sup.ShutdownCancelled(b.t.Context())
		assert.Empty(t, ids, "they are resumed only once")
		assert.NoError(t, err)
	})
}

// TestSuspendForShutdown_SignalsAllSessionsAtOnce: all of them are saved, then published together,
// and only then signalled, in one iteration of the event loop.
func TestSuspendForShutdown_SignalsAllSessionsAtOnce(t *testing.T) {
	for name, suspendAll := range map[string]func(*Supervisor, context.Context) ([]string, error){
		"last call": (*Supervisor).SuspendForShutdown, "suspend all": (*Supervisor).SuspendAll,
	} {
		t.Run(name, func(t *testing.T) {
			supervise(t, func(b *bed) {
				const many = 40
				var ids []string
				for i := range many {
					ids = append(ids, fmt.Sprintf("s%02d", i))
					b.start(ids[i])
				}
				b.call("suspended", func(ctx context.Context) error {
					suspended, err := suspendAll(b.sup, WhenAccepted(ctx, func() { b.trace("accepted") }))
					assert.Equal(t, ids, suspended)
					return err
				})
				kinds := []string{}
				for _, line := range b.takeTrace() {
					kind := strings.Fields(line)[1]
					if kind != "accepted" && (len(kinds) == 0 || kinds[len(kinds)-1] != kind) {
						kinds = append(kinds, kind)
					}
				}
				assert.Equal(t, []string{"save", "publish", "terminate"}, kinds,
					"all are saved before the first is published, and published before the first is signalled")
				for _, id := range ids {
					b.exit(id, 0)
					b.endScope(id)
				}
				assert.Contains(t, b.takeTrace(), "0s suspended: ok")
			})
		})
	}
}

// TestShutdownCancelled_WhileASessionEnds: runs may begin at once. The session that is still ending
// is resumed by the next call of ShutdownCancelled after SuspendForShutdown has returned.
func TestShutdownCancelled_WhileASessionEnds(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("slow")
		b.call("last call", func(ctx context.Context) error { _, err := b.sup.SuspendForShutdown(ctx); return err })
		b.takeTrace()
		ids, err := b.sup.ShutdownCancelled(b.t.Context())
		require.NoError(t, err)
		assert.Empty(t, ids)
		b.start("other")
		b.exit("slow", 0)
		b.endScope("slow")
		assert.Contains(t, b.takeTrace(), "0s last call: ok")
		assert.Equal(t, "suspended", b.state("slow"))
		ids, err = b.sup.ShutdownCancelled(b.t.Context())
		require.NoError(t, err)
		assert.Equal(t, []string{"slow"}, ids)
	})
}

// TestShutdownCancelled_Twice: a session that was not resumed before the shutdown was announced
// again is resumed after that one is canceled, too.
func TestShutdownCancelled_Twice(t *testing.T) {
	supervise(t, func(b *bed) {
		ids := []string{"a", "b", "c", "d", "e", "f"}
		for _, id := range ids {
			b.start(id)
		}
		require.NoError(t, b.create("command", Spec{ID: "fresh", Command: []string{"true"}, NoStart: true}))
		end := func() {
			b.t.Helper()
			trace := b.takeTrace()
			for _, id := range ids {
				if state := b.state(id); state == "stopping" {
					b.exit(id, 143)
					b.endScope(id)
				}
			}
			assert.Contains(t, append(trace, b.takeTrace()...), "0s last call: ok")
		}
		lastCall := func(ctx context.Context) error { _, err := b.sup.SuspendForShutdown(ctx); return err }
		calledOff := func(ctx context.Context) error { _, err := b.sup.ShutdownCancelled(ctx); return err }
		b.call("last call", lastCall)
		end()
		// As if a session of this name had been removed after the first call, and created again.
		require.NoError(t, b.sup.loop.do(func() { b.sup.loop.shutdown.suspended["fresh"] = "r0" }))
		hold := make(chan struct{})
		b.system.start = func(p Plan, report func(session.Event)) error { <-hold; return runs(p, report) }
		b.call("called off", calledOff)
		b.call("last call", lastCall)
		close(hold)
		end()
		b.call("called off again", calledOff)
		b.takeTrace()
		for _, id := range ids {
			assert.Equal(t, "running", b.state(id), id)
		}
		assert.Equal(t, "created", b.state("fresh"))
	})
}

// TestShutdown_WaitsForTheSlowestAgent: an agent has the time that its definition specifies, and
// the maximum is reported, for systemd.
func TestShutdown_WaitsForTheSlowestAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.system.stops = true
		b.sup.loop.callbacks.StopDelayed = func(most time.Duration) { b.trace("ends in %s", most) }
		ctx, cancel := context.WithCancel(t.Context())
		done := b.runInBackground(ctx)
		require.NoError(t, b.sup.Reload(config.Default(), map[string]config.Agent{
			"slow": {Name: "slow", Command: []string{"x"}, Properties: []string{"TimeoutStopSec=60"}},
		}))
		require.NoError(t, b.create("slow", Spec{ID: "shop"}))
		b.takeTrace()
		cancel()
		<-done
		trace := b.takeTrace()
		assert.Contains(t, trace, "0s ends in 1m5s")
		assert.Contains(t, trace, "60s kill shop")
	})
}

// TestShutdown_RetriesFailedSaves: what cannot be saved when the daemon begins to exit is saved
// while it waits, although nothing else happens.
func TestShutdown_RetriesFailedSaves(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("shop")
		b.takeTrace()
		b.records.fails = diskIsFull
		l := b.sup.loop
		l.post(func() {
			l.sessions.byID["shop"].recordChanged()
			l.sessions.byID["shop"].stopQueries++ // systemd has not answered yet why it stops a scope
			l.shutdown.run()
		})
		assert.Subset(t, b.takeTrace(), []string{"0s cannot save shop: running", "0s problems 1"})
		l.post(func() { b.records.fails = nil })
		<-time.After(time.Second)
		assert.Subset(t, b.takeTrace(), []string{"1s save shop: running", "1s problems 0"})
		l.post(func() { l.sessions.byID["shop"].stopQueries-- })
	})
}

// TestRun_ReturnsWhatIsUnsaved checks that a daemon that exits does not claim to have saved what it
// could not save.
func TestRun_ReturnsWhatIsUnsaved(t *testing.T) {
	for name, row := range map[string]struct {
		fails error
		want  string
	}{
		"nothing":                     {nil, ""},
		"a session":                   {unix.ENOSPC, "the last changes of these sessions could not be saved: shop"},
		"a record of a newer version": {store.ErrNewer, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t)
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error)
				go func() { done <- b.sup.Run(ctx) }()
				b.start("other")
				b.start("shop")
				b.onLoop(func() {
					b.records.fails = func(id string) error {
						if id == "shop" {
							return row.fails
						}
						return nil
					}
				})
				cancel()
				if err := <-done; row.want == "" {
					assert.NoError(t, err)
				} else {
					assert.EqualError(t, err, row.want)
				}
			})
		})
	}
}

// TestShutdown_FailsAStartInProgress: a start that the end of the daemon, of the login session or
// of the machine interrupts returns an error.
func TestShutdown_FailsAStartInProgress(t *testing.T) {
	starts := map[string]func(context.Context, *Supervisor) error{
		"create": func(ctx context.Context, s *Supervisor) error {
			_, err := s.Create(ctx, "command", Spec{ID: "new", Command: []string{"true"}})
			return err
		},
		"start":   func(ctx context.Context, s *Supervisor) error { return s.Start(ctx, "ended") },
		"resume":  func(ctx context.Context, s *Supervisor) error { return s.Resume(ctx, "ended") },
		"restart": func(ctx context.Context, s *Supervisor) error { return s.Restart(ctx, "lives") },
	}
	ends := map[string]func(b *bed, end func()){
		"the daemon alone ends":  func(_ *bed, end func()) { end() },
		"the login session ends": func(b *bed, end func()) { b.system.stops = true; end() },
		"the machine goes down": func(b *bed, _ func()) {
			b.call("last call", func(ctx context.Context) error { _, err := b.sup.SuspendForShutdown(ctx); return err })
		},
	}
	for reason, end := range ends {
		for name, start := range starts {
			t.Run(name+", "+reason, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := newBed(t)
					ctx, cancel := context.WithCancel(t.Context())
					done := b.runInBackground(ctx)
					b.start("lives")
					b.start("ended")
					b.exit("ended", 0)
					b.endScope("ended")
					b.takeTrace()
					b.system.start = func(p Plan, report func(session.Event)) error { scopeRuns(p, report); return nil }
					var err error
					answered := make(chan struct{})
					go func() { defer close(answered); err = start(t.Context(), b.sup) }()
					synctest.Wait()
					end(b, cancel)
					synctest.Wait()
					for _, id := range []string{"lives", "ended"} { // these end if they were requested to
						b.endScope(id)
					}
					if name == "create" {
						b.endScope("new")
					}
					cancel()
					<-done
					<-answered
					if !errors.Is(err, ErrClosed) { // which the bus server reports in the same way
						assert.Equal(t, ShuttingDown, kindOf(err), "%v", err)
					}
					assert.NotContains(t, b.takeTrace()[1:], "0s start lives", "no run begins")
				})
			})
		}
	}
}

func TestAnnounce_ReportsAShutdownOnly(t *testing.T) {
	for name, stops := range map[string]bool{"the login session ends": true, "the daemon alone ends": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t)
				b.system.stops = stops
				b.sup.loop.callbacks.AnnounceShutdown = func(on bool) { b.trace("shutting down: %t", on) }
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				b.run(ctx)
				assert.Equal(t, stops, slices.Contains(b.takeTrace(), "0s shutting down: true"))
			})
		})
	}
}
