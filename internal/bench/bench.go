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
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/dbusapi/client"
)

// patience bounds the wait for anything that should come soon. It is no measure.
const patience = time.Minute

// bench is a running daemon, and what looks at it.
type bench struct {
	options
	place
	daemon *exec.Cmd
	ended  chan struct{} // closed when the daemon has ended
	client *client.Client
	ear    *ear
	many   int          // how many of the many sessions are there
	last   atomic.Int64 // number in the id that was given last
}

// start starts the daemon and connects to it. It is a plain child, without a watchdog: whatever
// wakes it is its own doing.
func start(ctx context.Context, o options, p place) (*bench, error) {
	b := &bench{options: o, place: p}
	var err error
	if b.ear, err = listen(ctx); err != nil {
		return nil, err
	}
	if b.client, err = client.Connect(ctx); err != nil {
		b.ear.close()
		return nil, err
	}
	if err := b.startDaemon(ctx); err != nil {
		return nil, errors.Join(err, b.daemonTrouble(), b.close())
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
	// A terminal's Ctrl-C is for the bench, which then ends the daemon.
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
	return b.ear.await(ctx, b.ended, "corrald on the bus", func() (bool, error) { return b.ear.hasOwner(ctx, dbusapi.BusName) })
}

func (b *bench) logPath() string { return filepath.Join(b.work(), "corrald.log") }

// daemonTrouble is what the daemon has said last, if it has ended.
func (b *bench) daemonTrouble() error {
	select {
	case <-b.ended:
		log, _ := os.ReadFile(b.logPath())
		lines := bytes.Split(bytes.TrimSpace(log), []byte("\n"))
		return fmt.Errorf("corrald has ended; its last words:\n%s", bytes.Join(lines[max(len(lines)-10, 0):], []byte("\n")))
	default:
		return nil
	}
}

// close ends every session, then the daemon.
func (b *bench) close() error {
	defer b.ear.close()
	defer func() { _ = b.client.Close() }()
	if b.daemon == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var err error
	if rows, listErr := b.client.ListSessions(ctx); listErr == nil {
		err = together(len(rows), func(i int) error { return b.client.RemoveSession(ctx, rows[i].ID, true) })
	}
	_ = b.daemon.Process.Signal(unix.SIGTERM)
	select {
	case <-b.ended:
	case <-ctx.Done():
		_ = b.daemon.Process.Kill()
		<-b.ended
		err = errors.Join(err, fmt.Errorf("corrald did not end within %v", patience))
	}
	return err
}

// times is how often something is measured: n, by the factor that was asked for.
func (b *bench) times(n int) int { return max(int(math.Round(float64(n)*b.factor)), 1) }

// newID returns an id that no session had before: each is measured from its very beginning.
func (b *bench) newID(name string) string { return name + "-" + strconv.FormatInt(b.last.Add(1), 10) }

// create makes a session of a command and returns once it runs.
func (b *bench) create(ctx context.Context, id string, command []string) error {
	_, err := b.client.CreateSession(ctx, "command", client.Spec{ID: id, Command: command, WorkingDirectory: b.work()})
	return err
}

// remove ends a session and forgets it.
func (b *bench) remove(ctx context.Context, id string) error {
	return b.client.RemoveSession(ctx, id, true)
}

// silent is an agent that does nothing.
var silent = []string{"sleep", "infinity"}

// gather starts the many sessions, as far as they are not there, and waits until all are idle and
// the daemon knows it.
func (b *bench) gather(ctx context.Context, n int) error {
	if b.many >= n {
		return nil
	}
	err := together(n-b.many, func(int) error { return b.create(ctx, b.newID("many"), silent) })
	if err != nil {
		return err
	}
	b.many = n
	return b.ear.await(ctx, b.ended, "all sessions idle", func() (bool, error) {
		rows, err := b.client.ListSessions(ctx)
		for _, r := range rows {
			if r.Activity != "idle" {
				return false, err
			}
		}
		return true, err
	})
}

// together calls f for 0 to n-1, some at the same time, and returns their errors.
func together(n int, f func(int) error) error {
	const most = 20
	slots, errs := make(chan struct{}, most), make(chan error, n)
	for i := range n {
		slots <- struct{}{}
		go func() {
			errs <- f(i)
			<-slots
		}()
	}
	var all error
	for range n {
		all = errors.Join(all, <-errs)
	}
	return all
}

// pause lets what was stirred up settle before something is measured.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// monotonic is CLOCK_MONOTONIC, which all processes share.
func monotonic() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // never fails
	return time.Duration(now.Nano())
}
