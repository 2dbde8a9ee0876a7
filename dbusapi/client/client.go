// Package client calls Corral over D-Bus, for corralctl and every other Go program: one method for
// each method of the contract, properties as a struct with the contract's names, and the signals as
// typed events. It starts nothing and keeps nothing: what it returns is what the daemon said.
//
// Errors that the daemon or the bus answered are returned as they are, as dbus.Error, and can be
// read with dbusapi.ShortErrorName. Unreachable tells whether an error means that there is no
// daemon to talk to.
package client

import (
	"bufio"
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
	"sync"
	"sync/atomic"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/dbusapi"
)

// godbus sets no deadline on any call, so every call gets one here.
const (
	connectTimeout = 10 * time.Second
	callTimeout    = 25 * time.Second // what the daemon answers from memory; as libdbus's default
	slowTimeout    = 5 * time.Minute  // what waits for an agent to start or to end
	gitTimeout     = 12 * time.Minute // what waits for git, which may check out a large repository and run its hooks, too

	quietTime = 3 * time.Second // how long a call goes unanswered before it is asked whether the daemon answers at all
	pingTime  = 2 * time.Second // how long that answer may take: a daemon gives it without doing anything else
)

// Client is one connection to Corral. It may be used by several goroutines at once; Close ends it.
type Client struct {
	// Environment is NAME=VALUE of whoever this client works for: what CreateSession, StartSession,
	// ResumeSession and RestartSession send along for the run that begins with it. It is set before
	// the first call; nil sends none, and the daemon asks the user's login shell.
	Environment []string

	conn        *dbus.Conn
	neverStarts atomic.Bool
}

// ConnectError says that there is no bus to find the daemon on.
type ConnectError struct{ Err error }

func (e *ConnectError) Error() string {
	return fmt.Sprintf("cannot connect to the session bus: %v", e.Err)
}
func (e *ConnectError) Unwrap() error { return e.Err }

// Connect connects to the user's session bus. It does not start the daemon; the first call does
// where D-Bus activation is installed. The connection lives until Close or the end of ctx. Errors:
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
		if err = c.excluded(ctx); err != nil {
			_ = c.Close()
			return nil, err
		}
	}
	return c, err
}

// ConnectOver connects through a stream that leads to a session bus, such as the pipes of "ssh HOST
// systemd-stdio-bridge --user". Descriptors cannot pass it, so OpenLog fails. What leads there may
// ask a person for a password first, which takes as long as it takes. Errors: *ConnectError.
func ConnectOver(ctx context.Context, stream io.ReadWriteCloser) (*Client, error) {
	return connect(ctx, func(deadline *time.Timer, options ...dbus.ConnOption) (*dbus.Conn, error) {
		deadline.Stop()
		buffered := bufferedStream{
			Reader: bufio.NewReaderSize(stream, 64<<10), ReadWriteCloser: stream, answered: sync.OnceFunc(func() { deadline.Reset(connectTimeout) }),
		}
		return dbus.NewConn(buffered, options...)
	})
}

// bufferedStream spares the many small reads that godbus makes for each message.
type bufferedStream struct {
	*bufio.Reader
	io.ReadWriteCloser
	answered func() // is called when something was read
}

func (s bufferedStream) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	s.answered()
	return n, err
}

// connect makes a connection within the time of the deadline, which dial may have begin later.
func connect(ctx context.Context, dial func(deadline *time.Timer, options ...dbus.ConnOption) (*dbus.Conn, error)) (*Client, error) {
	lifetime, cancel := context.WithCancel(ctx)
	var late atomic.Bool
	deadline := time.AfterFunc(connectTimeout, func() {
		late.Store(true)
		cancel()
	})
	defer deadline.Stop()
	// The sequential handler: godbus's default one delivers signals out of order.
	conn, err := dial(deadline, dbus.WithContext(lifetime), dbus.WithSignalHandler(dbus.NewSequentialSignalHandler()))
	if err != nil {
		cancel()
		return nil, &ConnectError{err}
	}
	// On a relayed connection authentication ignores the user; on a local one it is ours.
	err = conn.Auth([]dbus.Auth{dbus.AuthExternal(strconv.Itoa(os.Geteuid()))})
	if err == nil {
		err = conn.Hello()
	}
	if err != nil {
		cancel()
		if late.Load() && ctx.Err() == nil {
			err = fmt.Errorf("no answer within %s", connectTimeout)
		}
		return nil, &ConnectError{err}
	}
	return &Client{conn: conn}, nil
}

// BusAddress returns where the session bus listens. godbus's own search ends in running
// dbus-launch, which would make a bus that nobody else is on, and it believes a useless address,
// such as the "disabled:" that tmux servers are started with.
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

// Close ends the connection; calls that are under way fail.
func (c *Client) Close() error {
	return c.conn.Close()
}

// Running tells whether there is a daemon on the bus. It does not start one.
func (c *Client) Running(ctx context.Context) (bool, error) {
	var running bool
	err := c.bus(ctx, "NameHasOwner", []any{dbusapi.BusName}, &running)
	return running, err
}

