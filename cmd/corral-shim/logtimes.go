package main

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/logtimes"
)

// timeRecord records, at most once per second, when output is logged, in a file beside the log. If
// an entry cannot be written, the output has the time of the entry before it.
type timeRecord struct {
	last   int64 // time of the last output, in seconds since 1970
	buffer [logtimes.MaxEntry]byte
}

// recordAt records the current time before output is written at offset at of the newer file, which
// starts at the offset start of the log.
func (r *timeRecord) recordAt(dir int, start, at int64) {
	now := time.Now().Unix()
	if now == r.last {
		return
	}
	r.last = now
	fd, err := openFile(dir, logtimes.FileName, unix.O_WRONLY|unix.O_APPEND|unix.O_CREAT)
	if err != nil {
		return
	}
	defer func() { _ = unix.Close(fd) }()
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size >= logtimes.MaxSize(at) {
		return
	}
	entry := logtimes.Entry{Offset: start + at, Time: now}.Append(r.buffer[:0])
	if n, _ := sysWrite(fd, entry); n > 0 && n < len(entry) { // the disk or the quota is full
		_ = unix.Ftruncate(fd, st.Size)
	}
}

// rotate begins a new file. The log was rotated before.
func (r *timeRecord) rotate(dir int) {
	_ = unix.Renameat(dir, logtimes.FileName, dir, logtimes.OlderFileName)
	r.last = 0
}

func removeTimes(dir int) {
	_ = unix.Unlinkat(dir, logtimes.FileName, 0)
	_ = unix.Unlinkat(dir, logtimes.OlderFileName, 0)
}
