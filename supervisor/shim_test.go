package supervisor

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/internal/shimwire"
	"github.com/corrald/corral/internal/unitname"
	"github.com/corrald/corral/supervisor/session"
	"github.com/corrald/corral/supervisor/sources"
)

// shim is the shim of session shop: it listens on a real socket, and conn is its end of the event
// loop's connection.
type shim struct {
	*bed
	listener, conn int
}

// withShim creates a session whose shim listens and has not sent anything yet.
func (b *bed) withShim() *shim {
	b.t.Helper()
	s := &shim{bed: b}
	path := filepath.Join(b.sup.loop.settings.runtimeDir("shop"), shimSocket)
	b.system.start = func(p Plan, report func(session.Event)) error {
		scopeRuns(p, report)
		var err error
		s.listener, err = listen(path)
		return err
	}
	b.call("create", func(ctx context.Context) error {
		_, err := b.sup.Create(ctx, "command", Spec{ID: "shop", Command: []string{"true"}})
		return err
	})
	b.takeTrace()
	b.changed("shop", shimSocket, fsnotify.Create)
	synctest.Wait()
	var err error
	s.conn, _, err = unix.Accept(s.listener)
	require.NoError(b.t, err)
	return s
}

// listen listens on a socket as a shim does.
func listen(path string) (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrUnix{Name: path})
	}
	if err == nil {
		err = unix.Listen(fd, 1)
	}
	return fd, err
}

// send sends a message from the shim, and has epoll report it.
func (s *shim) send(m shimwire.Message) {
	s.t.Helper()
	require.NoError(s.t, unix.Send(s.conn, m.Append(nil), unix.MSG_NOSIGNAL))
	s.ready()
}

// hello sends the message with which the shim introduces itself and its agent.
func (s *shim) hello() {
	s.t.Helper()
	s.send(shimwire.Message{
		Kind: shimwire.Hello, RunID: s.records.last("shop").Run.ID,
		ShimPID: 11, AgentPID: 12, AgentStart: 120, Started: time.Now(), Since: time.Now(),
	})
	require.Equal(s.t, "running", s.state("shop"))
}

// disconnect closes the connection and the socket, as the kernel does when the shim dies.
func (s *shim) disconnect() {
	_, _ = unix.Close(s.conn), unix.Close(s.listener)
	s.fds.allReady()
	synctest.Wait()
}

// ready reports the event loop's connection to the shim as ready, if there is one, and no other
// descriptor.
func (s *shim) ready() {
	s.t.Helper()
	var shim sources.Descriptor
	require.NoError(s.t, s.sup.loop.do(func() { shim = s.sup.loop.sessions.byID["shop"].run.shim.socket }))
	if shim.IsOpen() {
		s.fds.mu.Lock()
		key := s.fds.keys[shim.FD()]
		s.fds.mu.Unlock()
		s.fds.ready <- key
	}
	synctest.Wait()
}

func (s *shim) snapshot() *Snapshot {
	s.t.Helper()
	snap, err := s.sup.Session("shop")
	require.NoError(s.t, err)
	return snap
}

func TestShim_ReportsItsAgent(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.withShim()
		assert.Equal(t, "starting", b.state("shop"))
		s.send(shimwire.Message{Kind: shimwire.Hello, RunID: "another", AgentPID: 99})
		assert.Equal(t, "starting", b.state("shop"), "the message is from another run")
		s.hello()
		assert.EqualValues(t, 12, s.snapshot().MainPID)
		assert.Equal(t, "working", s.snapshot().Activity)
		s.send(shimwire.Message{Kind: shimwire.Idle, Since: time.Now()})
		assert.Equal(t, "idle", s.snapshot().Activity)
		assert.True(t, s.snapshot().Idle)
		s.send(shimwire.Message{Kind: shimwire.Working, Since: time.Now()})
		assert.Equal(t, "working", s.snapshot().Activity)
		require.NoError(t, unix.Send(s.conn, []byte{0xff, 0xff, 0xff}, unix.MSG_NOSIGNAL))
		s.fds.allReady()
		assert.Equal(t, "running", b.state("shop"), "an invalid message is ignored")
		s.disconnect()
	})
}

