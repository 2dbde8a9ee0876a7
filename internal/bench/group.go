package main

import (
	"context"
	"strings"
)

// group is some rows that are measured together.
type group struct {
	name string
	many bool // with many live sessions beside it
	rows func(context.Context, *bench) ([]row, error)
}

// groups are in the order in which they are measured: those that need many sessions last, since these stay, and that
// which needs more of them at the very end.
var groups []group

func init() {
	groups = []group{
		{"memory-none", false, memoryOfNone},
		{"exit-one", false, exitAmongOne},
		{"start", false, startOne},
		{"start-burst", false, startBurst},
		{"output", false, output},
		{"key", false, key},
		{"status", false, status},
		{"exit-many", true, exitAmongMany},
		{"idle", true, wakeupsIdle},
		{"list", true, list},
		{"memory", true, memoryOfMany},
		{"busy", true, wakeupsBusy},
		{"adopt", false, adoption},
	}
}

func groupNames() string {
	names := make([]string, len(groups))
	for i, g := range groups {
		names[i] = g.name
	}
	return strings.Join(names, ", ")
}
