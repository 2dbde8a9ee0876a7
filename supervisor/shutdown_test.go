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

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/supervisor/session"
)

// shutDown runs f with one session that runs and one that has failed, after the daemon was told to end. It returns the function that tells whether
// the loop has ended.
func shutDown(t *testing.T, stops bool, f func(b *bed, ended func() bool)) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.world.stops = stops
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); b.sup.Run(ctx) }()
		b.start("shop")
		b.start("broken")
		b.exit("broken", 1)
		b.empty("broken")
		b.heard()
		cancel()
		synctest.Wait()
		f(b, func() bool {
			synctest.Wait()
			select {
			case <-done:
				return true
			default:
				return false
			}
		})
		<-done
	})
}

func TestTheDaemonAloneEnds(t *testing.T) {
	shutDown(t, false, func(b *bed, ended func() bool) {
		assert.True(t, ended(), "it waits for nobody")
		assert.Equal(t, []string{"0s save shop: suspended", "0s publish shop: running -> suspended"}, b.heard(), "and touches nobody")
		rec := b.records.last("shop")
		assert.Equal(t, session.Suspended, rec.View().State)
		rec.Apply(session.FoundAlive{Run: rec.Run.ID})
		assert.Equal(t, session.Running, rec.View().State, "as before, once it is found")
	})
}

func TestTheWholeSessionEnds(t *testing.T) {
	shutDown(t, true, func(b *bed, ended func() bool) {
		assert.False(t, ended(), "agents have their time to save")
		assert.Equal(t, []string{"0s save shop: stopping", "0s publish shop: running -> stopping", "0s ask agent shop"}, inOrder(b.heard(), "ask"))
		<-time.After(2 * time.Second)
		assert.Contains(t, b.heard(), "1s hang up shop", "the ending goes on")
		b.exit("shop", 0)
		assert.False(t, ended())
		assert.Contains(t, b.heard(), "2s signal all shop SIGTERM")
		b.empty("shop")
		assert.True(t, ended())
		v := b.records.last("shop").View()
		assert.Equal(t, session.View{State: session.Suspended, Result: "success", Reason: "the login session ended", Since: v.Since}, v)
		assert.Equal(t, session.Failed, b.records.last("broken").View().State, "what had ended keeps what it says")
	})
}

func TestTheWholeSessionEndsAndAnAgentDoesNot(t *testing.T) {
	shutDown(t, true, func(b *bed, ended func() bool) {
		<-time.After(b.sup.Config.StopTimeout + shutdownMargin - time.Millisecond)
		assert.False(t, ended())
		assert.Contains(t, b.heard(), "10s kill shop")
		<-time.After(time.Millisecond)
		assert.True(t, ended(), "it does not hold up the shutdown for ever")
		assert.Equal(t, session.Suspend, b.records.last("shop").Run.Intent, "and is known to be suspended")
	})
}

