// Package fdpoll waits for many descriptors (pidfds, sockets) with one goroutine and no thread. A
// goroutine per descriptor would cost kilobytes for each session, a blocked thread far more.
//
// A Poller is an epoll instance that Go's own poller waits for. See epoll(7): an epoll descriptor
// can be polled.
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

// Key identifies a descriptor to the caller. Keys must not be reused: a pending event of a removed
// descriptor is thus distinguished from one of a new descriptor with the same number.
type Key uint64

// New returns a new Poller.
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

// Add adds fd, which is reported when it is readable or its peer has closed it. Run then calls its
// function once with key; Rearm makes it report fd again.
func (p *Poller) Add(fd int, key Key) error {
	return p.control(unix.EPOLL_CTL_ADD, fd, key)
}

// Rearm makes Run report a descriptor once more that it has already reported.
func (p *Poller) Rearm(fd int, key Key) error {
	return p.control(unix.EPOLL_CTL_MOD, fd, key)
}

// Remove removes fd, which must still be open.
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

// Run calls f with the keys of ready descriptors, until Close.
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

// Close makes Run return. The descriptors stay open.
func (p *Poller) Close() error { return p.file.Close() }
