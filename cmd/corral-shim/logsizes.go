package main

import (
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/termsizes"
)

// newSizes is what the file of sizes is called until it takes the place of the one before.
const newSizes = "." + termsizes.FileName

// logSizes keep how large the agent's terminal was at each place of the log, in a file beside it. A
// size is noted with the first output that comes at it, before that is written; that another file
// was begun, before there is that file. Where the record cannot be written there is none: a reader
// then knows that it does not know.
type logSizes struct {
	all     termsizes.Sizes
	columns uint16 // of the terminal; 0 until there is one
	rows    uint16
	text    [termsizes.MaxFileSize]byte
}

// load reads what a run before has left, as far as it belongs to the files that are there.
func (s *logSizes) load(dir int) {
	older, newer := fileSize(dir, oldName), fileSize(dir, logName)
	all, err := termsizes.Parse(s.read(dir))
	if err == nil && older >= 0 && newer < 0 {
		if at, has := all.OlderStart(); !has || at+older != all.Start() { // it was interrupted in a rotation
			all.Rotate(all.Start() + older)
		}
	}
	at, has := all.OlderStart()
	if err == nil && has == (older >= 0) && (!has || at+older == all.Start()) {
		s.all = all
		return
	}
	s.all = termsizes.New(0)
	if older >= 0 {
		s.all.Rotate(older)
	}
	s.save(dir)
}

func (s *logSizes) read(dir int) []byte {
	fd, err := openFile(dir, termsizes.FileName, unix.O_RDONLY)
	if err != nil {
		return nil
	}
	defer func() { _ = unix.Close(fd) }()
	n, _ := sysRead(fd, s.text[:])
	return s.text[:max(n, 0)]
}

// fileSize is that of a file, -1 if there is none.
func fileSize(dir int, name string) int64 {
	var st unix.Stat_t
	if unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return -1
	}
	return st.Size
}

// is tells which size the terminal has.
func (s *logSizes) is(size *unix.Winsize) { s.columns, s.rows = size.Col, size.Row }

// mark is called before something is written at a place in the newer file.
func (s *logSizes) mark(dir int, at int64) {
	if last := s.all.Last(); s.columns == last.Columns && s.rows == last.Rows {
		return
	}
	s.all.Set(termsizes.Size{Offset: s.all.Start() + at, Columns: s.columns, Rows: s.rows})
	s.save(dir)
}

// rotate is called when the newer file, of a size, has become the older one, and before there is
// another.
func (s *logSizes) rotate(dir int, size int64) {
	s.all.Rotate(s.all.Start() + size)
	s.save(dir)
}

// save writes the file anew, and puts it in the place of the one before.
func (s *logSizes) save(dir int) {
	if !s.write(dir) || unix.Renameat(dir, newSizes, dir, termsizes.FileName) != nil {
		_ = unix.Unlinkat(dir, newSizes, 0)
		_ = unix.Unlinkat(dir, termsizes.FileName, 0)
	}
}

// write writes the file under its temporary name. What is there under that name is not opened: it
// may be a FIFO.
func (s *logSizes) write(dir int) bool {
	_ = unix.Unlinkat(dir, newSizes, 0)
	fd, err := unix.Openat(dir, newSizes, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return false
	}
	text := s.all.Append(s.text[:0])
	n, e := sysWrite(fd, text)
	return unix.Close(fd) == nil && e == 0 && n == len(text)
}
