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
	"github.com/corrald/corral/internal/logtimes"
	"github.com/corrald/corral/internal/safefile"
	"github.com/corrald/corral/internal/shimwire"
	"github.com/corrald/corral/internal/termsizes"
)

// logFiles are the two open files of a log and the recorded sizes of the agent's terminal, from the
// same moment.
type logFiles struct {
	older, newer *os.File // older is nil if there is none
	sizes        recordedSizes
}

// recordedSizes are the sizes of the agent's terminal that the shim has recorded.
type recordedSizes struct {
	termsizes.Sizes
	known bool // there is a valid record
}

// openLogFiles opens the files of a log in a directory. It opens the log itself with open. Errors:
// fs.ErrNotExist while there is no log.
func openLogFiles(directory string, open func() (*os.File, error)) (*logFiles, error) {
	const attempts = 8 // a log is not rotated so often while it is being opened
	olderPath := filepath.Join(directory, shimwire.OlderLogName)
	for n := 1; ; n++ {
		if n > 1 {
			<-time.After(time.Millisecond)
		}
		f := &logFiles{}
		var err error
		if f.newer, err = open(); err != nil {
			if _, older := os.Stat(olderPath); older == nil && errors.Is(err, fs.ErrNotExist) && n < attempts {
				continue
			}
			return nil, err
		}
		if f.older, err = safefile.Open(olderPath); err != nil && !errors.Is(err, fs.ErrNotExist) {
			f.close()
			return nil, err
		}
		f.sizes = readSizes(directory)
		if f.isConsistent(filepath.Join(directory, shimwire.LogName)) {
			return f, nil
		}
		if n == attempts {
			f.sizes.known = false
			if same, err := sameFile(f.older, f.newer); same || err != nil {
				_ = f.older.Close()
				f.older = nil
			}
			return f, nil
		}
		f.close()
	}
}

// isConsistent returns whether the log was not rotated while its files were opened: a rotation
// begins with renaming the log.
func (f *logFiles) isConsistent(path string) bool {
	is, err1 := f.newer.Stat()
	now, err2 := os.Stat(path)
	if err1 != nil || err2 != nil || !os.SameFile(is, now) {
		return false
	}
	if _, has := f.sizes.OlderStart(); has != (f.older != nil) {
		f.sizes.known = false
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

func readSizes(directory string) recordedSizes {
	text, err := safefile.Read(filepath.Join(directory, termsizes.FileName), termsizes.MaxFileSize)
	if err != nil {
		return recordedSizes{}
	}
	sizes, err := termsizes.Parse(text)
	return recordedSizes{sizes, err == nil}
}

// readTimes returns when the output in a log was printed, as far as the shim has recorded it.
func readTimes(directory string) logtimes.Entries {
	const maxSize = 64 << 20
	// In this order, a rotation in between leads to entries that are read twice, which Parse ignores.
	newer, _ := safefile.Read(filepath.Join(directory, logtimes.FileName), maxSize)
	older, _ := safefile.Read(filepath.Join(directory, logtimes.OlderFileName), maxSize)
	return logtimes.Parse(older, newer)
}

func sameFile(a, b *os.File) (bool, error) {
	if a == nil || b == nil {
		return false, nil
	}
	one, err1 := a.Stat()
	other, err2 := b.Stat()
	return err1 == nil && err2 == nil && os.SameFile(one, other), errors.Join(err1, err2)
}

// playback shows a log, part by part, as it was printed in a terminal of the recorded sizes.
type playback struct {
	sink       io.Writer
	transcript *transcript.Transcript // the sink, or nil for raw output
	last       *lastLines             // what sink writes to, or nil to show all lines
	at         int64                  // offset in the log of the next write, if known
	sizes      recordedSizes
	current    termsizes.Size   // the terminal's current size
	times      logtimes.Entries // when it was printed; nil if that is not used or not known
}

// newPlayback returns a playback that writes to out: text, unless raw is set, and only the last
// lines at Close, unless lines is negative.
func newPlayback(out io.Writer, raw bool, lines int) *playback {
	p := &playback{sink: out}
	if lines >= 0 {
		p.last = &lastLines{out: out, limit: lines}
		p.sink = p.last
	}
	if !raw {
		p.transcript = transcript.New(escapingWriter{p.sink})
		p.sink = p.transcript
	}
	return p
}

// Close shows the rest at the end of the log: a last line without a newline, and the last lines.
func (p *playback) Close() error {
	if p.transcript != nil {
		if err := p.transcript.Close(); err != nil {
			return err
		}
	}
	if p.last == nil {
		return nil
	}
	return p.last.Close()
}

// showAll shows the last lines, and writes everything that follows to out.
func (p *playback) showAll(out io.Writer) error {
	err := p.last.Close()
	p.last = nil
	if p.transcript == nil {
		p.sink = out
	} else {
		p.transcript.SetOutput(escapingWriter{out})
	}
	return err
}

// Write writes the next part of the log.
func (p *playback) Write(part []byte) (int, error) {
	written := 0
	for written < len(part) {
		n := len(part) - written
		if p.transcript != nil {
			n = p.setTimeAt(p.resizeAt(n))
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

// resizeAt sets the terminal's size for the current offset. It returns for how many of the next
// bytes, at most most, that size is valid.
func (p *playback) resizeAt(most int) int {
	var size termsizes.Size
	if p.sizes.known {
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

// setTimeAt sets the time for the current offset. It returns for how many of the next bytes, at
// most most, that time is valid.
func (p *playback) setTimeAt(most int) int {
	printed, until := p.times.At(p.at)
	p.transcript.SetTime(printed)
	if until >= 0 {
		most = int(min(int64(most), until-p.at))
	}
	return most
}

// play writes files from their beginnings.
func (p *playback) play(f *logFiles) error {
	p.sizes = f.sizes
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

// printMissing writes a note that output is missing at this place of the log. N is the number of
// bytes, 0 if it is unknown.
func (p *playback) printMissing(n int64) error {
	what := "output may be missing here"
	if n > 0 {
		what = fmt.Sprintf("%d bytes of output are missing here", n)
	}
	_, err := fmt.Fprintf(p.sink, "\r\n[corral: %s: the log was rotated before it was read]\r\n", what)
	return err
}
