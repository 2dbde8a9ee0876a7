// Package walltimer is an alarm by the wall clock: it goes off when the time has come, also if the
// machine slept meanwhile, and whenever somebody has set the clock. Go's own timers stand still
// while the machine sleeps. See timerfd_create(2), TFD_TIMER_CANCEL_ON_SET.
package walltimer

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Timer is an alarm.
type Timer struct {
	file *os.File
	raw  syscall.RawConn
}

// New makes a timer that is not set.
func New() (*Timer, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_REALTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("cannot make an alarm: %w", err)
	}
	file := os.NewFile(uintptr(fd), "timer")
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("cannot make an alarm: %w", err)
	}
	return &Timer{file, raw}, nil
}

// Set sets the alarm to a time; the zero time takes it off. A time that is past makes it go off at
// once.
func (t *Timer) Set(at time.Time) error {
	var spec unix.ItimerSpec
	if !at.IsZero() {
		spec.Value = unix.Timespec{Sec: max(at.Unix(), 1)} // all zero would take it off
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

// Run calls f each time the alarm goes off or the clock was set, until Close.
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

// Close ends Run.
func (t *Timer) Close() error { return t.file.Close() }
