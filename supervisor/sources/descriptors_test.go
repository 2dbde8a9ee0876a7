package sources

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/fdpoll"
)

// poller is a Poller that records what it waits for.
type poller struct {
	keys  map[int]fdpoll.Key
	fails error // returned by Add
}

func (p *poller) Add(fd int, key fdpoll.Key) error {
	if p.fails != nil {
		return p.fails
	}
	p.keys[fd] = key
	return nil
}

func (p *poller) Rearm(fd int, key fdpoll.Key) error { return p.Add(fd, key) }
func (p *poller) Remove(fd int) error                { delete(p.keys, fd); return nil }
func (p *poller) Run(func(fdpoll.Key))               {}
func (p *poller) Close() error                       { return nil }

func openNull(t *testing.T) int {
	t.Helper()
	fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	return fd
}

func isClosed(fd int) bool {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	return err == unix.EBADF
}

func TestDescriptors_CallTheFunctionOfTheDescriptor(t *testing.T) {
	p := &poller{keys: map[int]fdpoll.Key{}}
	all := NewDescriptors(p)
	var ready []string
	watch := func(name string) (d Descriptor, key fdpoll.Key) {
		fd := openNull(t)
		d, err := all.Watch(fd, func() { ready = append(ready, name) })
		require.NoError(t, err)
		assert.True(t, d.IsOpen())
		assert.Equal(t, fd, d.FD())
		return d, p.keys[fd]
	}
	first, firstKey := watch("first")
	second, secondKey := watch("second")
	all.Handle(secondKey)
	all.Handle(firstKey)
	require.NoError(t, all.Rearm(first))
	all.Handle(firstKey)
	assert.Equal(t, []string{"second", "first", "first"}, ready)

	fd, closed := first.FD(), first
	all.Close(&first)
	assert.Equal(t, Descriptor{}, first)
	assert.False(t, first.IsOpen())
	assert.True(t, isClosed(fd))
	assert.NotContains(t, p.keys, fd)
	all.Handle(firstKey) // reported before it was closed
	assert.Len(t, ready, 3)
	all.Close(&first) // there is none

	again, _ := watch("again")
	assert.Equal(t, fd, again.FD(), "the kernel uses the lowest free number")
	assert.NotEqual(t, closed, again)
	all.Close(&again)
	all.Close(&second)
	assert.Empty(t, all.onReady)
}

func TestDescriptors_CloseWhatCannotBeWatched(t *testing.T) {
	all := NewDescriptors(&poller{fails: unix.ENOSPC})
	fd := openNull(t)
	d, err := all.Watch(fd, func() {})
	require.ErrorIs(t, err, unix.ENOSPC)
	assert.False(t, d.IsOpen())
	assert.True(t, isClosed(fd))
	assert.Empty(t, all.onReady)
}
