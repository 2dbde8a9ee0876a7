// Package client calls Corral over D-Bus, for corralctl and other Go programs. It has one method
// for each method of the contract; it returns properties as structs with the contract's names, and
// signals as typed events. It caches nothing.
//
// Error replies of the daemon and of the bus are returned unchanged, as dbus.Error;
// dbusapi.ShortErrorName returns their names. IsUnreachable reports whether an error means that
// there is no daemon to call.
package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/dbusapi"
)

// godbus calls have no time-out of their own, so this package sets one for every call.
const (
	connectTimeout = 10 * time.Second
	callTimeout    = 25 * time.Second // for calls that the daemon answers from memory; libdbus's default
	slowTimeout    = 5 * time.Minute  // for calls that wait for an agent to start or exit
	gitTimeout     = 30 * time.Minute // for calls that wait for git or for the setup of a worktree

	pingAfter   = 3 * time.Second // the daemon is pinged if it has not replied to a call for this long
	pingTimeout = 2 * time.Second // for the reply to a ping, which requires no work of the daemon
)

// Client is a connection to Corral. It is safe for concurrent use. Close ends it.
type Client struct {
	// Environment is the environment of the caller (NAME=VALUE). CreateSession, StartSession,
	// ResumeSession and RestartSession send it for the run that they start. It must be set before the
	// first call. If it is nil, none is sent, and the daemon uses the environment of the user's login
	// shell.
	Environment []string
	// Now has these calls start the run at once, even if MaxRunning= does not permit it. Like
	// Environment, it must be set before the first call.
	Now bool

	conn        *dbus.Conn
	noAutoStart atomic.Bool

	// On a connection to another machine: when it has last sent something (UnixNano), and how many
	// bytes of its signals were processed.
	lastRead, processedSignals *atomic.Int64

	hosts *hostList // of a Client of ConnectHosts; it has no connection of its own
}

// ConnectError is returned if the session bus cannot be reached.
type ConnectError struct{ Err error }

func (e *ConnectError) Error() string {
	return fmt.Sprintf("cannot connect to the session bus: %v", e.Err)
}
func (e *ConnectError) Unwrap() error { return e.Err }

// Connect connects to the user's session bus. It does not start the daemon; the first call does if
// D-Bus activation is installed. The connection lasts until Close is called or ctx is done. Errors:
// *ConnectError, *ExcludedError.
func Connect(ctx context.Context) (*Client, error) {
	address, err := BusAddress()
	if err != nil {
		return nil, &ConnectError{err}
	}
	c, err := connect(ctx, func(_ *time.Timer, options ...dbus.ConnOption) (*dbus.Conn, error) {
		return dbus.Dial(address, options...)
	})
	if err == nil {
		if err = c.checkExcluded(ctx); err != nil {
			_ = c.Close()
			return nil, err
		}
	}
	return c, err
}

// connect opens a connection with dial and authenticates. It fails when the deadline timer expires;
// dial may stop and restart that timer.
func connect(
	ctx context.Context, dial func(deadline *time.Timer, options ...dbus.ConnOption) (*dbus.Conn, error),
) (*Client, error) {
	lifetime, cancel := context.WithCancel(ctx)
	var timedOut atomic.Bool
	deadline := time.AfterFunc(connectTimeout, func() {
		timedOut.Store(true)
		cancel()
	})
	defer deadline.Stop()
	// godbus's default signal handler delivers signals out of order.
	conn, err := dial(deadline, dbus.WithContext(lifetime), dbus.WithSignalHandler(dbus.NewSequentialSignalHandler()))
	if err != nil {
		cancel()
		return nil, &ConnectError{err}
	}
	// The user id matters only on a local connection; on a relayed one the bus ignores it.
	err = conn.Auth([]dbus.Auth{dbus.AuthExternal(strconv.Itoa(os.Geteuid()))})
	if err == nil {
		err = conn.Hello()
	}
	if err != nil {
		cancel()
		if timedOut.Load() && ctx.Err() == nil {
			err = fmt.Errorf("no answer within %s", connectTimeout)
		}
		return nil, &ConnectError{err}
	}
	return &Client{conn: conn}, nil
}

