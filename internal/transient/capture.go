package transient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/godbus/dbus/v5"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/bus"
	"github.com/corrald/corral/internal/deadline"
)

// ErrNotStarted is the error of a service that systemd has refused to start.
var ErrNotStarted = errors.New("systemd refuses to start the service")

// terminationTimeout is how long the main process of a captured service may take to exit after
// SIGTERM.
const terminationTimeout = 10 * time.Second

// Capture runs the service, with input on its standard input, until its program has ended, and
// returns its standard output. Both are files in memory. After limit, or when ctx is done, the
// program receives SIGTERM. Once it has exited, the other processes in its unit are killed at once,
// and only then Capture returns. The connection must support passing descriptors; systemd keeps the
// result of the service until it is closed. Errors: *Failure, ErrNotStarted.
func Capture(
	ctx context.Context, conn *dbus.Conn, s Service, input []byte, limit time.Duration,
) (output []byte, err error) {
	stdin, err := memoryFile(input)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotStarted, err)
	}
	defer func() { _ = stdin.Close() }()
	fd, err := unix.MemfdCreate("output", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("%w: cannot create a file in memory: %w", ErrNotStarted, err)
	}
	stdout := os.NewFile(uintptr(fd), "output")
	defer func() { _ = stdout.Close() }()
	unit := s.unitName()
	result, err := s.start(ctx, conn, unit, nil,
		// The start job of a oneshot service ends with the program, and is limited by TimeoutStartSec=.
		Property{"Type", dbus.MakeVariant("oneshot")},
		Property{"TimeoutStartUSec", dbus.MakeVariant(uint64(limit.Microseconds()))},
		Property{"TimeoutStopUSec", dbus.MakeVariant(uint64(terminationTimeout.Microseconds()))},
		Property{"KillMode", dbus.MakeVariant("mixed")}, // SIGTERM to the main process alone, then SIGKILL to all others
		Property{"StandardInputFileDescriptor", dbus.MakeVariant(dbus.UnixFD(stdin.Fd()))},
		Property{"StandardOutputFileDescriptor", dbus.MakeVariant(dbus.UnixFD(stdout.Fd()))},
		Property{"AddRef", dbus.MakeVariant(true)},
	)
	switch {
	case errors.As(err, new(dbus.Error)) && ctx.Err() == nil && !bus.HasErrorName(err, bus.ErrorPrefix+"NoReply"):
		return nil, fmt.Errorf("%w: %w", ErrNotStarted, err)
	// The service may be running, but nobody waits for it any more.
	case err != nil:
		stopping, cancel := deadline.Context(context.WithoutCancel(ctx), terminationTimeout+stopTimeout)
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
