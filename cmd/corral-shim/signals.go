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

// caughtSignals are the signals that must not end the shim. They are caught and not ignored,
// because the agent would inherit an ignored signal.
var caughtSignals = []os.Signal{
	unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGPIPE, unix.SIGUSR1, unix.SIGUSR2,
	unix.SIGALRM, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGCONT, unix.SIGXCPU, unix.SIGXFSZ,
	unix.SIGVTALRM, unix.SIGPROF, unix.SIGIO, unix.SIGPWR, unix.SIGWINCH,
}

// signals records the signals that the process has received.
type signals struct {
	eventfd       int           // becomes readable when a signal was received that the loop has to handle
	resized       atomic.Bool   // SIGWINCH: the size of the shim's terminal has changed
	socketMissing atomic.Bool   // SIGUSR1: the socket should be recreated if it is missing
	sigtermAt     atomic.Int64  // when SIGTERM was last received, by CLOCK_MONOTONIC in nanoseconds, or 0
	sigterms      chan struct{} // one value after SIGTERM; buffer of one
	barriers      chan struct{} // one value for each barrierSignal; buffer of one
}

// barrierSignal is a signal that the process sends to itself to know that it has received every
// signal sent before: the kernel delivers signals with lower numbers first.
const barrierSignal = unix.SIGPWR

// catchSignals installs the signal handlers.
func catchSignals() (*signals, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	s := &signals{eventfd: fd, sigterms: make(chan struct{}, 1), barriers: make(chan struct{}, 1)}
	c := make(chan os.Signal, 8)
	signal.Notify(c, caughtSignals...)
	go s.receive(c)
	return s, nil
}

// receive records the signals from c.
func (s *signals) receive(c <-chan os.Signal) {
	one := []byte{1, 0, 0, 0, 0, 0, 0, 0}
	for received := range c {
		switch received {
		case unix.SIGWINCH:
			s.resized.Store(true)
			_, _ = sysWrite(s.eventfd, one)
		case unix.SIGUSR1:
			s.socketMissing.Store(true)
			_, _ = sysWrite(s.eventfd, one)
		case unix.SIGTERM:
			s.sigtermAt.Store(int64(clock.Monotonic()))
			select {
			case s.sigterms <- struct{}{}:
			default:
			}
		case barrierSignal:
			select {
			case s.barriers <- struct{}{}:
			default:
			}
		}
	}
}

// signalDeliveryTime is how long a busy machine may take to deliver a signal to the goroutine in
// signals.receive.
const signalDeliveryTime = 250 * time.Millisecond

// sigtermDelivery returns the channel for which sigtermTime has to wait. It is called right after
// the agent has exited: if the whole scope gets SIGTERM, the shim gets it before the agent, which
// is its child, but may notice it after the agent's exit. If a daemon is connected, which usually
// knows better who requested what and reports the exit at once, only signals that were sent by now
// are waited for.
func (s *shim) sigtermDelivery() <-chan struct{} {
	if !s.hasDaemon() {
		return s.signals.sigterms
	}
	_ = unix.Kill(os.Getpid(), barrierSignal)
	return s.signals.barriers
}

// sigtermTime returns when the shim, and so presumably the whole scope, received SIGTERM, at most
// exited, the time of the agent's exit; 0 if it received none. delivered is the result of
// sigtermDelivery.
func (s *shim) sigtermTime(delivered <-chan struct{}, exited time.Duration) time.Duration {
	select {
	case <-delivered:
	case <-time.After(signalDeliveryTime):
	}
	return min(time.Duration(s.signals.sigtermAt.Load()), exited)
}

// unblockSignals makes sure that the agent starts with no signal blocked. Go starts a child with
// the signal mask with which the process itself was started, so a process that was started with
// blocked signals executes itself again with an empty mask.
func unblockSignals() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var none, old unix.Sigset_t
	if unix.PthreadSigmask(unix.SIG_SETMASK, &none, &old) == nil && old != none {
		_ = syscall.Exec("/proc/self/exe", os.Args, os.Environ())
	}
}

// defaultLibrarySignals resets the two signals that the C library reserves (32 and 33) to their
// default action. A program started by glibc's posix_spawn, as make starts its commands, ignores
// them; Go does not change that, and the agent would inherit it.
func defaultLibrarySignals() {
	for _, signal := range []uintptr{32, 33} {
		sysDefaultSignal(signal)
	}
}