// BusAddress returns the address of the session bus. godbus's own search is not used: as a last
// resort it runs dbus-launch, which would start a bus without other clients, and it accepts
// unusable addresses such as "disabled:", which tmux servers are started with.
func BusAddress() (string, error) {
	switch address := os.Getenv("DBUS_SESSION_BUS_ADDRESS"); address {
	case "", "autolaunch:", "disabled:":
	default:
		return address, nil
	}
	runtime := os.Getenv("XDG_RUNTIME_DIR")
	if runtime == "" {
		runtime = filepath.Join("/run/user", strconv.Itoa(os.Getuid()))
	}
	socket := filepath.Join(runtime, "bus")
	if _, err := os.Stat(socket); err != nil {
		return "", fmt.Errorf("DBUS_SESSION_BUS_ADDRESS is not set, and there is no bus at %s", socket)
	}
	return "unix:path=" + dbus.EscapeBusAddressValue(socket), nil
}

// Close ends the connection. Pending calls fail.
func (c *Client) Close() error {
	if c.hosts != nil {
		return c.hosts.close()
	}
	return c.conn.Close()
}

// Running reports whether a daemon owns the bus name. It does not start one.
func (c *Client) Running(ctx context.Context) (bool, error) {
	on, err := c.only(ctx)
	if err != nil {
		return false, err
	}
	var running bool
	err = on.bus(ctx, "NameHasOwner", []any{dbusapi.BusName}, &running)
	return running, err
}

// call calls a method of the daemon and stores the values of its reply in results.
func (c *Client) call(
	ctx context.Context, path dbus.ObjectPath, method string, timeout time.Duration, args []any, results ...any,
) error {
	return c.do(ctx, path, method, timeout, c.flags(), args...).Store(results...)
}

// do calls a method of the daemon and waits for the reply until the time-out. If the daemon does
// not even reply to pings, it returns a *NoAnswerError earlier.
func (c *Client) do(
	ctx context.Context, path dbus.ObjectPath, method string, timeout time.Duration, flags dbus.Flags, args ...any,
) *dbus.Call {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	call := c.conn.Object(dbusapi.BusName, path).GoWithContext(ctx, method, flags, make(chan *dbus.Call, 1), args...)
	nextPing := time.NewTimer(pingAfter)
	defer nextPing.Stop()
	for {
		select {
		case <-call.Done:
			return call
		case <-nextPing.C:
		}
		if c.isUnresponsive(ctx) && ctx.Err() == nil {
			return &dbus.Call{Err: &NoAnswerError{pingAfter + pingTimeout}}
		}
		nextPing.Reset(pingAfter)
	}
}

// isUnresponsive reports whether the daemon is running but does not reply to a ping. After the
// ping, it asks the bus whether the daemon is running. This excludes a daemon that is being
// started, and a slow connection to the bus: the bus handles messages in order, so its reply shows
// that it has delivered the ping.
func (c *Client) isUnresponsive(ctx context.Context) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	daemon := c.conn.Object(dbusapi.BusName, "/")
	ping := daemon.GoWithContext(ctx, "org.freedesktop.DBus.Peer.Ping", dbus.FlagNoAutoStart, make(chan *dbus.Call, 1))
	if running, err := c.Running(ctx); err != nil || !running {
		return false
	}
	timeout := time.NewTimer(pingTimeout)
	defer timeout.Stop()
	select {
	case <-ping.Done:
		return false
	case <-timeout.C:
		return true
	}
}

// NoAnswerError is returned if the daemon is running but has not replied to anything for this long:
// it hangs, or was stopped by a signal. It wraps context.DeadlineExceeded.
type NoAnswerError struct{ After time.Duration }

func (e *NoAnswerError) Error() string {
	return fmt.Sprintf("corrald has not answered within %s", e.After)
}

// Unwrap returns context.DeadlineExceeded.
func (e *NoAnswerError) Unwrap() error { return context.DeadlineExceeded }

// DisableAutoStart makes all later calls fail with an IsUnreachable error if no daemon is running,
// instead of starting it. It is for clients that follow the daemon's signals: they must not restart
// a daemon that was stopped or removed.
func (c *Client) DisableAutoStart() {
	c.noAutoStart.Store(true)
	if c.hosts != nil {
		for _, h := range c.hosts.all {
			h.noAutoStart.Store(true)
		}
	}
}

