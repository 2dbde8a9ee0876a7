package units

import (
	"context"
	"errors"
	"fmt"
)

// AbandonLost makes systemd forget the controllers of active scopes whose connections no longer
// exist, and returns the names of these scopes. A systemd that is reexecuted while there is no bus
// keeps the Controller= of each scope and does not notice when that connection leaves the bus. To
// stop such a scope, it asks the missing connection, and kills everything after TimeoutStopSec=
// without a SIGTERM. If a scope has no controller, systemd sends SIGTERM itself.
//
// AbandonLost is for a daemon that has just started: the only possible controllers are the daemon
// itself and daemons that no longer run.
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
			failed = append(failed, fmt.Errorf("cannot check the controller of %q: %w", row.Name, err))
		}
	}
	return names, errors.Join(failed...)
}
