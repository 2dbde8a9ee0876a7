package main

import (
	"runtime"
	"runtime/debug"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// spareThreads is how many additional threads the process creates before the agent starts. At most
// two of its goroutines are in blocking system calls at any time, the loop (in fsync of a file) and
// the runtime's signal queue, and one more thread may be needed to run another goroutine.
const spareThreads = 2

// memoryLimit is the amount of memory at which the garbage collector starts. The main loop
// allocates nothing, a connection some hundred bytes.
const memoryLimit = 16 << 20 // bytes, all of the runtime's memory

// preallocate makes sure that the process needs nothing more from the system: it disables periodic
// garbage collection and creates all threads that it may ever need. The Go runtime aborts if it
// cannot create a thread, and the agent may use up the scope's TasksMax.
func preallocate() error {
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(memoryLimit)
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return err
	}
	defer func() { _ = unix.Close(p[0]) }()
	var blocked atomic.Int32
	for range spareThreads {
		go func() {
			var b [1]byte
			blocked.Add(1)
			_, _ = unix.Read(p[0], b[:]) // until the other end is closed
		}()
	}
	for blocked.Load() < spareThreads {
		runtime.Gosched() // returns only when the other goroutines are blocked, each in its own thread
	}
	return unix.Close(p[1])
}
