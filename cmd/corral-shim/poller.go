package main

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// What an event is about: the Fd field of its unix.EpollEvent.
const (
	aboutMaster = iota // the agent's terminal
	aboutPane          // the pane's terminal
	aboutAgent         // its pidfd
	aboutTimer
	aboutSignal // the eventfd of signals
	aboutServer // the pidfd of the pane's tmux server
	aboutProbe  // the connection that tells whether that server still lives
	aboutListener
	aboutNotify
	aboutConn // the first of maxConns
)

// poller is an epoll set with edge-triggered descriptors, so that nothing has to be registered anew
// while it is used.
//
// It waits through the Go runtime's own poller rather than in epoll_wait: to the runtime, a
// goroutine in a long system call is a reason to keep its monitor thread awake, one that waits in
// its poller is not.
type poller struct {
	fd     int
	file   *os.File
	conn   syscall.RawConn
	events [16]unix.EpollEvent
	n      int
	look   func(uintptr) bool
}

func newPoller() (*poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, true); err != nil { // or os.NewFile would not hand it to the runtime's poller
		return nil, err
	}
	p := &poller{fd: fd, file: os.NewFile(uintptr(fd), "epoll")}
	p.look = func(uintptr) bool {
		p.n = sysEpollWait(p.fd, p.events[:])
		return p.n > 0
	}
	p.conn, err = p.file.SyscallConn()
	return p, err
}

// add watches fd until it is closed, for input, room for output, and hangup.
func (p *poller) add(fd, about int) error {
	return unix.EpollCtl(p.fd, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{
		Events: unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET, Fd: int32(about),
	})
}

// wait returns the events that there are, waiting for the first one unless there is something else
// to do.
func (p *poller) wait(busy bool) []unix.EpollEvent {
	if busy {
		_ = p.look(0)
	} else if err := p.conn.Read(p.look); err != nil {
		complain("cannot wait for events: " + err.Error())
		os.Exit(exitBroken)
	}
	return p.events[:p.n]
}

// Why the shim has a timer.
const (
	timerIdle    = iota // the agent may have become idle
	timerVerdict        // the pane is gone, and its tmux server has had the time to die too
	timerTerm           // the agent has had the time to end by the hangup of its terminal
	timerInput          // the agent may have read its input
	timerRedraw         // a new pane shows the agent: give its terminal its true size
	timerSaid           // what the agent has said may be told
	timerPrompt         // the agent may be told its prompt
	timerSetup          // the agent has had the time to say something: see setup
	timerCount
)

// timers shares one timerfd. It is set for the earliest of them and left alone when that one is put
// off, which is what output does to timerIdle thousands of times a second.
type timers struct {
	fd    int
	base  time.Time
	due   [timerCount]time.Duration // since base, 0 if the timer is off
	armed time.Duration             // since base, 0 if the timerfd is off
}

func newTimers() (*timers, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	return &timers{fd: fd, base: time.Now().Add(-time.Second)}, err
}

func (t *timers) set(id int, at time.Time) {
	t.due[id] = max(at.Sub(t.base), 1)
	if t.armed == 0 || t.due[id] < t.armed {
		t.arm(t.due[id])
	}
}

func (t *timers) clear(id int) { t.due[id] = 0 }

// fired returns the timers that are due, as bits, and sets the timerfd for the next one.
func (t *timers) fired() (due uint) {
	var b [8]byte
	_, _ = sysRead(t.fd, b[:])
	now, next := time.Since(t.base), time.Duration(0)
	for id, at := range t.due {
		switch {
		case at == 0:
		case at <= now:
			t.due[id] = 0
			due |= 1 << id
		case next == 0 || at < next:
			next = at
		}
	}
	t.armed = 0
	if next != 0 {
		t.arm(next)
	}
	return due
}

func (t *timers) arm(at time.Duration) {
	t.armed = at
	left := max(at-time.Since(t.base), 1)
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(left))}
	sysSetTimer(t.fd, &spec)
}
