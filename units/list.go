package units

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	systemd "github.com/coreos/go-systemd/v22/dbus"

	"github.com/corrald/corral/internal/deadline"
	"github.com/corrald/corral/internal/proc"
)

// List returns the scopes whose names match the glob pattern, with their state in systemd.
func (m *Manager) List(ctx context.Context, pattern string) ([]Unit, error) {
	rows, err := m.listAfterStarts(ctx, pattern)
	if err != nil {
		return nil, fmt.Errorf("cannot list %q: %w", pattern, err)
	}
	units := make([]Unit, 0, len(rows))
	for _, row := range rows {
		if row.LoadState != "not-found" {
			units = append(units, Unit{Name: row.Name, Active: row.ActiveState, HasStopJob: row.JobType == "stop"})
		}
	}
	if err := m.describeAll(ctx, units); err != nil {
		return nil, err
	}
	err = m.runOnLoop(ctx, func(ws *watches) {
		for _, u := range units {
			if w := ws.units[u.Name]; w != nil && u.ControlGroup != "" {
				w.cgroup, w.invocationID = u.ControlGroup, u.InvocationID
			}
		}
	})
	if errors.Is(err, ErrClosed) { // there are no watches to update any more
		err = nil
	}
	return units, err
}

// startJobWait bounds the wait for scopes with a pending start job. systemd needs only a moment to
// start a scope. A scope takes longer only if a drop-in makes it wait for another unit, and it has
// no processes until then.
const startJobWait = 3 * time.Second

// anyJobRule is a match rule for the end of every job.
const anyJobRule = fromManager + ",member='JobRemoved'"

