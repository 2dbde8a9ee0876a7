package setup

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"

	"github.com/corrald/corral/internal/plaintext"
	"github.com/corrald/corral/internal/safefile"
	"github.com/corrald/corral/internal/shimwire"
)

// maxLastLine is how much of the last line is kept, in bytes.
const maxLastLine = 300

// outputLog appends output to the log of a session, which contains the output of a terminal. The
// shim of the session, which keeps the size of the log within its limit otherwise, is not running.
type outputLog struct {
	path string
	file *os.File // nil if the log cannot be written any more
	size int64    // bytes
	max  int64    // size at which it becomes the older log
	last []byte   // the beginning of the last line that has text
	line []byte   // the beginning of the line that is not complete
}

// openLog opens the log in a directory. Limit is for both files of the log together, in bytes.
func openLog(dir string, limit int64) (*outputLog, error) {
	l := &outputLog{path: filepath.Join(dir, shimwire.LogName), max: limit / 2}
	return l, l.open()
}

func (l *outputLog) open() (err error) {
	l.file, err = safefile.OpenFile(l.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		l.file = nil
		return err
	}
	if info, err := l.file.Stat(); err == nil {
		l.size = info.Size()
	}
	return nil
}

// Write implements io.Writer. It always succeeds: a command does not fail because the disk is full.
func (l *outputLog) Write(b []byte) (int, error) {
	for line := range bytes.Lines(b) {
		l.line = append(l.line, line[:min(len(line), maxLastLine-min(len(l.line), maxLastLine))]...)
		if line[len(line)-1] == '\n' {
			l.keepLine()
		}
	}
	for part := range slices.Chunk(b, 4<<10) { // much less than the log may have
		text := bytes.ReplaceAll(part, []byte("\n"), []byte("\r\n")) // as a terminal converts it
		if l.size+int64(len(text)) > l.max {
			l.rotate()
		}
		if l.file != nil {
			n, _ := l.file.Write(text)
			l.size += int64(n)
		}
	}
	return len(b), nil
}

// rotate makes the log the older log and begins another one.
func (l *outputLog) rotate() {
	l.close()
	if os.Rename(l.path, filepath.Join(filepath.Dir(l.path), shimwire.OlderLogName)) == nil {
		_ = l.open()
	}
}

// keepLine makes the line that is complete now the last one, if it has text.
func (l *outputLog) keepLine() {
	if plaintext.Line(string(l.line)) != "" {
		l.last = append(l.last[:0], l.line...)
	}
	l.line = l.line[:0]
}

// lastLine returns the last line of the output that has text, "" if there is none.
func (l *outputLog) lastLine() string {
	l.keepLine()
	return plaintext.Line(string(l.last))
}

func (l *outputLog) close() {
	if l.file != nil {
		_ = l.file.Close()
		l.file = nil
	}
}
