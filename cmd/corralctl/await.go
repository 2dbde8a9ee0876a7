package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"math"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/dbusapi/client"
)

// await waits until the session that run --wait has created has ended, and prints the output of its
// agent meanwhile if that was requested. A signal in interrupts stops the session; the exit code is
// then that of a process which the signal has ended.
func (r *runOptions) await(ctx context.Context, c *ctl, id string, events <-chan client.Event,
	interrupts <-chan os.Signal,
) error {
	following := make(chan error, 1)
	ended := make(chan struct{})
	if r.follow {
		c.errTTY = nil // no progress display between the lines of the agent
		manager, err := c.client.Manager(ctx)
		if err != nil {
			return c.cannot("follow the log of", id, err)
		}
		directory, printer := sessionDirectory(manager, id), &ctl{out: bufio.NewWriter(os.Stdout)} // c.out is in use
		go func() { following <- (&logsOptions{lines: math.MaxInt}).followLog(ctx, printer, directory, ended) }()
	} else {
		following <- nil
	}
	var received os.Signal
	stopping := make(chan struct{})
	go func() {
		defer close(stopping)
		select {
		case received = <-interrupts:
			signal.Reset(unix.SIGINT) // a second one ends this process
			c.stopAside(ctx, id)
		case <-ended:
		}
	}()
	err := c.waitFor(ctx, []string{id}, nil, events)
	close(ended)
	<-stopping
	if failed := <-following; failed != nil {
		c.report(c.cannot("follow the log of", id, failed))
	}
	// A session that has ended by itself at the same moment has an exit code of its own.
	if stopped := new(failure); received != nil && errors.As(err, &stopped) && stopped.code == exitNotActive {
		return exit(signalCode(received))
	}
	return err
}

// stopAside stops a session over a connection of its own, while the verb waits for its end.
func (c *ctl) stopAside(ctx context.Context, id string) {
	aside := &ctl{hosts: c.hosts, unattended: true, name: c.name, out: bufio.NewWriter(io.Discard), err: c.err}
	bus, err := aside.connect(ctx)
	if err == nil {
		err = bus.StopSession(ctx, id, 0)
		_ = bus.Close()
	}
	if err != nil && !isInvalidState(err) && !isNoSuchSession(err) { // it has not ended by itself
		aside.report(aside.cannot("stop", id, err))
	}
}

// notifyInterrupts returns a channel that receives the signals that end a job: SIGTERM, and SIGINT
// unless it is ignored, as in the background jobs of scripts. SIGHUP is not among them: whoever
// loses the connection or closes the terminal leaves the session running.
func notifyInterrupts() chan os.Signal {
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, unix.SIGTERM)
	if !signal.Ignored(unix.SIGINT) {
		signal.Notify(interrupts, unix.SIGINT)
	}
	return interrupts
}
