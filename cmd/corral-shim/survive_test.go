package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/clock"
	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/internal/proc"
	"github.com/corrald/corral/internal/shimwire"
	"github.com/corrald/corral/internal/testbed"
)

func TestShim_SurvivesSignals(t *testing.T) {
	s := newTestSession(t, "sh", "-c", "read a; echo got $a; exit 7").startShim()
	d := s.connect()
	for _, sig := range []unix.Signal{
		unix.SIGTERM, unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGPIPE,
		unix.SIGUSR1, unix.SIGUSR2,
		unix.SIGALRM, unix.SIGCHLD, unix.SIGCONT, unix.SIGURG, unix.SIGWINCH,
	} {
		require.NoError(t, unix.Kill(d.hello.ShimPID, sig))
	}
	s.typeKeys("word\n")
	s.waitFor("got word")
	assert.Equal(t, 7, s.wait())
	assert.Equal(t, 7, s.status().Value)
}

// TestSocket_IsRecreatedOnSIGUSR1 covers a removed socket, a removed directory, and a socket that
// was replaced by a file. Existing connections stay open.
func TestSocket_IsRecreatedOnSIGUSR1(t *testing.T) {
	ts := newTestSession(t, "sh", "-c", "read a; exit 7")
	s := ts.startShim()
	d := ts.connect()
	terminal := func() string {
		name, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/0", d.hello.ShimPID))
		require.NoError(t, err)
		return name
	}
	pane := terminal()
	for _, dir := range []bool{false, true} {
		require.NoError(t, os.Remove(ts.spec.Socket))
		if dir {
			require.NoError(t, os.RemoveAll(filepath.Dir(ts.spec.Socket)))
			require.NoError(t, unix.Kill(d.hello.ShimPID, unix.SIGUSR1)) // its directory does not exist yet
			require.NoError(t, os.Mkdir(filepath.Dir(ts.spec.Socket), 0o700))
		}
		require.NoError(t, unix.Kill(d.hello.ShimPID, unix.SIGUSR1))
		assert.Equal(t, d.hello.AgentPID, ts.connect().hello.AgentPID)
	}
	before, err := os.Stat(ts.spec.Socket)
	require.NoError(t, err)
	require.NoError(t, unix.Kill(d.hello.ShimPID, unix.SIGUSR1))
	ts.connect()
	assert.Equal(t, pane, terminal())
	after, err := os.Stat(ts.spec.Socket)
	require.NoError(t, err)
	assert.True(t, os.SameFile(before, after), "an existing socket is kept")
	other := ts.spec.Socket + ".other"
	require.NoError(t, os.WriteFile(other, nil, 0o600))
	require.NoError(t, os.Rename(other, ts.spec.Socket))
	require.NoError(t, unix.Kill(d.hello.ShimPID, unix.SIGUSR1))
	testbed.Poll(t, "a socket in place of the other file", func() bool {
		there, err := os.Lstat(ts.spec.Socket)
		return err == nil && there.Mode().Type() == os.ModeSocket
	})
	assert.Equal(t, d.hello.AgentPID, ts.connect().hello.AgentPID)
	s.typeKeys("\n")
	assert.Equal(t, 7, s.wait())
}

// TestExitStatus_RecordsSIGTERMOfTheScope covers a connected daemon too, which may exit before it
// learns about the SIGTERM.
func TestExitStatus_RecordsSIGTERMOfTheScope(t *testing.T) {
	for _, row := range []struct {
		name                  string
		all, daemon, recorded bool
	}{{"all", true, false, true}, {"the agent alone", false, false, false}, {"all, with a daemon", true, true, true}} {
		t.Run(row.name, func(t *testing.T) {
			s := newTestSession(t, "sleep", "1000").startShim()
			d := s.connect()
			if !row.daemon {
				d.close()
			}
			before := clock.Monotonic()
			if row.all {
				require.NoError(t, unix.Kill(d.hello.ShimPID, unix.SIGTERM))
			}
			require.NoError(t, unix.Kill(d.hello.AgentPID, unix.SIGTERM))
			s.wait()
			status := s.status()
			assert.Equal(t, int(unix.SIGTERM), status.Value)
			if !row.recorded {
				assert.Zero(t, status.SIGTERMMonotonic)
				return
			}
			assert.GreaterOrEqual(t, status.SIGTERMMonotonic, before.Truncate(time.Microsecond))
			assert.LessOrEqual(t, status.SIGTERMMonotonic, status.ExitedMonotonic)
		})
	}
}

func TestShim_ReportsActivity(t *testing.T) {
	ts := newTestSession(t, "sh", "-c", "stty -echo; echo one; read a; echo two; read a")
	s := ts.startShim()
	d := ts.connect()
	hello := d.hello
	assert.Equal(t, "run-1", hello.RunID)
	assert.Equal(t, s.cmd.Process.Pid, hello.ShimPID)
	status, err := proc.Stat(hello.AgentPID)
	require.NoError(t, err)
	assert.Equal(t, status.Start, hello.AgentStart)
	assert.NotZero(t, hello.AgentStart)
	assert.True(t, hello.Pane)
	assert.False(t, hello.Idle)
	assert.Equal(t, hello.Started, hello.Since)
	assert.InDelta(t, clock.Monotonic()-time.Since(hello.Since), hello.SinceMonotonic, float64(time.Second),
		"the same moment by the other clock")
	s.waitFor("one")

	idle := d.expect(shimwire.Idle)
	assert.GreaterOrEqual(t, time.Since(idle.Since), ts.spec.IdleAfter)
	late := ts.connect()
	assert.True(t, late.hello.Idle)
	assert.Equal(t, idle.Since, late.hello.Since)

	before := time.Now().Add(-time.Microsecond)
	s.typeKeys("\n")
	for _, x := range []*daemon{d, late} {
		working := x.next()
		assert.Equal(t, shimwire.Working, working.Kind)
		assert.False(t, working.Since.Before(before.Truncate(time.Microsecond)))
		assert.Equal(t, shimwire.Idle, x.next().Kind)
	}
	s.typeKeys("\n")
	require.Equal(t, 0, s.wait())
	assert.Equal(t, shimwire.Typed, late.nextOfAll().Kind)
	_, err = late.receive()
	assert.ErrorIs(t, err, errClosed)
}

