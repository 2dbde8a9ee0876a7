package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/dbusapi/client"
	"github.com/corrald/corral/internal/bus"
	"github.com/corrald/corral/internal/proc"
	"github.com/corrald/corral/internal/unitname"
)

// adopted is the number of running sessions that the bars of the adoption and the stop refer to.
const adopted = 1000

// adoption measures the time from the exec of a new corrald after a crash to its first reply on the
// bus, by which time it has adopted every session, and its memory then. Meanwhile, every third
// agent has exited. The floor is a program that asks systemd for the scopes and reads the records.
func adoption(ctx context.Context, b *bench) ([]row, error) {
	if err := b.gather(ctx, max(adopted, b.sessions)); err != nil {
		return nil, err
	}
	if err := b.replaceResumed(ctx); err != nil {
		return nil, err
	}
	r := row{
		name: fmt.Sprintf("adoption of %d sessions, a third ended: exec to first answer", b.many), unit: "ms",
		bar: neverAbove(1000, "ms"),
	}
	resident := row{
		name: fmt.Sprintf("corrald, resident memory after the adoption of %d sessions", b.many), unit: "MiB",
		bar: neverAbove(20, "MiB"),
	}
	var cpu, peak sample
	for range b.times(5) {
		if err := b.crashAndAdopt(ctx, &r, &resident, &peak, &cpu); err != nil {
			return nil, err
		}
	}
	r.note("the daemon's own CPU time until then: median %s ms", number(cpu.median()))
	resident.note("the most that it had until then: %s MiB", number(peak.max()))
	return []row{r, resident}, nil
}

// replaceResumed replaces the sessions that have run more than once, because they were suspended.
func (b *bench) replaceResumed(ctx context.Context) error {
	all, err := b.client.Sessions(ctx)
	if err != nil {
		return err
	}
	ranOnce := func(s client.Session) bool { return s.NRuns == 1 }
	if err := b.replace(ctx, slices.DeleteFunc(all, ranOnce)); err != nil {
		return err
	}
	return b.awaitIdle(ctx)
}

// crashAndAdopt kills the daemon, ends every third agent, and measures one adoption.
func (b *bench) crashAndAdopt(ctx context.Context, r, resident *row, peak, cpu *sample) error {
	ended, err := b.third(ctx)
	if err == nil {
		err = b.killDaemon(ctx)
	}
	if err == nil {
		err = endAgents(ended)
	}
	if err != nil {
		return err
	}
	before := time.Now()
	if err := b.startDaemon(ctx); err != nil {
		return err
	}
	rows, err := b.client.ListSessions(ctx)
	if err != nil {
		return err
	}
	r.values = append(r.values, milliseconds(time.Since(before)))
	pid := b.daemon.Process.Pid
	m, err := occupied(pid)
	if err != nil {
		return err
	}
	status, err := readFields(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return err
	}
	u, err := used(pid)
	if err != nil {
		return err
	}
	resident.values = append(resident.values, m.rss)
	*peak, *cpu = append(*peak, float64(status["VmHWM"])/1024), append(*cpu, milliseconds(u.cpu))
	if err := checkAdopted(rows, b.many, ended); err != nil {
		return err
	}
	before = time.Now()
	if err := b.runAs(ctx, roleSurvey, filepath.Join(b.work(), "state", "corral", "sessions")); err != nil {
		return err
	}
	r.floor = append(r.floor, milliseconds(time.Since(before)))
	return b.replace(ctx, ended)
}

// third returns every third running session.
func (b *bench) third(ctx context.Context) ([]client.Session, error) {
	all, err := b.client.Sessions(ctx)
	var third []client.Session
	for i, s := range all {
		if i%3 == 0 && s.State == "running" {
			third = append(third, s)
		}
	}
	return third, err
}

// endAgents ends the agents of the sessions by SIGTERM, and returns when their exits are recorded:
// when their shims have exited.
func endAgents(sessions []client.Session) error {
	return parallel(len(sessions), func(i int) error {
		agent := int(sessions[i].MainPID)
		status, err := proc.Stat(agent)
		if err != nil {
			return err
		}
		shim, err := unix.PidfdOpen(status.Parent, 0)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(shim) }()
		if err := unix.Kill(agent, unix.SIGTERM); err != nil {
			return err
		}
		if !proc.WaitExit(shim, timeout) {
			return fmt.Errorf("the shim of session %q has not exited", sessions[i].Id)
		}
		return nil
	})
}

// checkAdopted checks that the rows are those of n sessions, all of which run except those that
// have ended.
func checkAdopted(rows []dbusapi.SessionRow, n int, ended []client.Session) error {
	if len(rows) != n {
		return fmt.Errorf("%d sessions after the adoption, %d before", len(rows), n)
	}
	expected := map[string]string{}
	for _, s := range ended {
		expected[s.Id] = "failed"
	}
	for _, s := range rows {
		if state := cmp.Or(expected[s.ID], "running"); s.State != state {
			return fmt.Errorf("session %q is %s after the adoption, not %s", s.ID, s.State, state)
		}
	}
	return nil
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
