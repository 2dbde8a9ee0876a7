package supervisor

import (
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/internal/shimwire"
	"github.com/corrald/corral/supervisor/session"
	"github.com/corrald/corral/supervisor/store"
)

// logged returns how many records with this text were logged.
func (b *bed) logged(text string) int { return strings.Count(b.log.String(), text) }

// TestHearShim_TakesSlices of what a shim says that floods: not more in a second than it may say,
// while other calls are answered, and its hangup is still seen.
func TestHearShim_TakesSlices(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.withShim()
		s.hello()
		m := shimwire.Message{Kind: shimwire.Working, Since: time.Now()}
		sent := 0
		begin := time.Now()
		for ; time.Since(begin) < 4*time.Second; <-time.After(time.Millisecond) {
			for unix.Send(s.conn, m.Append(nil), unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT) == nil {
				sent++
			}
			s.ready()
			assert.Equal(t, "running", b.state("shop"))
		}
		unread := 0 // what fills the socket at the end
		for fd := s.connOfLoop(); ; unread++ {
			if _, _, err := unix.Recvfrom(fd, make([]byte, 1), unix.MSG_DONTWAIT); err != nil {
				break
			}
		}
		assert.Positive(t, unread)
		assert.LessOrEqual(t, sent-unread, int(4*time.Second/hearSpan+1)*hearBurst)
		s.hangUp()
		<-time.After(hearSpan)
		synctest.Wait()
		assert.Zero(t, s.connOfLoop())
	})
}

// connOfLoop returns the loop's end of the connection, 0 if there is none.
func (s *shim) connOfLoop() (fd int) {
	s.t.Helper()
	require.NoError(s.t, s.sup.do(func() { fd = s.sup.sessions["shop"].run.shim.fd }))
	return fd
}

// TestHearShim_TakesLongMessages, as long as a message may be.
func TestHearShim_TakesLongMessages(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.withShim()
		s.hello()
		text := strings.Repeat("é", shimwire.MaxText/2)
		m := shimwire.Message{Kind: shimwire.StatusReport, Source: shimwire.Notify, Activity: "waiting", Reason: "question", Text: text, Since: time.Now(), Seq: 1}
		m.Data = make([]byte, 5000) // of a younger shim
		s.says(m)
		assert.Equal(t, text, s.snapshot().AttentionMessage)
		s.hangUp()
	})
}

// TestRedial_OfAShimThatSaysHelloAndHangsUp is put off more and more, as that of any other is.
func TestRedial_OfAShimThatSaysHelloAndHangsUp(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.withShim()
		s.hello()
		hello := shimwire.Message{Kind: shimwire.Hello, RunID: s.records.last("shop").Run.ID, ShimPID: 11, AgentPID: 12, AgentStart: 120, Started: time.Now()}
		accepted := 0
		for begin := time.Now(); time.Since(begin) < time.Minute; <-time.After(10 * time.Millisecond) {
			_ = unix.Close(s.conn)
			s.conn = -1
			s.ready()
			for {
				fds := []unix.PollFd{{Fd: int32(s.listener), Events: unix.POLLIN}}
				if n, _ := unix.Poll(fds, 0); n != 1 { // 0, or interrupted
					break
				}
				conn, _, err := unix.Accept(s.listener)
				require.NoError(t, err)
				accepted++
				_ = unix.Send(conn, hello.Append(nil), unix.MSG_NOSIGNAL)
				_ = unix.Close(conn)
			}
		}
		assert.Less(t, accepted, 40)
		s.hangUp()
	})
}

