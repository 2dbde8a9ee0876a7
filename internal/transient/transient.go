// Package transient runs programs as transient services of the user's manager: with its
// environment, in a control group of their own, with what they print in the journal. They outlive
// who started them.
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

const (
	systemd      = "org.freedesktop.systemd1"
	systemdPath  = dbus.ObjectPath("/org/freedesktop/systemd1")
	managerIface = systemd + ".Manager"
	serviceIface = systemd + ".Service"
)

// stopTimeout bounds how long a program may take to end that has run out of time.
const stopTimeout = 5 * time.Second

// Service is a program to be run.
type Service struct {
	Kind        string // what it is for: its unit's name begins with "corral-KIND-"
	Name        string // what comes next in it; characters that a unit's name cannot have become "_"
	Description string // of its unit
	Slice       string
	Argv        []string // the first is an absolute path
	Path        string   // of the program, where the first is only what it is to be called
	Environment []string // beside the manager's; everybody on the bus can read it
	Properties  []Property
}

// Failure says how a program has ended that did not do well.
type Failure struct {
	Unit   string
	Result string // the unit's Result, of systemd.exec(5), $SERVICE_RESULT: exit-code, signal, timeout, …
	Status int32  // exit code or signal, where that tells it
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

// Property is one of a unit's, as StartTransientUnit takes it: org.freedesktop.systemd1(5).
type Property struct {
	Name  string
	Value dbus.Variant
}

type property = Property

// execCommand is an entry of ExecStartEx: org.freedesktop.systemd1(5).
type execCommand struct {
	Path  string
	Argv  []string
	Flags []string
}

// Start starts the service, by the user manager that conn leads to. It returns the name of its unit
// once the program was executed, or if it could not be.
func Start(ctx context.Context, conn *dbus.Conn, s Service) (unit string, err error) {
	unit = s.unit()
	result, err := s.start(ctx, conn, unit, nil, property{"Type", dbus.MakeVariant("exec")})
	if err == nil && result != "done" {
		err = fmt.Errorf("cannot run %q: its start ended as %q", s.Argv[0], result)
	}
	return unit, err
}

// Run runs the service until its program has ended, with input on its standard input. What is left
// of it after limit is killed, and so is what the program leaves behind. Started is called once
// systemd has taken it over: from then on it runs, whatever becomes of us. Input is on no disk and
// in no property of the unit. systemd remembers how it has ended until conn is closed. Errors:
// *Failure.
func Run(ctx context.Context, conn *dbus.Conn, s Service, input []byte, limit time.Duration, started func()) error {
	stdin, err := readable(input)
	if err != nil {
		return fmt.Errorf("cannot run %q: %w", s.Argv[0], err)
	}
	defer func() { _ = stdin.Close() }()
	unit := s.unit()
	result, err := s.start(ctx, conn, unit, started,
		property{"Type", dbus.MakeVariant("oneshot")}, // its start is done when it has ended, and limited by TimeoutStartSec=
		property{"TimeoutStartUSec", dbus.MakeVariant(uint64(limit.Microseconds()))},
		property{"TimeoutStopUSec", dbus.MakeVariant(uint64(stopTimeout.Microseconds()))},
		property{"StandardInputFileDescriptor", dbus.MakeVariant(dbus.UnixFD(stdin.Fd()))},
		property{"AddRef", dbus.MakeVariant(true)}, // how it has ended can be read for as long as the connection lives
	)
	if err != nil {
		return err
	}
	if result == "done" {
		return nil
	}
	return failure(ctx, conn, unit, result)
}

// failure finds out how a service has ended. Job is what became of its start, where nothing better
// is known.
func failure(ctx context.Context, conn *dbus.Conn, unit, job string) error {
	f := &Failure{Unit: unit, Result: job}
	var path dbus.ObjectPath
	var properties map[string]dbus.Variant
	err := conn.Object(systemd, systemdPath).CallWithContext(ctx, managerIface+".GetUnit", 0, unit).Store(&path)
	if err == nil {
		err = conn.Object(systemd, path).CallWithContext(ctx, "org.freedesktop.DBus.Properties.GetAll", 0, serviceIface).Store(&properties)
	}
	if result, ok := properties["Result"].Value().(string); err == nil && ok && result != "success" {
		f.Result = result
		f.Status, _ = properties["ExecMainStatus"].Value().(int32)
	}
	return f
}

// Outlives waits for some time, and returns a *Failure if the service fails before. The unit has to
// have been started over the same connection, with AddRef.
func Outlives(ctx context.Context, conn *dbus.Conn, unit string, limit time.Duration) error {
	var path dbus.ObjectPath
	if err := conn.Object(systemd, systemdPath).CallWithContext(ctx, managerIface+".GetUnit", 0, unit).Store(&path); err != nil {
		return fmt.Errorf("cannot watch %q: %w", unit, err)
	}
	changes := make(chan *dbus.Signal, 64)
	conn.Signal(changes)
	defer conn.RemoveSignal(changes)
	err := conn.AddMatchSignalContext(ctx, dbus.WithMatchSender(systemd), dbus.WithMatchInterface("org.freedesktop.DBus.Properties"),
		dbus.WithMatchMember("PropertiesChanged"), dbus.WithMatchObjectPath(path))
	if err != nil {
		return fmt.Errorf("cannot watch %q: %w", unit, err)
	}
	over := time.After(limit)
	for {
		var failed *Failure
		if err := failure(ctx, conn, unit, "success"); errors.As(err, &failed) && failed.Result != "success" {
			return failed
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("cannot watch %q: %w", unit, ctx.Err())
		case <-over:
			return nil
		case _, connected := <-changes:
			if !connected {
				return fmt.Errorf("cannot watch %q: the connection to the bus is lost", unit)
			}
		}
	}
}

// readable returns a file in memory that has this content, to be read from its beginning.
func readable(content []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("input", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("cannot make a file in memory: %w", err)
	}
	file := os.NewFile(uintptr(fd), "input")
	_, err = bytes.NewReader(content).WriteTo(file)
	if err == nil {
		_, err = file.Seek(0, 0)
	}
	if err == nil {
		_, err = unix.FcntlInt(file.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot write a file in memory: %w", err), file.Close())
	}
	return file, nil
}

// unit makes a name that no other unit has.
func (s Service) unit() string {
	name := strings.Map(func(r rune) rune {
		if r < 0x80 && (r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || strings.ContainsRune("-_.", r)) {
			return r
		}
		return '_'
	}, s.Name)
	const longest = 128 // a unit's name has at most 255
	return "corral-" + s.Kind + "-" + name[:min(len(name), longest)] + "-" + strings.ToLower(rand.Text()[:8]) + ".service"
}

// start starts the unit and waits for the end of its start job, whose result it returns.
func (s Service) start(ctx context.Context, conn *dbus.Conn, unit string, started func(), more ...property) (result string, err error) {
	removed := make(chan *dbus.Signal, 64)
	conn.Signal(removed)
	defer conn.RemoveSignal(removed)
	err = conn.AddMatchSignalContext(ctx, dbus.WithMatchSender(systemd), dbus.WithMatchInterface(managerIface), dbus.WithMatchMember("JobRemoved"),
		dbus.WithMatchArg(2, unit))
	var owner *bus.Owner
	if err == nil {
		owner, err = bus.WatchOwner(ctx, conn, systemd)
	}
	if err != nil {
		return "", fmt.Errorf("cannot listen to the user manager: %w", err)
	}
	path := s.Path
	if path == "" {
		path = s.Argv[0]
	}
	properties := append([]property{
		{"Description", dbus.MakeVariant(s.Description)},
		// systemd would replace $ in the arguments otherwise.
		{"ExecStartEx", dbus.MakeVariant([]execCommand{{path, s.Argv, []string{"no-env-expand"}}})},
		{"Environment", dbus.MakeVariant(append([]string{}, s.Environment...))},
		{"Slice", dbus.MakeVariant(s.Slice)},
		{"CollectMode", dbus.MakeVariant("inactive-or-failed")},
	}, more...)
	properties = append(properties, s.Properties...)
	var job dbus.ObjectPath
	err = conn.Object(systemd, systemdPath).CallWithContext(ctx, managerIface+".StartTransientUnit", 0, unit, "fail", properties, []struct {
		Name       string
		Properties []property
	}{}).Store(&job)
	if err != nil {
		return "", fmt.Errorf("cannot start %q: %w", unit, err)
	}
	if started != nil {
		started()
	}
	for {
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("cannot start %q: %w", unit, ctx.Err())
		case signal, ok := <-removed:
			if !ok {
				return "", fmt.Errorf("cannot start %q: the connection to the bus is lost", unit)
			}
			var id uint32
			var path dbus.ObjectPath
			var name string
			if !owner.Update(signal) && owner.Sent(signal) && signal.Name == managerIface+".JobRemoved" && dbus.Store(signal.Body, &id, &path, &name, &result) == nil && path == job {
				return result, nil
			}
		}
	}
}
