package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/atomicfile"
)

// suspended is the number of sessions that the bar of the suspension refers to.
const suspended = 300

// suspension measures how long it takes to suspend all sessions, as before a shutdown of the
// machine, until every record is on disk. logind waits five seconds for that (InhibitDelayMaxSec=
// in logind.conf(5)). The floor ends as many processes and writes a file for each.
func suspension(ctx context.Context, b *bench) ([]row, error) {
	if err := b.gather(ctx, max(suspended, b.sessions)); err != nil {
		return nil, err
	}
	r := row{name: fmt.Sprintf("suspension of %d sessions", b.many), unit: "ms", bar: neverAbove(1500, "ms")}
	var cpu sample
	for range b.times(5) {
		usedBefore, err := used(b.daemon.Process.Pid)
		if err != nil {
			return nil, err
		}
		before := time.Now()
		if err := b.all(ctx, "SuspendAll"); err != nil {
			return nil, err
		}
		r.values = append(r.values, milliseconds(time.Since(before)))
		u, err := used(b.daemon.Process.Pid)
		if err != nil {
			return nil, err
		}
		cpu = append(cpu, milliseconds(u.since(usedBefore).cpu))
		took, err := endProcesses(b.work(), b.many)
		if err != nil {
			return nil, err
		}
		r.floor = append(r.floor, milliseconds(took))
		if err := b.all(ctx, "ResumeAll"); err != nil {
			return nil, err
		}
	}
	r.note("the daemon's own CPU time for it: median %s ms", number(cpu.median()))
	return []row{r}, nil
}

// all calls a method of the Manager that changes all sessions, and checks how many it has changed.
func (b *bench) all(ctx context.Context, method string) error {
	var changed []string
	object := b.listener.conn.Object(dbusapi.BusName, dbusapi.ManagerPath)
	err := object.CallWithContext(ctx, dbusapi.ManagerInterface+"."+method, 0).Store(&changed)
	if err == nil && len(changed) != b.many {
		err = fmt.Errorf("it changed %d sessions, not %d", len(changed), b.many)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	return nil
}

// endProcesses starts n processes, and measures how long it takes to end them with SIGTERM, and to
// replace a file of the size of a record for each when it has ended.
func endProcesses(dir string, n int) (time.Duration, error) {
	children := make([]*exec.Cmd, n)
	for i := range children {
		children[i] = exec.Command(silent[0], silent[1:]...)
		if err := children[i].Start(); err != nil {
			return 0, err
		}
	}
	record := make([]byte, 2048)
	before := time.Now()
	for _, child := range children {
		if err := child.Process.Signal(unix.SIGTERM); err != nil {
			return 0, err
		}
	}
	err := parallel(n, func(i int) error {
		_ = children[i].Wait()
		return atomicfile.Write(filepath.Join(dir, "record-"+strconv.Itoa(i)), record, 0o600)
	})
	return time.Since(before), err
}
