package units

import (
	"context"
	"fmt"
	"time"

	systemd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/internal/bus"
	"github.com/corrald/corral/internal/deadline"
)

// Timer describes a transient timer that runs a program once, also if this process has exited by
// then. It is lost when the user manager ends.
type Timer struct {
	Name        string // of the timer and of its service, without a suffix
	Description string
	Slice       string
	Argv        []string // the first is an absolute path
}

// minTimerDelay is the time until a timer for a time that has passed: systemd never triggers a
// timer of the calendar that is in the past when it is started.
const minTimerDelay = 2 * time.Second

// timerServiceTimeout limits how long the program of a timer runs.
const timerServiceTimeout = 5 * time.Minute

// SetTimer replaces the timer by one for a time of the wall clock: it also fires after the machine
// was suspended, and when the clock is set. It fires soon if that time has passed. SetTimer returns
// once systemd has accepted the timer, which it then activates.
func (m *Manager) SetTimer(ctx context.Context, t Timer, at time.Time) error {
	ctx, cancel := deadline.Context(ctx, jobTimeout)
	defer cancel()
	if err := m.RemoveTimer(ctx, t.Name); err != nil {
		return err
	}
	variant := func(name string, value any) Property { return Property{Name: name, Value: dbus.MakeVariant(value)} }
	second := at.Add(time.Second - 1).Unix() // rounded up: not before at
	trigger := variant("TimersCalendar", []struct{ Base, Time string }{{"OnCalendar", fmt.Sprintf("@%d", second)}})
	if time.Until(at) < minTimerDelay {
		trigger = variant("TimersMonotonic", []struct {
			Base string
			Usec uint64
		}{{"OnActiveSec", uint64(minTimerDelay.Microseconds())}})
	}
	timer := []Property{
		systemd.PropDescription(t.Description), trigger,
		variant("AccuracyUSec", uint64(time.Second.Microseconds())), variant("RemainAfterElapse", false),
		variant("CollectMode", "inactive-or-failed"),
	}
	service := systemd.PropertyCollection{Name: t.Name + ".service", Properties: []Property{
		systemd.PropDescription(t.Description), systemd.PropType("oneshot"), systemd.PropExecStart(t.Argv, true),
		systemd.PropSlice(t.Slice), variant("CollectMode", "inactive-or-failed"),
		variant("TimeoutStartUSec", uint64(timerServiceTimeout.Microseconds())),
	}}
	tick := time.NewTicker(retryInterval)
	defer tick.Stop()
	for {
		err := m.call(ctx, func(ctx context.Context, c *client) error {
			_, err := c.StartTransientUnitAux(ctx, t.Name+".timer", "replace", timer, []systemd.PropertyCollection{service}, nil)
			return err
		})
		// systemd unloads the units of the timer before in its own time.
		if err == nil || !isAway(err) && !bus.HasErrorName(err, bus.SystemdName+".UnitExists") {
			return annotate("set", t.Name, err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return annotate("set", t.Name, err)
		}
	}
}

// RemoveTimer removes the timer with this name, and waits until it is gone. It does not end the
// program. It is not an error if the timer does not exist.
func (m *Manager) RemoveTimer(ctx context.Context, name string) error {
	name += ".timer"
	err := m.call(ctx, func(ctx context.Context, c *client) error {
		_, err := c.StopUnitContext(ctx, name, "replace", nil)
		return err
	})
	if err == nil {
		err = m.awaitInactive(ctx, name)
	}
	if isGone(err) {
		return nil
	}
	return annotate("remove", name, err)
}

func annotate(verb, name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("cannot %s timer %q: %w", verb, name, err)
}
