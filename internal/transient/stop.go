package transient

import (
	"context"
	"errors"
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
	manager := conn.Object(systemd, systemdPath)
	var listed []unitStatus
	err := manager.CallWithContext(ctx, managerIface+".ListUnitsByPatterns", 0, []string{}, []string{pattern}).
		Store(&listed)
	if err != nil {
		return fmt.Errorf("cannot list the units %q: %w", pattern, err)
	}
	listed = slices.DeleteFunc(listed, func(u unitStatus) bool { return u.Active == "inactive" || u.Active == "failed" })
	if len(listed) == 0 {
		return nil
	}
	removed := make(chan *dbus.Signal, 64)
	conn.Signal(removed)
	defer conn.RemoveSignal(removed)
	var owner *bus.Owner
	err = conn.AddMatchSignalContext(ctx, dbus.WithMatchSender(systemd),
		dbus.WithMatchInterface(managerIface), dbus.WithMatchMember("JobRemoved"))
	if err == nil {
		owner, err = bus.WatchOwner(ctx, conn, systemd)
	}
	if err != nil {
		return fmt.Errorf("cannot listen to the user manager: %w", err)
	}
	jobs := map[dbus.ObjectPath]string{}
	for _, u := range listed {
		var job dbus.ObjectPath
		err := manager.CallWithContext(ctx, managerIface+".StopUnit", 0, u.Name, "replace").Store(&job)
		if e := (dbus.Error{}); errors.As(err, &e) && e.Name == systemd+".NoSuchUnit" {
			continue
		} else if err != nil {
			return fmt.Errorf("cannot stop %q: %w", u.Name, err)
		}
		jobs[job] = u.Name
	}
	for len(jobs) > 0 {
		select {
		case <-ctx.Done():
			for _, name := range jobs {
				return fmt.Errorf("cannot wait until %q has stopped: %w", name, ctx.Err())
			}
		case signal, ok := <-removed:
			if !ok {
				return fmt.Errorf("cannot wait until %q has stopped: the connection to the bus is lost", pattern)
			}
			if owner.Update(signal) || !owner.Sent(signal) || signal.Name != managerIface+".JobRemoved" || len(signal.Body) < 2 {
				continue
			}
			if job, ok := signal.Body[1].(dbus.ObjectPath); ok {
				delete(jobs, job)
			}
		}
	}
	return nil
}
