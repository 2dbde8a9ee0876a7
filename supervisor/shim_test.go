package supervisor

import (
	"context"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/internal/fdpoll"
	"github.com/corrald/corral/internal/shimwire"
	"github.com/corrald/corral/supervisor/session"
)

// shim is the other end of the loop's connection to a session's shim. It speaks over a real socket.
type shim struct {
	*bed
	listener, conn int
}

// withShim creates a session whose shim listens, and has told nothing yet.
func (b *bed) withShim() *shim {
	b.t.Helper()
	s := &shim{bed: b}
	path := filepath.Join(b.sup.runtimeDir("shop"), shimSocket)
	b.world.start = func(p Plan, tell func(session.Event)) error {
		scopeRuns(p, tell)
		var err error
		s.listener, err = listen(path)
		return err
	}
	b.call("create", func(ctx context.Context) error {
		_, err := b.sup.Create(ctx, "command", Spec{ID: "shop", Command: []string{"true"}})
		return err
	})
	b.heard()
	b.files.tell(filepath.Dir(path), shimSocket, unix.IN_CREATE)
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

// says has the shim say something, and epoll tell of it.
func (s *shim) says(m shimwire.Message) {
	s.t.Helper()
	require.NoError(s.t, unix.Send(s.conn, m.Append(nil), unix.MSG_NOSIGNAL))
	s.ready()
}

func (s *shim) hello() {
	s.t.Helper()
	s.says(shimwire.Message{Kind: shimwire.Hello, RunID: s.records.last("shop").Run.ID, ShimPID: 11, AgentPID: 12, AgentStart: 120, Started: time.Now(), Since: time.Now()})
	require.Equal(s.t, "running", s.state("shop"))
}

// hangUp closes the connection, as the kernel does when the shim is dead.
func (s *shim) hangUp() {
	_, _ = unix.Close(s.conn), unix.Close(s.listener)
	s.fds.all()
	synctest.Wait()
}

// ready tells of the loop's connection to the shim alone, if there is one.
func (s *shim) ready() {
	s.t.Helper()
	var key fdpoll.Key
	require.NoError(s.t, s.sup.do(func() { key = s.sup.sessions["shop"].run.shim.key }))
	if key != 0 {
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

func TestTheShimTellsOfTheAgent(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.withShim()
		assert.Equal(t, "starting", b.state("shop"))
		s.says(shimwire.Message{Kind: shimwire.Hello, RunID: "another", AgentPID: 99})
		assert.Equal(t, "starting", b.state("shop"), "another run's")
		s.hello()
		assert.EqualValues(t, 12, s.snapshot().MainPID)
		assert.Equal(t, "working", s.snapshot().Activity)
		s.says(shimwire.Message{Kind: shimwire.Idle, Since: time.Now()})
		assert.Equal(t, "idle", s.snapshot().Activity)
		assert.True(t, s.snapshot().Idle)
		s.says(shimwire.Message{Kind: shimwire.Working, Since: time.Now()})
		assert.Equal(t, "working", s.snapshot().Activity)
		require.NoError(t, unix.Send(s.conn, []byte{0xff, 0xff, 0xff}, unix.MSG_NOSIGNAL))
		s.fds.all()
		assert.Equal(t, "running", b.state("shop"), "what it does not understand it passes over")
		s.hangUp()
	})
}

// TestAShimThatTakesNoMore is connected to again, not all the time: others have all the connections that it takes.
func TestAShimThatTakesNoMore(t *testing.T) {
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
		s.hangUp()
	})
}

// TestAShimThatTakesNone lives: it is frozen, and earlier daemons have waited for it before.
func TestAShimThatTakesNone(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.withShim()
		s.hello()
		path := filepath.Join(b.sup.runtimeDir("shop"), shimSocket)
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
		<-time.After(lastRedial)
		synctest.Wait()
		for { // what only looked whether it was there
			s.conn, _, err = unix.Accept(s.listener)
			require.NoError(t, err)
			if n, _, err := unix.Recvfrom(s.conn, make([]byte, 1), unix.MSG_DONTWAIT); err != nil || n > 0 {
				break
			}
		}
		s.says(shimwire.Message{Kind: shimwire.Idle, Since: time.Now()})
		assert.Equal(t, "idle", s.snapshot().Activity)
		s.hangUp()
	})
}

