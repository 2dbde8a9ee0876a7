// Package transient runs programs as transient services of the user's manager: with the manager's
// environment, in their own control groups, with output to the journal. They keep running when the
// caller exits.
package transient

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/bus"
)

// stopTimeout bounds how long a program may take to exit once its time limit has expired.
const stopTimeout = 5 * time.Second

// Service describes a program to run.
type Service struct {
	Kind        string // purpose; the name of the unit begins with "corral-KIND-"
	Name        string // next part of the unit's name; characters that are not valid there become "_"
	Description string // of the unit
	Slice       string
	Argv        []string // the first is an absolute path, unless Path is set
	Path        string   // of the program, if the first of Argv is only its name
	Environment []string // in addition to the manager's; anybody on the bus can read it
	Properties  []Property
}

// Failure describes how a program has failed.
type Failure struct {
	Unit   string
	Result string // the unit's Result, see $SERVICE_RESULT in systemd.exec(5): exit-code, signal, timeout, …
	Status int32  // exit code or signal, for the Results that have one
}

func (f *Failure) Error() string {
	switch f.Result {
	case "exit-code":
		return fmt.Sprintf("%s exited with code %d", f.Unit, f.Status)
	case "signal", "core-dump":
		return fmt.Sprintf("%s was killed by signal %d", f.Unit, f.Status)
	case "timeout":
		return f.Unit + " took too long"
	}
	return fmt.Sprintf("%s failed: %s", f.Unit, f.Result)
}

// Property is a property of a unit, as StartTransientUnit takes it: org.freedesktop.systemd1(5).
type Property struct {
	Name  string
	Value dbus.Variant
}

// auxUnit is an auxiliary unit, as StartTransientUnit takes it. No caller passes any.
type auxUnit struct {
	Name       string
	Properties []Property
}

// execCommand is an entry of ExecStartEx: org.freedesktop.systemd1(5).
type execCommand struct {
	Path  string
	Argv  []string
	Flags []string
}

// Start starts the service with the user manager on the bus of conn. It returns the name of the
// unit once the program was executed or could not be executed.
func Start(ctx context.Context, conn *dbus.Conn, s Service) (unit string, err error) {
	unit = s.unitName()
	result, err := s.start(ctx, conn, unit, nil, Property{"Type", dbus.MakeVariant("exec")})
	if err == nil && result != "done" {
		err = fmt.Errorf("cannot run %q: its start job ended with %q", s.Argv[0], result)
	}
	return unit, err
}

// Run runs the service, with input on its standard input, until its program has ended. What remains
// of it after limit is killed, and so are the processes that the program leaves behind. Run calls
// started once systemd has accepted the start job: from then on, the program runs even if the
// caller exits. The input is stored neither on a disk nor in a property of the unit. systemd keeps
// the result until conn is closed. Errors: *Failure.
func Run(ctx context.Context, conn *dbus.Conn, s Service, input []byte, limit time.Duration, started func()) error {
	stdin, err := memoryFile(input)
	if err != nil {
		return fmt.Errorf("cannot run %q: %w", s.Argv[0], err)
	}
	defer func() { _ = stdin.Close() }()
	unit := s.unitName()
	result, err := s.start(ctx, conn, unit, started,
		// The start job of a oneshot service ends with the program, and is limited by TimeoutStartSec=.
		Property{"Type", dbus.MakeVariant("oneshot")},
		Property{"TimeoutStartUSec", dbus.MakeVariant(uint64(limit.Microseconds()))},
		Property{"TimeoutStopUSec", dbus.MakeVariant(uint64(stopTimeout.Microseconds()))},
		Property{"StandardInputFileDescriptor", dbus.MakeVariant(dbus.UnixFD(stdin.Fd()))},
		// The result can be read for as long as the connection lives.
		Property{"AddRef", dbus.MakeVariant(true)},
	)
	if err != nil {
		return err
	}
	if result == "done" {
		return nil
	}
	return failure(ctx, conn, unit, result)
}

// failure returns a *Failure with the service's result, or with job, the result of its start job,
// if the service has none.
func failure(ctx context.Context, conn *dbus.Conn, unit, job string) error {
	f := &Failure{Unit: unit, Result: job}
	var path dbus.ObjectPath
	var properties map[string]dbus.Variant
	err := bus.Systemd(conn).CallWithContext(ctx, bus.SystemdManager+".GetUnit", 0, unit).Store(&path)
	if err == nil {
		err = conn.Object(bus.SystemdName, path).
			CallWithContext(ctx, bus.Properties+".GetAll", 0, bus.SystemdName+".Service").Store(&properties)
	}
	if result, ok := properties["Result"].Value().(string); err == nil && ok && result != "success" {
		f.Result = result
		f.Status, _ = properties["ExecMainStatus"].Value().(int32)
	}
	return f
}

