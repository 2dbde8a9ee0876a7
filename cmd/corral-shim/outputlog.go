package main

import (
	"bytes"
	"errors"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/shimwire"
)

const (
	minLogSize = 8 << 10 // bytes; lower limits are raised to this
	maxNote    = 256     // maximum size of a note about missing output, in bytes
)

// outputLog logs the agent's output in the session's state directory: output.log, and the older
// output.log.1. Both together stay within a size limit, and each starts and ends with complete
// lines unless a line is too long for that.
type outputLog struct {
	dirPath   string // path of the directory
	dir       int
	fd        int   // of output.log; -1 while it cannot be opened
	size      int64 // bytes in output.log
	softLimit int64 // output.log is rotated at the first line end beyond this size
	hardLimit int64 // and at this size even within a line
	missing   int64 // bytes that could not be written since the last successful write
	lastError unix.Errno
	sizes     sizeRecord
	times     timeRecord
}

// openLog opens the log in the directory stateDir; limit is for both files together, in bytes. If
// output.log cannot be opened, each write tries again.
func openLog(stateDir string, limit int64) (*outputLog, error) {
	dir, err := openDir(stateDir)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: stateDir, Err: err}
	}
	l := &outputLog{dirPath: stateDir, dir: dir, fd: -1}
	l.hardLimit = max(limit, minLogSize)/2 - maxNote
	l.softLimit = l.hardLimit - min(l.hardLimit/4, 64<<10)
	l.sizes.load(dir)
	if older, newer := l.truncateStart(shimwire.OlderLogName), l.truncateStart(shimwire.LogName); older+newer > 0 {
		l.sizes.sizes.TrimStarts(older, newer)
		l.sizes.save(dir)
	}
	l.open()
	return l, nil
}

func openDir(path string) (int, error) {
	return unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
}

// openFile opens a file in a directory. It does not follow symbolic links and does not block; the
// file may be of any type.
func openFile(dir int, name string, flags int) (int, error) {
	flags |= unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	return unix.Openat(dir, name, flags, 0o600) //nolint:forbidigo // safefile has no directory descriptors
}

// write appends b. It counts bytes that cannot be written; the next successful write is preceded by
// a note with their number.
func (l *outputLog) write(b []byte) {
	if l.fd >= 0 && sysLinks(l.fd) == 0 { // output.log was removed
		l.closeFile()
	}
	for len(b) > 0 {
		if l.fd < 0 && !l.open() {
			l.countMissing(len(b))
			return
		}
		n, full := l.fit(b)
		l.append(b[:n])
		b = b[n:]
		if full && !l.rotate() {
			l.countMissing(len(b))
			return
		}
	}
}

// fit returns how many bytes of b belong into output.log, and whether output.log is full then.
func (l *outputLog) fit(b []byte) (n int, full bool) {
	size := int64(len(b))
	if l.size+size <= l.softLimit {
		return len(b), false
	}
	if l.size >= l.hardLimit {
		return 0, true
	}
	from, to := max(l.softLimit-l.size, 0), min(l.hardLimit-l.size, size)
	if i := bytes.IndexByte(b[from:to], '\n'); i >= 0 {
		return int(from) + i + 1, true
	}
	if l.size+size < l.hardLimit {
		return len(b), false
	}
	if i := bytes.LastIndexByte(b[:from], '\n'); i >= 0 {
		return i + 1, true
	}
	return int(to), true
}

// append writes b to output.log, after a note if bytes are missing.
func (l *outputLog) append(b []byte) {
	if len(b) == 0 {
		return
	}
	if l.missing > 0 && !l.writeNote() {
		l.countMissing(len(b))
		return
	}
	l.sizes.recordAt(l.dir, l.size)
	l.times.recordAt(l.dir, l.sizes.sizes.Start(), l.size)
	n, e := sysWrite(l.fd, b)
	if e == 0 && n < len(b) { // disk or quota are full; the second attempt returns the error
		l.size += int64(n)
		b = b[n:]
		n, e = sysWrite(l.fd, b)
	}
	l.size += int64(n)
	if n < len(b) {
		l.lastError = e
		l.countMissing(len(b) - n)
	}
}

