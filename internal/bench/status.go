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

// The reports of a program's status (OSC 7501) that agents tell by turns.
var reports = []struct{ report, activity string }{
	{"\x1b]7501;state=blocked:kind=permission:msg=YXBwcm92ZSBCYXNoOiB0b3VjaCB5\a", "waiting"}, // first: one that has just printed something works
	{"\x1b]7501;state=working\a", "working"},
}

// status measures from the moment in which an agent tells its terminal that it works or waits to
// the signal that tells it on the bus. The floor is a program that emits one signal itself.
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

	r := row{what: "OSC 7501 to Activity on the bus", unit: "ms", bar: neverAbove(100, "ms")}
	for i := range b.times(100) {
		if err := tellOnStage(ctx, s, b.ear.expect(does(id, reports[i%2].activity)), &r.values); err != nil {
			return nil, err
		}
		if err := tellOnStage(ctx, floor, b.ear.expect(childExited), &r.floor); err != nil {
			return nil, err
		}
	}
	r.note("p99 %s ms; the floor's program emits one signal itself", number(r.values.p99()))
	return []row{r}, nil
}

// tellOnStage lets the program on the stage tell something, and adds what it took until that was
// heard.
func tellOnStage(ctx context.Context, s *stage, told <-chan time.Duration, to *sample) error {
	const apart = 60 * time.Millisecond // an agent may say ten things a second for ever: two of these are between two
	if err := errors.Join(pause(ctx, apart), s.giveCue()); err != nil {
		return err
	}
	select {
	case at := <-told:
		*to = append(*to, milliseconds(at-s.noted(0)))
		return nil
	case <-time.After(patience):
		return errors.New("what a program tells was not told")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// does fits the PropertiesChanged that tells that the session's agent does this now.
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

// tellStatus is the part of the agent.
func tellStatus(dir string) error {
	a, err := enter(dir)
	if err != nil {
		return err
	}
	if err := a.sayReady(); err != nil {
		return err
	}
	for i := 0; ; i++ {
		if err := a.awaitCue(); err != nil {
			return err
		}
		a.note(0)
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
	if err := a.sayReady(); err != nil {
		return err
	}
	for {
		if err := a.awaitCue(); err != nil {
			return err
		}
		a.note(0)
		if err := conn.Emit(floorPath, floorSignal, int32(0)); err != nil {
			return fmt.Errorf("cannot emit a signal: %w", err)
		}
	}
}
