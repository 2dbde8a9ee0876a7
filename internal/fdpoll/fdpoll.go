// Package fdpoll waits for many descriptors (pidfds, sockets) with one goroutine and no thread: a
// goroutine for each would cost kilobytes for each session, a blocked thread far more.
//
// It is an epoll instance which is itself waited for by Go's poller. See epoll(7): an epoll
// descriptor can be polled.
package fdpoll

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Poller is an epoll instance.
type Poller struct {
	file *os.File
	raw  syscall.RawConn
}

// Key names a descriptor to whoever waits for it. A key is never used twice, so that an event that
// was under way when its descriptor was removed is told from one of a descriptor that got the same
// number.
type Key uint64

// New makes a poller.
func New() (*Poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot wait for descriptors: %w", err)
	}
	file := os.NewFile(uintptr(fd), "epoll")
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("cannot wait for descriptors: %w", err)
	}
	return &Poller{file: file, raw: raw}, nil
}

// Add waits for fd to be readable, or hung up. Each time it is, Run calls its function with key,
// once: Again waits for the next time.
func (p *Poller) Add(fd int, key Key) error {
	return p.control(unix.EPOLL_CTL_ADD, fd, key)
}

// Rearm waits for a descriptor that was told of once more.
func (p *Poller) Rearm(fd int, key Key) error {
	return p.control(unix.EPOLL_CTL_MOD, fd, key)
}

// Remove ends the waiting for fd, which must still be open.
func (p *Poller) Remove(fd int) error {
	return p.control(unix.EPOLL_CTL_DEL, fd, 0)
}

func (p *Poller) control(op, fd int, key Key) error {
	event := unix.EpollEvent{
		Events: unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLONESHOT,
		Fd:     int32(key & 0xffffffff),
		Pad:    int32(key >> 32),
	}
	var err error
	if e := p.raw.Control(func(ep uintptr) { err = unix.EpollCtl(int(ep), op, fd, &event) }); e != nil {
		return e
	}
	return err
}

// Run calls f with the keys of the descriptors that are ready, until Close.
func (p *Poller) Run(f func(Key)) {
	events := make([]unix.EpollEvent, 128)
	for {
		var n int
		var err error
		closed := p.raw.Read(func(ep uintptr) bool {
			n, err = unix.EpollWait(int(ep), events, 0)
			return n != 0 || err != nil && !errors.Is(err, unix.EINTR)
		})
		if closed != nil || err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
		for _, e := range events[:max(n, 0)] {
			f(Key(uint32(e.Fd)) | Key(uint32(e.Pad))<<32)
		}
	}
}

// Close ends Run. The descriptors stay open.
func (p *Poller) Close() error { return p.file.Close() }
