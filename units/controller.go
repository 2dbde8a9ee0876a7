package units

import (
	"context"
	"errors"
	"fmt"

	"github.com/corrald/corral/internal/bus"
	"github.com/corrald/corral/internal/deadline"
)

// Abandon leaves the named scopes to systemd: if they are stopped from now on, systemd sends
// SIGTERM itself, instead of leaving that to this Manager by StopRequested. It returns the names of
// the scopes that systemd has begun to stop before; for these nothing changes. It is not an error
// if a scope does not exist.
//
// Abandon is for a daemon that is about to exit. That its connection has left the bus reaches
// systemd later than the daemon's exit, or not at all if the bus has ended too. If systemd stops a
// scope before, it asks the missing connection, and kills everything after TimeoutStopSec= without
// a SIGTERM.
func (m *Manager) Abandon(ctx context.Context, names []string) (stopping []string, err error) {
	_, stopping, err = m.abandon(ctx, names, true)
	return stopping, err
}

// AbandonLost makes systemd forget the controllers of active scopes whose connections no longer
// exist, and returns the names of these scopes. A systemd that is reexecuted keeps the Controller=
// of each scope, and does not notice if that connection leaves the bus before systemd is connected
// to the bus again.
//
// AbandonLost is for a daemon that has just started: the only possible controllers are the daemon
// itself and daemons that no longer run. It need not be called again for as long as the result of
// SystemdConnection, from before the call, stays the same.
func (m *Manager) AbandonLost(ctx context.Context, pattern string) (abandoned []string, err error) {
	rows, err := m.listOnce(ctx, pattern)
	if err != nil {
		return nil, fmt.Errorf("cannot list %q: %w", pattern, err)
	}
	var names []string
	for _, row := range rows {
		if row.ActiveState == "active" {
			names = append(names, row.Name)
		}
	}
	abandoned, _, err = m.abandon(ctx, names, false)
	return abandoned, err
}

// SystemdConnection returns an id of systemd's connection to the bus. It changes when the bus is
// restarted, and when systemd is restarted or reexecuted.
func (m *Manager) SystemdConnection(ctx context.Context) (string, error) {
	ctx, cancel := deadline.Context(ctx, callTimeout)
	defer cancel()
	var instance, systemd string // the id of each instance of a bus differs, see GetId in the D-Bus Specification
	err := m.conn.BusObject().CallWithContext(ctx, bus.Name+".GetId", 0).Store(&instance)
	if err == nil {
		err = m.conn.BusObject().CallWithContext(ctx, bus.Name+".GetNameOwner", 0, bus.SystemdName).Store(&systemd)
	}
	if err != nil {
		return "", fmt.Errorf("cannot identify systemd's connection to the bus: %w", err)
	}
	return instance + " " + systemd, nil
}

// abandon calls abandonScope for each of the scopes, several at a time. It returns the names of
// those that were abandoned, and of those for which it was too late.
func (m *Manager) abandon(ctx context.Context, names []string, own bool) (abandoned, stopping []string, err error) {
	type result struct {
		done, tooLate bool
		err           error
	}
	results := make([]result, len(names))
	inParallel(len(names), func(i int) {
		r := &results[i]
		r.done, r.tooLate, r.err = m.abandonScope(ctx, names[i], own)
	})
	var failed []error
	for i, r := range results {
		switch {
		case r.err != nil && !isGone(r.err):
			failed = append(failed, fmt.Errorf("cannot abandon %q: %w", names[i], r.err))
		case r.done:
			abandoned = append(abandoned, names[i])
		case r.tooLate:
			stopping = append(stopping, names[i])
		}
	}
	return abandoned, stopping, errors.Join(failed...)
}

// abandonScope makes systemd forget the scope's controller: this Manager if own is set, any other
// one if not. It is too late once systemd has begun to stop the scope.
func (m *Manager) abandonScope(ctx context.Context, name string, own bool) (done, tooLate bool, err error) {
	v, err := m.get(ctx, name, "Scope", propertyController)
	controller, _ := v.(string)
	if err != nil || controller == "" || own != (controller == m.conn.Names()[0]) {
		return false, false, err
	}
	err = m.callMethod(ctx, unitPath(name), scopeIface+".Abandon")
	if !bus.HasErrorName(err, bus.SystemdName+".ScopeNotRunning") {
		return err == nil, false, err
	}
	tooLate, err = m.IsActive(ctx, name) // if not, it has ended
	return false, tooLate, err
}