// TestHello_ThatIsNotTrue is not believed, and nobody is ended for it.
func TestHello_ThatIsNotTrue(t *testing.T) {
	for name, hello := range map[string]shimwire.Message{
		"it names another process as the shim":              {ShimPID: 99, AgentPID: 12},
		"it names a process as the agent that is not its":   {ShimPID: 11, AgentPID: 98},
		"it names the agent of another session as its own ": {ShimPID: 11, AgentPID: 97},
	} {
		t.Run(name, func(t *testing.T) {
			supervise(t, func(b *bed) {
				b.world.group, b.world.parent = "/elsewhere.scope", 1
				s := b.withShim()
				hello.Kind, hello.RunID, hello.Started = shimwire.Hello, b.records.last("shop").Run.ID, time.Now()
				s.says(hello)
				s.says(hello)
				assert.Equal(t, "starting", b.state("shop"))
				assert.NotContains(t, strings.Join(b.heard(), "\n"), "signal")
				assert.Equal(t, 1, b.logged("names processes that are not its own"))
				b.meanwhile(func() { b.world.group, b.world.parent = "", 11 })
				s.hello()
				s.hangUp()
			})
		})
	}
}

// TestConnectShim_ToAnotherProcess says nothing to it, is a problem, and has the shim make its
// socket anew for as long as that lives.
func TestConnectShim_ToAnotherProcess(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.withShim()
		s.hello()
		b.meanwhile(func() { b.world.foreign, b.world.reopens = true, true })
		_ = unix.Close(s.conn)
		s.ready()
		<-time.After(time.Second)
		told := strings.Join(b.heard(), "\n")
		assert.Contains(t, told, "reopen shop")
		assert.Contains(t, told, "problem shop: process 99 in control group \"/other.scope\" listens on")
		assert.Equal(t, "running", b.state("shop"))
		b.meanwhile(func() { b.world.foreign = false })
		<-time.After(lastRedial)
		assert.Contains(t, strings.Join(b.heard(), "\n"), "problems 0")
		assert.Equal(t, 1, b.logged("another process listens"))
		require.NoError(t, unix.Close(s.listener))
	})
}

// TestConnectShim_ToAnotherProcessOnceTheShimIsDead is no reason to think that it lives.
func TestConnectShim_ToAnotherProcessOnceTheShimIsDead(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.withShim()
		s.hello()
		b.meanwhile(func() { b.world.foreign, b.world.answers = true, true })
		_ = unix.Close(s.conn)
		s.ready()
		assert.Equal(t, "failed", b.state("shop"))
		assert.Equal(t, "agent-lost", s.snapshot().Result)
		require.NoError(t, unix.Close(s.listener))
	})
}

// TestReadExit_OfAnAgentThatRuns does not believe the record, also not once the agent has ended
// without another one.
func TestReadExit_OfAnAgentThatRuns(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("shop")
		b.world.running = true
		b.exit("shop", 0)
		b.exit("shop", 0)
		assert.Equal(t, "running", b.state("shop"))
		assert.Contains(t, strings.Join(b.heard(), "\n"), "which is still running: the record is ignored")
		assert.Equal(t, 1, b.logged("ignored the recorded exit"))
		b.meanwhile(func() { b.world.running = false })
		b.files.tell(b.records.SessionDir("shop"), exitstatus.FileName, unix.IN_MOVED_TO)
		assert.Equal(t, "running", b.state("shop"), "it is the forged record still")
		b.exit("shop", 3)
		assert.Equal(t, "failed", b.state("shop"))
		assert.Contains(t, strings.Join(b.heard(), "\n"), "problems 0")
		b.empty("shop")
	})
	supervise(t, func(b *bed) {
		b.start("shop")
		b.world.running = true
		b.exit("shop", 0)
		b.meanwhile(func() { b.world.running = false })
		b.empty("shop")
		assert.Equal(t, "failed", b.state("shop"), "its end was recorded by nobody")
	})
}

// TestReadExit_BeforeTheShimHasBegun: what is recorded then is not of this agent, whatever it says.
func TestReadExit_BeforeTheShimHasBegun(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.withShim()
		b.exit("shop", 0)
		assert.Equal(t, "starting", b.state("shop"))
		b.meanwhile(func() { b.world.running = true })
		s.hello()
		assert.Equal(t, 1, b.logged("ignored the recorded exit"))
		b.meanwhile(func() { b.world.running = false })
		b.exit("shop", 4)
		assert.Equal(t, "failed", b.state("shop"))
		s.hangUp()
	})
	supervise(t, func(b *bed) {
		spec := filepath.Join(b.sup.runtimeDir("shop"), specName)
		b.world.start = func(p Plan, tell func(session.Event)) error {
			scopeRuns(p, tell)
			return os.WriteFile(spec, nil, 0o600)
		}
		go func() { _, _ = b.sup.Create(b.t.Context(), "command", Spec{ID: "shop", Command: []string{"true"}}) }()
		b.heard()
		b.exit("shop", 0)
		assert.Equal(t, "starting", b.state("shop"))
		require.NoError(t, os.Remove(spec))
		b.exit("shop", 0)
		assert.Equal(t, "completed", b.state("shop"), "it has ended before anybody could hear of it")
		b.empty("shop")
	})
}