func (l *outputLog) countMissing(n int) { l.missing += int64(n) }

// writeNote writes a line with the number of missing bytes, completely or not at all.
func (l *outputLog) writeNote() bool {
	line := make([]byte, 0, maxNote)
	line = append(line, "\r\n[corral: "...)
	line = strconv.AppendInt(line, l.missing, 10)
	line = append(line, " bytes of output are missing here"...)
	if l.lastError != 0 {
		line = append(append(line, ": "...), l.lastError.Error()...)
	}
	line = append(line, "]\r\n"...)
	n, e := sysWrite(l.fd, line)
	if n < len(line) {
		if n > 0 {
			_ = unix.Ftruncate(l.fd, l.size)
		}
		if e != 0 {
			l.lastError = e
		}
		return false
	}
	l.size += int64(n)
	l.missing, l.lastError = 0, 0
	return true
}

func (l *outputLog) open() bool {
	const flags = unix.O_WRONLY | unix.O_APPEND | unix.O_CREAT
	fd, err := openFile(l.dir, shimwire.LogName, flags)
	if errors.Is(err, unix.ENOENT) && l.reopenDir() {
		fd, err = openFile(l.dir, shimwire.LogName, flags)
	}
	if err != nil {
		l.lastError, _ = err.(unix.Errno) //nolint:errorlint // unix calls return bare numbers
		return false
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		_ = unix.Close(fd)
		return false
	}
	_ = unix.Fchmod(fd, 0o600)
	l.fd, l.size = fd, st.Size
	return true
}

// rotate renames output.log to output.log.1 and opens a new file.
func (l *outputLog) rotate() bool {
	if err := unix.Renameat(l.dir, shimwire.LogName, l.dir, shimwire.OlderLogName); err != nil {
		if err == unix.ENOENT { // output.log was moved away
			l.closeFile()
			return l.open()
		}
		l.lastError, _ = err.(unix.Errno) //nolint:errorlint // unix calls return bare numbers
		return false
	}
	l.sizes.rotate(l.dir, l.size)
	l.times.rotate(l.dir)
	_ = unix.Close(l.fd)
	l.fd, l.size = -1, 0
	return l.open()
}

// closeFile closes a file that was removed or moved away by others.
func (l *outputLog) closeFile() {
	_ = unix.Close(l.fd)
	l.sizes.sizes.TrimStarts(0, l.size)
	l.sizes.save(l.dir)
	l.fd, l.size = -1, 0
}

// reopenDir opens the directory at dirPath again: if it was removed, the daemon creates it anew.
func (l *outputLog) reopenDir() bool {
	dir, err := openDir(l.dirPath)
	if err != nil {
		return false
	}
	_ = unix.Close(l.dir)
	l.dir = dir
	l.sizes.load(dir)
	return true
}

// truncateStart removes the first lines of a file that exceeds hardLimit, as after the limit was
// lowered. It returns how many bytes it removed.
func (l *outputLog) truncateStart(name string) int64 {
	fd, err := openFile(l.dir, name, unix.O_RDWR)
	if err != nil {
		return 0
	}
	defer func() { _ = unix.Close(fd) }()
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Size <= l.hardLimit {
		return 0
	}
	from, to := st.Size-l.hardLimit, int64(0)
	b := make([]byte, 32<<10)
	for first := true; ; first = false {
		n, err := unix.Pread(fd, b, from)
		if err != nil || n <= 0 {
			break
		}
		from += int64(n)
		part := b[:n]
		if first {
			part = part[bytes.IndexByte(part, '\n')+1:]
		}
		if _, err := unix.Pwrite(fd, part, to); err != nil {
			break
		}
		to += int64(len(part))
	}
	_ = unix.Ftruncate(fd, to)
	return st.Size - to
}
