package main

import (
	"context"
	"fmt"
	"os"
	"strings"
)

// group is some rows that are measured together.
type group struct {
	name string
	many bool // with many live sessions beside it
	rows func(context.Context, *bench) ([]row, error)
}

// groups are in the order in which they are measured: those that need many sessions last, since
// these stay, and that which needs more of them at the very end.
var groups []group

func init() {
	groups = []group{
		{"memory-none", false, memoryOfNone},
		{"exit-one", false, exitAmongOne},
		{"start", false, startOne},
		{"start-burst", false, startBurst},
		{"output", false, output},
		{"key", false, key},
		{"crash", false, crash},
		{"status", false, status},
		{"exit-many", true, exitAmongMany},
		{"idle", true, wakeupsIdle},
		{"list", true, list},
		{"memory", true, memoryOfMany},
		{"busy", true, wakeupsBusy},
		{"adopt", false, adoption},
	}
}

// judged measures the group, and once or twice again where a bar is missed: the rows are those of
// the measurement that two of three agree with. Each row is judged by itself.
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

// disagree tells whether a row has met its bar in one of two measurements only.
func disagree(tries [][]row) bool {
	for i := range tries[0] {
		if tries[0][i].met() != tries[1][i].met() {
			return true
		}
	}
	return false
}

// agreed returns for each row the last of the measurements that most agree with.
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

// missing names the rows that have missed their bars.
func missing(rows []row) []string {
	var names []string
	for _, r := range rows {
		if r.met() == "no" {
			names = append(names, r.what)
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