func TestTheMachineGoesDownAndThenDoesNot(t *testing.T) {
	supervise(t, func(b *bed) {
		b.sup.Announce = func(on bool) { b.tell("shutting down: %t", on) }
		for _, id := range []string{"first", "second", "stopped", "suspended"} {
			b.start(id)
		}
		b.call("suspend", func(ctx context.Context) error { return b.sup.Suspend(ctx, "suspended") })
		b.heard()
		b.exit("suspended", 0)
		b.empty("suspended")
		b.heard()

		b.call("last call", func(ctx context.Context) error {
			ids, err := b.sup.LastCall(ctx)
			assert.Equal(t, []string{"first", "second", "stopped"}, ids)
			return err
		})
		told := b.heard()
		assert.Equal(t, "0s shutting down: true", told[0], "it is told before anything is done")
		for _, id := range []string{"first", "second", "stopped"} {
			b.exit(id, 0)
			b.empty(id)
		}
		assert.Contains(t, b.heard(), "0s last call: ok")
		refused := func(name string, f func(ctx context.Context) error) {
			t.Helper()
			assert.Equal(t, ShuttingDown, kindOf(f(b.t.Context())), name)
		}
		refused("create", func(ctx context.Context) error {
			_, err := b.sup.Create(ctx, "command", Spec{Command: []string{"true"}})
			return err
		})
		for name, f := range map[string]func(context.Context, string) error{"start": b.sup.Start, "resume": b.sup.Resume, "restart": b.sup.Restart} {
			refused(name, func(ctx context.Context) error { return f(ctx, "first") })
		}
		refused("resume all", func(ctx context.Context) error { _, err := b.sup.ResumeAll(ctx); return err })
		assert.NoError(t, b.sup.Stop(b.t.Context(), "first", 0), "what ends something goes on")
		assert.NoError(t, b.sup.Archive(b.t.Context(), "stopped"))
		b.heard()

		b.call("called off", func(ctx context.Context) error {
			ids, err := b.sup.CalledOff(ctx)
			assert.Equal(t, []string{"first", "second"}, ids)
			return err
		})
		told = b.heard()
		assert.Equal(t, "0s shutting down: false", told[0])
		assert.Contains(t, told, "0s called off: ok")
		assert.Equal(t, []string{"running", "running", "archived", "suspended"},
			[]string{b.state("first"), b.state("second"), b.state("stopped"), b.state("suspended")}, "what was suspended by wish stays so")
		b.start("third")

		ids, err := b.sup.CalledOff(b.t.Context())
		assert.Empty(t, ids, "once is enough")
		assert.NoError(t, err)
	})
}

// TestLastCall_AsksAllSessionsTogether: all of them are saved, published once, and only then asked, in one iteration of the loop.
func TestLastCall_AsksAllSessionsTogether(t *testing.T) {
	for name, suspendAll := range map[string]func(*Supervisor, context.Context) ([]string, error){
		"last call": (*Supervisor).LastCall, "suspend all": (*Supervisor).SuspendAll,
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
					suspended, err := suspendAll(b.sup, WhenAccepted(ctx, func() { b.tell("accepted") }))
					assert.Equal(t, ids, suspended)
					return err
				})
				kinds := []string{}
				for _, told := range b.heard() {
					kind := strings.Fields(told)[1]
					if kind != "accepted" && (len(kinds) == 0 || kinds[len(kinds)-1] != kind) {
						kinds = append(kinds, kind)
					}
				}
				assert.Equal(t, []string{"save", "publish", "ask"}, kinds, "all are saved before the first is published, and published before the first is asked")
				for _, id := range ids {
					b.exit(id, 0)
					b.empty(id)
				}
				assert.Contains(t, b.heard(), "0s suspended: ok")
			})
		})
	}
}

// TestCalledOff_WhileASessionEnds: runs may begin at once, and the session is resumed by whoever asks again after LastCall has returned.
func TestCalledOff_WhileASessionEnds(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("slow")
		b.call("last call", func(ctx context.Context) error { _, err := b.sup.LastCall(ctx); return err })
		b.heard()
		ids, err := b.sup.CalledOff(b.t.Context())
		require.NoError(t, err)
		assert.Empty(t, ids)
		b.start("other")
		b.exit("slow", 0)
		b.empty("slow")
		assert.Contains(t, b.heard(), "0s last call: ok")
		assert.Equal(t, "suspended", b.state("slow"))
		ids, err = b.sup.CalledOff(b.t.Context())
		require.NoError(t, err)
		assert.Equal(t, []string{"slow"}, ids)
	})
}

