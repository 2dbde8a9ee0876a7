package main

import (
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/shimwire"
	"github.com/corrald/corral/internal/termsizes"
)

// newSizesName is the temporary name of the file before it replaces the previous one.
const newSizesName = "." + termsizes.FileName

// sizeRecord records the sizes of the agent's terminal in a file beside the log. A size is recorded
// before the first output at that size is written, and the rotation of the log before the new file
// is created. If the record cannot be written it is removed, so that readers know that the sizes
// are unknown.
type sizeRecord struct {
	sizes   termsizes.Sizes
	columns uint16 // of the terminal; 0 if not known yet
	rows    uint16
	buffer  [termsizes.MaxFileSize]byte
}

// load reads the record of an earlier run, if it matches the existing log files.
func (s *sizeRecord) load(dir int) {
	older, newer := fileSize(dir, shimwire.OlderLogName), fileSize(dir, shimwire.LogName)
	all, err := termsizes.Parse(s.read(dir))
	if err == nil && older >= 0 && newer < 0 {
		// The earlier shim was killed during a rotation.
		if at, has := all.OlderStart(); !has || at+older != all.Start() {
			all.Rotate(all.Start() + older)
		}
	}
	at, has := all.OlderStart()
	if err == nil && has == (older >= 0) && (!has || at+older == all.Start()) {
		s.sizes = all
		return
	}
	removeTimes(dir) // their offsets are no longer valid
	s.sizes = termsizes.New(0)
	if older >= 0 {
		s.sizes.Rotate(older)
	}
	s.save(dir)
}

func (s *sizeRecord) read(dir int) []byte {
	fd, err := openFile(dir, termsizes.FileName, unix.O_RDONLY)
	if err != nil {
		return nil
	}
	defer func() { _ = unix.Close(fd) }()
	n, _ := sysRead(fd, s.buffer[:])
	return s.buffer[:max(n, 0)]
}

// fileSize returns the size of a file, or -1 if it does not exist.
func fileSize(dir int, name string) int64 {
	var st unix.Stat_t
	if unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return -1
	}
	return st.Size
}

// setSize sets the terminal's current size.
func (s *sizeRecord) setSize(size *unix.Winsize) { s.columns, s.rows = size.Col, size.Row }

// recordAt records the current size before output is written at offset at of the newer file.
func (s *sizeRecord) recordAt(dir int, at int64) {
	if last := s.sizes.Last(); s.columns == last.Columns && s.rows == last.Rows {
		return
	}
	s.sizes.Set(termsizes.Size{Offset: s.sizes.Start() + at, Columns: s.columns, Rows: s.rows})
	s.save(dir)
}

// rotate records that the newer file, of size bytes, has become the older one. It is called before
// the new file is created.
func (s *sizeRecord) rotate(dir int, size int64) {
	s.sizes.Rotate(s.sizes.Start() + size)
	s.save(dir)
}

// save replaces the file. If that fails it removes the file.
func (s *sizeRecord) save(dir int) {
	if !s.write(dir) || unix.Renameat(dir, newSizesName, dir, termsizes.FileName) != nil {
		_ = unix.Unlinkat(dir, newSizesName, 0)
		_ = unix.Unlinkat(dir, termsizes.FileName, 0)
	}
}

// write writes the file under its temporary name. It does not open an existing file of that name,
// which may be a FIFO.
func (s *sizeRecord) write(dir int) bool {
	_ = unix.Unlinkat(dir, newSizesName, 0)
	fd, err := unix.Openat(dir, newSizesName, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return false
	}
	text := s.sizes.Append(s.buffer[:0])
	n, e := sysWrite(fd, text)
	return unix.Close(fd) == nil && e == 0 && n == len(text)
}
