package main

import (
	"bufio"
	"bytes"
	"io"
	"iter"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
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

// releaseFilePages releases pages of the executable that only the start has needed. The kernel
// loads them again from the page cache when they are used.
func releaseFilePages() {
	smaps, err := os.Open("/proc/self/smaps")
	if err != nil {
		return
	}
	defer func() { _ = smaps.Close() }()
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	for from, to := range filePages(smaps, exe) {
		_, _, _ = unix.RawSyscall(unix.SYS_MADVISE, uintptr(from), uintptr(to-from), unix.MADV_DONTNEED)
	}
}

// filePages returns the bounds of the read-only mappings of a file in which no page differs from
// the file, from the content of proc_pid_smaps(5). In a position-independent executable the dynamic
// linker writes addresses into some mappings before it makes them read-only (RELRO, ld(1));
// releasing those would undo the relocation.
func filePages(smaps io.Reader, file string) iter.Seq2[uint64, uint64] {
	return func(yield func(from, to uint64) bool) {
		var from, to uint64
		var candidate bool
		for lines := bufio.NewScanner(smaps); lines.Scan(); {
			line := lines.Bytes()
			if bytes.HasSuffix(line, []byte(file)) {
				from, to, candidate = readOnlyPages(string(line), file)
			}
			size, ok := bytes.CutPrefix(line, []byte("Anonymous:"))
			if !ok {
				continue
			}
			if candidate && string(bytes.TrimSpace(size)) == "0 kB" && !yield(from, to) {
				return
			}
			candidate = false
		}
	}
}

// readOnlyPages returns the bounds of a mapping of a file that cannot be written to, from the first
// line of its entry in proc_pid_smaps(5).
func readOnlyPages(line, file string) (from, to uint64, ok bool) {
	bounds, rest, _ := strings.Cut(line, " ")
	if !strings.HasPrefix(rest, "r") || strings.HasPrefix(rest, "rw") || !strings.HasSuffix(rest, " "+file) {
		return 0, 0, false
	}
	low, high, _ := strings.Cut(bounds, "-")
	from, err1 := strconv.ParseUint(low, 16, 64)
	to, err2 := strconv.ParseUint(high, 16, 64)
	return from, to, err1 == nil && err2 == nil && from < to
}
