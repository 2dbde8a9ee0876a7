package units

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/internal/deadline"
	"github.com/corrald/corral/internal/proc"
)

// unitRow is a row of ListUnitsByPatterns.
type unitRow struct {
	Name, Description, Load, Active, Sub, Follows string
	Path                                          dbus.ObjectPath
	JobID                                         uint32
	JobType                                       string
	JobPath                                       dbus.ObjectPath
}

// List returns the scopes whose names match the pattern, a glob, with the state that systemd sees
// them in.
func (m *Manager) List(ctx context.Context, pattern string) ([]Unit, error) {
	rows, err := m.listStarted(ctx, pattern)
	if err != nil {
		return nil, fmt.Errorf("cannot list %q: %w", pattern, err)
	}
	units := make([]Unit, 0, len(rows))
	for _, row := range rows {
		if row.Load != "not-found" {
			units = append(units, Unit{Name: row.Name, Active: row.Active, HasStopJob: row.JobType == "stop"})
		}
	}
	if err := m.describeAll(ctx, units); err != nil {
		return nil, err
	}
	err = m.do(ctx, func(ws *watches) {
		for _, u := range units {
			if w := ws.units[u.Name]; w != nil && u.ControlGroup != "" {
				w.group, w.id = u.ControlGroup, u.InvocationID
			}
		}
	})
	if errors.Is(err, ErrClosed) { // then nothing is watched any more
		err = nil
	}
	return units, err
}

// startingTime bounds the wait for scopes that are about to be started. It takes systemd a moment;
// only one that has to wait for another unit, as a drop-in may have it, takes longer, and nothing
// is in it yet.
const startingTime = 3 * time.Second

// anyJob is for the ends of all jobs.
const anyJob = "type='signal',sender='" + systemdName + "',interface='" + managerIface + "',member='JobRemoved'"

