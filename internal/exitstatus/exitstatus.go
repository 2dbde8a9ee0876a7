// Package exitstatus is the record that a shim leaves of the end of one run: the file exit_status
// in the session's state directory.
//
// It is where an agent's exit code and signal are found (a scope tells neither), so it is written
// durably, once, by the agent's parent, and read by whoever comes, however much later. Every
// process of the user can write such a file: whether it may be true, its reader decides. The format
// is lines of NAME=value, the last of which is END=1; a file without it is not whole and tells
// nothing. Names that a reader does not know are passed over, so that old and new programs
// understand each other.
package exitstatus

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/corrald/corral/internal/atomicfile"
	"github.com/corrald/corral/internal/safefile"
)

// FileName is the record's name in the session's state directory, and in its runtime directory
// where the other one could not be written to.
const FileName = "exit_status"

// maxSize bounds what Read takes: a record is a few hundred bytes, the longest being one with an
// error message.
const maxSize = 64 << 10

// Code tells how a run ended. Its values are those of waitid(2), which systemd's ExecMainCode has
// too.
type Code int

const (
	NotStarted Code = 0 // the command could not be executed: Error says why
	Exited     Code = 1 // CLD_EXITED: Value is the exit code
	Killed     Code = 2 // CLD_KILLED: Value is the signal
	Dumped     Code = 3 // CLD_DUMPED: Value is the signal, and the kernel dumped core
)

var codeNames = [...]string{NotStarted: "not-started", Exited: "exited", Killed: "killed", Dumped: "dumped"}

func (c Code) String() string {
	if c < 0 || int(c) >= len(codeNames) {
		return "code " + strconv.Itoa(int(c))
	}
	return codeNames[c]
}

// reserved is the room that is kept for a record that will be written, in bytes.
const reserved = 4 << 10

// Status is the end of one run.
type Status struct {
	RunID  string // by the daemon: which run this is
	BootID string // by the kernel: on which boot it ran
	PID    int    // the agent's, 0 if it was never started

	Code  Code
	Value int    // exit code or signal number, by Code
	Error string // for a person: why the command could not be started, "" if it was

	Started time.Time // wall clock, to the microsecond
	Exited  time.Time

	ExitedMonotonic time.Duration // when it exited by CLOCK_MONOTONIC, to the microsecond; 0 if an older shim wrote the record

	UserTime   time.Duration // of the agent and those of its children that it waited for
	SystemTime time.Duration
	MaxRSS     int64 // bytes, of the largest of these processes

	OOMKills  uint64 // processes of the scope that the kernel's OOM killer ended during this run, by the cgroup's memory.events
	MemoryMax uint64 // bytes: the scope's memory.max, 0 if there is none

	SIGTERMMonotonic time.Duration // when everybody in the scope was told to end before, by CLOCK_MONOTONIC, to the microsecond; 0 if they were not, or an older shim left that to a daemon that was there

	Prompted   bool // the agent was told the session's prompt, or the first of it
	PaneClosed bool // a person closed the agent's pane by hand, and that is why it was ended
}

// Append appends the record to b.
func (s Status) Append(b []byte) []byte {
	text := func(name, v string) {
		b = append(append(append(append(b, name...), '='), v...), '\n')
	}
	number := func(name string, v int64) { text(name, strconv.FormatInt(v, 10)) }
	text("RUN_ID", oneLine(s.RunID))
	text("BOOT_ID", oneLine(s.BootID))
	number("PID", int64(s.PID))
	text("CODE", s.Code.String())
	number("STATUS", int64(s.Value))
	if s.Error != "" {
		text("ERROR", strconv.Quote(s.Error))
	}
	number("STARTED_USEC", usec(s.Started))
	number("EXITED_USEC", usec(s.Exited))
	if s.ExitedMonotonic != 0 {
		number("EXITED_MONOTONIC_USEC", s.ExitedMonotonic.Microseconds())
	}
	number("USER_USEC", s.UserTime.Microseconds())
	number("SYSTEM_USEC", s.SystemTime.Microseconds())
	number("MAX_RSS_BYTES", s.MaxRSS)
	text("OOM_KILLS", strconv.FormatUint(s.OOMKills, 10))
	text("MEMORY_MAX_BYTES", strconv.FormatUint(s.MemoryMax, 10))
	if s.SIGTERMMonotonic != 0 {
		number("TOLD_MONOTONIC_USEC", s.SIGTERMMonotonic.Microseconds())
	}
	if s.Prompted {
		number("PROMPTED", 1)
	}
	if s.PaneClosed {
		number("PANE_CLOSED", 1)
	}
	number("END", 1)
	return b
}

// ErrIncomplete is returned for a record that was not written to its end.
var ErrIncomplete = errors.New("the record is not complete")

