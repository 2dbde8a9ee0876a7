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

// output is what a service prints.
type output struct {
	*os.File
	conn *dbus.Conn
	unit string
	calm func() bool // calls off what ends the reading
}

// Output starts the service and returns its standard output, which ends when nobody has that open
// any more, or when ctx is done. It has nothing to read, no terminal, and what it says on standard
// error is lost. Closing kills everything that is in its unit, as does limit; and what the program
// has started does not outlive it. The connection, which has to pass descriptors on, is used until
// then, and stays the caller's.
func Output(ctx context.Context, conn *dbus.Conn, s Service, limit time.Duration) (io.ReadCloser, error) {
	if !conn.SupportsUnixFDs() {
		return nil, errors.New("the bus passes no descriptors on")
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("cannot make a pipe: %w", err)
	}
	defer func() { _ = w.Close() }()
	unit := s.unit()
	result, err := s.start(ctx, conn, unit, nil,
		property{"StandardInput", dbus.MakeVariant("null")},
		property{"StandardOutputFileDescriptor", dbus.MakeVariant(dbus.UnixFD(w.Fd()))},
		property{"StandardError", dbus.MakeVariant("null")},
		property{"KillSignal", dbus.MakeVariant(int32(9))}, // also of what is left when the program has ended
		property{"RuntimeMaxUSec", dbus.MakeVariant(uint64(limit.Microseconds()))},
	)
	if err == nil && result != "done" {
		err = fmt.Errorf("cannot run %q: its start ended as %q", s.Argv[0], result)
	}
	o := &output{File: r, conn: conn, unit: unit}
	if err != nil {
		return nil, errors.Join(err, o.Close())
	}
	o.calm = context.AfterFunc(ctx, func() { _ = r.SetReadDeadline(time.Unix(1, 0)) })
	return o, nil
}

// Close ends the service with everything that it has started. It does not wait for that, but for
// systemd's word: of a caller that has gone it takes none.
func (o *output) Close() error {
	if o.calm != nil {
		o.calm()
	}
	ctx, cancel := deadline.Context(context.Background(), stopTimeout)
	defer cancel()
	err := o.conn.Object(systemd, systemdPath).CallWithContext(ctx, managerIface+".StopUnit", 0, o.unit, "replace").Err
	if e := (dbus.Error{}); errors.As(err, &e) && e.Name == systemd+".NoSuchUnit" {
		err = nil
	}
	return errors.Join(err, o.File.Close())
}