// listStarted lists the units. A scope that is only about to be started looks like one that has
// ended: as long as there is one, it lists again whenever a job has ended, for startingTime at
// most.
func (m *Manager) listStarted(ctx context.Context, pattern string) ([]unitRow, error) {
	rows, err := m.listOnce(ctx, pattern)
	if err != nil || !starting(rows) {
		return rows, err
	}
	ended, forget, err := m.followJobs(ctx)
	if errors.Is(err, ErrClosed) { // nobody reports the end of a job any more
		return rows, nil
	}
	if err != nil {
		return nil, err
	}
	defer forget()
	enough, cancel := deadline.Context(context.Background(), startingTime)
	defer cancel()
	for {
		rows, err := m.listOnce(ctx, pattern)
		if err != nil || !starting(rows) {
			return rows, err
		}
		select {
		case <-ended:
		case <-enough.Done():
			return rows, nil
		case <-m.closed:
			return rows, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// followJobs returns a channel that is sent to when a job has ended, until forget is called.
func (m *Manager) followJobs(ctx context.Context) (ended <-chan struct{}, forget func(), err error) {
	follow := make(chan struct{}, 1)
	err = m.do(ctx, func(ws *watches) {
		ws.jobs[follow] = true
		m.match("AddMatch", anyJob)
	})
	return follow, func() {
		_ = m.do(context.WithoutCancel(ctx), func(ws *watches) {
			delete(ws.jobs, follow)
			m.match("RemoveMatch", anyJob)
		})
	}, err
}

func (m *Manager) listOnce(ctx context.Context, pattern string) (rows []unitRow, err error) {
	return rows, m.read(ctx, systemdPath, managerIface+".ListUnitsByPatterns", []string{}, []string{pattern}).Store(&rows)
}

func starting(rows []unitRow) bool {
	return slices.ContainsFunc(rows, func(row unitRow) bool { return row.JobType == "start" })
}

// describeAll fills the units in. One that runs is looked for beside the first one that does, where
// the kernel and systemd's own files tell all there is to know of it, at a fiftieth of what it
// costs to ask systemd: nearly all are there. The others are asked for, many at a time.
func (m *Manager) describeAll(ctx context.Context, units []Unit) error {
	var slice string
	if i := slices.IndexFunc(units, runs); i >= 0 {
		if err := m.describe(ctx, &units[i]); err != nil {
			return err
		}
		slice = path.Dir(units[i].ControlGroup)
	}
	const most = 32
	results := make(chan error, len(units))
	slots := make(chan struct{}, most)
	asked := 0
	for i := range units {
		if u := &units[i]; u.InvocationID == "" && (!runs(*u) || !m.find(u, slice)) {
			asked++
			slots <- struct{}{}
			go func() {
				results <- m.describe(ctx, u)
				<-slots
			}()
		}
	}
	var failed error
	for range asked {
		if err := <-results; failed == nil {
			failed = err
		}
	}
	return failed
}

func runs(u Unit) bool { return u.Active == "active" }

// find fills in a scope that runs from its control group, if that is in slice and has processes,
// and from the link by which systemd tells journald its invocation: it is there from the scope's
// start to its end.
func (m *Manager) find(u *Unit, slice string) bool {
	group := path.Join(slice, u.Name)
	id, err := os.Readlink(filepath.Join(m.runtimeDir, "systemd/units/invocation:"+u.Name))
	if slice == "" || err != nil || len(id) != 2*invocationSize || !proc.IsPopulated(group) {
		return false
	}
	u.ControlGroup, u.InvocationID, u.Result = group, id, "success" // it has no other while it is active
	return true
}

const invocationSize = 16 // bytes of an invocation id, see sd-id128(3)

func (m *Manager) describe(ctx context.Context, u *Unit) error {
	var props map[string]dbus.Variant
	if err := m.read(ctx, unitPath(u.Name), propertiesIface+".GetAll", scopeIface).Store(&props); err != nil {
		if isGone(err) {
			u.Active = "inactive"
			return nil
		}
		return fmt.Errorf("cannot read %q: %w", u.Name, err)
	}
	u.Result, _ = props["Result"].Value().(string)
	u.ControlGroup, _ = props["ControlGroup"].Value().(string)
	id, err := m.invocationID(ctx, u.Name)
	if isGone(err) {
		u.Active, err = "inactive", nil
	}
	u.InvocationID = id
	if u.Result == timeout && err == nil {
		runtimeMax, _ := props["RuntimeMaxUSec"].Value().(uint64)
		u.TimedOutAt, err = m.timedOut(ctx, u.Name, runtimeMax)
	}
	return err
}

// timeout is the Result of a scope whose time was up, and of one that was told to stop and did not
// in time.
const timeout = "timeout"

// timedOut tells when RuntimeMaxSec= of a scope whose Result is timeout was over: before systemd
// told its processes to end, which it does before it notes that the scope has left the state
// active. 0 if it was told to end earlier, for another reason, or if systemd knows it no more.
func (m *Manager) timedOut(ctx context.Context, name string, runtimeMax uint64) (time.Duration, error) {
	var usec [2]uint64
	for i, property := range []string{"ActiveEnterTimestampMonotonic", "ActiveExitTimestampMonotonic"} {
		v, err := m.get(ctx, name, unitIface, property)
		if isGone(err) {
			return 0, nil
		}
		if err != nil {
			return 0, err
		}
		usec[i], _ = v.Value().(uint64)
	}
	began, told := usec[0], usec[1]
	if began == 0 || told < began || told-began < runtimeMax {
		return 0, nil
	}
	return time.Duration(began+runtimeMax) * time.Microsecond, nil
}

func (m *Manager) invocationID(ctx context.Context, name string) (string, error) {
	v, err := m.get(ctx, name, unitIface, "InvocationID")
	id, _ := v.Value().([]byte)
	return hex.EncodeToString(id), err
}

// pullers are the properties of a unit that name other units which start it: timers, targets,
// services.
var pullers = []string{"TriggeredBy", "WantedBy", "RequiredBy", "BoundBy", "UpheldBy"}

// PulledIn returns the instances of a template, "corral@" with ".service", that another unit
// starts: a timer, the target of an enabled one, a service that requires it. systemd has them
// loaded for as long as that unit is.
func (m *Manager) PulledIn(ctx context.Context, template, suffix string) ([]string, error) {
	rows, err := m.listOnce(ctx, template+"*"+suffix)
	if err != nil {
		return nil, fmt.Errorf("cannot list %q: %w", template+"*"+suffix, err)
	}
	var instances []string
	for _, row := range rows {
		var props map[string]dbus.Variant
		err := m.read(ctx, unitPath(row.Name), propertiesIface+".GetAll", unitIface).Store(&props)
		if err != nil && !isGone(err) {
			return nil, fmt.Errorf("cannot read %q: %w", row.Name, err)
		}
		if slices.ContainsFunc(pullers, func(property string) bool { names, _ := props[property].Value().([]string); return len(names) > 0 }) {
			instances = append(instances, strings.TrimSuffix(strings.TrimPrefix(row.Name, template), suffix))
		}
	}
	return instances, nil
}
