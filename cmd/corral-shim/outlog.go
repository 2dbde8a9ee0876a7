package main

import (
	"bytes"
	"errors"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

const (
	logName = "output.log"
	oldName = "output.log.1"

	minLog  = 8 << 10 // bytes: less is taken as this
	noteMax = 256     // bytes, of a line that says what is missing
)

// outputLog keeps what the agent prints: output.log in the session's state directory, and
// output.log.1, which came before it. Both together stay within a limit, and each begins and ends
// with whole lines, as far as a line is not too long for that.
type outputLog struct {
	path    string // of the directory
	dir     int
	fd      int   // of output.log, -1 while it cannot be opened
	size    int64 // of output.log
	soft    int64 // output.log is renamed at the first line end beyond this size
	hard    int64 // and at this one wherever the line ends
	missing int64 // bytes that could not be written since the last that could
	why     unix.Errno
	sizes   logSizes
}

// openLog opens the log in the directory stateDir; limit is for both files, in bytes. A log that
// cannot be opened is tried again at each write.
func openLog(stateDir string, limit int64) (*outputLog, error) {
	dir, err := openDir(stateDir)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: stateDir, Err: err}
	}
	l := &outputLog{path: stateDir, dir: dir, fd: -1}
	l.hard = max(limit, minLog)/2 - noteMax
	l.soft = l.hard - min(l.hard/4, 64<<10)
	l.sizes.load(dir)
	if older, newer := l.shorten(oldName), l.shorten(logName); older+newer > 0 {
		l.sizes.all.TrimStarts(older, newer)
		l.sizes.save(dir)
	}
	l.open()
	return l, nil
}

func openDir(path string) (int, error) {
	return unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
}

// openFile opens a file in a directory. It follows no link and waits for nobody; what it opens may
// be no regular file.
func openFile(dir int, name string, flags int) (int, error) {
	return unix.Openat(dir, name, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o600) //nolint:forbidigo // safefile has no directory descriptors
}

// write appends b. What cannot be written is counted, and the count is the next thing that is
// written.
func (l *outputLog) write(b []byte) {
	if l.fd >= 0 && sysLinks(l.fd) == 0 { // somebody has removed it
		l.beginAnew()
	}
	for len(b) > 0 {
		if l.fd < 0 && !l.open() {
			l.miss(len(b))
			return
		}
		n, full := l.fit(b)
		l.put(b[:n])
		b = b[n:]
		if full && !l.rotate() {
			l.miss(len(b))
			return
		}
	}
}

// fit tells how much of b goes into output.log, and whether that fills it.
func (l *outputLog) fit(b []byte) (n int, full bool) {
	size := int64(len(b))
	if l.size+size <= l.soft {
		return len(b), false
	}
	if l.size >= l.hard {
		return 0, true
	}
	from, to := max(l.soft-l.size, 0), min(l.hard-l.size, size)
	if i := bytes.IndexByte(b[from:to], '\n'); i >= 0 {
		return int(from) + i + 1, true
	}
	if l.size+size < l.hard {
		return len(b), false
	}
	if i := bytes.LastIndexByte(b[:from], '\n'); i >= 0 {
		return i + 1, true
	}
	return int(to), true
}

func (l *outputLog) put(b []byte) {
	if len(b) == 0 {
		return
	}
	if l.missing > 0 && !l.note() {
		l.miss(len(b))
		return
	}
	l.sizes.mark(l.dir, l.size)
	n, e := sysWrite(l.fd, b)
	if e == 0 && n < len(b) { // the disk or the quota ended in between: the next attempt says why
		l.size += int64(n)
		b = b[n:]
		n, e = sysWrite(l.fd, b)
	}
	l.size += int64(n)
	if n < len(b) {
		l.why = e
		l.miss(len(b) - n)
	}
}

func (l *outputLog) miss(n int) { l.missing += int64(n) }

// note writes how many bytes are missing at this place, wholly or not at all.
func (l *outputLog) note() bool {
	line := make([]byte, 0, noteMax)
	line = append(line, "\r\n[corral: "...)
	line = strconv.AppendInt(line, l.missing, 10)
	line = append(line, " bytes of output are missing here"...)
	if l.why != 0 {
		line = append(append(line, ": "...), l.why.Error()...)
	}
	line = append(line, "]\r\n"...)
	n, e := sysWrite(l.fd, line)
	if n < len(line) {
		if n > 0 {
			_ = unix.Ftruncate(l.fd, l.size)
		}
		if e != 0 {
			l.why = e
		}
		return false
	}
	l.size += int64(n)
	l.missing, l.why = 0, 0
	return true
}

func (l *outputLog) open() bool {
	const flags = unix.O_WRONLY | unix.O_APPEND | unix.O_CREAT
	fd, err := openFile(l.dir, logName, flags)
	if errors.Is(err, unix.ENOENT) && l.enterAnew() {
		fd, err = openFile(l.dir, logName, flags)
	}
	if err != nil {
		l.why, _ = err.(unix.Errno) //nolint:errorlint // unix calls return bare numbers
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

// rotate makes output.log the older file and begins a new one.
func (l *outputLog) rotate() bool {
	if err := unix.Renameat(l.dir, logName, l.dir, oldName); err != nil {
		if err == unix.ENOENT { // somebody has moved it away
			l.beginAnew()
			return l.open()
		}
		l.why, _ = err.(unix.Errno) //nolint:errorlint // unix calls return bare numbers
		return false
	}
	l.sizes.rotate(l.dir, l.size)
	_ = unix.Close(l.fd)
	l.fd, l.size = -1, 0
	return l.open()
}

// beginAnew lets go of a file that is not the log any more.
func (l *outputLog) beginAnew() {
	_ = unix.Close(l.fd)
	l.sizes.all.TrimStarts(0, l.size)
	l.sizes.save(l.dir)
	l.fd, l.size = -1, 0
}

// enterAnew opens the directory again, if another one has taken its place: the daemon makes it once
// more where somebody has removed it.
func (l *outputLog) enterAnew() bool {
	dir, err := openDir(l.path)
	if err != nil {
		return false
	}
	_ = unix.Close(l.dir)
	l.dir = dir
	l.sizes.load(dir)
	return true
}

// shorten cuts a file that is larger than one file may be, which is so if the limit has become
// smaller, down to the last of its lines. It returns how many bytes it took away.
func (l *outputLog) shorten(name string) int64 {
	fd, err := openFile(l.dir, name, unix.O_RDWR)
	if err != nil {
		return 0
	}
	defer func() { _ = unix.Close(fd) }()
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Size <= l.hard {
		return 0
	}
	from, to := st.Size-l.hard, int64(0)
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