// Parse reads a record. A record that is not complete, or that contradicts itself, is an error: no
// exit code is guessed.
func Parse(b []byte) (Status, error) {
	var s Status
	body, whole := bytes.CutSuffix(b, []byte("\nEND=1\n"))
	if !whole {
		return s, ErrIncomplete
	}
	code := ""
	for line := range strings.SplitSeq(string(body), "\n") {
		name, v, ok := strings.Cut(line, "=")
		if !ok {
			return Status{}, errors.New("line without =: " + strconv.Quote(line))
		}
		err := set(&s, name, v)
		if name == "CODE" {
			code = v
		}
		if err != nil {
			return Status{}, errors.New("bad value of " + name + ": " + strconv.Quote(v))
		}
	}
	return s.withCode(code)
}

// set takes one field, but for CODE. One that it does not know is a younger writer's.
func set(s *Status, name, v string) (err error) {
	switch name {
	case "RUN_ID":
		s.RunID = v
	case "BOOT_ID":
		s.BootID = v
	case "PID":
		s.PID, err = strconv.Atoi(v)
	case "STATUS":
		s.Value, err = strconv.Atoi(v)
	case "ERROR":
		s.Error, err = strconv.Unquote(v)
	case "STARTED_USEC":
		s.Started, err = parseUsec(v)
	case "EXITED_USEC":
		s.Exited, err = parseUsec(v)
	case "EXITED_MONOTONIC_USEC":
		s.ExitedMonotonic, err = parseDuration(v)
	case "USER_USEC":
		s.UserTime, err = parseDuration(v)
	case "SYSTEM_USEC":
		s.SystemTime, err = parseDuration(v)
	case "MAX_RSS_BYTES":
		s.MaxRSS, err = strconv.ParseInt(v, 10, 64)
	case "OOM_KILLS":
		s.OOMKills, err = strconv.ParseUint(v, 10, 64)
	case "MEMORY_MAX_BYTES":
		s.MemoryMax, err = strconv.ParseUint(v, 10, 64)
	case "TOLD_MONOTONIC_USEC":
		s.SIGTERMMonotonic, err = parseDuration(v)
	case "PROMPTED":
		s.Prompted = v == "1"
	case "PANE_CLOSED":
		s.PaneClosed = v == "1"
	}
	return err
}

// withCode puts the code in that name says, if the rest of the record agrees with it.
func (s Status) withCode(name string) (Status, error) {
	for c, n := range codeNames {
		if n == name {
			s.Code = Code(c)
			ok := s.RunID != ""
			switch s.Code {
			case NotStarted:
				ok = ok && s.Error != ""
			case Exited:
				ok = ok && s.Value >= 0 && s.Value <= 255
			default:
				ok = ok && s.Value >= 1 && s.Value <= 64
			}
			if !ok {
				return Status{}, errors.New("the record contradicts itself")
			}
			return s, nil
		}
	}
	return Status{}, errors.New("bad value of CODE: " + strconv.Quote(name))
}

// Read reads the record in the directory dir. Where there is none, the error is os.ErrNotExist. It
// never waits: what is no regular file is an error.
func Read(dir string) (Status, error) {
	b, err := safefile.Read(dir+"/"+FileName, maxSize)
	if err != nil {
		return Status{}, err
	}
	return Parse(b)
}

// Sync makes the record in the state directory dir durable.
func Sync(dir string) error { return atomicfile.Sync(filepath.Join(dir, FileName)) }

// Pending is a record that will be written: its file is there already, so that writing it creates
// nothing, which matters when the agent has used up every process, descriptor, inode or block it
// could get.
type Pending struct{ file *atomicfile.File }

// Prepare makes ready to write the record in the state directory dir.
func Prepare(dir string) (*Pending, error) {
	f, err := atomicfile.Create(dir, FileName, 0o600)
	if err != nil {
		return nil, err
	}
	if err := f.Reserve(reserved); err != nil {
		f.Abort()
		return nil, err
	}
	return &Pending{f}, nil
}

// Discard removes the file that Prepare has made in the directory dir and that nobody will write
// any more. One that is not there is no error.
func Discard(dir string) error {
	err := os.Remove(filepath.Join(dir, "."+FileName+".new")) // as package atomicfile names it
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// Write writes the record, durably. It may be called once. Readers can see it before it is durable,
// which is what makes them early: a record that a power cut has torn lacks its end, and who tells
// others of one calls Sync before.
func (p *Pending) Write(s Status) error {
	return p.file.ReplaceThenSync(s.Append(make([]byte, 0, 1024)))
}

// Abort gives the record up: nothing is left of it.
func (p *Pending) Abort() { p.file.Abort() }

func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' {
			return -1
		}
		return r
	}, s)
}

func usec(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func parseUsec(v string) (time.Time, error) {
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n == 0 {
		return time.Time{}, err
	}
	return time.UnixMicro(n), nil
}

func parseDuration(v string) (time.Duration, error) {
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < 0 || n > int64(1<<63-1)/1000 {
		return 0, errors.New("out of range")
	}
	return time.Duration(n) * time.Microsecond, nil
}