// TestShim_LearnsThatItsScopeEnds: at a stop, and not when a person only sends a signal.
func TestShim_LearnsThatItsScopeEnds(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.withShim()
		s.hello()
		received := func() error {
			_, _, err := unix.Recvfrom(s.conn, make([]byte, shimwire.MaxMessage), unix.MSG_DONTWAIT|unix.MSG_PEEK)
			return err
		}
		b.call("kill", func(ctx context.Context) error { return b.sup.Kill(ctx, "shop", "agent", int(unix.SIGTERM)) })
		require.ErrorIs(t, received(), unix.EAGAIN)
		b.call("stop", func(ctx context.Context) error { return b.sup.Stop(ctx, "shop", 0) })
		require.NoError(t, received())
		buffer := make([]byte, shimwire.MaxMessage)
		n, _, err := unix.Recvfrom(s.conn, buffer, 0)
		require.NoError(t, err)
		m, err := shimwire.ParseMessage(buffer[:n])
		require.NoError(t, err)
		assert.Equal(t, shimwire.ScopeEnds, m.Kind)
		s.disconnect()
	})
}

// TestRedial_BacksOffFromAShimThatClosesConnections: the shim closes each new connection because
// other processes have all those that it accepts. The daemon keeps trying, less and less often.
func TestRedial_BacksOffFromAShimThatClosesConnections(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.withShim()
		s.hello()
		closed := 0
		for begin := time.Now(); time.Since(begin) < time.Minute; <-time.After(50 * time.Millisecond) {
			_ = unix.Close(s.conn)
			s.ready()
			for {
				fds := []unix.PollFd{{Fd: int32(s.listener), Events: unix.POLLIN}}
				if n, _ := unix.Poll(fds, 0); n != 1 { // 0, or interrupted
					break
				}
				conn, _, err := unix.Accept(s.listener)
				require.NoError(t, err)
				s.conn, closed = conn, closed+1
				_ = unix.Close(conn)
			}
			s.conn = -1
		}
		assert.Less(t, closed, 40)
		assert.Equal(t, "running", b.state("shop"))
		s.disconnect()
	})
}

// TestRedial_WaitsForAFrozenShim: a shim whose queue of connections is full is alive. It is frozen,
// and earlier daemons have tried to connect to it.
func TestRedial_WaitsForAFrozenShim(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.withShim()
		s.hello()
		path := filepath.Join(b.sup.loop.settings.runtimeDir("shop"), shimSocket)
		var waiting []int
		fd, err := shimwire.Dial(path)
		for ; err == nil; fd, err = shimwire.Dial(path) {
			waiting = append(waiting, fd)
		}
		require.ErrorIs(t, err, unix.EAGAIN)
		require.NoError(t, unix.Close(s.conn))
		s.ready()
		<-time.After(time.Minute)
		synctest.Wait()
		assert.Equal(t, "running", b.state("shop"))
		for _, fd := range waiting {
			_ = unix.Close(fd)
		}
		for range waiting {
			conn, _, err := unix.Accept(s.listener)
			require.NoError(t, err)
			_ = unix.Close(conn)
		}
		<-time.After(maxRedialDelay)
		synctest.Wait()
		for { // skips connections that only checked whether the shim is alive, and are closed
			s.conn, _, err = unix.Accept(s.listener)
			require.NoError(t, err)
			if n, _, err := unix.Recvfrom(s.conn, make([]byte, 1), unix.MSG_DONTWAIT); err != nil || n > 0 {
				break
			}
		}
		s.send(shimwire.Message{Kind: shimwire.Idle, Since: time.Now()})
		assert.Equal(t, "idle", s.snapshot().Activity)
		s.disconnect()
	})
}

