package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"
)

func memoryOfNone(ctx context.Context, b *bench) ([]row, error) {
	return b.memoryOfDaemon(ctx, 0)
}

// memoryOfMany measures the memory of the daemon and of the shims.
func memoryOfMany(ctx context.Context, b *bench) ([]row, error) {
	rows, err := b.memoryOfDaemon(ctx, b.sessions)
	if err != nil {
		return rows, err
	}
	shims, err := occupiedInScopes("corral-shim")
	if err != nil {
		return rows, err
	}
	servers, err := occupiedInScopes("tmux: server")
	if err != nil {
		return rows, err
	}
	r := row{
		name: "shim, private memory", unit: "MiB", values: privateOf(shims), floor: privateOf(servers),
		bar: neverAbove(2, "MiB"),
	}
	r.note("the floor is the session's tmux server; the largest shim has %s MiB, "+
		"a median of %s MiB resident and %s MiB proportional",
		number(r.values.max()), number(of(shims, func(m memory) float64 { return m.rss }).median()),
		number(of(shims, func(m memory) float64 { return m.pss }).median()))
	all := row{
		name: fmt.Sprintf("memory of a session with its part of corrald, %d sessions", b.sessions), unit: "MiB",
		values: sample{privateOf(shims).mean() + privateOf(servers).mean() + rows[2].values.max()/float64(b.many)},
		floor:  sample{privateOf(servers).mean()},
	}
	all.note("private memory: of the shim %s MiB, of the tmux server %s MiB, of corrald %s MiB for each session",
		number(privateOf(shims).mean()), number(privateOf(servers).mean()), number(rows[2].values.max()/float64(b.many)))
	return append(rows, r, all), nil
}

// memoryOfDaemon measures the daemon's memory. The floor is a bystander.
func (b *bench) memoryOfDaemon(ctx context.Context, sessions int) ([]row, error) {
	processes, end, err := b.atRest(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	ours, err := occupied(processes[0])
	if err != nil {
		return nil, err
	}
	floor, err := occupied(processes[1])
	if err != nil {
		return nil, err
	}
	of := func(kind string, value float64) row {
		return row{name: fmt.Sprintf("corrald, %s memory, %d sessions", kind, sessions), unit: "MiB", values: sample{value}}
	}
	resident := of("resident", ours.rss)
	// The other numbers of the floor mean little: it shares the pages of its program with the bench.
	resident.floor = sample{floor.rss}
	resident.bar = neverAbove(20, "MiB")
	return []row{resident, of("proportional", ours.pss), of("private", ours.private)}, nil
}

func occupiedInScopes(comm string) ([]memory, error) {
	pids, err := inScopes(comm)
	if err == nil && len(pids) == 0 {
		err = fmt.Errorf("no process %q is in a scope", comm)
	}
	all := make([]memory, 0, len(pids))
	for _, pid := range pids {
		m, err := occupied(pid)
		if errors.Is(err, unix.ESRCH) || errors.Is(err, fs.ErrNotExist) { // a zombie, or no longer there
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, err
}

func of(all []memory, what func(memory) float64) sample {
	var s sample
	for _, m := range all {
		s = append(s, what(m))
	}
	return s
}

func privateOf(all []memory) sample { return of(all, func(m memory) float64 { return m.private }) }

// restTime is the wait until the daemon is at rest: it returns memory to the system after three
// seconds without events, and a minute after it was called.
const restTime = 65 * time.Second

// atRest starts a bystander, a Go program that only keeps a bus connection open, and waits until
// the daemon is at rest. It returns the process ids of the daemon and of the bystander, and a
// function that ends the bystander.
func (b *bench) atRest(ctx context.Context) (processes []int, end func(), err error) {
	command := b.as(roleBystand)
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, nil, fmt.Errorf("cannot start the floor: %w", err)
	}
	end = func() {
		_ = cmd.Process.Signal(unix.SIGTERM)
		_ = cmd.Wait()
	}
	if _, err = out.Read(make([]byte, 1)); err == nil { // it is connected
		err = pause(ctx, restTime)
	}
	if err != nil {
		end()
		return nil, nil, fmt.Errorf("cannot wait for the floor: %w", err)
	}
	return []int{b.daemon.Process.Pid, cmd.Process.Pid}, end, nil
}