func (c *Client) flags() dbus.Flags {
	if c.noAutoStart.Load() {
		return dbus.FlagNoAutoStart
	}
	return 0
}

func (c *Client) manager(
	ctx context.Context, method string, timeout time.Duration, args []any, results ...any,
) error {
	on, err := c.only(ctx)
	if err != nil {
		return err
	}
	return on.call(ctx, dbusapi.ManagerPath, dbusapi.ManagerInterface+"."+method, timeout, args, results...)
}

// managerOf calls a method of the Manager whose first argument is the id of a session.
func (c *Client) managerOf(ctx context.Context, id, method string, timeout time.Duration, args []any) error {
	on, id, err := c.route(ctx, id)
	if err != nil {
		return err
	}
	return on.manager(ctx, method, timeout, slices.Concat([]any{id}, args))
}

func (c *Client) session(ctx context.Context, id, method string, args []any, results ...any) error {
	return c.ofSession(ctx, id, dbusapi.SessionInterface+"."+method, callTimeout, args, results...)
}

// ofSession calls a method of a session's object.
func (c *Client) ofSession(
	ctx context.Context, id, method string, timeout time.Duration, args []any, results ...any,
) error {
	on, id, err := c.route(ctx, id)
	if err != nil {
		return err
	}
	return on.call(ctx, dbusapi.SessionPath(id), method, timeout, args, results...)
}

// Post calls a Manager method that changes the session. It returns once the daemon has accepted or
// refused the call, and does not wait until the change is complete.
//
// To learn that, it makes a second call about the same session: the daemon replies to it only after
// it has replied to the first call or has accepted it.
func (c *Client) Post(ctx context.Context, method, id string, args ...any) error {
	if c.hosts != nil {
		on, id, err := c.route(ctx, id)
		if err != nil {
			return err
		}
		return on.Post(ctx, method, id, args...)
	}
	manager := c.conn.Object(dbusapi.BusName, dbusapi.ManagerPath)
	call := manager.Go(dbusapi.ManagerInterface+"."+method, c.flags(), make(chan *dbus.Call, 1),
		slices.Concat([]any{id}, args)...)
	_, secondErr := c.Explain(ctx, id)
	select {
	case <-call.Done:
		return call.Err
	default:
	}
	if IsUnreachable(secondErr) {
		return secondErr
	}
	return nil
}

// IsUnreachable reports whether err means that the daemon could not be called, or ended before it
// replied. It returns false for an error reply of the daemon.
func IsUnreachable(err error) bool {
	var excluded *ExcludedError
	if IsDisconnected(err) || errors.Is(err, context.DeadlineExceeded) || errors.As(err, &excluded) {
		return true
	}
	var answer dbus.Error
	if !errors.As(err, &answer) {
		return false
	}
	switch answer.Name {
	case "org.freedesktop.DBus.Error.ServiceUnknown", // not running, and not activatable
		"org.freedesktop.DBus.Error.NameHasNoOwner",
		"org.freedesktop.DBus.Error.NoReply", // the daemon ended during the call
		"org.freedesktop.DBus.Error.Disconnected",
		"org.freedesktop.DBus.Error.TimedOut": // activation took too long
		return true
	}
	return strings.HasPrefix(answer.Name, "org.freedesktop.DBus.Error.Spawn.") || // activation failed
		strings.HasPrefix(answer.Name, "org.freedesktop.systemd1.")
}

// IsDisconnected reports whether err means that the connection to the bus failed or was lost.
func IsDisconnected(err error) bool {
	var connect *ConnectError
	var socket *net.OpError // the connection broke during the call
	return errors.As(err, &connect) || errors.As(err, &socket) || errors.Is(err, dbus.ErrClosed) || errors.Is(err, io.EOF)
}

// IsUnavailable reports whether the call can be repeated once the daemon is running again: the
// daemon is unreachable, or replied that it is shutting down.
func IsUnavailable(err error) bool {
	return IsUnreachable(err) || dbusapi.ShortErrorName(err) == dbusapi.ShuttingDown
}