func TestShimDisconnect_DeterminesTheState(t *testing.T) {
	for _, row := range []struct {
		name   string
		before func(s *shim)
		state  string
	}{
		{"after it has recorded the exit, which is not reported yet", func(s *shim) {
			rec := s.records.last("shop")
			s.writeExitStatus(rec, exitstatus.Status{RunID: rec.Run.ID, Code: exitstatus.Exited, Exited: time.Now()})
		}, "completed"},
		{"killed, and tmux still answers", func(s *shim) { s.system.answers = true }, "failed"},
		{"killed with everything else", func(s *shim) { s.system.populated = false }, "running"},
		{"killed together with tmux, leftover processes exist", func(*shim) {}, "stale"},
	} {
		t.Run(row.name, func(t *testing.T) {
			supervise(t, func(b *bed) {
				s := b.withShim()
				s.hello()
				row.before(s)
				s.disconnect()
				assert.Equal(t, row.state, b.state("shop"))
			})
		})
	}
}

// TestShimDisconnect_OfALiveShimIsFollowedByAReconnect: a shim closes a connection whose reader is
// too slow. It is still alive, and the daemon connects to it again.
func TestShimDisconnect_OfALiveShimIsFollowedByAReconnect(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.withShim()
		s.hello()
		require.NoError(t, unix.Close(s.conn))
		b.sup.loop.post(func() { // for this descriptor only: allReady would report tmux's end, too
			e := b.sup.loop.sessions.byID["shop"]
			e.run.shim.read()
		})
		synctest.Wait()
		assert.Equal(t, "running", s.state("shop"))
		for range 2 { // the check whether the shim is alive, and the new connection
			var err error
			s.conn, _, err = unix.Accept(s.listener)
			require.NoError(t, err)
		}
		s.send(shimwire.Message{Kind: shimwire.Idle, Since: time.Now()})
		assert.Equal(t, "idle", s.snapshot().Activity)
		s.disconnect()
	})
}

func TestPaneClosed_StopsTheSession(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.withShim()
		s.hello()
		b.takeTrace()
		s.send(shimwire.Message{Kind: shimwire.PaneClosed})
		trace := b.takeTrace()
		assert.Contains(t, trace, "0s publish shop: running -> stopping")
		assert.NotContains(t, trace, "0s terminate shop", "its shim has sent it SIGHUP already")
		b.exit("shop", 129)
		b.endScope("shop")
		assert.Equal(t, "stopped", b.state("shop"))
		assert.Equal(t, "its terminal was closed", s.snapshot().Reason)
	})
}

// TestPaneClosed_DoesNotCancelARestart: the user closes the terminal of an agent that is about to
// be started again.
func TestPaneClosed_DoesNotCancelARestart(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.withShim()
		s.hello()
		b.system.start = nil
		b.call("restart", func(ctx context.Context) error { return b.sup.Restart(ctx, "shop") })
		s.send(shimwire.Message{Kind: shimwire.PaneClosed})
		b.exit("shop", 129)
		s.disconnect()
		b.endScope("shop")
		assert.Contains(t, b.takeTrace(), "0s restart: ok")
		assert.Equal(t, "running", b.state("shop"))
	})
}

func TestPaneLost_MakesTheSessionStale(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.withShim()
		s.hello()
		s.send(shimwire.Message{Kind: shimwire.PaneLost})
		assert.Equal(t, "stale", b.state("shop"))
		assert.True(t, s.snapshot().AgentAlive)
		assert.False(t, s.snapshot().SessionAlive)
		s.disconnect()
	})
}

