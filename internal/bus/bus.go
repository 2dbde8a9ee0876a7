// Package bus connects the daemon to a message bus.
package bus

import (
	"context"
	"fmt"
	"os"

	"github.com/godbus/dbus/v5"
)

// Dial connects to the bus at address, as this user, and says hello. Signals are delivered in the
// order in which they come, which godbus's default handler does not do. The context bounds the
// connecting alone: a bus that accepts and does not answer is an error once it is done. Anybody who
// can send to the connection can end the process, or have it take 128 MiB, by one message: it is
// for connections that soon end, to send calls with descriptors. See Guarded.
func Dial(ctx context.Context, address string, options ...dbus.ConnOption) (*dbus.Conn, error) {
	conn, err := dbus.Dial(address, append([]dbus.ConnOption{dbus.WithSignalHandler(dbus.NewSequentialSignalHandler())}, options...)...)
	if err != nil {
		return nil, fmt.Errorf("cannot connect to the bus: %w", err)
	}
	if err := hello(ctx, conn); err != nil {
		return nil, err
	}
	return conn, nil
}

// hello authenticates to the bus, and closes the connection if that does not work.
func hello(ctx context.Context, conn *dbus.Conn) (err error) {
	giveUp := context.AfterFunc(ctx, func() { _ = conn.Close() })
	if err = conn.Auth([]dbus.Auth{dbus.AuthExternal(fmt.Sprint(os.Getuid()))}); err == nil {
		err = conn.Hello()
	}
	if !giveUp() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = conn.Close()
		if ctx.Err() != nil {
			err = fmt.Errorf("it does not answer: %w", ctx.Err())
		}
		return fmt.Errorf("cannot connect to the bus: %w", err)
	}
	return nil
}
