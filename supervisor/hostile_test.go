package supervisor

import (
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/corrald/corral/dbusapi/word"

	"github.com/fsnotify/fsnotify"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/internal/shimwire"
	"github.com/corrald/corral/supervisor/session"
	"github.com/corrald/corral/supervisor/store"
)

// countLogged returns how often the text occurs in the log.
func (b *bed) countLogged(text string) int { return strings.Count(b.log.String(), text) }

// TestShimConnection_ReadsAFloodInSlices: of a shim that sends messages without pause, the event
// loop reads a limited number in each time span. Other calls are answered meanwhile, and the end of
// the connection is still noticed.
func TestShimConnection_ReadsAFloodInSlices(t *testing.T) {
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
		unread := 0 // messages in the socket at the end
		for fd := s.loopConnection(); ; unread++ {
			if _, _, err := unix.Recvfrom(fd, make([]byte, 1), unix.MSG_DONTWAIT); err != nil {
				break
			}
		}
		assert.Positive(t, unread)
		assert.LessOrEqual(t, sent-unread, int(4*time.Second/messageSpan+1)*messageBurst)
		s.disconnect()
		<-time.After(messageSpan)
		synctest.Wait()
		assert.Zero(t, s.loopConnection())
	})
}

// loopConnection returns the descriptor of the event loop's end of the connection, 0 if there is
// none.
func (s *shim) loopConnection() (fd int) {
	s.t.Helper()
	require.NoError(s.t, s.sup.loop.do(func() { fd = s.sup.loop.sessions.byID["shop"].run.shim.socket.FD() }))
	return fd
}

// TestShimConnection_AcceptsLongMessages sends a message of the maximum length.
func TestShimConnection_AcceptsLongMessages(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.withShim()
		s.hello()
		text := strings.Repeat("é", shimwire.MaxText/2)
		s.send(shimwire.Message{
			Kind: shimwire.StatusReport, Source: word.Notify, Activity: "waiting", Reason: "question", Text: text,
			Since: time.Now(), Seq: 1,
			Data: make([]byte, 5000), // from a newer version of the shim
		})
		assert.Equal(t, text, s.snapshot().AttentionMessage)
		s.disconnect()
	})
}

// TestRedial_BacksOffFromAShimThatDisconnectsAfterHello: the delay before each new connection
// grows, as it does for any other shim that disconnects.
func TestRedial_BacksOffFromAShimThatDisconnectsAfterHello(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.withShim()
		s.hello()
		hello := shimwire.Message{
			Kind: shimwire.Hello, RunID: s.records.last("shop").Run.ID,
			ShimPID: 11, AgentPID: 12, AgentStart: 120, Started: time.Now(),
		}
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
		s.disconnect()
	})
}

// TestHello_IsIgnoredIfForged: no process is signalled because of a forged Hello.
func TestHello_IsIgnoredIfForged(t *testing.T) {
	for name, hello := range map[string]shimwire.Message{
		"it names another process as the shim":                {ShimPID: 99, AgentPID: 12},
		"it names a process as the agent that is not a child": {ShimPID: 11, AgentPID: 98},
		"it names the agent of another session as its own":    {ShimPID: 11, AgentPID: 97},
	} {
		t.Run(name, func(t *testing.T) {
			supervise(t, func(b *bed) {
				b.system.group, b.system.parent = "/elsewhere.scope", 1
				s := b.withShim()
				hello.Kind, hello.RunID, hello.Started = shimwire.Hello, b.records.last("shop").Run.ID, time.Now()
				s.send(hello)
				s.send(hello)
				assert.Equal(t, "starting", b.state("shop"))
				assert.NotContains(t, strings.Join(b.takeTrace(), "\n"), "signal")
				assert.Equal(t, 1, b.countLogged("names processes that are not its own"))
				b.onLoop(func() { b.system.group, b.system.parent = "", 11 })
				s.hello()
				s.disconnect()
			})
		})
	}
}

