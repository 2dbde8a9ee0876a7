package effects

import (
	"context"
	"time"

	"github.com/corrald/corral/internal/bus"
	"github.com/corrald/corral/internal/unitname"
	"github.com/corrald/corral/supervisor"
	"github.com/corrald/corral/units"
)

// systemd implements supervisor.Systemd. Watch, Unwatch, Abandon and StartTime are those
// of units.Manager.
type systemd struct {
	*units.Manager
	client string // path of corralctl
}

// Scopes implements supervisor.Systemd.
func (s systemd) Scopes(ctx context.Context) ([]supervisor.Scope, error) {
	all, err := s.List(ctx, unitname.Scopes)
	if err != nil {
		return nil, err
	}
	scopes := make([]supervisor.Scope, 0, len(all))
	for _, u := range all {
		scopes = append(scopes, supervisor.Scope{
			Name: u.Name, InvocationID: u.InvocationID, ControlGroup: u.ControlGroup,
			Result: u.Result, TimedOut: u.TimedOutAt,
			Stopping: u.Active == "deactivating" || u.Active == "active" && u.HasStopJob,
			Active:   u.Active == "active" || u.Active == "deactivating" || u.Active == "activating",
		})
	}
	return scopes, nil
}

// PulledIn implements supervisor.Systemd.
func (s systemd) PulledIn(ctx context.Context) ([]string, error) {
	return s.Manager.PulledIn(ctx, "corral@", ".service")
}

// SetContinueTimer implements supervisor.Systemd.
func (s systemd) SetContinueTimer(ctx context.Context, id string, at time.Time) error {
	name := unitname.ContinueTimer(id)
	if at.IsZero() {
		return s.RemoveTimer(ctx, name)
	}
	return s.SetTimer(ctx, units.Timer{
		Name: name, Description: "Continuation of Corral session " + id + " after a usage limit", Slice: unitname.Slice,
		Argv: []string{s.client, "continue", "--if-due", id},
	}, at)
}

// StopCause implements supervisor.Systemd.
func (s systemd) StopCause(ctx context.Context, unit string) (supervisor.StopCause, error) {
	cause, err := s.Manager.StopCause(ctx, unit)
	return supervisor.StopCause(cause), err
}

// IsStopping implements supervisor.Systemd. If systemd does not answer in time, the result is
// false: an unknown state does not end agents. At worst systemd ends them, which suspends them as
// well.
func (s systemd) IsStopping(ctx context.Context) bool {
	state, err := s.State(ctx)
	return err == nil && state == bus.SystemStopping
}