// TestAShutdownThatIsCalledOffTwice: what was not resumed before it was announced again is resumed after that.
func TestAShutdownThatIsCalledOffTwice(t *testing.T) {
	supervise(t, func(b *bed) {
		ids := []string{"a", "b", "c", "d", "e", "f"}
		for _, id := range ids {
			b.start(id)
		}
		require.NoError(t, b.create("command", Spec{ID: "fresh", Command: []string{"true"}, NoStart: true}))
		end := func() {
			b.t.Helper()
			told := b.heard()
			for _, id := range ids {
				if state := b.state(id); state == "stopping" {
					b.exit(id, 143)
					b.empty(id)
				}
			}
			assert.Contains(t, append(told, b.heard()...), "0s last call: ok")
		}
		lastCall := func(ctx context.Context) error { _, err := b.sup.LastCall(ctx); return err }
		calledOff := func(ctx context.Context) error { _, err := b.sup.CalledOff(ctx); return err }
		b.call("last call", lastCall)
		end()
		require.NoError(t, b.sup.do(func() { b.sup.interrupted["fresh"] = "r0" }), "as if one of its name had been removed, and it made since")
		hold := make(chan struct{})
		b.world.start = func(p Plan, tell func(session.Event)) error { <-hold; return runs(p, tell) }
		b.call("called off", calledOff)
		b.call("last call", lastCall)
		close(hold)
		end()
		b.call("called off again", calledOff)
		b.heard()
		for _, id := range ids {
			assert.Equal(t, "running", b.state(id), id)
		}
		assert.Equal(t, "created", b.state("fresh"))
	})
}

// TestAShutdownWaitsForTheSlowest: an agent has the time that its definition gives it, and systemd is told how long that may be.
func TestAShutdownWaitsForTheSlowest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.world.stops = true
		b.sup.Ending = func(most time.Duration) { b.tell("ends in %s", most) }
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); b.sup.Run(ctx) }()
		require.NoError(t, b.sup.Reload(config.Default(), map[string]config.Agent{"slow": {Name: "slow", Command: []string{"x"}, Properties: []string{"TimeoutStopSec=60"}}}))
		require.NoError(t, b.create("slow", Spec{ID: "shop"}))
		b.heard()
		cancel()
		<-done
		told := b.heard()
		assert.Contains(t, told, "0s ends in 1m5s")
		assert.Contains(t, told, "60s kill shop")
	})
}

// TestAStartThatTheEndComesBefore is not answered as if it had worked.
func TestAStartThatTheEndComesBefore(t *testing.T) {
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
		"the login session ends": func(b *bed, end func()) { b.world.stops = true; end() },
		"the machine goes down": func(b *bed, _ func()) {
			b.call("last call", func(ctx context.Context) error { _, err := b.sup.LastCall(ctx); return err })
		},
	}
	for how, end := range ends {
		for name, start := range starts {
			t.Run(name+", "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := newBed(t)
					ctx, cancel := context.WithCancel(t.Context())
					done := make(chan struct{})
					go func() { defer close(done); b.sup.Run(ctx) }()
					b.start("lives")
					b.start("ended")
					b.exit("ended", 0)
					b.empty("ended")
					b.heard()
					b.world.start = func(p Plan, tell func(session.Event)) error { scopeRuns(p, tell); return nil }
					var err error
					answered := make(chan struct{})
					go func() { defer close(answered); err = start(t.Context(), b.sup) }()
					synctest.Wait()
					end(b, cancel)
					synctest.Wait()
					for _, id := range []string{"lives", "ended"} { // what is asked to end does so
						b.empty(id)
					}
					if name == "create" {
						b.empty("new")
					}
					cancel()
					<-done
					<-answered
					if !errors.Is(err, ErrClosed) { // the server has the same words for it
						assert.Equal(t, ShuttingDown, kindOf(err), "%v", err)
					}
					assert.NotContains(t, b.heard()[1:], "start lives", "nothing begins")
				})
			})
		}
	}
}

func TestOnlyAShutdownIsAnnounced(t *testing.T) {
	for name, stops := range map[string]bool{"the login session ends": true, "the daemon alone ends": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t)
				b.world.stops = stops
				b.sup.Announce = func(on bool) { b.tell("shutting down: %t", on) }
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				b.sup.Run(ctx)
				assert.Equal(t, stops, slices.Contains(b.heard(), "0s shutting down: true"))
			})
		})
	}
}
