package main

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"time"
)

// burst is the number of simultaneous starts.
const burst = 20

// startOne measures the time from a call of CreateSession to its reply, which arrives when the
// session runs. The floor is what a user would do without Corral: systemd-run and tmux.
func startOne(ctx context.Context, b *bench) ([]row, error) {
	r := row{name: "start: CreateSession to running", unit: "ms", bar: ratioAtMost(1.3)}
	var bare sample
	for range b.times(50) {
		if err := b.startBoth(ctx, 1, &r); err != nil {
			return nil, err
		}
		before := time.Now()
		if err := exec.CommandContext(ctx, "true").Run(); err != nil {
			return nil, err
		}
		bare = append(bare, milliseconds(time.Since(before)))
	}
	r.note("fork, exec and exit of /bin/true: median %s ms", number(bare.median()))
	return []row{r}, nil
}

// startBurst measures the time until the last of several simultaneous starts has finished.
func startBurst(ctx context.Context, b *bench) ([]row, error) {
	r := row{name: fmt.Sprintf("start: %d at once, all running", burst), unit: "ms", bar: ratioAtMost(1.3)}
	for range b.times(5) {
		if err := b.startBoth(ctx, burst, &r); err != nil {
			return nil, err
		}
	}
	return []row{r}, nil
}

// startBoth measures n simultaneous starts with Corral and then, as the floor, without it.
func (b *bench) startBoth(ctx context.Context, n int, r *row) error {
	ids := b.newIDs("start", n)
	err := startAndEnd(ctx, n, &r.values,
		func(i int) error { return b.create(ctx, ids[i], silent) },
		func(i int) error { return b.remove(ctx, ids[i]) })
	if err != nil {
		return err
	}
	server := func(i int) string { return "plain-" + strconv.Itoa(i) }
	return startAndEnd(ctx, n, &r.floor, func(i int) error {
		args := append([]string{"--user", "--scope", "--quiet", "tmux", "-L", server(i), "-f", "/dev/null", "new-session",
			"-d"}, silent...)
		return run(ctx, "systemd-run", args...)
	}, func(i int) error { return run(ctx, "tmux", "-L", server(i), "kill-server") })
}

// startAndEnd calls start n times at once, appends the time until all calls have returned to the
// sample, and undoes the starts with end.
func startAndEnd(ctx context.Context, n int, to *sample, start, end func(i int) error) error {
	before := time.Now()
	if err := parallel(n, start); err != nil {
		return err
	}
	*to = append(*to, milliseconds(time.Since(before)))
	if err := parallel(n, end); err != nil {
		return err
	}
	return pause(ctx, 20*time.Millisecond)
}

// runAs runs this program in a role.
func (b *bench) runAs(ctx context.Context, role string, args ...string) error {
	command := b.as(role, args...)
	return run(ctx, command[0], command[1:]...)
}

// run runs a command. The error contains its output.
func run(ctx context.Context, name string, args ...string) error {
	if out, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("cannot run %s: %w: %s", name, err, out)
	}
	return nil
}