// TestReadExit_TimesAreOfTheRun, whatever the record says.
func TestReadExit_TimesAreOfTheRun(t *testing.T) {
	asked, now := time.Unix(1000, 0), time.Unix(2000, 0)
	run := &session.Run{Asked: asked}
	for _, row := range []struct {
		name            string
		started, exited time.Time
		wantStarted     time.Time
		wantExited      time.Time
	}{
		{"within it", time.Unix(1001, 0), time.Unix(1999, 0), time.Unix(1001, 0), time.Unix(1999, 0)},
		{"before and after it", time.Unix(1, 0), time.Unix(90_000, 0), asked, now},
		{"both after it", time.Unix(80_000, 0), time.Unix(90_000, 0), now, now},
		{"both before it", time.Unix(1, 0), time.Unix(2, 0), asked, asked},
		{"ended before it began", time.Unix(1900, 0), time.Unix(1100, 0), time.Unix(1100, 0), time.Unix(1100, 0)},
		{"not known", time.Time{}, time.Time{}, time.Time{}, time.Time{}},
	} {
		got := within(exitstatus.Status{Started: row.started, Exited: row.exited, ExitedMonotonic: 3 * time.Hour, SIGTERMMonotonic: 4 * time.Hour}, run, now, 2*time.Hour)
		assert.Equal(t, exitstatus.Status{Started: row.wantStarted, Exited: row.wantExited, ExitedMonotonic: 2 * time.Hour, SIGTERMMonotonic: 2 * time.Hour}, got, row.name)
	}
	set := within(exitstatus.Status{Exited: time.Unix(500, 0)}, run, time.Unix(501, 0), time.Hour)
	assert.Equal(t, time.Unix(501, 0), set.Exited, "the clock was set back meanwhile")
}

// TestMayLook_AtFilesThatChangeWithoutPause: they are looked at ten times a second, which is logged
// once in ten seconds, and the last record is never missed.
func TestMayLook_AtFilesThatChangeWithoutPause(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("shop")
		dir := b.records.SessionDir("shop")
		var watched atomic.Int32
		b.files.fails = func(path string) error {
			if path == dir {
				watched.Add(1)
			}
			return nil
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, store.RecordName), nil, 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, exitstatus.FileName), []byte("broken"), 0o600))
		for range 40_000 {
			b.files.tell(dir, exitstatus.FileName, unix.IN_MOVED_TO)
			<-time.After(200 * time.Microsecond)
		}
		assert.Equal(t, 1, b.logged("cannot read an exit status"))
		assert.LessOrEqual(t, int(watched.Load()), int(8*time.Second/lookEvery))
		b.exitUnseen("shop", 3) // no event tells of it: nothing is watched at this moment
		<-time.After(2 * lookEvery)
		assert.Equal(t, "failed", b.state("shop"))
		b.empty("shop")
	})
}

func TestMayLog_OnceForEachCauseSessionAndTime(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("shop")
		b.start("site")
		may := func(id, cause string) (may bool) {
			require.NoError(t, b.sup.do(func() { may = b.sup.mayLog(b.sup.sessions[id], cause) }))
			return may
		}
		for n := range 10 {
			assert.Equal(t, n == 0, may("shop", "one"))
			assert.Equal(t, n == 0, may("shop", "two"))
			assert.Equal(t, n == 0, may("site", "one"))
		}
		<-time.After(logEvery)
		assert.True(t, may("shop", "one"))
	})
}
