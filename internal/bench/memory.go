package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"

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
	return append(rows, r), nil
}

// memoryOfDaemon measures the daemon's memory. The floor is a bystander.
func (b *bench) memoryOfDaemon(ctx context.Context, sessions int) ([]row, error) {
	least, err := b.startBystander(ctx)
	if err != nil {
		return nil, err
	}
	defer least.end()
	if err := pause(ctx, restTime); err != nil {
		return nil, err
	}
	ours, err := occupied(b.daemon.Process.Pid)
	if err != nil {
		return nil, err
	}
	floor, err := occupied(least.cmd.Process.Pid)
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

// bystander is a running bystand: a Go program that only keeps a bus connection open.
type bystander struct{ cmd *exec.Cmd }

func (b *bench) startBystander(ctx context.Context) (*bystander, error) {
	command := b.as(roleBystand)
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err == nil {
		_, err = bufio.NewReader(out).ReadString('\n')
	}
	if err != nil {
		return nil, fmt.Errorf("cannot start the floor: %w", err)
	}
	return &bystander{cmd}, nil
}

func (b *bystander) end() {
	_ = b.cmd.Process.Signal(unix.SIGTERM)
	_ = b.cmd.Wait()
}
