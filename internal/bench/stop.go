package main

import (
	"context"
	"fmt"
	"time"

	"github.com/corrald/corral/dbusapi/client"
)

// stopping measures how long `corralctl stop` takes for every third session. The floor is systemctl
// stop of the same scopes, with the same processes in them, without a daemon: systemd then sends
// SIGTERM itself, to all processes of a scope at once.
func stopping(ctx context.Context, b *bench) ([]row, error) {
	if err := b.gather(ctx, max(adopted, b.sessions)); err != nil {
		return nil, err
	}
	r := row{unit: "ms", bar: ratioAtMost(3)}
	var cpu sample
	for range b.times(3) {
		stopped, err := b.third(ctx)
		if err != nil {
			return nil, err
		}
		r.name = fmt.Sprintf("corralctl stop of %d among %d sessions", len(stopped), b.many)
		usedBefore, err := used(b.daemon.Process.Pid)
		if err != nil {
			return nil, err
		}
		if err := timed(&r.values, func() error {
			return run(ctx, b.program("corralctl"), append([]string{"stop", "--yes"}, ids(stopped)...)...)
		}); err != nil {
			return nil, err
		}
		u, err := used(b.daemon.Process.Pid)
		if err != nil {
			return nil, err
		}
		cpu = append(cpu, milliseconds(u.since(usedBefore).cpu))
		if err := b.replace(ctx, stopped); err != nil {
			return nil, err
		}
		if err := b.killDaemon(ctx); err != nil {
			return nil, err
		}
		if err := timed(&r.floor, func() error {
			return run(ctx, "systemctl", append([]string{"--user", "stop"}, scopes(stopped)...)...)
		}); err != nil {
			return nil, err
		}
		if err := b.startDaemon(ctx); err != nil {
			return nil, err
		}
		if err := b.replace(ctx, stopped); err != nil {
			return nil, err
		}
	}
	r.note("the daemon's own CPU time for it: median %s ms", number(cpu.median()))
	return []row{r}, nil
}

// timed appends the duration of f to the sample.
func timed(to *sample, f func() error) error {
	before := time.Now()
	err := f()
	*to = append(*to, milliseconds(time.Since(before)))
	return err
}

// replace replaces sessions that have ended by running ones, so that each measurement has the same
// conditions: a session that is started again keeps the record of each earlier run.
func (b *bench) replace(ctx context.Context, sessions []client.Session) error {
	return parallel(len(sessions), func(i int) error {
		id := sessions[i].Id
		if err := b.remove(ctx, id); err != nil {
			return err
		}
		return b.create(ctx, id, silent)
	})
}

func ids(sessions []client.Session) []string {
	all := make([]string, len(sessions))
	for i, s := range sessions {
		all[i] = s.Id
	}
	return all
}

func scopes(sessions []client.Session) []string {
	all := make([]string, len(sessions))
	for i, s := range sessions {
		all[i] = s.Unit
	}
	return all
}
