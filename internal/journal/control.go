package journal

import (
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
)

// Log is where this process's records go, and which of them: what org.freedesktop.LogControl1(5)
// lets others ask and change while it runs.
type Log struct {
	level   *slog.LevelVar
	program string
	handler *handler

	mu      sync.Mutex // for what follows; never held while somebody waits
	target  string
	outputs map[string]*output // those that were used so far
}

// The targets. Auto is the journal where standard error goes there, as in a service, or to nobody;
// and lines of text on standard error where a person or a program reads that: a terminal, a pipe, a
// file, a socket.
const (
	Auto    = "auto"
	Journal = "journal"
	Console = "console"
	Null    = "null"
)

// New opens the log of this process, with the target Auto.
func New(level *slog.LevelVar) *Log {
	l := &Log{level: level, program: filepath.Base(os.Args[0]), outputs: map[string]*output{}}
	l.handler = &handler{level: level, out: &atomic.Pointer[output]{}}
	l.SetTarget(Auto)
	return l
}

// Handler returns what takes the records.
func (l *Log) Handler() slog.Handler { return l.handler }

// Close writes out the last records, for a second at most.
func (l *Log) Close() error {
	l.mu.Lock()
	outputs := slices.Collect(maps.Values(l.outputs))
	l.mu.Unlock()
	for _, o := range outputs {
		_ = o.queue.Close()
	}
	return nil
}

// Identifier is what the journal knows the process by: SYSLOG_IDENTIFIER.
func (l *Log) Identifier() string { return l.program }

// Target returns where records go.
func (l *Log) Target() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.target
}

// SetTarget has records go to one of the targets from now on. It returns false for a name that is
// none.
func (l *Log) SetTarget(target string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	to := target
	if target == Auto {
		to = Console
		if stderrIsJournal(os.Getenv("JOURNAL_STREAM"), os.Stderr) || !isRead(os.Stderr) {
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

// levels are syslog's, by name, as slog's: ours are four of them, and what lies between keeps out
// the ones below.
var levels = map[string]slog.Level{
	"debug": slog.LevelDebug, "info": slog.LevelInfo, "notice": slog.LevelInfo + 1, "warning": slog.LevelWarn, "err": slog.LevelError,
	"crit": slog.LevelError + 1, "alert": slog.LevelError + 2, "emerg": slog.LevelError + 3,
}

// Level returns the name of the lowest level of which records are written, as syslog(3) has it.
func (l *Log) Level() string {
	for name, level := range levels {
		if level == l.level.Level() {
			return name
		}
	}
	return "info"
}

// SetLevel changes that. It returns false for a name that is none.
func (l *Log) SetLevel(name string) bool {
	level, known := levels[name]
	if known {
		l.level.Set(level)
	}
	return known
}
