package main

import (
	"os"
	"os/signal"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/clock"
)

// survived are the signals that a shim outlives. They are caught, not ignored, because an ignored
// signal would be inherited by the agent.
var survived = []os.Signal{
	unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGPIPE, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM,
	unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGCONT, unix.SIGXCPU, unix.SIGXFSZ, unix.SIGVTALRM, unix.SIGPROF, unix.SIGIO, unix.SIGPWR,
	unix.SIGWINCH,
}

// signals is what the process hears by signals.
type signals struct {
	heard   int          // a descriptor that becomes readable when one of these is heard that the loop has to do something about
	resized atomic.Bool  // the size of the process's terminal has changed
	missing atomic.Bool  // somebody misses the socket
	told    atomic.Int64 // when the process was told to end, the last time: CLOCK_MONOTONIC in nanoseconds, 0 if it was not
	tells   chan struct{}
	marks   chan struct{} // one for each markSignal that was heard; buffered by one
}

// markSignal is what the process sends to itself to know that it has heard every signal that was
// sent before: the kernel delivers those with lower numbers first.
const markSignal = unix.SIGPWR

// catchSignals begins to hear.
func catchSignals() (*signals, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	s := &signals{heard: fd, tells: make(chan struct{}, 1), marks: make(chan struct{}, 1)}
	c := make(chan os.Signal, 8)
	signal.Notify(c, survived...)
	go s.hear(c)
	return s, nil
}

func (s *signals) hear(c <-chan os.Signal) {
	one := []byte{1, 0, 0, 0, 0, 0, 0, 0}
	for heard := range c {
		switch heard {
		case unix.SIGWINCH:
			s.resized.Store(true)
			_, _ = sysWrite(s.heard, one)
		case unix.SIGUSR1:
			s.missing.Store(true)
			_, _ = sysWrite(s.heard, one)
		case unix.SIGTERM:
			s.told.Store(int64(clock.Monotonic()))
			select {
			case s.tells <- struct{}{}:
			default:
			}
		case markSignal:
			select {
			case s.marks <- struct{}{}:
			default:
			}
		}
	}
}

// hearTime is how long the process may take, on a machine that has much to do, to hear of a signal
// that it has got.
const hearTime = 250 * time.Millisecond

// noticing is what told has to wait for. It is called once the agent has ended, before anything
// else is done: the shim gets a SIGTERM for all of the scope before the agent, which is its child,
// but may notice it after the agent's end. Where a daemon is there, which as a rule knows better
// who has asked for what and reports the exit at once, only the signals that were sent by now are
// waited for.
func (s *shim) noticing() <-chan struct{} {
	if !s.attended() {
		return s.signals.tells
	}
	_ = unix.Kill(os.Getpid(), markSignal)
	return s.signals.marks
}

// told is when everybody in the scope was told to end, and with them the agent, which has ended at
// exited; 0 if that was not so.
func (s *shim) told(noticed <-chan struct{}, exited time.Duration) time.Duration {
	select {
	case <-noticed:
	case <-time.After(hearTime):
	}
	return min(time.Duration(s.signals.told.Load()), exited)
}

// unblockSignals makes sure that the agent starts with no signal blocked. Go gives a child the mask
// that the process itself was started with, so a process that was started with blocked signals
// replaces itself by one that was not.
func unblockSignals() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var none, old unix.Sigset_t
	if unix.PthreadSigmask(unix.SIG_SETMASK, &none, &old) == nil && old != none {
		_ = syscall.Exec("/proc/self/exe", os.Args, os.Environ())
	}
}

// defaultLibrarySignals gives the two signals that the C library keeps for itself their default
// meaning. A program that glibc's posix_spawn has started ignores them (make starts its commands
// so), Go leaves them as they are, and the agent would inherit that.
func defaultLibrarySignals() {
	for _, signal := range []uintptr{32, 33} {
		sysDefaultSignal(signal)
	}
}
