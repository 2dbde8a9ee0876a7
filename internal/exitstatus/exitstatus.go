// Package exitstatus reads and writes the record of how one run of an agent ended: the file
// exit_status in the session's state directory, and a copy in its runtime directory.
//
// The record is the only source of the agent's exit code and signal, because systemd does not
// report them for a scope. The shim, which is the agent's parent, writes both files, at least one
// of them durably; the daemon reads one of them, possibly much later. Any process of the user can
// write such a file, so the reader has to check whether its content is plausible.
//
// The format is lines of NAME=value, the last of which is END=1. A file without that line is
// incomplete and is rejected. Readers ignore names that they do not know, so that old and new
// programs understand each other.
package exitstatus

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/corrald/corral/internal/atomicfile"
	"github.com/corrald/corral/internal/safefile"
)

// FileName is the record's name in the session's state directory, and in its runtime directory.
const FileName = "exit_status"

// maxSize is the size limit for Read, in bytes. A record has a few hundred bytes; the longest ones
// contain an error message.
const maxSize = 64 << 10

// Code is how a run ended. The values are those of si_code in waitid(2), which systemd's
// ExecMainCode property uses too.
type Code int

const (
	NotStarted Code = 0 // the command could not be executed; Error is the reason
	Exited     Code = 1 // CLD_EXITED: Value is the exit code
	Killed     Code = 2 // CLD_KILLED: Value is the signal
	Dumped     Code = 3 // CLD_DUMPED: Value is the signal; the kernel dumped core
)

var codeNames = [...]string{NotStarted: "not-started", Exited: "exited", Killed: "killed", Dumped: "dumped"}

func (c Code) String() string {
	if c < 0 || int(c) >= len(codeNames) {
		return "code " + strconv.Itoa(int(c))
	}
	return codeNames[c]
}

// reservedSize is the disk space that Prepare allocates for a record, in bytes.
const reservedSize = 4 << 10

// Status describes how one run ended.
type Status struct {
	RunID  string // assigned by the daemon when it requests the run
	BootID string // the kernel's boot_id during the run
	PID    int    // the agent's process ID, 0 if it was never started

	Code  Code
	Value int // exit code or signal number, depending on Code
	// Error is why the command could not be started, or was killed by its shim, as a sentence for the
	// user; else "".
	Error string

	Started time.Time // wall clock, to the microsecond
	Exited  time.Time

	// When it exited by CLOCK_MONOTONIC, to the microsecond. It is 0 in records of older shims.
	ExitedMonotonic time.Duration

	UserTime   time.Duration // of the agent and of the children it has waited for
	SystemTime time.Duration
	MaxRSS     int64 // bytes, of the largest of these processes

	// Number of processes of the scope that the kernel's OOM killer killed during this run, from
	// memory.events of the control group.
	OOMKills  uint64
	MemoryMax uint64 // memory.max of the scope in bytes, 0 if it has no limit

	// When the shim, and so presumably the whole scope, last received SIGTERM before the agent exited,
	// by CLOCK_MONOTONIC, to the microsecond. It is 0 if that did not happen; older shims also record
	// 0 if a daemon was connected.
	SIGTERMMonotonic time.Duration `json:"Told"`

	Prompted   bool // the shim had begun to type the session's prompt, or was about to
	PaneClosed bool // the user closed the agent's pane, which ended the agent
}

// Append appends the encoded record to b and returns the result.
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

// ErrIncomplete is returned for a record that lacks its last line.
var ErrIncomplete = errors.New("the record is not complete")

// Parse decodes a record. It rejects incomplete and contradictory records, so that an exit code is
// never guessed.
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
		err := setField(&s, name, v)
		if name == "CODE" {
			code = v
		}
		if err != nil {
			return Status{}, errors.New("bad value of " + name + ": " + strconv.Quote(v))
		}
	}
	return s.withCode(code)
}

// setField stores one field, except CODE. It ignores unknown names, which newer versions may have
// written.
func setField(s *Status, name, v string) (err error) {
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

// withCode returns the record with the code named name, or an error if other fields contradict it.
func (s Status) withCode(name string) (Status, error) {
	code := slices.Index(codeNames[:], name)
	if code < 0 {
		return Status{}, errors.New("bad value of CODE: " + strconv.Quote(name))
	}
	s.Code = Code(code)
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

// Read reads the record in the directory dir. The error is os.ErrNotExist if there is none. Read
// never blocks: it returns an error if the file is not a regular file.
func Read(dir string) (Status, error) {
	b, err := safefile.Read(dir+"/"+FileName, maxSize)
	if err != nil {
		return Status{}, err
	}
	return Parse(b)
}

// Sync makes the record in the state directory dir durable.
func Sync(dir string) error { return atomicfile.Sync(filepath.Join(dir, FileName)) }

// Prepared is a record whose file exists already. Writing it creates no file and needs no further
// descriptors, inodes or disk blocks, all of which the agent may have used up by then.
type Prepared struct{ file *atomicfile.File }

// Prepare creates the file for a record in the state directory dir.
func Prepare(dir string) (*Prepared, error) {
	f, err := atomicfile.Create(dir, FileName, 0o600)
	if err != nil {
		return nil, err
	}
	if err := f.Reserve(reservedSize); err != nil {
		f.Abort()
		return nil, err
	}
	return &Prepared{f}, nil
}

// Discard removes a file that Prepare created in the directory dir and that will not be written any
// more. It is not an error if the file does not exist.
func Discard(dir string) error {
	err := os.Remove(filepath.Join(dir, "."+FileName+".new")) // the name that package atomicfile gives it
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// Write writes the record, which readers can see from then on. It may be called once, and is
// followed by Sync or Abort. The record is not durable yet, so that readers can react early: a
// record torn by a power failure lacks its last line, and a reader makes it durable by the function
// Sync before it publishes the result.
func (p *Prepared) Write(s Status) error { return p.file.Replace(s.Append(make([]byte, 0, 1024))) }

// Sync makes the written record durable, and releases p.
func (p *Prepared) Sync() error { return p.file.Sync() }

// Write writes the record in the state directory dir durably.
func Write(dir string, s Status) error {
	p, err := Prepare(dir)
	if err != nil {
		return err
	}
	defer p.Abort()
	if err := p.Write(s); err != nil {
		return err
	}
	return p.Sync()
}

// Abort releases p, and removes the prepared file unless the record was written.
func (p *Prepared) Abort() { p.file.Abort() }

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
