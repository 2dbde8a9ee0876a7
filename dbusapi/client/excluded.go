package client

import (
	"context"
	"os"

	"github.com/godbus/dbus/v5"
)

// ExcludedError says that systemd does not start the daemon for this user: corrald.service has
// ConditionUser=!@system. Without it a call would wait for a daemon that does not come.
type ExcludedError struct{}

func (*ExcludedError) Error() string {
	return "corrald does not run for root and other system users (ConditionUser= in corrald.service)"
}

// systemUsers is the first user id that is not a system user's (user@.service, systemd's
// SYSTEM_UID_MAX).
const systemUsers = 1000

// excluded returns an *ExcludedError for a system user whose manager does not start the daemon. It
// asks systemd for system users only.
func (c *Client) excluded(ctx context.Context) error {
	if os.Geteuid() >= systemUsers {
		return nil
	}
	if running, err := c.Running(ctx); err != nil || running {
		return nil //nolint:nilerr // the call that follows says what is wrong
	}
	const name = "org.freedesktop.systemd1"
	var path dbus.ObjectPath
	var conditions []struct {
		Type            string
		Trigger, Negate bool
		Parameter       string
		State           int32
	}
	err := c.conn.Object(name, "/org/freedesktop/systemd1").CallWithContext(ctx, name+".Manager.LoadUnit", 0, "corrald.service").Store(&path)
	if err != nil {
		return nil //nolint:nilerr // as above
	}
	err = c.conn.Object(name, path).CallWithContext(ctx, "org.freedesktop.DBus.Properties.Get", 0, name+".Unit", "Conditions").Store(&conditions)
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
