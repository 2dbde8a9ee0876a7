package main

import (
	"context"
	"fmt"
	"os"
	"strings"
)

// group is a set of rows that are measured together.
type group struct {
	name string
	many bool // needs the many running sessions of -sessions
	rows func(context.Context, *bench) ([]row, error)
}

// groups are listed in the order of measurement: groups that need many sessions come last, because
// these sessions are kept, and the group that needs most of them at the very end.
var groups []group

func init() {
	groups = []group{
		{"memory-none", false, memoryOfNone},
		{"exit-one", false, exitAmongOne},
		{"start", false, startOne},
		{"start-burst", false, startBurst},
		{"output", false, output},
		{"grep", false, grep},
		{"key", false, key},
		{"crash", false, crash},
		{"status", false, status},
		{"exit-many", true, exitAmongMany},
		{"idle", true, wakeupsIdle},
		{"list", true, list},
		{"top", true, top},
		{"memory", true, memoryOfMany},
		{"busy", true, wakeupsBusy},
		{"suspend", false, suspension},
		{"stop", false, stopping},
		{"adopt", false, adoption},
	}
}

// judged measures the group, and once or twice more if it misses a bar. Each row is the last
// measurement that agrees with the majority about its bar.
func (g group) judged(ctx context.Context, b *bench) ([]row, error) {
	rows, err := g.rows(ctx, b)
	if err != nil || b.measure || len(missing(rows)) == 0 {
		return rows, err
	}
	tries := [][]row{rows}
	for len(tries) < 2 || len(tries) == 2 && disagree(tries) {
		fmt.Fprintf(os.Stderr, "bench: %s again: missed %s\n", g.name, strings.Join(missing(tries[len(tries)-1]), "; "))
		again, err := g.rows(ctx, b)
		if err != nil {
			return rows, err
		}
		tries = append(tries, again)
	}
	return agreed(tries), nil
}

// disagree reports whether two measurements differ in whether a row meets its bar.
func disagree(tries [][]row) bool {
	for i := range tries[0] {
		if tries[0][i].met() != tries[1][i].met() {
			return true
		}
	}
	return false
}

// agreed returns for each row the last measurement that agrees with the majority.
func agreed(tries [][]row) []row {
	rows := make([]row, len(tries[0]))
	for i := range rows {
		missed := 0
		for _, try := range tries {
			if try[i].met() == "no" {
				missed++
			}
		}
		for _, try := range tries {
			if (try[i].met() == "no") == (2*missed > len(tries)) {
				rows[i] = try[i]
			}
		}
		if missed > 0 {
			rows[i].note("missed in %d of %d measurements", missed, len(tries))
		}
	}
	return rows
}

// missing returns the names of the rows that miss their bars.
func missing(rows []row) []string {
	var names []string
	for _, r := range rows {
		if r.met() == "no" {
			names = append(names, r.name)
		}
	}
	return names
}

func groupNames() string {
	names := make([]string, len(groups))
	for i, g := range groups {
		names[i] = g.name
	}
	return strings.Join(names, ", ")
}
