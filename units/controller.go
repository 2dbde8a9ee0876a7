package units

import (
	"context"
	"errors"
	"fmt"
)

// AbandonLost finds the active scopes whose Controller= is a connection that is gone, has systemd
// forget it, and returns their names. A systemd that executes itself again while there is no bus
// keeps the controllers of its scopes and does not notice any more when they leave the bus: it asks
// a connection that is gone to stop the scope, and kills everything once TimeoutStopSec= is over,
// without a SIGTERM. A scope without a controller is sent SIGTERM by systemd itself.
//
// It is for a daemon that has just started: the only controllers there can be are itself and
// daemons that are gone.
func (m *Manager) AbandonLost(ctx context.Context, pattern string) (names []string, err error) {
	rows, err := m.listOnce(ctx, pattern)
	if err != nil {
		return nil, fmt.Errorf("cannot list %q: %w", pattern, err)
	}
	var failed []error
	for _, row := range rows {
		if row.Active != "active" {
			continue
		}
		v, err := m.get(ctx, row.Name, scopeIface, "Controller")
		if controller, _ := v.Value().(string); err == nil && controller != "" && controller != m.conn.Names()[0] {
			if err = m.call(ctx, unitPath(row.Name), scopeIface+".Abandon").Err; err == nil {
				names = append(names, row.Name)
			}
		}
		if err != nil && !isGone(err) {
			failed = append(failed, fmt.Errorf("cannot find out who controls %q: %w", row.Name, err))
		}
	}
	return names, errors.Join(failed...)
}
