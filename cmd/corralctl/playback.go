package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/corrald/corral/cmd/corralctl/transcript"
	"github.com/corrald/corral/internal/safefile"
	"github.com/corrald/corral/internal/termsizes"
)

// logName is the file that a session's output goes to; when it is full it is renamed, and a new one
// takes its place.
const (
	logName = "output.log"
	oldName = "output.log.1"
)

// logFiles are the two files of a log as they were at one moment, with the sizes that the agent's
// terminal had in them.
type logFiles struct {
	older, newer *os.File        // older is nil if there is none
	sizes        termsizes.Sizes // with sized only: who wrote the log has not told of them
	sized        bool
}

// openLogFiles opens what is in a directory. The log itself is opened by open. Errors:
// fs.ErrNotExist while there is no log.
func openLogFiles(directory string, open func() (*os.File, error)) (*logFiles, error) {
	const attempts = 8 // a log is not rotated that often while somebody looks
	for n := 1; ; n++ {
		if n > 1 {
			<-time.After(time.Millisecond)
		}
		f := &logFiles{}
		var err error
		if f.newer, err = open(); err != nil {
			if _, older := os.Stat(filepath.Join(directory, oldName)); older == nil && errors.Is(err, fs.ErrNotExist) && n < attempts {
				continue
			}
			return nil, err
		}
		if f.older, err = safefile.Open(filepath.Join(directory, oldName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			f.close()
			return nil, err
		}
		f.sizes, f.sized = readSizes(directory)
		if f.isConsistent(filepath.Join(directory, logName)) {
			return f, nil
		}
		if n == attempts {
			f.sized = false
			if same, err := sameFile(f.older, f.newer); same || err != nil {
				_ = f.older.Close()
				f.older = nil
			}
			return f, nil
		}
		f.close()
	}
}

// isConsistent tells whether the log was not rotated while its files were opened: it is renamed
// first of all.
func (f *logFiles) isConsistent(path string) bool {
	is, err1 := f.newer.Stat()
	now, err2 := os.Stat(path)
	if err1 != nil || err2 != nil || !os.SameFile(is, now) {
		return false
	}
	if _, has := f.sizes.OlderStart(); f.sized && has != (f.older != nil) {
		f.sized = false
	}
	return true
}

func (f *logFiles) close() {
	for _, file := range []*os.File{f.older, f.newer} {
		if file != nil {
			_ = file.Close()
		}
	}
}

// readSizes reads the record of sizes, if there is one that can be read.
func readSizes(directory string) (termsizes.Sizes, bool) {
	text, err := safefile.Read(filepath.Join(directory, termsizes.FileName), termsizes.MaxFileSize)
	if err != nil {
		return termsizes.Sizes{}, false
	}
	sizes, err := termsizes.Parse(text)
	return sizes, err == nil
}

func sameFile(a, b *os.File) (bool, error) {
	if a == nil || b == nil {
		return false, nil
	}
	one, err1 := a.Stat()
	other, err2 := b.Stat()
	return err1 == nil && err2 == nil && os.SameFile(one, other), errors.Join(err1, err2)
}

// playback is what a log is written into to be shown, part by part: its terminal has the size in
// each that it had when that was printed.
type playback struct {
	sink       io.Writer              // text, or what the user wanted instead
	transcript *transcript.Transcript // nil if the log is shown as it is
	at         int64                  // the place in the log that is written next, if that is known
	sizes      termsizes.Sizes
	sized      bool
	current    termsizes.Size // what the terminal has
}

// setSizes takes over what is known of the sizes.
func (p *playback) setSizes(sizes termsizes.Sizes, sized bool) { p.sizes, p.sized = sizes, sized }

// Write writes the next part of the log.
func (p *playback) Write(part []byte) (int, error) {
	written := 0
	for written < len(part) {
		n := len(part) - written
		if p.transcript != nil {
			n = p.resizeAt(n)
		}
		n, err := p.sink.Write(part[written : written+n])
		written += n
		p.at += int64(n)
		if err != nil {
			return written, err
		}
	}
	return written, nil
}

// resizeAt gives the terminal the size that it has at this place, and returns for how many of the next
// bytes it is that.
func (p *playback) resizeAt(most int) int {
	var size termsizes.Size
	if p.sized {
		for _, next := range p.sizes.All() {
			if next.Offset > p.at {
				most = int(min(int64(most), next.Offset-p.at))
				break
			}
			size = next
		}
	}
	if size.Columns != p.current.Columns || size.Rows != p.current.Rows {
		p.transcript.Resize(int(size.Columns), int(size.Rows))
	}
	p.current = size
	return most
}

// play writes files from their beginnings on.
func (p *playback) play(f *logFiles) error {
	p.setSizes(f.sizes, f.sized)
	if f.older != nil {
		p.at, _ = f.sizes.OlderStart()
		if _, err := io.Copy(p, f.older); err != nil {
			return err
		}
	}
	p.at = f.sizes.Start()
	_, err := io.Copy(p, f.newer)
	return err
}

// printMissing says in the log's place that something was in it that nobody can read any more. The
// number of bytes is 0 where it is not known.
func (p *playback) printMissing(n int64) error {
	what := "output may be missing here"
	if n > 0 {
		what = fmt.Sprintf("%d bytes of output are missing here", n)
	}
	_, err := fmt.Fprintf(p.sink, "\r\n[corral: %s: the log was rotated before it was read]\r\n", what)
	return err
}
