package main

import (
	"context"
	"errors"
	"os"
	"time"
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
	id, s, err := b.createOnStage(ctx, roleStatus)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.removeFromStage(ctx, id, s)) }()
	floorID, floor, err := b.createOnStage(ctx, roleEmit)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.removeFromStage(ctx, floorID, floor)) }()
	r := row{name: "OSC 7501 to Activity on the bus", unit: "ms", bar: neverAbove(100, "ms")}
	for i := range b.times(100) {
		published := b.listener.expect(changed(id, "Activity", reports[i%2].activity))
		if err := reportOnStage(ctx, s, published, &r.values); err != nil {
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
	if err := pause(ctx, apart); err != nil {
		return err
	}
	return s.timeToSignal(ctx, published, to)
}

// reportStatus is the agent.
func reportStatus(args []string) error {
	return actOnCues(args[0], func(i int) error {
		_, err := os.Stdout.WriteString(reports[i%2].report)
		return err
	})
}

// emitSignals is the floor.
func emitSignals(args []string) error {
	conn, err := connect(context.Background())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	return actOnCues(args[0], func(int) error { return conn.Emit(floorPath, floorSignal, int32(0)) })
}
