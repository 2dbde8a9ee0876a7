package fdpoll

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/testbed"
)

// poller returns a running Poller and the keys that it reports.
func poller(t *testing.T) (*Poller, <-chan Key) {
	t.Helper()
	p, err := New()
	require.NoError(t, err)
	keys, ended := make(chan Key, 1000), make(chan struct{})
	go func() { defer close(ended); p.Run(func(k Key) { keys <- k }) }()
	t.Cleanup(func() {
		_ = p.Close()
		<-ended
	})
	return p, keys
}

func next(t *testing.T, keys <-chan Key) Key {
	t.Helper()
	return testbed.Receive(t, keys, "ready descriptor")
}

// pair returns a connected pair of sockets.
func pair(t *testing.T) (ours, theirs int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = unix.Close(fds[0]), unix.Close(fds[1]) })
	return fds[0], fds[1]
}

func send(t *testing.T, fd int) {
	t.Helper()
	require.NoError(t, unix.Send(fd, []byte("x"), unix.MSG_NOSIGNAL))
}

// requireNone checks that no key was reported until now: it makes another descriptor ready, whose
// key has to be the next one.
func requireNone(t *testing.T, p *Poller, keys <-chan Key) {
	t.Helper()
	const last = 1 << 62
	ours, theirs := pair(t)
	send(t, theirs)
	require.NoError(t, p.Add(ours, last))
	assert.EqualValues(t, last, next(t, keys))
}

func TestPoller_ReportsReadyDescriptorOnce(t *testing.T) {
	p, keys := poller(t)
	ours, theirs := pair(t)
	const key = Key(0xfedcba9876543210) // all 64 bits are returned
	require.NoError(t, p.Add(ours, key))
	requireNone(t, p, keys)
	send(t, theirs)
	assert.Equal(t, key, next(t, keys))
	send(t, theirs)
	requireNone(t, p, keys)
	require.NoError(t, p.Rearm(ours, key))
	assert.Equal(t, key, next(t, keys), "it still is")
}

func TestPoller_ReportsPeerShutdown(t *testing.T) {
	p, keys := poller(t)
	ours, theirs := pair(t)
	require.NoError(t, p.Add(ours, 7))
	require.NoError(t, unix.Shutdown(theirs, unix.SHUT_RDWR))
	assert.Equal(t, Key(7), next(t, keys))
}

func TestPoller_ReportsExitOfPidfd(t *testing.T) {
	p, keys := poller(t)
	cmd := exec.Command("sleep", "infinity")
	require.NoError(t, cmd.Start())
	fd, err := unix.PidfdOpen(cmd.Process.Pid, 0)
	require.NoError(t, err)
	defer func() { _ = unix.Close(fd) }()
	require.NoError(t, p.Add(fd, 9))
	requireNone(t, p, keys)
	require.NoError(t, cmd.Process.Kill())
	assert.Equal(t, Key(9), next(t, keys))
	_ = cmd.Wait()
}

func TestPoller_DoesNotReportRemovedDescriptor(t *testing.T) {
	p, keys := poller(t)
	ours, theirs := pair(t)
	require.NoError(t, p.Add(ours, 1))
	require.NoError(t, p.Remove(ours))
	send(t, theirs)
	requireNone(t, p, keys)
	require.NoError(t, p.Add(ours, 2), "it can be added again, under another key")
	assert.Equal(t, Key(2), next(t, keys))
}

func TestPoller_ReportsManyDescriptors(t *testing.T) {
	const n = 500
	p, keys := poller(t)
	want, got := map[Key]bool{}, map[Key]bool{}
	for i := range n {
		ours, theirs := pair(t)
		send(t, theirs)
		key := Key(i + 1)
		want[key] = true
		require.NoError(t, p.Add(ours, key))
	}
	for range n {
		got[next(t, keys)] = true
	}
	assert.Equal(t, want, got)
}

func TestPoller_RejectsInvalidDescriptors(t *testing.T) {
	p, _ := poller(t)
	require.ErrorIs(t, p.Add(-1, 1), unix.EBADF)
	ours, _ := pair(t)
	require.NoError(t, p.Add(ours, 1))
	require.ErrorIs(t, p.Add(ours, 2), unix.EEXIST)
	require.NoError(t, p.Close())
	require.Error(t, p.Rearm(ours, 1), "closed")
}
