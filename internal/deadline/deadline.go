// Package deadline provides timers and contexts that cause no wakeup after they were stopped. Go's
// own do: the runtime keeps a stopped timer, and the processor sleeps only until the time at which
// it would have fired. A daemon that bounds all of its requests, and receives the replies in time,
// would be woken for each of them, up to a quarter of an hour later.
//
// All timers of the process share one timerfd, which is set to the first of them or disarmed. See
// timerfd_create(2). Like Go's timers, they stop while the machine sleeps. If the process itself
// was stopped (SIGSTOP, a debugger), timers that expired meanwhile are postponed once: most of them
// bound how long something may take, and what has arrived while the process could not read it has
// to be read first.
package deadline

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/clock"
)

// Timer calls a function once, unless it is stopped.
type Timer struct {
	at        time.Duration // on CLOCK_MONOTONIC
	postponed bool          // it was postponed once because the process was stopped
	f         func()
	fallback  *time.Timer // used if the kernel provides no timerfd
}

// AfterFunc calls f in its own goroutine after the duration, like time.AfterFunc.
func AfterFunc(after time.Duration, f func()) *Timer {
	t := &Timer{at: clock.Monotonic() + max(after, 0), f: f}
	if err := processTimers.add(t); err != nil {
		t.fallback = time.AfterFunc(after, f)
	}
	return t
}

// Stop stops the timer, and reports whether it has done so before the timer fired. It may be called
// more than once.
func (t *Timer) Stop() bool {
	if t.fallback != nil {
		return t.fallback.Stop()
	}
	return processTimers.remove(t)
}

// Stopper is a running timer: a Timer of this package or of package time.
type Stopper interface{ Stop() bool }

// Start is a function that starts a timer: Real, or the replacement of a test with simulated time.
type Start func(after time.Duration, f func()) Stopper

// Context is like context.WithTimeout: it returns a context that ends after the duration with
// context.DeadlineExceeded, or earlier when parent ends or cancel is called. The caller must call
// cancel.
func Context(parent context.Context, after time.Duration) (ctx context.Context, cancel context.CancelFunc) {
	return Start(Real).Context(parent, after)
}

// Real is AfterFunc as a Start.
func Real(after time.Duration, f func()) Stopper { return AfterFunc(after, f) }

// Context is like the function Context, with timers of start.
func (start Start) Context(
	parent context.Context, after time.Duration,
) (ctx context.Context, cancel context.CancelFunc) {
	at := time.Now().Add(after)
	if earlier, ok := parent.Deadline(); ok && earlier.Before(at) {
		return context.WithCancel(parent)
	}
	c := &timeoutContext{Context: parent, at: at, done: make(chan struct{})}
	detach := context.AfterFunc(parent, func() { c.end(parent.Err()) })
	t := start(after, func() { c.end(context.DeadlineExceeded) })
	return c, func() {
		detach()
		t.Stop()
		c.end(context.Canceled)
	}
}

// timeoutContext is a context with a deadline. It has its own channel, not that of a context of
// package context: contexts derived from it would take their error from the latter.
type timeoutContext struct {
	context.Context // parent
	at              time.Time
	done            chan struct{}

	mu  sync.Mutex
	err error // set when done is closed
}

// Deadline returns the latest time at which the context ends.
func (c *timeoutContext) Deadline() (time.Time, bool) { return c.at, true }

// Done returns a channel that is closed when the context ends.
func (c *timeoutContext) Done() <-chan struct{} { return c.done }

// Err returns the reason for the end of the context, nil before it.
func (c *timeoutContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *timeoutContext) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
		close(c.done)
	}
}

// processTimers are the timers of this process.
var processTimers queue

// queue contains timers, the earliest first, and the timerfd that is set to the earliest.
type queue struct {
	mu      sync.Mutex
	timers  []*Timer
	file    *os.File // nil until the first timer was added
	raw     syscall.RawConn
	armedAt time.Duration // time to which the descriptor is set, 0 if disarmed
}

func (q *queue) add(t *Timer) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.open(); err != nil {
		return err
	}
	q.insert(t)
	q.arm()
	return nil
}

func (q *queue) insert(t *Timer) {
	i, _ := slices.BinarySearchFunc(q.timers, t.at, func(t *Timer, at time.Duration) int { return cmp.Compare(t.at, at) })
	q.timers = slices.Insert(q.timers, i, t)
}

func (q *queue) remove(t *Timer) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.timers, t)
	if i < 0 {
		return false
	}
	q.timers = slices.Delete(q.timers, i, i+1)
	q.arm()
	return true
}

func (q *queue) open() error {
	if q.file != nil {
		return nil
	}
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return err
	}
	file := os.NewFile(uintptr(fd), "deadlines")
	raw, err := file.SyscallConn()
	if err != nil {
		_ = file.Close()
		return err
	}
	q.file, q.raw = file, raw
	go func() { panic(fmt.Errorf("cannot wait for the timers of this process: %w", q.run())) }()
	return nil
}

// arm sets the descriptor to the first timer, or disarms it if there is none.
func (q *queue) arm() {
	var first time.Duration
	if len(q.timers) > 0 {
		first = max(q.timers[0].at, 1) // all zero would disarm the timerfd
	}
	if first == q.armedAt {
		return
	}
	q.armedAt = first
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(first))}
	// Neither call fails: the descriptor is open and the time is valid.
	_ = q.raw.Control(func(fd uintptr) {
		_ = unix.TimerfdSettime(int(fd), unix.TFD_TIMER_ABSTIME, &spec, nil)
	})
}

// run calls the functions of expired timers, until reading the descriptor fails. The failure ends
// the process: without its timers none of its waits would be bounded any more, and whoever
// supervises the process would not notice. os.File repeats a read that was interrupted by a signal.
func (q *queue) run() error {
	buf := make([]byte, 8)
	for {
		if _, err := q.file.Read(buf); err != nil {
			return err
		}
		for _, f := range q.due() {
			go f()
		}
	}
}

// If a timer is handled more than lateAfter after its time, the process was stopped or had no
// processor meanwhile. The timer is then postponed, once, by postponement.
const (
	lateAfter    = 2 * time.Second
	postponement = 5 * time.Second
)

// due removes the expired timers from the queue and returns their functions. It postpones, once,
// timers that expired long ago.
func (q *queue) due() (fs []func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.armedAt = 0 // the timerfd has fired
	for now := clock.Monotonic(); len(q.timers) > 0 && q.timers[0].at <= now; {
		t := q.timers[0]
		q.timers = slices.Delete(q.timers, 0, 1)
		if now-t.at > lateAfter && !t.postponed {
			t.at, t.postponed = now+postponement, true
			q.insert(t)
		} else {
			fs = append(fs, t.f)
		}
	}
	q.arm()
	return fs
}
