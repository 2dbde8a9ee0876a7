package journal

import (
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	systemd "github.com/coreos/go-systemd/v22/journal"
	"golang.org/x/sys/unix"
)

// Log is the log of this process. Its target and its level can be changed at run time; clients use
// org.freedesktop.LogControl1(5) for that.
type Log struct {
	level   *slog.LevelVar
	program string
	out     atomic.Pointer[output] // of the current target; nil discards records

	mu      sync.Mutex // protects the following fields
	target  string
	outputs map[string]*output // those that were used so far, by target
}

// The log targets. Auto selects Journal if standard error is connected to the journal, as in a
// service, or if nobody can read it. It selects Console, which writes lines of text to standard
// error, if a person or program may read it: for a terminal, pipe, file or socket.
const (
	Auto    = "auto"
	Journal = "journal"
	Console = "console"
	Null    = "null"
)

// journalSocket is the socket on which journald receives records in the Native Journal Protocol.
const journalSocket = "/run/systemd/journal/socket"

// New opens the log of this process with the target Auto.
func New(level *slog.LevelVar) *Log {
	l := &Log{level: level, program: filepath.Base(os.Args[0]), outputs: map[string]*output{}}
	l.SetTarget(Auto)
	return l
}

// Handler returns the handler that writes records to this log.
func (l *Log) Handler() slog.Handler { return &handler{log: l} }

// Close writes the remaining records, for at most a second for each output.
func (l *Log) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, o := range l.outputs {
		o.close()
	}
}

// Identifier returns the name of this process in the journal, SYSLOG_IDENTIFIER.
func (l *Log) Identifier() string { return l.program }

// Target returns the current target.
func (l *Log) Target() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.target
}

// SetTarget changes the target of all later records. It returns false if the target is unknown.
func (l *Log) SetTarget(target string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	to := target
	if target == Auto {
		to = Console
		if inJournal, _ := systemd.StderrIsJournalStream(); inJournal || !hasReader(os.Stderr) {
			to = Journal
		}
	}
	switch {
	case to == Null || l.outputs[to] != nil:
	case to == Journal:
		l.outputs[to] = newOutput(l.program, encodeEntry, &socket{path: journalSocket})
	case to == Console:
		l.outputs[to] = newOutput(l.program, encodeLine, os.Stderr)
	default:
		return false
	}
	l.out.Store(l.outputs[to])
	l.target = target
	return true
}

// hasReader reports whether a person or program may read what is written to a file. It returns
// false for a closed file and for a device other than a terminal.
func hasReader(f *os.File) bool {
	info, err := f.Stat()
	if err != nil {
		return false
	}
	if info.Mode()&fs.ModeCharDevice == 0 {
		return true
	}
	_, err = unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// levels are the log levels of syslog(3), indexed by their priority, with the prefix of their
// records in a line of text. The daemon uses four of them. Setting a level in between excludes the
// records below it.
var levels = [...]struct {
	name   string
	lowest slog.Level
	prefix string
}{
	{"emerg", slog.LevelError + 3, "error: "},
	{"alert", slog.LevelError + 2, "error: "},
	{"crit", slog.LevelError + 1, "error: "},
	{"err", slog.LevelError, "error: "},
	{"warning", slog.LevelWarn, "warning: "},
	{"notice", slog.LevelInfo + 1, ""},
	{"info", slog.LevelInfo, ""},
	{"debug", slog.LevelDebug, "debug: "},
}

// priority returns the syslog priority of a level, see sd-daemon(3).
func priority(level slog.Level) int {
	for i, l := range levels {
		if level >= l.lowest {
			return i
		}
	}
	return len(levels) - 1
}

// Level returns the syslog(3) name of the lowest level whose records are written.
func (l *Log) Level() string { return levels[priority(l.level.Level())].name }

// SetLevel changes the lowest level whose records are written. It returns false if the name is
// unknown.
func (l *Log) SetLevel(name string) bool {
	for _, level := range levels {
		if level.name == name {
			l.level.Set(level.lowest)
			return true
		}
	}
	return false
}
