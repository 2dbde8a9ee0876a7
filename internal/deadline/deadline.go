// Package deadline has timers and contexts that wake nobody once they were called off. Go's own do:
// its runtime keeps a timer that was stopped, and the processor sleeps no longer than until its
// time would have come. A daemon that bounds all it asks for, and gets its answers, would be woken
// up to a quarter of an hour later for each.
//
// All timers of the process are one timerfd, which is set to the first of them, or not at all. See
// timerfd_create(2). As Go's timers do, they stand still while the machine sleeps. And where the
// process itself was stopped (SIGSTOP, a debugger), what has become due meanwhile waits for a while
// longer: most of these timers bound how long something may take, and what has arrived while nobody
// could read it is to be read first.
package deadline

import (
	"container/heap"
	"context"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/clock"
)

// Timer calls a function once, unless it is stopped.
type Timer struct {
	at     time.Duration // by CLOCK_MONOTONIC
	late   bool          // it was put off once, since the process was stopped
	f      func()
	index  int         // in the queue, -1 if it is not in there any more
	spared *time.Timer // what stands in where the kernel gives no descriptor
}

// AfterFunc calls f after a time, on a goroutine of its own, as time.AfterFunc does.
func AfterFunc(after time.Duration, f func()) *Timer {
	t := &Timer{at: clock.Monotonic() + max(after, 0), f: f}
	if err := all.add(t); err != nil {
		t.index, t.spared = -1, time.AfterFunc(after, f)
	}
	return t
}

// Stop calls it off, and tells whether it was in time. It may be called more than once.
func (t *Timer) Stop() bool {
	if t.spared != nil {
		return t.spared.Stop()
	}
	return all.remove(t)
}

// Stopper is a timer that was started: a Timer, or one of package time's.
type Stopper interface{ Stop() bool }

// Start starts a timer: AfterFunc, or what a test with a time of its own has for it.
type Start func(after time.Duration, f func()) Stopper

// Context is context.WithTimeout: it returns a context that is done after a time, with
// context.DeadlineExceeded, or when parent or cancel says so. The caller calls cancel.
func Context(parent context.Context, after time.Duration) (ctx context.Context, cancel context.CancelFunc) {
	return Start(Real).Context(parent, after)
}

// Real is AfterFunc as a Start.
func Real(after time.Duration, f func()) Stopper { return AfterFunc(after, f) }

// Context is Context by these timers.
func (start Start) Context(parent context.Context, after time.Duration) (ctx context.Context, cancel context.CancelFunc) {
	at := time.Now().Add(after)
	if earlier, ok := parent.Deadline(); ok && earlier.Before(at) {
		return context.WithCancel(parent)
	}
	c := &timed{Context: parent, at: at, done: make(chan struct{})}
	forget := context.AfterFunc(parent, func() { c.end(parent.Err()) })
	t := start(after, func() { c.end(context.DeadlineExceeded) })
	return c, func() {
		forget()
		t.Stop()
		c.end(context.Canceled)
	}
}

// timed is a context that tells of its deadline. Its channel is its own, and not one of package
// context's: those that are derived from it would take their error from there.
type timed struct {
	context.Context // its parent
	at              time.Time
	done            chan struct{}

	mu  sync.Mutex
	err error // why done was closed
}

// Deadline is when it is done at the latest.
func (c *timed) Deadline() (time.Time, bool) { return c.at, true }

// Done is closed when it is done.
func (c *timed) Done() <-chan struct{} { return c.done }

// Err tells why it is done, nil as long as it is not.
func (c *timed) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *timed) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
		close(c.done)
	}
}

// all are the timers of this process.
var all queue

// queue is a heap of timers, the first one to come on top, and the timerfd that is set to it.
type queue struct {
	mu     sync.Mutex
	timers timers
	file   *os.File // nil until there was a timer
	raw    syscall.RawConn
	set    time.Duration // what the descriptor is set to, 0 if it is not
}

func (q *queue) add(t *Timer) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.open(); err != nil {
		return err
	}
	heap.Push(&q.timers, t)
	q.arm()
	return nil
}

func (q *queue) remove(t *Timer) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if t.index < 0 {
		return false
	}
	heap.Remove(&q.timers, t.index)
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

// arm sets the descriptor to the first timer, or takes it off where there is none.
func (q *queue) arm() {
	var first time.Duration
	if len(q.timers) > 0 {
		first = max(q.timers[0].at, 1) // all zero would take it off
	}
	if first == q.set {
		return
	}
	q.set = first
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(first))}
	_ = q.raw.Control(func(fd uintptr) { // neither fails: the descriptor is ours and stays open, and the time is one
		_ = unix.TimerfdSettime(int(fd), unix.TFD_TIMER_ABSTIME, &spec, nil)
	})
}

// run calls what has become due, until the descriptor cannot be read. That ends the process:
// without its timers it would bound nothing any more that it waits for, and whoever watches it
// would not notice. A read that a signal has interrupted is none that has failed, os.File repeats
// it.
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

// A timer that is noticed more than tooLate after its time was due while the process was stopped,
// or had no processor. It goes off after grace, once.
const (
	tooLate = 2 * time.Second
	grace   = 5 * time.Second
)

// due takes what has become due out of the queue, and puts off, once, what has become due long ago.
func (q *queue) due() (fs []func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.set = 0 // it has gone off
	for now := clock.Monotonic(); len(q.timers) > 0 && q.timers[0].at <= now; {
		if t := q.timers[0]; now-t.at > tooLate && !t.late {
			t.at, t.late = now+grace, true
			heap.Fix(&q.timers, 0)
			continue
		}
		t, _ := heap.Pop(&q.timers).(*Timer)
		fs = append(fs, t.f)
	}
	q.arm()
	return fs
}

// timers is a heap.Interface.
type timers []*Timer

// Len is for package heap, as those that follow are.
func (ts *timers) Len() int { return len(*ts) }

// Less tells which one comes first.
func (ts *timers) Less(i, j int) bool { return (*ts)[i].at < (*ts)[j].at }

// Swap lets two change places.
func (ts *timers) Swap(i, j int) {
	all := *ts
	all[i], all[j] = all[j], all[i]
	all[i].index, all[j].index = i, j
}

// Push adds a timer.
func (ts *timers) Push(x any) {
	t, _ := x.(*Timer)
	t.index = len(*ts)
	*ts = append(*ts, t)
}

// Pop takes the last one away.
func (ts *timers) Pop() any {
	last := len(*ts) - 1
	t := (*ts)[last]
	(*ts)[last] = nil
	*ts, t.index = (*ts)[:last], -1
	return t
}
