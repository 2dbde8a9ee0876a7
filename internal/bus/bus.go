// Package bus connects the daemon to a message bus.
package bus

import (
	"context"
	"fmt"
	"os"

	"github.com/godbus/dbus/v5"
)

// Dial connects to the bus at address, authenticates as this user, and calls Hello. Signals are
// delivered in order, which godbus's default handler does not ensure. The context limits only the
// time for connecting: if the bus accepts the connection and does not reply, Dial fails when the
// context is done.
//
// Any process that can send to the connection can crash this process, or make it allocate 128 MiB,
// with one message. Therefore it is only for short-lived connections that send calls with file
// descriptors. All others use DialGuarded.
func Dial(ctx context.Context, address string, options ...dbus.ConnOption) (*dbus.Conn, error) {
	sequential := dbus.WithSignalHandler(dbus.NewSequentialSignalHandler())
	conn, err := dbus.Dial(address, append([]dbus.ConnOption{sequential}, options...)...)
	if err != nil {
		return nil, fmt.Errorf("cannot connect to the bus: %w", err)
	}
	if err := hello(ctx, conn); err != nil {
		return nil, err
	}
	return conn, nil
}

// hello authenticates to the bus and calls Hello. It closes the connection on errors.
func hello(ctx context.Context, conn *dbus.Conn) (err error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	if err = conn.Auth([]dbus.Auth{dbus.AuthExternal(fmt.Sprint(os.Getuid()))}); err == nil {
		err = conn.Hello()
	}
	if !stop() && err == nil {
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
