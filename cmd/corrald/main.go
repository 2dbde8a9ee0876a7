// corrald supervises coding agents for one user: see docs/ARCHITECTURE.md. This program only wires
// the packages together.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/pflag"

	"github.com/corrald/corral/internal/clock"
	"github.com/corrald/corral/internal/deadline"
	"github.com/corrald/corral/internal/journal"
	"github.com/corrald/corral/internal/proc"
	"github.com/corrald/corral/internal/version"
	"github.com/corrald/corral/supervisor"
	"github.com/corrald/corral/supervisor/store"
	"github.com/corrald/corral/units"
)

// connectTimeout bounds how long systemd and the bus may take to answer at the start.
const connectTimeout = 20 * time.Second

func main() { os.Exit(run()) }

// run returns the exit code. It does not refuse to run as root: corrald.service excludes system
// users (ConditionUser=), and an administrator may override that.
func run() int {
	if len(os.Args) == 2 && stepFunctions[os.Args[1]] != nil {
		return executeWorktreeStep(stepFunctions[os.Args[1]])
	}
	flags := pflag.NewFlagSet("corrald", pflag.ContinueOnError)
	showVersion := flags.Bool("version", false, "print the version and exit")
	verbose := flags.Bool("debug", false, "log more")
	flags.Usage = func() {
		fmt.Fprintf(os.Stderr, "corrald supervises coding agents for one user. "+
			"It is started by systemd: systemctl --user start corrald\n\n%s", flags.FlagUsages())
	}
	switch err := flags.Parse(os.Args[1:]); {
	case errors.Is(err, pflag.ErrHelp):
		return 0
	case err != nil || flags.NArg() > 0:
		fmt.Fprintln(os.Stderr, "corrald: unexpected argument; see corrald --help")
		return 2
	case *showVersion:
		fmt.Println("corrald", version.Version)
		return 0
	}
	level := new(slog.LevelVar)
	if *verbose {
		level.Set(slog.LevelDebug)
	}
	runtime.GOMAXPROCS(min(runtime.GOMAXPROCS(0), maxProcessors))
	debug.SetGCPercent(startingGCPercent)
	out := journal.New(level)
	defer out.Close()
	log := slog.New(out.Handler())
	if err := supervise(log, out); err != nil {
		log.Error("corrald failed", "err", err)
		return 1
	}
	return 0
}

// supervise runs the daemon until it gets SIGTERM or SIGINT, and then returns nil. It returns an
// error if the daemon cannot continue.
func supervise(log *slog.Logger, out *journal.Log) error {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	p, err := findPaths()
	if err != nil {
		return err
	}
	records, err := store.Open(p.state)
	if err != nil {
		return err
	}
	defer func() { _ = records.Close() }()

	ctx, cancel := deadline.Context(context.Background(), connectTimeout)
	d, err := assemble(ctx, log, out, p, records)
	cancel()
	if err != nil {
		return err
	}
	defer d.close()

	lost := make(chan struct{})
	go func() { defer close(lost); forwardEvents(d.units, d.sup) }()
	debug.SetGCPercent(gcPercent)
	debug.FreeOSMemory()
	proc.ReleaseFilePages()
	if err := d.server.Serve(d.sup); err != nil {
		return err
	}
	running, stop := context.WithCancel(context.Background())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- d.sup.Run(running) }()
	_, _ = daemon.SdNotify(false, daemon.SdNotifyReady)
	log.Info("corrald is ready", "version", version.Version, "message_id", journal.DaemonStarted)
	go d.handleLogin(running)
	inhibited := make(chan struct{})
	go func() { defer close(inhibited); d.inhibitor.run(running) }()
	go d.abandonLost(running)
	err = d.handleSignals(signals, lost)
	_, _ = daemon.SdNotify(false, daemon.SdNotifyStopping)
	stop()
	switch unsaved := <-ended; {
	case err == nil:
		err = unsaved
	case unsaved != nil:
		err = fmt.Errorf("%w; %w", err, unsaved)
	}
	<-inhibited
	d.endWorktreeSteps(finalStepStopTimeout)
	if err == nil {
		log.Info("corrald has saved everything and exits", "message_id", journal.DaemonStopped)
	}
	return err
}

// handleSignals waits for the daemon's end: a signal, or a lost connection. SIGHUP makes it reload
// the configuration.
func (d *parts) handleSignals(signals <-chan os.Signal, lost <-chan struct{}) error {
	for {
		select {
		case s := <-signals:
			if s != syscall.SIGHUP {
				return nil
			}
			now := clock.Monotonic().Microseconds()
			_, _ = daemon.SdNotify(false, fmt.Sprintf("%s\nMONOTONIC_USEC=%d", daemon.SdNotifyReloading, now))
			if err := d.reload(); err != nil {
				d.log.Error("the configuration was not reloaded", "err", err)
			}
			_, _ = daemon.SdNotify(false, daemon.SdNotifyReady)
		case <-lost:
			return units.ErrClosed
		case <-d.server.Done():
			return errors.New("the connection to the bus is lost")
		}
	}
}

// forwardEvents forwards systemd's events to the supervisor until the connection is lost.
func forwardEvents(u *units.Manager, s *supervisor.Supervisor) {
	for e := range u.Events() {
		switch e := e.(type) {
		case units.Ended:
			s.ScopeEnded(e.Name, e.InvocationID, e.Result)
		case units.StopRequested:
			s.ScopeStopRequested(e.Name, e.InvocationID)
		case units.Stopping:
			s.ScopeStopping(e.Name, e.InvocationID, supervisor.StopCause(e.Cause))
		case units.Resync:
			go s.Resync()
		}
	}
}
