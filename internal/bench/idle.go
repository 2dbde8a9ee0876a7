package main

import (
	"context"
	"fmt"
	"time"
)

// settleTime is how long the daemon has to come to rest: it gives memory back once it had nothing
// to do for three seconds.
const settleTime = 5 * time.Second

func wakeupsIdle(ctx context.Context, b *bench) ([]row, error) {
	return b.wakeups(ctx, fmt.Sprintf("%d silent sessions", b.sessions))
}

// wakeupsBusy is the same with as many sessions that print all the time: what they print is between
// them and tmux.
func wakeupsBusy(ctx context.Context, b *bench) ([]row, error) {
	talkers := b.sessions
	ids := make([]string, talkers)
	for i := range ids {
		ids[i] = b.newID("talker")
	}
	if err := together(talkers, func(i int) error { return b.create(ctx, ids[i], b.as(roleChatter)) }); err != nil {
		return nil, err
	}
	rows, err := b.wakeups(ctx, fmt.Sprintf("%d silent and %d printing sessions", b.sessions, talkers))
	if err != nil {
		return rows, err
	}
	return rows, together(talkers, func(i int) error { return b.remove(ctx, ids[i]) })
}

// wakeups counts how often the daemon is woken, and what it computes, while nothing happens that it
// should tell of. The floor is a program that holds a connection to the bus, at the same time.
func (b *bench) wakeups(ctx context.Context, with string) ([]row, error) {
	least, err := b.startBystander(ctx)
	if err != nil {
		return nil, err
	}
	defer least.end()
	if err := pause(ctx, settleTime); err != nil {
		return nil, err
	}
	processes := []int{b.daemon.Process.Pid, least.cmd.Process.Pid}
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
		what: fmt.Sprintf("wake-ups in %v, %s", b.idle, with), unit: "switches",
		values: sample{float64(ours.switches)}, floor: sample{float64(floor.switches)},
		bar: bar{"0", func(r row) bool { return r.values.max() == 0 }},
	}
	switches.note("beside those of the Go runtime's monitor thread, which runs once a minute: %d, in the floor %d", ours.monitor, floor.monitor)
	cpu := row{
		what: fmt.Sprintf("CPU time in %v, %s", b.idle, with), unit: "ms",
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

// chatter is the part of an agent that is at work.
func chatter() error {
	for tick := range time.Tick(100 * time.Millisecond) {
		if _, err := fmt.Println("reading another file, at", tick.Format(time.RFC3339Nano)); err != nil {
			return err
		}
	}
	return nil
}
