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

// spareThreads is how many threads the process makes before the agent starts, beside those that it
// has. At most two of its goroutines are in calls that block at any time, the loop (in a file's
// fsync) and the runtime's signal queue, and one more thread may be wanted to run another.
const spareThreads = 2

// memoryLimit is where the garbage collector begins to work: the steady state allocates nothing, a
// connection some hundred bytes.
const memoryLimit = 16 << 20 // bytes, all of the runtime's memory

// settle makes the process one that needs nothing more from the system: no periodic collection, all
// threads that it may ever use. A Go program that cannot have a thread it needs is ended by its
// runtime, and the agent may use up the scope's TasksMax.
func settle() error {
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
		runtime.Gosched() // comes back only when the goroutines that ran are blocked, each in a thread of its own
	}
	return unix.Close(p[1])
}

// giveBack returns the pages of the program's own file that only the start has needed. They come
// back from the page cache as they are used.
func giveBack() {
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

// filePages returns the bounds of the read-only mappings of a file, from the text of
// proc_pid_smaps(5), that differ from the file in no page. In a position-independent executable the
// dynamic linker has written the addresses into some of them before they became read-only (RELRO,
// ld(1)): giving those back would undo the relocation.
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

// readOnlyPages returns the bounds of a mapping of a file that cannot be written to, from its
// first line in proc_pid_smaps(5).
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
