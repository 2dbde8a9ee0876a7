package main

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The source of an event: the Fd field of its unix.EpollEvent.
const (
	eventMaster = iota // the agent's terminal
	eventPane          // the pane's terminal
	eventAgent         // the agent's pidfd
	eventTimer
	eventSignal // signals.eventfd
	eventServer // the pidfd of the pane's tmux server
	eventProbe  // the connection that shows whether that server still runs
	eventListener
	eventNotify
	eventGuard // the agent may have created a forbidden file
	eventConn  // the first of maxConns
)

// poller is an epoll set with edge-triggered descriptors, so that descriptors never have to be
// registered again.
//
// It waits through the Go runtime's poller and not in epoll_wait: a goroutine in a long system call
// keeps the runtime's monitor thread awake, a goroutine that waits in the runtime's poller does
// not.
type poller struct {
	fd     int
	file   *os.File
	conn   syscall.RawConn
	events [16]unix.EpollEvent
	n      int
	poll   func(uintptr) bool
}

func newPoller() (*poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	// os.NewFile adds only non-blocking descriptors to the runtime's poller.
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, err
	}
	p := &poller{fd: fd, file: os.NewFile(uintptr(fd), "epoll")}
	p.poll = func(uintptr) bool {
		p.n = sysEpollWait(p.fd, p.events[:])
		return p.n > 0
	}
	p.conn, err = p.file.SyscallConn()
	return p, err
}

// add watches fd for input, room for output, and hangup until it is closed.
func (p *poller) add(fd, source int) error {
	return unix.EpollCtl(p.fd, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{
		Events: unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET, Fd: int32(source),
	})
}

// wait returns the pending events. It waits for the first one unless busy is true.
func (p *poller) wait(busy bool) []unix.EpollEvent {
	if busy {
		_ = p.poll(0)
	} else if err := p.conn.Read(p.poll); err != nil {
		printError("cannot wait for events: " + err.Error())
		os.Exit(exitFailure)
	}
	return p.events[:p.n]
}

// The timers of the shim.
const (
	timerIdle     = iota // the agent may have become idle
	timerPaneLoss        // the tmux server has had paneLossTimeout to exit after the hangup
	timerTerm            // the agent has had sigtermDelay to exit after SIGHUP
	timerInput           // the agent may have read its input
	timerRedraw          // a new pane shows the agent: restore the terminal's true size
	timerReport          // the rate limit permits the next report
	timerPrompt          // the agent may be ready for its prompt
	timerScreen          // the screen is to be searched
	timerCount
)

// timers multiplexes one timerfd. It is armed for the earliest timer and not changed when that one
// is postponed, which output does with timerIdle thousands of times a second.
type timers struct {
	fd    int
	base  time.Time
	due   [timerCount]time.Duration // since base; 0 if the timer is off
	armed time.Duration             // since base; 0 if the timerfd is off
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

func (t *timers) isSet(id int) bool { return t.due[id] != 0 }

func (t *timers) clear(id int) { t.due[id] = 0 }

// fired returns the timers that are due as a bit set, and arms the timerfd for the next one.
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
