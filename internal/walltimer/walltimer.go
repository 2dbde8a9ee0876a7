// Package walltimer provides a timer on the wall clock. It fires when its time has come, even if
// the machine slept meanwhile, and whenever the clock was set. Go's own timers stop while the
// machine sleeps. See timerfd_create(2), TFD_TIMER_CANCEL_ON_SET.
package walltimer

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Timer is a timer on the wall clock.
type Timer struct {
	file *os.File
	raw  syscall.RawConn
}

// New returns a timer that is not set.
func New() (*Timer, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_REALTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("cannot create a timer: %w", err)
	}
	file := os.NewFile(uintptr(fd), "timer")
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("cannot create a timer: %w", err)
	}
	return &Timer{file, raw}, nil
}

// Set sets the timer to fire at a time, or disarms it if that is the zero time. It fires at once if
// the time has passed.
func (t *Timer) Set(at time.Time) error {
	var spec unix.ItimerSpec
	if !at.IsZero() {
		spec.Value = unix.Timespec{Sec: max(at.Unix(), 1)} // all zero would disarm the timer
		if at.Unix() > 0 {
			spec.Value.Nsec = int64(at.Nanosecond())
		}
	}
	var err error
	if e := t.raw.Control(func(fd uintptr) {
		err = unix.TimerfdSettime(int(fd), unix.TFD_TIMER_ABSTIME|unix.TFD_TIMER_CANCEL_ON_SET, &spec, nil)
	}); e != nil {
		return e
	}
	return err
}

// Run calls f each time the timer fires or the clock was set, until Close.
func (t *Timer) Run(f func()) {
	buf := make([]byte, 8)
	for {
		_, err := t.file.Read(buf)
		if err != nil && !errors.Is(err, unix.ECANCELED) {
			return
		}
		f()
	}
}

// Close makes Run return.
func (t *Timer) Close() error { return t.file.Close() }
