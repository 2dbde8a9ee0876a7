package units

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/internal/deadline"
)

// privateTime bounds the connecting to systemd's private socket. systemd answers there within
// milliseconds.
const privateTime = 2 * time.Second

// pingEvery is the interval at which a private socket is pinged until it answers.
const pingEvery = 10 * time.Millisecond

// dialPrivate connects to the socket at which systemd serves its own user without a bus. The
// connection carries calls only. It replaces the bus when that is gone: a daemon whose bus is
// stopped still has to know which scopes are stopped with it.
func dialPrivate(runtimeDir string) (*dbus.Conn, error) {
	ctx, cancel := deadline.Context(context.Background(), privateTime)
	defer cancel()
	conn, err := dbus.Dial("unix:path=" + dbus.EscapeBusAddressValue(filepath.Join(runtimeDir, "systemd/private")))
	if err != nil {
		return nil, fmt.Errorf("cannot connect to systemd's private socket: %w", err)
	}
	giveUp := context.AfterFunc(ctx, func() { _ = conn.Close() })
	if err = conn.Auth([]dbus.Auth{dbus.AuthExternal(fmt.Sprint(os.Getuid()))}); err == nil {
		err = pingPrivate(ctx, conn)
	}
	if !giveUp() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("cannot connect to systemd's private socket: %w", err)
	}
	return conn, nil
}

// pingPrivate returns once systemd answers. systemd leaves a message unread that arrives together
// with the end of the authentication, until the next one arrives.
func pingPrivate(ctx context.Context, conn *dbus.Conn) error {
	answers := make(chan *dbus.Call, privateTime/pingEvery+1) // godbus blocks on a full channel
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		conn.Object(systemdName, systemdPath).Go("org.freedesktop.DBus.Peer.Ping", 0, answers)
		select {
		case c := <-answers:
			return c.Err
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
