package main

import (
	"context"
	"fmt"
	"time"
)

func wakeupsIdle(ctx context.Context, b *bench) ([]row, error) {
	return b.wakeups(ctx, fmt.Sprintf("%d silent sessions", b.sessions))
}

// wakeupsBusy measures the same with as many printing sessions, whose output passes only through
// their shim and tmux.
func wakeupsBusy(ctx context.Context, b *bench) ([]row, error) {
	ids := b.newIDs("talker", b.sessions)
	if err := parallel(len(ids), func(i int) error { return b.create(ctx, ids[i], b.as(roleChatter)) }); err != nil {
		return nil, err
	}
	rows, err := b.wakeups(ctx, fmt.Sprintf("%d silent and %d printing sessions", b.sessions, len(ids)))
	if err != nil {
		return rows, err
	}
	return rows, parallel(len(ids), func(i int) error { return b.remove(ctx, ids[i]) })
}

// wakeups counts the daemon's wake-ups and its CPU time while nothing happens that it has to
// publish. The floor is a program with a bus connection, measured at the same time.
func (b *bench) wakeups(ctx context.Context, with string) ([]row, error) {
	processes, end, err := b.atRest(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	before, err := usedByEach(processes)
	if err != nil {
		return nil, err
	}
	if err := pause(ctx, b.idle); err != nil {
		return nil, err
	}
	after, err := usedByEach(processes)
	if err != nil {
		return nil, err
	}
	ours, floor := after[0].since(before[0]), after[1].since(before[1])
	switches := row{
		name: fmt.Sprintf("wake-ups in %v, %s", b.idle, with), unit: "switches",
		values: sample{float64(ours.switches)}, floor: sample{float64(floor.switches)},
		bar: bar{"0", func(r row) bool { return r.values.max() == 0 }},
	}
	switches.note("beside those of the Go runtime's monitor thread, which runs once a minute: %d, in the floor %d",
		ours.monitor, floor.monitor)
	cpu := row{
		name: fmt.Sprintf("CPU time in %v, %s", b.idle, with), unit: "ms",
		values: sample{milliseconds(ours.cpu)}, floor: sample{milliseconds(floor.cpu)},
	}
	return []row{switches, cpu}, nil
}

func usedByEach(processes []int) ([]usage, error) {
	all := make([]usage, 0, len(processes))
	for _, pid := range processes {
		u, err := used(pid)
		if err != nil {
			return nil, err
		}
		all = append(all, u)
	}
	return all, nil
}

// chatter is an agent at work.
func chatter([]string) error {
	for tick := range time.Tick(100 * time.Millisecond) {
		if _, err := fmt.Println("reading another file, at", tick.Format(time.RFC3339Nano)); err != nil {
			return err
		}
	}
	return nil
}
