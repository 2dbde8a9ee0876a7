package client

import (
	"context"
	"os"

	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/internal/bus"
	"github.com/corrald/corral/internal/unitname"
)

// ExcludedError is returned if systemd does not start the daemon for this user because
// corrald.service has ConditionUser=!@system. Without this check, a call would wait for activation
// until its time-out.
type ExcludedError struct{}

func (*ExcludedError) Error() string {
	return "corrald does not run for root and other system users (ConditionUser= in corrald.service)"
}

// firstRegularUID is the lowest user id that is not a system user's: systemd's SYSTEM_UID_MAX + 1,
// see user@.service.
const firstRegularUID = 1000

// checkExcluded returns an *ExcludedError if this is a system user whose systemd does not start the
// daemon. For other users it returns nil without calling systemd.
func (c *Client) checkExcluded(ctx context.Context) error {
	if os.Geteuid() >= firstRegularUID {
		return nil
	}
	if running, err := c.Running(ctx); err != nil || running {
		return nil //nolint:nilerr // the caller's next call returns the error
	}
	var path dbus.ObjectPath
	var conditions []struct {
		Type            string
		Trigger, Negate bool
		Parameter       string
		State           int32
	}
	err := bus.Systemd(c.conn).CallWithContext(ctx, bus.SystemdManager+".LoadUnit", 0, unitname.Daemon).Store(&path)
	if err != nil {
		return nil //nolint:nilerr // as above
	}
	err = c.conn.Object(bus.SystemdName, path).
		CallWithContext(ctx, bus.Properties+".Get", 0, bus.SystemdUnit, "Conditions").Store(&conditions)
	if err != nil {
		return nil //nolint:nilerr // as above
	}
	for _, condition := range conditions {
		if condition.Type == "ConditionUser" && condition.Negate && condition.Parameter == "@system" {
			return &ExcludedError{}
		}
	}
	return nil
}
