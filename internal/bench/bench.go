package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/dbusapi/client"
)

// timeout limits how long the bench waits for an event that should happen soon. It is not a
// requirement.
const timeout = time.Minute

// bench is a running daemon with the connections that observe it.
type bench struct {
	options
	place
	daemon   *exec.Cmd
	ended    chan struct{} // closed when the daemon has exited
	client   *client.Client
	listener *listener
	many     int          // number of sessions that gather has started
	last     atomic.Int64 // number in the last session id
	before   machineUse   // without any session
}

// start starts the daemon and connects to it. The daemon is an ordinary child process without a
// watchdog, so that it only wakes up for its own reasons.
func start(ctx context.Context, o options, p place) (*bench, error) {
	b := &bench{options: o, place: p}
	var err error
	if b.before, err = usageOfMachine(); err != nil {
		return nil, err
	}
	if b.listener, err = newListener(ctx); err != nil {
		return nil, err
	}
	if b.client, err = client.Connect(ctx); err != nil {
		b.listener.close()
		return nil, err
	}
	if err := b.startDaemon(ctx); err != nil {
		return nil, errors.Join(err, b.daemonError(), b.close())
	}
	return b, nil
}

func (b *bench) startDaemon(ctx context.Context) error {
	log, err := os.Create(b.logPath())
	if err != nil {
		return fmt.Errorf("cannot make the daemon's log: %w", err)
	}
	defer func() { _ = log.Close() }()
	b.daemon = exec.Command(b.program("corrald"))
	b.daemon.Env = append(os.Environ(), "XDG_STATE_HOME="+filepath.Join(b.work(), "state"))
	b.daemon.Dir = b.work()
	b.daemon.Stderr = log
	// A terminal's Ctrl-C reaches only the bench, which then stops the daemon.
	b.daemon.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	if err := b.daemon.Start(); err != nil {
		b.daemon = nil
		return fmt.Errorf("cannot start corrald: %w", err)
	}
	daemon, ended := b.daemon, make(chan struct{})
	b.ended = ended
	go func() {
		_ = daemon.Wait()
		close(ended)
	}()
	return b.listener.await(ctx, b.ended, "corrald on the bus", func() (bool, error) {
		return b.listener.hasOwner(ctx, dbusapi.BusName)
	})
}

func (b *bench) logPath() string { return filepath.Join(b.work(), "corrald.log") }

// daemonError returns the last lines of the daemon's log if it has exited.
func (b *bench) daemonError() error {
	select {
	case <-b.ended:
		log, _ := os.ReadFile(b.logPath())
		lines := bytes.Split(bytes.TrimSpace(log), []byte("\n"))
		last := bytes.Join(lines[max(len(lines)-10, 0):], []byte("\n"))
		return fmt.Errorf("corrald has ended; its log ends with:\n%s", last)
	default:
		return nil
	}
}

// close removes every session and then stops the daemon.
func (b *bench) close() error {
	defer b.listener.close()
	defer func() { _ = b.client.Close() }()
	if b.daemon == nil {
		return nil
	}
	limit := timeout * time.Duration(1+b.many/200)
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var err error
	if rows, listErr := b.client.ListSessions(ctx); listErr == nil {
		err = parallel(len(rows), func(i int) error { return b.client.RemoveSession(ctx, rows[i].ID, true) })
	}
	_ = b.daemon.Process.Signal(unix.SIGTERM)
	select {
	case <-b.ended:
	case <-ctx.Done():
		_ = b.daemon.Process.Kill()
		<-b.ended
		err = errors.Join(err, fmt.Errorf("corrald did not end within %v", limit))
	}
	return err
}

// times scales the number of measurements by the option -n.
func (b *bench) times(n int) int { return max(int(math.Round(float64(n)*b.factor)), 1) }

// newID returns an unused session id, so that each session is measured from its creation.
func (b *bench) newID(name string) string { return name + "-" + strconv.FormatInt(b.last.Add(1), 10) }

// newIDs returns n unused session ids.
func (b *bench) newIDs(name string, n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = b.newID(name)
	}
	return ids
}

// create starts a session for a command and returns once it runs.
func (b *bench) create(ctx context.Context, id string, command []string) error {
	_, err := b.client.CreateSession(ctx, "command", client.Spec{ID: id, Command: command, WorkingDirectory: b.work()})
	return err
}

// remove stops and removes a session.
func (b *bench) remove(ctx context.Context, id string) error {
	return b.client.RemoveSession(ctx, id, true)
}

// silent is the command of an agent that does nothing.
var silent = []string{"sleep", "infinity"}

// gather starts silent sessions until there are n of them, and waits until the daemon reports all
// as idle.
func (b *bench) gather(ctx context.Context, n int) error {
	if b.many >= n {
		return nil
	}
	err := parallel(n-b.many, func(int) error { return b.create(ctx, b.newID("many"), silent) })
	if err != nil {
		return err
	}
	b.many = n
	return b.awaitIdle(ctx)
}

// awaitIdle waits until the daemon reports all sessions as idle.
func (b *bench) awaitIdle(ctx context.Context) error {
	return b.listener.await(ctx, b.ended, "all sessions idle", func() (bool, error) {
		rows, err := b.client.ListSessions(ctx)
		for _, r := range rows {
			if r.Activity != "idle" {
				return false, err
			}
		}
		return true, err
	})
}

// parallel calls f for 0 to n-1, up to 20 calls at a time, and returns their errors.
func parallel(n int, f func(int) error) error {
	const most = 20
	slots, errs := make(chan struct{}, most), make([]error, n)
	var calls sync.WaitGroup
	for i := range n {
		slots <- struct{}{}
		calls.Go(func() {
			errs[i] = f(i)
			<-slots
		})
	}
	calls.Wait()
	return errors.Join(errs...)
}

// pause waits so that earlier activity does not disturb the next measurement.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