func TestConnections_AreLimited(t *testing.T) {
	ts := newTestSession(t, "sleep", "1000")
	ts.startShim()
	first := ts.connect()
	for range maxConns - 1 {
		ts.connect()
	}
	fd, err := shimwire.DialWait(ts.spec.Socket)
	require.NoError(t, err)
	refused := &daemon{t: t, fd: fd}
	_, err = refused.receive()
	require.ErrorIs(t, err, errClosed)
	refused.close()
	first.close()
	// The slot is free as soon as the shim has noticed the end of the connection, which an accepted
	// new connection shows.
	for {
		if fd, err = shimwire.DialWait(ts.spec.Socket); err != nil {
			require.NoError(t, err)
		}
		again := &daemon{t: t, fd: fd}
		m, err := again.receive()
		again.close()
		if err == nil {
			assert.Equal(t, shimwire.Hello, m.Kind)
			return
		}
		require.ErrorIs(t, err, errClosed)
	}
}

func TestConnections_CloseOnInvalidMessages(t *testing.T) {
	ts := newTestSession(t, "sh", "-c", "read a; exit 2")
	s := ts.startShim()
	s.connectAndSend([]byte("t\x01"))
	s.connectAndSend(make([]byte, shimwire.MaxMessage+1))
	d := ts.connect()
	d.send(shimwire.Message{Kind: 'Z', Data: []byte("of a younger daemon")})
	d.send(shimwire.Message{Kind: shimwire.Join})
	d.send(shimwire.Message{Kind: shimwire.Resized})
	assert.Empty(t, d.sendTextAndWait(1, "\n", 0).Error)
	assert.Equal(t, 2, s.wait())
}

// connectAndSend sends one datagram and waits until the shim closes the connection.
func (s *testTerminal) connectAndSend(b []byte) {
	s.t.Helper()
	d := s.connect()
	_ = unix.Sendto(d.fd, b, unix.MSG_NOSIGNAL, &unix.SockaddrUnix{})
	for {
		if _, err := d.receive(); err != nil {
			return
		}
	}
}

func TestSocket_AcceptsLongPaths(t *testing.T) {
	ts := newTestSession(t, "sh", "-c", "read a")
	dir := filepath.Join(ts.dir, strings.Repeat("d", 100), strings.Repeat("e", 100))
	require.NoError(t, os.MkdirAll(dir, 0o700))
	ts.spec.Socket = filepath.Join(dir, "shim.sock")
	s := ts.startShim()
	d := ts.connect()
	st, err := os.Stat(ts.spec.Socket)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), st.Mode().Perm())
	d.sendTextAndWait(1, "\n", 0)
	assert.Equal(t, 0, s.wait())
	assert.Equal(t, []string{exitstatus.FileName}, ts.runtimeFiles())
}

func TestSocket_LeavesReplacementInPlace(t *testing.T) {
	ts := newTestSession(t, "sh", "-c", "read a")
	s := ts.startShim()
	s.connect()
	require.NoError(t, os.Remove(ts.spec.Socket))
	require.NoError(t, os.WriteFile(ts.spec.Socket, nil, 0o600))
	s.typeKeys("\n")
	require.Equal(t, 0, s.wait())
	assert.FileExists(t, ts.spec.Socket)
}

// TestShim_NeedsNoNewThreadsWhileRunning prevents a running shim from creating threads, as an agent
// does that uses up the scope's TasksMax. Everything must work as before.
func TestShim_NeedsNoNewThreadsWhileRunning(t *testing.T) {
	ts := newTestSession(t, "sh", "-c", "stty -echo; prlimit --pid $PPID --nproc=0:0 && echo taken away; "+
		"while read a; do seq 20000; echo $a; done; exit 11")
	s := ts.startShim(ts.asUnprivileged()) // RLIMIT_NPROC does not apply to root
	d := ts.connect()
	second := ts.connect()
	s.waitFor("taken away")
	threads := ts.threads(d)
	for i, word := range []string{"alpha", "beta", "gamma", "delta"} {
		assert.Empty(t, d.sendTextAndWait(uint32(i), word, shimwire.FlagEnter).Error)
		s.waitFor("\n" + word)
		s.setSize(30+uint16(i), 100)
		require.NoError(t, unix.Kill(d.hello.ShimPID, unix.SIGTERM))
		d.expect(shimwire.Idle)
	}
	second.close()
	assert.Equal(t, threads, ts.threads(d))
	s.typeKeys("\x04")
	assert.Equal(t, 11, s.wait())
	st := s.status()
	assert.Equal(t, exitstatus.Exited, st.Code)
	assert.Equal(t, 11, st.Value)
}

func (ts *testSession) threads(d *daemon) int {
	ts.t.Helper()
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", d.hello.ShimPID))
	require.NoError(ts.t, err)
	return len(tasks)
}
