package journal

import (
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	systemd "github.com/coreos/go-systemd/v22/journal"
)

// Log is the log of this process. Its target and its level can be changed at run time; clients use
// org.freedesktop.LogControl1(5) for that.
type Log struct {
	level   *slog.LevelVar
	program string
	handler *handler

	mu      sync.Mutex // protects the following fields; never held while blocking
	target  string
	outputs map[string]*output // the outputs that were used so far, by target
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

// New opens the log of this process with the target Auto.
func New(level *slog.LevelVar) *Log {
	l := &Log{level: level, program: filepath.Base(os.Args[0]), outputs: map[string]*output{}}
	l.handler = &handler{level: level, out: &atomic.Pointer[output]{}}
	l.SetTarget(Auto)
	return l
}

// Handler returns the handler that writes records to this log.
func (l *Log) Handler() slog.Handler { return l.handler }

// Close writes the remaining records, for at most a second for each output.
func (l *Log) Close() error {
	l.mu.Lock()
	outputs := slices.Collect(maps.Values(l.outputs))
	l.mu.Unlock()
	for _, o := range outputs {
		_ = o.queue.Close()
	}
	return nil
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
	switch o := l.outputs[to]; {
	case to == Null:
		l.handler.out.Store(nil)
	case o != nil:
		l.handler.out.Store(o)
	case to == Journal:
		l.outputs[to] = newOutput(encoder(l.program), &socket{path: journalSocket})
		l.handler.out.Store(l.outputs[to])
	case to == Console:
		l.outputs[to] = newOutput(lineEncoder(l.program), &stream{os.Stderr})
		l.handler.out.Store(l.outputs[to])
	default:
		return false
	}
	l.target = target
	return true
}

// levels are the log levels of syslog. The daemon uses four of them. Setting a level in between
// excludes the records below it.
var levels = map[string]slog.Level{
	"debug":   slog.LevelDebug,
	"info":    slog.LevelInfo,
	"notice":  slog.LevelInfo + 1,
	"warning": slog.LevelWarn,
	"err":     slog.LevelError,
	"crit":    slog.LevelError + 1,
	"alert":   slog.LevelError + 2,
	"emerg":   slog.LevelError + 3,
}

// Level returns the syslog(3) name of the lowest level whose records are written.
func (l *Log) Level() string {
	for name, level := range levels {
		if level == l.level.Level() {
			return name
		}
	}
	return "info"
}

// SetLevel changes the lowest level whose records are written. It returns false if the name is
// unknown.
func (l *Log) SetLevel(name string) bool {
	level, known := levels[name]
	if known {
		l.level.Set(level)
	}
	return known
}