// TestConnectShim_RefusesAnotherProcess: the daemon sends nothing to a process that listens in
// place of the shim, publishes a problem, and has the shim create its socket again while it is
// alive.
func TestConnectShim_RefusesAnotherProcess(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.withShim()
		s.hello()
		b.onLoop(func() { b.system.foreign, b.system.reopens = true, true })
		_ = unix.Close(s.conn)
		s.ready()
		<-time.After(time.Second)
		trace := strings.Join(b.takeTrace(), "\n")
		assert.Contains(t, trace, "reopen shop")
		assert.Contains(t, trace, "problem shop: process 99 in control group \"/other.scope\" listens on")
		assert.Equal(t, "running", b.state("shop"))
		b.onLoop(func() { b.system.foreign = false })
		<-time.After(maxRedialDelay)
		assert.Contains(t, strings.Join(b.takeTrace(), "\n"), "problems 0")
		assert.Equal(t, 1, b.countLogged("another process listens"))
		require.NoError(t, unix.Close(s.listener))
	})
}

// TestConnectShim_DetectsADeadShimBehindAnotherProcess: a process that listens in place of the shim
// does not make the daemon consider the shim alive.
func TestConnectShim_DetectsADeadShimBehindAnotherProcess(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.withShim()
		s.hello()
		b.onLoop(func() { b.system.foreign, b.system.answers = true, true })
		_ = unix.Close(s.conn)
		s.ready()
		assert.Equal(t, "failed", b.state("shop"))
		assert.Equal(t, "agent-lost", s.snapshot().Result)
		require.NoError(t, unix.Close(s.listener))
	})
}

// TestReadExit_IgnoresTheRecordOfARunningAgent: the record is also ignored after the agent has
// exited without another record.
func TestReadExit_IgnoresTheRecordOfARunningAgent(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("shop")
		b.system.running = true
		b.exit("shop", 0)
		b.exit("shop", 0)
		assert.Equal(t, "running", b.state("shop"))
		assert.Contains(t, strings.Join(b.takeTrace(), "\n"), "which is still running: the record is ignored")
		assert.Equal(t, 1, b.countLogged("ignored the recorded exit"))
		b.onLoop(func() { b.system.running = false })
		b.changed("shop", exitstatus.FileName, fsnotify.Create)
		assert.Equal(t, "running", b.state("shop"), "the forged record is still there")
		b.exit("shop", 3)
		assert.Equal(t, "failed", b.state("shop"))
		assert.Contains(t, strings.Join(b.takeTrace(), "\n"), "problems 0")
		b.endScope("shop")
	})
	supervise(t, func(b *bed) {
		b.start("shop")
		b.system.running = true
		b.exit("shop", 0)
		b.onLoop(func() { b.system.running = false })
		b.endScope("shop")
		assert.Equal(t, "failed", b.state("shop"), "there is no other record of the exit")
	})
}

// TestReadExit_IgnoresARecordFromBeforeTheShim: a record that was written before the shim began
// cannot be about this agent, whatever it contains.
func TestReadExit_IgnoresARecordFromBeforeTheShim(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.withShim()
		b.exit("shop", 0)
		assert.Equal(t, "starting", b.state("shop"))
		b.onLoop(func() { b.system.running = true })
		s.hello()
		assert.Equal(t, 1, b.countLogged("ignored the recorded exit"))
		b.onLoop(func() { b.system.running = false })
		b.exit("shop", 4)
		assert.Equal(t, "failed", b.state("shop"))
		s.disconnect()
	})
	supervise(t, func(b *bed) {
		spec := filepath.Join(b.sup.loop.settings.runtimeDir("shop"), shimwire.SpecName)
		b.system.start = func(p Plan, report func(session.Event)) error {
			scopeRuns(p, report)
			return os.WriteFile(spec, nil, 0o600)
		}
		go func() { _, _ = b.sup.Create(b.t.Context(), "command", Spec{ID: "shop", Command: []string{"true"}}) }()
		b.takeTrace()
		b.exit("shop", 0)
		assert.Equal(t, "starting", b.state("shop"))
		require.NoError(t, os.Remove(spec))
		b.exit("shop", 0)
		assert.Equal(t, "completed", b.state("shop"), "the agent has exited before its shim was connected")
		b.endScope("shop")
	})
}