// Outlives waits for the duration limit, and returns a *Failure if the service fails before. The
// unit has to have been started over the same connection, with AddRef.
func Outlives(ctx context.Context, conn *dbus.Conn, unit string, limit time.Duration) error {
	var path dbus.ObjectPath
	err := bus.Systemd(conn).CallWithContext(ctx, bus.SystemdManager+".GetUnit", 0, unit).Store(&path)
	if err != nil {
		return fmt.Errorf("cannot watch %q: %w", unit, err)
	}
	changes := make(chan *dbus.Signal, 64)
	conn.Signal(changes)
	defer conn.RemoveSignal(changes)
	err = conn.AddMatchSignalContext(ctx, dbus.WithMatchSender(bus.SystemdName), dbus.WithMatchObjectPath(path),
		dbus.WithMatchInterface(bus.Properties), dbus.WithMatchMember("PropertiesChanged"))
	if err != nil {
		return fmt.Errorf("cannot watch %q: %w", unit, err)
	}
	expired := time.After(limit)
	for {
		var failed *Failure
		if err := failure(ctx, conn, unit, "success"); errors.As(err, &failed) && failed.Result != "success" {
			return failed
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("cannot watch %q: %w", unit, ctx.Err())
		case <-expired:
			return nil
		case _, connected := <-changes:
			if !connected {
				return fmt.Errorf("cannot watch %q: %w", unit, errLost)
			}
		}
	}
}

// memoryFile returns a file in memory with this content, positioned at its start.
func memoryFile(content []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("input", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("cannot create a file in memory: %w", err)
	}
	file := os.NewFile(uintptr(fd), "input")
	_, err = bytes.NewReader(content).WriteTo(file)
	if err == nil {
		_, err = file.Seek(0, 0)
	}
	if err == nil {
		const seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
		_, err = unix.FcntlInt(file.Fd(), unix.F_ADD_SEALS, seals)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot write a file in memory: %w", err), file.Close())
	}
	return file, nil
}

// unitName returns a name that no other unit has.
func (s Service) unitName() string {
	name := strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || strings.ContainsRune("-_.", r) {
			return r
		}
		return '_'
	}, s.Name)
	const longest = 128 // the name of a unit has at most 255
	return "corral-" + s.Kind + "-" + name[:min(len(name), longest)] + "-" + strings.ToLower(rand.Text()[:8]) + ".service"
}

// start starts the unit, waits for the end of its start job, and returns the job's result.
func (s Service) start(
	ctx context.Context, conn *dbus.Conn, unit string, started func(), more ...Property,
) (result string, err error) {
	jobs, err := watchJobs(ctx, conn, dbus.WithMatchArg(2, unit))
	if err != nil {
		return "", err
	}
	defer jobs.close()
	path := s.Path
	if path == "" {
		path = s.Argv[0]
	}
	properties := append([]Property{
		{"Description", dbus.MakeVariant(s.Description)},
		// Without this flag, systemd would expand $ in the arguments.
		{"ExecStartEx", dbus.MakeVariant([]execCommand{{path, s.Argv, []string{"no-env-expand"}}})},
		{"Environment", dbus.MakeVariant(append([]string{}, s.Environment...))},
		{"Slice", dbus.MakeVariant(s.Slice)},
		{"CollectMode", dbus.MakeVariant("inactive-or-failed")},
	}, more...)
	properties = append(properties, s.Properties...)
	var job dbus.ObjectPath
	err = bus.Systemd(conn).CallWithContext(ctx, bus.SystemdManager+".StartTransientUnit", 0,
		unit, "fail", properties, []auxUnit{}).Store(&job)
	if err != nil && !conn.Connected() {
		err = errLost
	}
	if err != nil {
		return "", fmt.Errorf("cannot start %q: %w", unit, err)
	}
	if started != nil {
		started()
	}
	for {
		ended, result, err := jobs.next(ctx)
		if err != nil {
			return "", fmt.Errorf("cannot start %q: %w", unit, err)
		}
		if ended == job {
			return result, nil
		}
	}
}

var errLost = errors.New("the connection to the bus is lost")

// jobs receives the ends of systemd's jobs.
type jobs struct {
	conn    *dbus.Conn
	removed chan *dbus.Signal
	systemd *bus.Owner
}

// watchJobs begins to receive the ends of the jobs that match, of all without options. The caller
// closes it.
func watchJobs(ctx context.Context, conn *dbus.Conn, options ...dbus.MatchOption) (*jobs, error) {
	j := &jobs{conn: conn, removed: make(chan *dbus.Signal, 64)}
	conn.Signal(j.removed)
	err := conn.AddMatchSignalContext(ctx, append(options, dbus.WithMatchSender(bus.SystemdName),
		dbus.WithMatchInterface(bus.SystemdManager), dbus.WithMatchMember("JobRemoved"))...)
	if err == nil {
		j.systemd, err = bus.WatchOwner(ctx, conn, bus.SystemdName)
	}
	if err != nil {
		j.close()
		return nil, fmt.Errorf("cannot listen to the user manager: %w", err)
	}
	return j, nil
}

func (j *jobs) close() { j.conn.RemoveSignal(j.removed) }

// next waits for the end of a job and returns the job with its result. It ignores signals that
// systemd did not send.
func (j *jobs) next(ctx context.Context) (job dbus.ObjectPath, result string, err error) {
	for {
		select {
		case <-ctx.Done():
			return "", "", ctx.Err()
		case signal, ok := <-j.removed:
			if !ok {
				return "", "", errLost
			}
			var id uint32
			var unit string
			if !j.systemd.Update(signal) && j.systemd.Sent(signal) && signal.Name == bus.SystemdManager+".JobRemoved" &&
				dbus.Store(signal.Body, &id, &job, &unit, &result) == nil {
				return job, result, nil
			}
		}
	}
}
