package transient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/godbus/dbus/v5"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/bus"
	"github.com/corrald/corral/internal/deadline"
)

// ErrNotStarted is the error of a service that systemd has refused to start.
var ErrNotStarted = errors.New("systemd refuses to start it")

// tidyTimeout is how long the main process of a captured service has to end by itself after
// SIGTERM.
const tidyTimeout = 10 * time.Second

// Capture runs the service until its program has ended, with input on its standard input, and
// returns what it has printed on standard output; both are files in memory. After limit, or when
// ctx is done, the program gets SIGTERM. Once it has ended, whatever else is in its unit is killed
// at once, and only then Capture returns. The connection has to pass descriptors on; systemd
// remembers how the service has ended until it is closed. Errors: *Failure, ErrNotStarted.
func Capture(ctx context.Context, conn *dbus.Conn, s Service, input []byte, limit time.Duration) (output []byte, err error) {
	stdin, err := readable(input)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotStarted, err)
	}
	defer func() { _ = stdin.Close() }()
	fd, err := unix.MemfdCreate("output", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("%w: cannot make a file in memory: %w", ErrNotStarted, err)
	}
	stdout := os.NewFile(uintptr(fd), "output")
	defer func() { _ = stdout.Close() }()
	unit := s.unit()
	result, err := s.start(ctx, conn, unit, nil,
		property{"Type", dbus.MakeVariant("oneshot")}, // its start is done when it has ended, and limited by TimeoutStartSec=
		property{"TimeoutStartUSec", dbus.MakeVariant(uint64(limit.Microseconds()))},
		property{"TimeoutStopUSec", dbus.MakeVariant(uint64(tidyTimeout.Microseconds()))},
		property{"KillMode", dbus.MakeVariant("mixed")}, // SIGTERM to the main process alone, then SIGKILL to all that is left
		property{"StandardInputFileDescriptor", dbus.MakeVariant(dbus.UnixFD(stdin.Fd()))},
		property{"StandardOutputFileDescriptor", dbus.MakeVariant(dbus.UnixFD(stdout.Fd()))},
		property{"AddRef", dbus.MakeVariant(true)},
	)
	var refusal dbus.Error
	switch {
	case errors.As(err, &refusal) && ctx.Err() == nil && refusal.Name != "org.freedesktop.DBus.Error.NoReply":
		return nil, fmt.Errorf("%w: %w", ErrNotStarted, err)
	case err != nil: // it may run, and nobody waits for it any more
		stopping, cancel := deadline.Context(context.WithoutCancel(ctx), tidyTimeout+stopTimeout)
		defer cancel()
		return nil, errors.Join(err, Stop(stopping, conn, unit))
	case result != "done":
		return nil, failure(ctx, conn, unit, result)
	}
	info, err := stdout.Stat()
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.NewSectionReader(stdout, 0, info.Size()))
}

// unitStatus is an entry of ListUnitsByPatterns: org.freedesktop.systemd1(5).
type unitStatus struct {
	Name, Description, Load, Active, Sub, Following string
	Path                                            dbus.ObjectPath
	JobID                                           uint32
	JobType                                         string
	Job                                             dbus.ObjectPath
}

// Stop ends the units whose names match a pattern of glob(7), and returns once nothing of them is
// left.
func Stop(ctx context.Context, conn *dbus.Conn, pattern string) error {
	manager := conn.Object(systemd, systemdPath)
	var listed []unitStatus
	if err := manager.CallWithContext(ctx, managerIface+".ListUnitsByPatterns", 0, []string{}, []string{pattern}).Store(&listed); err != nil {
		return fmt.Errorf("cannot list the units %q: %w", pattern, err)
	}
	listed = slices.DeleteFunc(listed, func(u unitStatus) bool { return u.Active == "inactive" || u.Active == "failed" })
	if len(listed) == 0 {
		return nil
	}
	removed := make(chan *dbus.Signal, 64)
	conn.Signal(removed)
	defer conn.RemoveSignal(removed)
	var owner *bus.Owner
	err := conn.AddMatchSignalContext(ctx, dbus.WithMatchSender(systemd), dbus.WithMatchInterface(managerIface), dbus.WithMatchMember("JobRemoved"))
	if err == nil {
		owner, err = bus.WatchOwner(ctx, conn, systemd)
	}
	if err != nil {
		return fmt.Errorf("cannot listen to the user manager: %w", err)
	}
	jobs := map[dbus.ObjectPath]string{}
	for _, u := range listed {
		var job dbus.ObjectPath
		err := manager.CallWithContext(ctx, managerIface+".StopUnit", 0, u.Name, "replace").Store(&job)
		if e := (dbus.Error{}); errors.As(err, &e) && e.Name == systemd+".NoSuchUnit" {
			continue
		} else if err != nil {
			return fmt.Errorf("cannot stop %q: %w", u.Name, err)
		}
		jobs[job] = u.Name
	}
	for len(jobs) > 0 {
		select {
		case <-ctx.Done():
			for _, name := range jobs {
				return fmt.Errorf("cannot wait until %q has stopped: %w", name, ctx.Err())
			}
		case signal, ok := <-removed:
			if !ok {
				return fmt.Errorf("cannot wait until %q has stopped: the connection to the bus is lost", pattern)
			}
			if owner.Update(signal) || !owner.Sent(signal) || signal.Name != managerIface+".JobRemoved" || len(signal.Body) < 2 {
				continue
			}
			if job, is := signal.Body[1].(dbus.ObjectPath); is {
				delete(jobs, job)
			}
		}
	}
	return nil
}
