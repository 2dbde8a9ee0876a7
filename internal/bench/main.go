// Bench measures the built programs on a private user manager, and prints each number beside its
// floor: what the same machine, in the same run and by turns with it, takes for the least that the
// work could be. It ends with status 3 if a bar is missed, unless it is only to measure. A machine
// that has other things to do misses bars: what misses one is measured again, and misses it if two
// of three measurements do.
//
//	make bench
//	go run ./internal/bench [-run REGEXP] [-n FACTOR] [-sessions N] [-idle TIME] [-json] [-measure] [-programs DIR]
//
// The program runs itself again: inside of the user manager, which does the measuring, and in the
// parts that role.go lists, as agents and floors.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/corrald/corral/internal/testbed"
)

// options are what a person can ask for.
type options struct {
	only     *regexp.Regexp // the groups of rows to be measured
	factor   float64        // of how often each thing is measured
	sessions int            // how many live sessions there are, where there are many
	idle     time.Duration  // how long wake-ups are counted
	json     bool
	measure  bool   // a bar that is missed is no failure
	programs string // directory of the programs as they were built
}

// insideVariable names the place of the bench to the process that measures, inside of the user
// manager.
const insideVariable = "CORRAL_BENCH_PLACE"

func main() {
	testbed.RunIfReexecuted()
	if len(os.Args) > 2 && os.Args[1] == roleWord {
		os.Exit(play(os.Args[2], os.Args[3:]))
	}
	o, err := parse(os.Args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(0)
	case err != nil:
		os.Exit(2)
	}
	if dir := os.Getenv(insideVariable); dir != "" {
		os.Exit(inside(o, dir))
	}
	os.Exit(outside(o))
}

func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	only := flags.String("run", "", "measure only the groups whose names match this `regexp`: "+groupNames())
	flags.Float64Var(&o.factor, "n", 1, "measure each thing this `factor` as often")
	flags.IntVar(&o.sessions, "sessions", 100, "how `many` live sessions there are, where there are many")
	flags.DurationVar(&o.idle, "idle", time.Minute, "how `long` wake-ups are counted")
	flags.BoolVar(&o.json, "json", false, "print JSON, not a table")
	flags.BoolVar(&o.measure, "measure", false, "only measure, once: a missed bar is no failure")
	flags.StringVar(&o.programs, "programs", "build", "the `directory` of corrald, corralctl and corral-shim")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	var err error
	if o.only, err = regexp.Compile(*only); err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("it takes no arguments: %q", flags.Args())
	}
	if err == nil && (o.factor <= 0 || o.sessions < 1 || o.idle < time.Second) {
		err = errors.New("-n and -sessions have to be positive, and -idle a second at least")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
	}
	return o, err
}

// outside makes the place and runs this program again inside of a private user manager.
func outside(o options) int {
	p, err := makePlace(o.programs)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}
	defer p.remove()
	if err := os.Setenv(insideVariable, p.dir); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}
	return testbed.Run(append([]string{p.program("bench")}, os.Args[1:]...), false)
}

// inside measures. It ends early, having cleaned up, when a signal says so.
func inside(o options, dir string) int {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer cancel()
	rows, err := measure(ctx, o, place{dir})
	if len(rows) > 0 {
		err = errors.Join(err, show(os.Stdout, o, place{dir}, rows))
	}
	switch {
	case ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "bench: ended by a signal")
		return 130
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}
	if missed := missing(rows); len(missed) > 0 && !o.measure {
		fmt.Fprintf(os.Stderr, "bench: missed the bar of: %s\n", strings.Join(missed, "; "))
		return exitMissed
	}
	return 0
}

// exitMissed is the exit status where everything was measured and a bar was missed.
const exitMissed = 3

// measure measures the groups that were asked for, on one daemon.
func measure(ctx context.Context, o options, p place) (rows []row, err error) {
	b, err := start(ctx, o, p)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	for _, g := range groups {
		if !o.only.MatchString(g.name) {
			continue
		}
		if g.many {
			if err := b.gather(ctx, o.sessions); err != nil {
				return rows, fmt.Errorf("cannot start %d sessions: %w", o.sessions, err)
			}
		}
		fmt.Fprintf(os.Stderr, "bench: %s\n", g.name)
		more, err := g.judged(ctx, b)
		rows = append(rows, more...)
		if err != nil {
			return rows, fmt.Errorf("cannot measure %s: %w", g.name, errors.Join(err, b.daemonTrouble()))
		}
	}
	return rows, nil
}