// TestReadExit_LimitsTimesToTheRun: no time in the record is accepted that is before the run was
// requested or after the record was read.
func TestReadExit_LimitsTimesToTheRun(t *testing.T) {
	requested, now := time.Unix(1000, 0), time.Unix(2000, 0)
	run := &session.Run{Requested: requested}
	for _, row := range []struct {
		name            string
		started, exited time.Time
		wantStarted     time.Time
		wantExited      time.Time
	}{
		{"within the run", time.Unix(1001, 0), time.Unix(1999, 0), time.Unix(1001, 0), time.Unix(1999, 0)},
		{"before and after the run", time.Unix(1, 0), time.Unix(90_000, 0), requested, now},
		{"both after the run", time.Unix(80_000, 0), time.Unix(90_000, 0), now, now},
		{"both before the run", time.Unix(1, 0), time.Unix(2, 0), requested, requested},
		{"exit before the start", time.Unix(1900, 0), time.Unix(1100, 0), time.Unix(1100, 0), time.Unix(1100, 0)},
		{"unknown", time.Time{}, time.Time{}, time.Time{}, time.Time{}},
	} {
		got := clampTimes(exitstatus.Status{
			Started: row.started, Exited: row.exited,
			ExitedMonotonic: 3 * time.Hour, SIGTERMMonotonic: 4 * time.Hour,
		}, run, now, 2*time.Hour)
		assert.Equal(t, exitstatus.Status{
			Started: row.wantStarted, Exited: row.wantExited,
			ExitedMonotonic: 2 * time.Hour, SIGTERMMonotonic: 2 * time.Hour,
		}, got, row.name)
	}
	got := clampTimes(exitstatus.Status{Exited: time.Unix(500, 0)}, run, time.Unix(501, 0), time.Hour)
	assert.Equal(t, time.Unix(501, 0), got.Exited, "the clock was set back meanwhile")
}

// TestFileEvents_AreRateLimited: files that change without pause are read ten times a second. The
// error in them is logged once in ten seconds, and the last record is never missed.
func TestFileEvents_AreRateLimited(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("shop")
		dir := b.sup.loop.settings.runtimeDir("shop")
		var watched atomic.Int32
		b.files.fails = func(path string) error {
			if path == dir {
				watched.Add(1)
			}
			return nil
		}
		require.NoError(t, os.WriteFile(filepath.Join(b.records.SessionDir("shop"), store.RecordName), nil, 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, exitstatus.FileName), []byte("broken"), 0o600))
		for range 40_000 {
			b.changed("shop", exitstatus.FileName, fsnotify.Create)
			<-time.After(200 * time.Microsecond)
		}
		assert.Equal(t, 1, b.countLogged("cannot read an exit status"))
		assert.LessOrEqual(t, int(watched.Load()), int(8*time.Second/eventInterval))
		b.exitWithoutEvent("shop", 3) // nothing is watched at this moment
		<-time.After(2 * eventInterval)
		assert.Equal(t, "failed", b.state("shop"))
		b.endScope("shop")
	})
}

func TestLogLimit_AppliesToEachCauseAndSession(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("shop")
		b.start("site")
		allowed := func(id, cause string) (allowed bool) {
			require.NoError(t, b.sup.loop.do(func() { allowed = b.sup.loop.sessions.byID[id].takeLogSlot(cause) }))
			return allowed
		}
		for n := range 10 {
			assert.Equal(t, n == 0, allowed("shop", "one"))
			assert.Equal(t, n == 0, allowed("shop", "two"))
			assert.Equal(t, n == 0, allowed("site", "one"))
		}
		<-time.After(logEvery)
		assert.True(t, allowed("shop", "one"))
	})
}