// listAfterStarts lists the units once no scope has a pending start job, since a scope that is
// about to be started looks like one that has ended. It lists again after each finished job, for
// startJobWait at most.
func (m *Manager) listAfterStarts(ctx context.Context, pattern string) ([]systemd.UnitStatus, error) {
	rows, err := m.listOnce(ctx, pattern)
	if err != nil || !hasStartJob(rows) {
		return rows, err
	}
	finished, stop, err := m.watchJobs(ctx)
	if errors.Is(err, ErrClosed) { // without the bus, no signals arrive
		return rows, nil
	}
	if err != nil {
		return nil, err
	}
	defer stop()
	limit, cancel := deadline.Context(context.Background(), startJobWait)
	defer cancel()
	for {
		rows, err := m.listOnce(ctx, pattern)
		if err != nil || !hasStartJob(rows) {
			return rows, err
		}
		select {
		case <-finished:
		case <-limit.Done():
			return rows, nil
		case <-m.closed:
			return rows, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// watchJobs returns a channel that receives a value after each finished job, until the caller calls
// stop.
func (m *Manager) watchJobs(ctx context.Context) (finished <-chan struct{}, stop func(), err error) {
	waiter := make(chan struct{}, 1)
	err = m.runOnLoop(ctx, func(ws *watches) {
		ws.jobWaiters[waiter] = true
		m.match("AddMatch", anyJobRule)
	})
	return waiter, func() {
		_ = m.runOnLoop(context.WithoutCancel(ctx), func(ws *watches) {
			delete(ws.jobWaiters, waiter)
			m.match("RemoveMatch", anyJobRule)
		})
	}, err
}

func (m *Manager) listOnce(ctx context.Context, pattern string) ([]systemd.UnitStatus, error) {
	return read(ctx, m, func(ctx context.Context, c *client) ([]systemd.UnitStatus, error) {
		return c.ListUnitsByPatternsContext(ctx, nil, []string{pattern})
	})
}

func hasStartJob(rows []systemd.UnitStatus) bool {
	return slices.ContainsFunc(rows, func(row systemd.UnitStatus) bool { return row.JobType == "start" })
}

// maxCalls is the number of calls to systemd that are made at a time.
const maxCalls = 32

// describeAll completes the units. The control group of an active scope is usually next to that of
// the first active one. If it is, the kernel and systemd's own files contain everything about the
// scope, at a fiftieth of the cost of a call to systemd. The other scopes are read from systemd,
// with several calls at a time.
func (m *Manager) describeAll(ctx context.Context, units []Unit) error {
	var slice string
	if i := slices.IndexFunc(units, isActive); i >= 0 {
		if err := m.describe(ctx, &units[i]); err != nil {
			return err
		}
		slice = path.Dir(units[i].ControlGroup)
	}
	var others []*Unit
	for i := range units {
		if u := &units[i]; u.InvocationID == "" && (!isActive(*u) || !m.readFromKernel(u, slice)) {
			others = append(others, u)
		}
	}
	failed := make([]error, len(others))
	inParallel(len(others), func(i int) { failed[i] = m.describe(ctx, others[i]) })
	return cmp.Or(failed...)
}

// inParallel calls f with each number below n, maxCalls at a time.
func inParallel(n int, f func(i int)) {
	slots := make(chan struct{}, maxCalls)
	var calls sync.WaitGroup
	for i := range n {
		slots <- struct{}{}
		calls.Go(func() { f(i); <-slots })
	}
	calls.Wait()
}

func isActive(u Unit) bool { return u.Active == "active" }

// readFromKernel completes an active scope from its control group, if that is in slice and has
// processes, and from the link that systemd maintains for journald, which contains the invocation
// ID while the scope is active. It returns false if these are not available.
func (m *Manager) readFromKernel(u *Unit, slice string) bool {
	group := path.Join(slice, u.Name)
	id, err := os.Readlink(filepath.Join(m.runtimeDir, "systemd/units/invocation:"+u.Name))
	if slice == "" || err != nil || len(id) != 2*invocationSize || !proc.IsPopulated(group) {
		return false
	}
	u.ControlGroup, u.InvocationID, u.Result = group, id, resultSuccess // the result of every active scope
	return true
}

const invocationSize = 16 // bytes of an invocation ID, see sd-id128(3)

func (m *Manager) describe(ctx context.Context, u *Unit) error {
	props, err := m.properties(ctx, u.Name, "Scope")
	if err == nil {
		u.InvocationID, err = m.invocationID(ctx, u.Name)
	}
	// If the scope has ended since it was listed, systemd usually replies as for one that was never
	// started.
	if isGone(err) || err == nil && u.InvocationID == "" {
		u.Active = "inactive"
		return nil
	}
	if err != nil {
		return err
	}
	u.Result, _ = props[propertyResult].(string)
	u.ControlGroup, _ = props[propertyControlGroup].(string)
	if u.Result == resultTimeout {
		u.TimedOutAt, err = m.runtimeMaxExpiry(ctx, u.Name, props)
	}
	return err
}

func (m *Manager) invocationID(ctx context.Context, name string) (string, error) {
	v, err := m.get(ctx, name, "Unit", propertyInvocationID)
	id, _ := v.([]byte)
	return hex.EncodeToString(id), err
}

// runtimeMaxExpiry returns the CLOCK_MONOTONIC time at which RuntimeMaxSec= of a scope with the
// Result timeout and these properties expired. It returns 0 if the scope was stopped earlier for
// another reason, or if systemd no longer knows it. systemd signals the processes before it records
// that the scope has left the active state.
func (m *Manager) runtimeMaxExpiry(ctx context.Context, name string, scope map[string]any) (time.Duration, error) {
	var usec [2]uint64
	for i, property := range []string{propertyActiveEntered, propertyActiveExited} {
		v, err := m.get(ctx, name, "Unit", property)
		if err != nil {
			return 0, err
		}
		usec[i], _ = v.(uint64)
	}
	runtimeMax, _ := scope[propertyRuntimeMax].(uint64)
	entered, exited := usec[0], usec[1]
	if entered == 0 || exited < entered || exited-entered < runtimeMax {
		return 0, nil
	}
	return time.Duration(entered+runtimeMax) * time.Microsecond, nil
}

// startDependencies are the properties of a unit that name other units which start it: timers,
// targets, services.
var startDependencies = []string{"TriggeredBy", "WantedBy", "RequiredBy", "BoundBy", "UpheldBy"}

// PulledIn returns the instances of a template, such as "corral@" with the suffix ".service", that
// another unit starts: a timer, the target for which an instance is enabled, or a service that
// requires it. systemd keeps these instances loaded while that other unit is loaded.
func (m *Manager) PulledIn(ctx context.Context, template, suffix string) ([]string, error) {
	rows, err := m.listOnce(ctx, template+"*"+suffix)
	if err != nil {
		return nil, fmt.Errorf("cannot list %q: %w", template+"*"+suffix, err)
	}
	var instances []string
	for _, row := range rows {
		props, err := m.properties(ctx, row.Name, "Unit")
		if err != nil && !isGone(err) {
			return nil, err
		}
		if slices.ContainsFunc(startDependencies, func(property string) bool {
			names, _ := props[property].([]string)
			return len(names) > 0
		}) {
			instances = append(instances, strings.TrimSuffix(strings.TrimPrefix(row.Name, template), suffix))
		}
	}
	return instances, nil
}