// TestPaneLost_ComesBeforeTheNewTmuxServerIsKnown: a new tmux server dies at once, and the shim
// reports that it has lost its pane before the daemon knows of the server.
func TestPaneLost_ComesBeforeTheNewTmuxServerIsKnown(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.withShim()
		s.hello()
		b.onLoop(func() {
			e := b.sup.loop.sessions.byID["shop"]
			e.apply(session.TmuxStarted{Run: e.rec.Run.ID, Process: session.Process{PID: 10, Start: 100}})
		})
		s.send(shimwire.Message{Kind: shimwire.PaneLost})
		assert.Equal(t, "stale", b.state("shop"))
		b.onLoop(func() { b.system.dead = true })
		require.NoError(t, b.sup.Resume(b.t.Context(), "shop"))
		assert.Equal(t, "stale", b.state("shop"))
		assert.False(t, s.snapshot().SessionAlive)
		s.disconnect()
	})
}

func TestStart_FailsIfTheAgentIsOutsideItsScope(t *testing.T) {
	supervise(t, func(b *bed) {
		b.system.group = "/elsewhere.scope"
		s := b.withShim()
		s.send(shimwire.Message{
			Kind: shimwire.Hello, RunID: b.records.last("shop").Run.ID,
			ShimPID: 11, AgentPID: 12, Started: time.Now(),
		})
		trace := b.takeTrace()
		killed := slices.Index(trace, "0s kill process 12 of shop")
		assert.GreaterOrEqual(t, killed, 0)
		assert.Greater(t, slices.Index(trace, "0s signal all shop SIGTERM"), killed, "its shim records that it was killed")
		assert.Contains(t, trace,
			`0s create: cannot start "shop": its agent was moved out of its scope, into "/elsewhere.scope"`)
		assert.Equal(t, "failed", b.state("shop"))
		s.disconnect()
		b.sup.ScopeEnded(unitname.Scope("command", "shop"), "", "success")
		assert.Equal(t, "start-failed", s.snapshot().Result)
	})
}

// TestResume_FailsIfTheAgentIsOutsideTheExistingScope: the leftover processes in that scope, which
// the new run was to share, are ended with it.
func TestResume_FailsIfTheAgentIsOutsideTheExistingScope(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.withShim()
		s.hello()
		s.disconnect()
		require.Equal(t, "stale", b.state("shop"))
		path := filepath.Join(b.sup.loop.settings.runtimeDir("shop"), shimSocket)
		require.NoError(t, os.Remove(path))
		b.call("resume", func(ctx context.Context) error { return b.sup.Resume(ctx, "shop") })
		b.changed("shop", shimSocket, fsnotify.Create)
		synctest.Wait()
		var err error
		s.conn, _, err = unix.Accept(s.listener)
		require.NoError(t, err)
		b.takeTrace()
		b.system.group = "/elsewhere.scope"
		s.send(shimwire.Message{
			Kind: shimwire.Hello, RunID: b.records.last("shop").Run.ID,
			ShimPID: 11, AgentPID: 12, AgentStart: 121, Started: time.Now(),
		})
		trace := b.takeTrace()
		assert.Contains(t, trace,
			`0s resume: cannot start "shop": its agent was moved out of its scope, into "/elsewhere.scope"`)
		assert.Contains(t, trace, "0s kill process 12 of shop")
		assert.Contains(t, trace, "0s signal all shop SIGTERM")
		<-time.After(session.FailedGrace)
		assert.Contains(t, b.takeTrace(), "1s kill shop")
		s.disconnect()
	})
}

func TestResync(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.withShim()
		s.hello()
		run := b.records.last("shop").Run
		b.system.scopes = []Scope{
			{Name: run.Unit, InvocationID: run.InvocationID, ControlGroup: run.ControlGroup, Active: true},
		}
		b.takeTrace()
		b.sup.loop.adoption.resync()
		assert.Equal(t, "running", b.state("shop"), "systemd lists the same as before")
		b.system.scopes = nil
		b.sup.loop.adoption.resync()
		assert.Equal(t, "running", b.state("shop"), "the kernel still has processes in the scope")
		b.system.populated = false
		b.sup.loop.adoption.resync()
		assert.Equal(t, "failed", b.state("shop"), "the end of the scope was missed")
		s.disconnect()
	})
}
