package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/dbusapi"
)

// The status reports (OSC 7501) that agents send alternately.
var reports = []struct{ report, activity string }{
	// First, because an agent that has just printed counts as working.
	{"\x1b]7501;state=blocked:kind=permission:msg=YXBwcm92ZSBCYXNoOiB0b3VjaCB5\a", "waiting"},
	{"\x1b]7501;state=working\a", "working"},
}

// status measures the time from an agent's status report in its terminal to the signal with the new
// activity. The floor is a program that emits one signal itself.
func status(ctx context.Context, b *bench) (rows []row, err error) {
	s, err := build(filepath.Join(b.work(), "status"))
	if err != nil {
		return nil, err
	}
	defer s.close()
	floor, err := build(filepath.Join(b.work(), "status-floor"))
	if err != nil {
		return nil, err
	}
	defer floor.close()
	id := b.newID("status")
	if err := errors.Join(b.create(ctx, id, b.as(roleStatus, s.dir)), s.awaitReady()); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.remove(context.WithoutCancel(ctx), id)) }()
	floorID := b.newID("status")
	if err := errors.Join(b.create(ctx, floorID, b.as(roleEmit, floor.dir)), floor.awaitReady()); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.remove(context.WithoutCancel(ctx), floorID)) }()

	r := row{name: "OSC 7501 to Activity on the bus", unit: "ms", bar: neverAbove(100, "ms")}
	for i := range b.times(100) {
		if err := reportOnStage(ctx, s, b.listener.expect(does(id, reports[i%2].activity)), &r.values); err != nil {
			return nil, err
		}
		if err := reportOnStage(ctx, floor, b.listener.expect(childExited), &r.floor); err != nil {
			return nil, err
		}
	}
	r.note("p99 %s ms; the floor's program emits one signal itself", number(r.values.p99()))
	return []row{r}, nil
}

// reportOnStage lets the program on the stage report a status and appends the time until the signal
// to the sample.
func reportOnStage(ctx context.Context, s *stage, published <-chan time.Duration, to *sample) error {
	// With two pauses per round, an agent sends fewer than ten reports a second, which it may sustain.
	const apart = 60 * time.Millisecond
	if err := errors.Join(pause(ctx, apart), s.giveCue()); err != nil {
		return err
	}
	select {
	case at := <-published:
		*to = append(*to, milliseconds(at-s.recorded(0)))
		return nil
	case <-time.After(timeout):
		return errors.New("a status was not published")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// does matches the PropertiesChanged signal with the session's new activity.
func does(id, activity string) func(*dbus.Signal) bool {
	path := dbusapi.SessionPath(id)
	return func(signal *dbus.Signal) bool {
		if signal.Path != path || signal.Name != changedSignal || len(signal.Body) < 2 {
			return false
		}
		changed, _ := signal.Body[1].(map[string]dbus.Variant)
		return changed["Activity"].Value() == activity
	}
}

// reportStatus is the agent.
func reportStatus(dir string) error {
	a, err := enter(dir)
	if err != nil {
		return err
	}
	if err := a.signalReady(); err != nil {
		return err
	}
	for i := 0; ; i++ {
		if err := a.awaitCue(); err != nil {
			return err
		}
		a.recordTime(0)
		if _, err := os.Stdout.WriteString(reports[i%2].report); err != nil {
			return err
		}
	}
}

// emitSignals is the floor.
func emitSignals(dir string) error {
	conn, err := connect(context.Background())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	a, err := enter(dir)
	if err != nil {
		return err
	}
	if err := a.signalReady(); err != nil {
		return err
	}
	for {
		if err := a.awaitCue(); err != nil {
			return err
		}
		a.recordTime(0)
		if err := conn.Emit(floorPath, floorSignal, int32(0)); err != nil {
			return fmt.Errorf("cannot emit a signal: %w", err)
		}
	}
}
