package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/bus"
	"github.com/corrald/corral/internal/unitname"
)

// adopted is the number of running sessions that the bar of the adoption refers to.
const adopted = 1000

// adoption measures the time from the exec of a new corrald after a crash to its first reply on the
// bus, by which time it has adopted every session. The floor is a program that asks systemd for the
// scopes and reads the records.
func adoption(ctx context.Context, b *bench) ([]row, error) {
	if err := b.gather(ctx, adopted); err != nil {
		return nil, err
	}
	r := row{
		name: fmt.Sprintf("adoption of %d sessions: exec to first answer", b.many), unit: "ms", bar: neverAbove(1000, "ms"),
	}
	var cpu sample
	for range b.times(7) {
		if err := b.killDaemon(ctx); err != nil {
			return nil, err
		}
		before := time.Now()
		if err := b.startDaemon(ctx); err != nil {
			return nil, err
		}
		rows, err := b.client.ListSessions(ctx)
		if err != nil {
			return nil, err
		}
		r.values = append(r.values, milliseconds(time.Since(before)))
		for _, s := range rows {
			if s.State != "running" {
				return nil, fmt.Errorf("session %q is %s after the adoption", s.ID, s.State)
			}
		}
		if len(rows) != b.many {
			return nil, fmt.Errorf("%d sessions after the adoption, %d before", len(rows), b.many)
		}
		u, err := used(b.daemon.Process.Pid)
		if err != nil {
			return nil, err
		}
		cpu = append(cpu, milliseconds(u.cpu))
		before = time.Now()
		if err := b.runAs(ctx, roleSurvey, filepath.Join(b.work(), "state", "corral", "sessions")); err != nil {
			return nil, err
		}
		r.floor = append(r.floor, milliseconds(time.Since(before)))
	}
	r.note("the daemon's own CPU time until then: median %s ms", number(cpu.median()))
	return []row{r}, nil
}

// killDaemon kills the daemon and returns once its name has disappeared from the bus.
func (b *bench) killDaemon(ctx context.Context) error {
	if err := b.daemon.Process.Kill(); err != nil {
		return fmt.Errorf("cannot kill corrald: %w", err)
	}
	<-b.ended
	return b.listener.await(ctx, nil, "corrald gone from the bus", func() (bool, error) {
		owned, err := b.listener.hasOwner(ctx, dbusapi.BusName)
		return !owned, err
	})
}

// survey is the minimum for determining which sessions exist: it queries systemd once and reads
// every record.
func survey(args []string) error {
	conn, err := connect(context.Background())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	var units [][]any
	err = bus.Systemd(conn).Call(bus.SystemdManager+".ListUnitsByPatterns", 0, []string{},
		[]string{unitname.Scopes}).Store(&units)
	if err != nil {
		return fmt.Errorf("cannot list the scopes: %w", err)
	}
	sessions, err := os.ReadDir(args[0])
	if err != nil {
		return err
	}
	for _, s := range sessions {
		if _, err := os.ReadFile(filepath.Join(args[0], s.Name(), "session.json")); err != nil &&
			!errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