// call calls a method of the daemon and stores what it answers in results.
func (c *Client) call(ctx context.Context, path dbus.ObjectPath, method string, timeout time.Duration, args []any, results ...any) error {
	return c.do(ctx, path, method, timeout, c.flags(), args...).Store(results...)
}

// do calls a method of the daemon and waits for the answer until the timeout. It gives up earlier,
// with a *NoAnswerError, on a daemon that answers nobody.
func (c *Client) do(
	ctx context.Context, path dbus.ObjectPath, method string, timeout time.Duration, flags dbus.Flags, args ...any,
) *dbus.Call {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	call := c.conn.Object(dbusapi.BusName, path).GoWithContext(ctx, method, flags, make(chan *dbus.Call, 1), args...)
	quiet := time.NewTimer(quietTime)
	defer quiet.Stop()
	for {
		select {
		case <-call.Done:
			return call
		case <-quiet.C:
		}
		if c.silent(ctx) && ctx.Err() == nil {
			return &dbus.Call{Err: &NoAnswerError{quietTime + pingTime}}
		}
		quiet.Reset(quietTime)
	}
}

// silent tells whether there is a daemon that does not answer. The bus is asked whether there is
// one, so that neither one that is being started nor a slow connection to the bus is taken for
// that: its answer to the second question shows that it has passed the first one on.
func (c *Client) silent(ctx context.Context) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	daemon := c.conn.Object(dbusapi.BusName, "/")
	ping := daemon.GoWithContext(ctx, "org.freedesktop.DBus.Peer.Ping", dbus.FlagNoAutoStart, make(chan *dbus.Call, 1))
	if running, err := c.Running(ctx); err != nil || !running {
		return false
	}
	answer := time.NewTimer(pingTime)
	defer answer.Stop()
	select {
	case <-ping.Done:
		return false
	case <-answer.C:
		return true
	}
}

// NoAnswerError says that a daemon is there and has not answered anything for this long: it hangs,
// or was stopped. It is a context.DeadlineExceeded, too.
type NoAnswerError struct{ After time.Duration }

func (e *NoAnswerError) Error() string {
	return fmt.Sprintf("corrald has not answered within %s", e.After)
}

// Unwrap returns what it is beside that.
func (e *NoAnswerError) Unwrap() error { return context.DeadlineExceeded }

// DisableAutoStart has no call from here on start a daemon: where there is none it fails, and
// Unreachable tells so. It is for who follows what a daemon tells: one that was stopped, or
// removed, is not to come back for that.
func (c *Client) DisableAutoStart() { c.neverStarts.Store(true) }

func (c *Client) flags() dbus.Flags {
	if c.neverStarts.Load() {
		return dbus.FlagNoAutoStart
	}
	return 0
}

func (c *Client) manager(ctx context.Context, method string, timeout time.Duration, args []any, results ...any) error {
	return c.call(ctx, dbusapi.ManagerPath, dbusapi.ManagerInterface+"."+method, timeout, args, results...)
}

func (c *Client) session(ctx context.Context, id, method string, args []any, results ...any) error {
	return c.call(ctx, dbusapi.SessionPath(id), dbusapi.SessionInterface+"."+method, callTimeout, args, results...)
}

// Post calls a Manager method that changes the session, and returns once that is refused, or begun,
// rather than once it is done.
//
// It asks something else of the session behind it: the daemon answers that once it has answered the
// first call, or has let it in.
func (c *Client) Post(ctx context.Context, method, id string, args ...any) error {
	manager := c.conn.Object(dbusapi.BusName, dbusapi.ManagerPath)
	call := manager.Go(dbusapi.ManagerInterface+"."+method, c.flags(), make(chan *dbus.Call, 1), slices.Concat([]any{id}, args)...)
	_, behind := c.Explain(ctx, id)
	select {
	case <-call.Done:
		return call.Err
	default:
	}
	if IsUnreachable(behind) {
		return behind
	}
	return nil
}

// IsUnreachable tells whether err means that the daemon could not be asked, or did not live to
// answer, rather than that it refused.
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
		"org.freedesktop.DBus.Error.NoReply", // ended during the call
		"org.freedesktop.DBus.Error.Disconnected",
		"org.freedesktop.DBus.Error.TimedOut": // activation took too long
		return true
	}
	return strings.HasPrefix(answer.Name, "org.freedesktop.DBus.Error.Spawn.") || // activation failed
		strings.HasPrefix(answer.Name, "org.freedesktop.systemd1.")
}

// IsDisconnected tells whether err means that there is no connection to the bus, or no more.
func IsDisconnected(err error) bool {
	var connect *ConnectError
	var socket *net.OpError // the connection broke during the call
	return errors.As(err, &connect) || errors.As(err, &socket) || errors.Is(err, dbus.ErrClosed) || errors.Is(err, io.EOF)
}

// IsUnavailable tells whether what was asked can be asked again once the daemon is back: it is
// Unreachable, or said with its last words that it ends.
func IsUnavailable(err error) bool {
	return IsUnreachable(err) || dbusapi.ShortErrorName(err) == dbusapi.ShuttingDown
}
