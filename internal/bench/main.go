// Bench measures the built programs in a private user manager and prints each result beside its
// floor: the result of the simplest possible program for the same work, measured alternately in the
// same run on the same machine. It exits with status 3 if a bar, the required limit of a result, is
// missed, unless -measure is given. A busy machine misses bars; therefore a group that misses one
// is measured again, and fails if two of three measurements miss it.
//
//	make bench
//	go run ./internal/bench [-run REGEXP] [-n FACTOR] [-sessions N] [-idle TIME] [-measure] \
//	    [-programs DIR]
//
// The program runs itself again: inside the user manager, to measure, and in the roles that role.go
// lists, as agents and floors.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/corrald/corral/internal/testbed"
)

// options are the command-line options.
type options struct {
	only     *regexp.Regexp // -run: the groups of rows to measure
	factor   float64        // -n: factor for the number of measurements
	sessions int            // -sessions: the number of running sessions in groups that need many
	idle     time.Duration  // -idle: how long wake-ups are counted
	measure  bool           // -measure: measure once and do not fail
	programs string         // -programs: directory of the built programs
	scaled   []int          // -scale: the numbers of sessions to measure the scaleGroups with
	peers    bool           // -peers: measure other supervisors, too
	report   string         // -report: the file in which the measured sections are replaced
}

// insideVariable is the environment variable with the bench's directory for the process inside the
// user manager.
const insideVariable = "CORRAL_BENCH_PLACE"

func main() {
	testbed.RunIfReexecuted()
	if len(os.Args) > 2 && os.Args[1] == roleWord {
		os.Exit(playRole(os.Args[2], os.Args[3:]))
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
	flags.BoolVar(&o.measure, "measure", false, "only measure, once: a missed bar is no failure")
	flags.StringVar(&o.programs, "programs", "build", "the `directory` of corrald, corralctl and corral-shim")
	scaled := flags.String("scale", "", "measure what depends on the number of sessions with each of these `numbers`")
	flags.BoolVar(&o.peers, "peers", false, "measure Corral beside other supervisors")
	flags.StringVar(&o.report, "report", "", "replace the sections of this `file` that -scale and -peers measure")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	var err error
	for text := range strings.FieldsFuncSeq(*scaled, func(r rune) bool { return r == ',' }) {
		n, e := strconv.Atoi(text)
		err = errors.Join(err, e)
		o.scaled = append(o.scaled, n)
	}
	if err != nil {
		err = fmt.Errorf("invalid -scale %q: expected numbers with commas between them", *scaled)
		fmt.Fprintln(os.Stderr, "bench:", err)
		return o, err
	}
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

// outside creates the directory and runs this program again inside a private user manager.
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
	status := testbed.Run(append([]string{p.program("bench")}, os.Args[1:]...))
	if o.report != "" {
		if err := updateReport(o.report, p); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			return 1
		}
	}
	return status
}

// inside measures and prints the results. A signal makes it clean up and exit early.
func inside(o options, dir string) int {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer cancel()
	var rows []row
	var err error
	if len(o.scaled) > 0 || o.peers {
		err = measureSections(ctx, o, place{dir})
	} else {
		rows, err = measure(ctx, o, place{dir})
	}
	if len(rows) > 0 {
		err = errors.Join(err, show(os.Stdout, place{dir}, rows))
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

// measureSections measures what the report contains, prints it, and leaves it for updateReport,
// also the sections that were measured before an error.
func measureSections(ctx context.Context, o options, p place) error {
	b, err := start(ctx, o, p)
	if err != nil {
		return err
	}
	var sections []section
	add := func(s section) error {
		sections = append(sections, s)
		return leave(p, sections)
	}
	if o.peers {
		var s section
		if s, err = b.peers(ctx); err == nil {
			err = add(s)
		}
	}
	if err == nil {
		err = b.scale(ctx, add)
	}
	err = errors.Join(err, b.close())
	for _, s := range sections {
		fmt.Println(s.text)
		if len(s.rows) > 0 {
			err = errors.Join(err, show(os.Stdout, p, s.rows))
		}
	}
	return err
}

// exitMissed is the exit status if everything was measured and a bar was missed.
const exitMissed = 3

// measure measures the selected groups with one daemon.
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
			return rows, fmt.Errorf("cannot measure %s: %w", g.name, errors.Join(err, b.daemonError()))
		}
	}
	return rows, nil
}
