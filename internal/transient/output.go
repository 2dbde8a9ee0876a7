package transient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/internal/deadline"
)

// output is the standard output of a service.
type output struct {
	*os.File
	conn           *dbus.Conn
	unit           string
	cancelDeadline func() bool // stops the function that ends reading when the context is done
}

// Output starts the service and returns its standard output, which ends when no process has it open
// any more, or when ctx is done. The service has no standard input and no terminal, and its
// standard error is discarded. Closing the output kills all processes in the unit, and so does the
// time limit; the processes that the program has started end with it. The connection must support
// passing descriptors, is used until Close, and stays open.
func Output(ctx context.Context, conn *dbus.Conn, s Service, limit time.Duration) (io.ReadCloser, error) {
	if !conn.SupportsUnixFDs() {
		return nil, errors.New("the bus does not support passing descriptors")
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("cannot create a pipe: %w", err)
	}
	defer func() { _ = w.Close() }()
	unit := s.unitName()
	result, err := s.start(ctx, conn, unit, nil,
		Property{"StandardInput", dbus.MakeVariant("null")},
		Property{"StandardOutputFileDescriptor", dbus.MakeVariant(dbus.UnixFD(w.Fd()))},
		Property{"StandardError", dbus.MakeVariant("null")},
		Property{"KillSignal", dbus.MakeVariant(int32(9))}, // also for processes that remain when the program has exited
		Property{"RuntimeMaxUSec", dbus.MakeVariant(uint64(limit.Microseconds()))},
	)
	if err == nil && result != "done" {
		err = fmt.Errorf("cannot run %q: its start job ended with %q", s.Argv[0], result)
	}
	o := &output{File: r, conn: conn, unit: unit}
	if err != nil {
		return nil, errors.Join(err, o.Close())
	}
	o.cancelDeadline = context.AfterFunc(ctx, func() { _ = r.SetReadDeadline(time.Unix(1, 0)) })
	return o, nil
}

// Close stops the service with all of its processes. It does not wait until they have exited, but
// for systemd's reply: systemd does not handle a request whose sender has left the bus.
func (o *output) Close() error {
	if o.cancelDeadline != nil {
		o.cancelDeadline()
	}
	ctx, cancel := deadline.Context(context.Background(), stopTimeout)
	defer cancel()
	_, err := stopUnit(ctx, o.conn, o.unit)
	return errors.Join(err, o.File.Close())
}
