package units

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/internal/bus"
	"github.com/corrald/corral/internal/deadline"
)

// privateTimeout bounds the connection to systemd's private socket. systemd answers there within
// milliseconds.
const privateTimeout = 2 * time.Second

// pingInterval is the interval at which a private socket is pinged until it answers.
const pingInterval = 10 * time.Millisecond

// dialPrivate connects to the private socket on which systemd serves its own user without a bus.
// The connection carries only calls. It replaces a lost bus connection: a daemon whose bus was
// stopped still has to determine which scopes are being stopped with it.
func dialPrivate(runtimeDir string) (*client, error) {
	ctx, cancel := deadline.Context(context.Background(), privateTimeout)
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
	var c *client
	if err == nil {
		c, err = newClient(conn)
	}
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("cannot connect to systemd's private socket: %w", err)
	}
	return c, nil
}

// pingPrivate returns once systemd answers. If a message arrives together with the end of the
// authentication, systemd does not read it until the next message arrives.
func pingPrivate(ctx context.Context, conn *dbus.Conn) error {
	answers := make(chan *dbus.Call, privateTimeout/pingInterval+1) // godbus blocks when the channel is full
	tick := time.NewTicker(pingInterval)
	defer tick.Stop()
	for {
		bus.Systemd(conn).Go(bus.Name+".Peer.Ping", 0, answers)
		select {
		case c := <-answers:
			return c.Err
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