func TestAShimHangsUp(t *testing.T) {
	for _, row := range []struct {
		name   string
		before func(s *shim)
		state  string
	}{
		{"after it has recorded the exit, which nobody has told of yet", func(s *shim) {
			rec := s.records.last("shop")
			s.record(rec, exitstatus.Status{RunID: rec.Run.ID, Code: exitstatus.Exited, Exited: time.Now()})
		}, "completed"},
		{"killed, and tmux still answers", func(s *shim) { s.world.answers = true }, "failed"},
		{"killed with everything else", func(s *shim) { s.world.populated = false }, "running"},
		{"killed together with tmux, something is left", func(*shim) {}, "stale"},
	} {
		t.Run(row.name, func(t *testing.T) {
			supervise(t, func(b *bed) {
				s := b.withShim()
				s.hello()
				row.before(s)
				s.hangUp()
				assert.Equal(t, row.state, b.state("shop"))
			})
		})
	}
}

// A shim gives up a connection that does not take what it says. It lives, and is listened to again.
func TestAShimThatOnlyHangsUpLives(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.withShim()
		s.hello()
		require.NoError(t, unix.Close(s.conn))
		b.sup.post(func() { // of this descriptor alone: all of them would tell of tmux's end, too
			e := b.sup.sessions["shop"]
			b.sup.hearShim(e, e.rec.Run.ID)
		})
		synctest.Wait()
		assert.Equal(t, "running", s.state("shop"))
		for range 2 { // the question whether it lives, and the new connection
			var err error
			s.conn, _, err = unix.Accept(s.listener)
			require.NoError(t, err)
		}
		s.says(shimwire.Message{Kind: shimwire.Idle, Since: time.Now()})
		assert.Equal(t, "idle", s.snapshot().Activity)
		s.hangUp()
	})
}

func TestAClosedPaneIsAStop(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.withShim()
		s.hello()
		b.heard()
		s.says(shimwire.Message{Kind: shimwire.PaneClosed})
		told := b.heard()
		assert.Contains(t, told, "0s publish shop: running -> stopping")
		assert.NotContains(t, told, "0s ask agent shop", "its shim has hung up on it already")
		b.exit("shop", 129)
		b.empty("shop")
		assert.Equal(t, "stopped", b.state("shop"))
		assert.Equal(t, "its terminal was closed", s.snapshot().Reason)
	})
}

func TestALostPaneIsStale(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.withShim()
		s.hello()
		s.says(shimwire.Message{Kind: shimwire.PaneLost})
		assert.Equal(t, "stale", b.state("shop"))
		assert.True(t, s.snapshot().AgentAlive)
		assert.False(t, s.snapshot().SessionAlive)
		s.hangUp()
	})
}

// TestANewTmuxServerThatDiesAtOnce: its shim tells that it has lost its pane before anybody knows of the server.
func TestANewTmuxServerThatDiesAtOnce(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.withShim()
		s.hello()
		b.meanwhile(func() {
			e := b.sup.sessions["shop"]
			b.sup.apply(e, session.TmuxStarted{Run: e.rec.Run.ID, Process: session.Process{PID: 10, Start: 100}})
		})
		s.says(shimwire.Message{Kind: shimwire.PaneLost})
		assert.Equal(t, "stale", b.state("shop"))
		b.meanwhile(func() { b.world.dead = true })
		require.NoError(t, b.sup.Resume(b.t.Context(), "shop"))
		assert.Equal(t, "stale", b.state("shop"))
		assert.False(t, s.snapshot().SessionAlive)
		s.hangUp()
	})
}

func TestAnAgentOutsideOfItsScopeIsNotStarted(t *testing.T) {
	supervise(t, func(b *bed) {
		b.world.group = "/elsewhere.scope"
		s := b.withShim()
		s.says(shimwire.Message{Kind: shimwire.Hello, RunID: b.records.last("shop").Run.ID, ShimPID: 11, AgentPID: 12, Started: time.Now()})
		told := b.heard()
		assert.Contains(t, told, "0s signal agent shop SIGKILL")
		assert.Contains(t, told, `0s create: cannot start "shop": its agent was moved out of its scope, into "/elsewhere.scope"`)
		assert.Equal(t, "failed", b.state("shop"))
		s.hangUp()
		b.sup.ScopeEnded(UnitName("command", "shop"), "", "success")
		assert.Equal(t, "start-failed", s.snapshot().Result)
	})
}

func TestResync(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.withShim()
		s.hello()
		run := b.records.last("shop").Run
		b.world.scopes = []Scope{{Name: run.Unit, InvocationID: run.InvocationID, ControlGroup: run.ControlGroup, Active: true}}
		b.heard()
		b.sup.Resync()
		assert.Equal(t, "running", b.state("shop"), "told the same again")
		b.world.scopes = nil
		b.sup.Resync()
		assert.Equal(t, "running", b.state("shop"), "the kernel has processes where systemd has no scope")
		b.world.populated = false
		b.sup.Resync()
		assert.Equal(t, "failed", b.state("shop"), "its end was missed")
		s.hangUp()
	})
}
