package proc

import (
	"bufio"
	"bytes"
	"io"
	"iter"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ReleaseFilePages releases the pages of the own executable, most of which only the start has
// needed. The kernel maps those that are used again from the page cache.
func ReleaseFilePages() {
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
