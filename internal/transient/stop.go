package transient

import (
	"context"
	"fmt"
	"slices"

	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/internal/bus"
)

// unitStatus is an entry of the reply to ListUnitsByPatterns: org.freedesktop.systemd1(5).
type unitStatus struct {
	Name, Description, Load, Active, Sub, Following string
	Path                                            dbus.ObjectPath
	JobID                                           uint32
	JobType                                         string
	Job                                             dbus.ObjectPath
}

// Stop stops the units whose names match a pattern of glob(7), and returns once they have stopped.
func Stop(ctx context.Context, conn *dbus.Conn, pattern string) error {
	var listed []unitStatus
	err := bus.Systemd(conn).
		CallWithContext(ctx, bus.SystemdManager+".ListUnitsByPatterns", 0, []string{}, []string{pattern}).Store(&listed)
	if err != nil {
		return fmt.Errorf("cannot list the units %q: %w", pattern, err)
	}
	listed = slices.DeleteFunc(listed, func(u unitStatus) bool { return u.Active == "inactive" || u.Active == "failed" })
	if len(listed) == 0 {
		return nil
	}
	jobs, err := watchJobs(ctx, conn)
	if err != nil {
		return err
	}
	defer jobs.close()
	waiting := map[dbus.ObjectPath]bool{}
	for _, u := range listed {
		job, err := stopUnit(ctx, conn, u.Name)
		if err != nil {
			return fmt.Errorf("cannot stop %q: %w", u.Name, err)
		}
		if job != "" {
			waiting[job] = true
		}
	}
	for len(waiting) > 0 {
		job, _, err := jobs.next(ctx)
		if err != nil {
			return fmt.Errorf("cannot wait until %q has stopped: %w", pattern, err)
		}
		delete(waiting, job)
	}
	return nil
}

// stopUnit queues a stop job and returns it, "" if the unit does not exist.
func stopUnit(ctx context.Context, conn *dbus.Conn, unit string) (job dbus.ObjectPath, err error) {
	err = bus.Systemd(conn).CallWithContext(ctx, bus.SystemdManager+".StopUnit", 0, unit, "replace").Store(&job)
	if bus.HasErrorName(err, bus.SystemdNoSuchUnit) {
		return "", nil
	}
	return job, err
}
