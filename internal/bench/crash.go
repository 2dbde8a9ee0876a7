package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// printers is the number of printing sessions during the crashes, including the one that crashes.
const printers = 4

// crash measures repeated crashes of a session beside three sessions that print all the time: the
// time until the crash is published, the time until the session runs again, and the echo time of a
// key in another session. The bars are requirements (docs/REQUIREMENTS.md).
func crash(ctx context.Context, b *bench) (rows []row, err error) {
	stages, ids := make([]*stage, printers), make([]string, printers)
	for i := range printers {
		if ids[i], stages[i], err = b.createOnStage(ctx, roleLines); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, b.removeFromStage(ctx, ids[i], stages[i])) }()
	}
	terminal, err := b.attach(ctx, ids[0])
	if err != nil {
		return nil, err
	}
	defer terminal.close()

	beside := fmt.Sprintf("beside %d that print", printers-1)
	published := row{name: "crash to State, " + beside, unit: "ms", bar: neverAbove(100, "ms")}
	restart := row{name: "restart after a crash, " + beside, unit: "ms", bar: neverAbove(2000, "ms")}
	key := row{name: "key press to echo, beside crashes", unit: "ms", bar: p99AtMost(100, "ms")}
	crashed, pressed := make(chan struct{}), make(chan error, 1)
	go func() { pressed <- key.pressUntil(ctx, terminal, crashed) }()
	err = b.crashAgain(ctx, b.times(30), ids[1], stages[1], &published, &restart)
	close(crashed)
	if err = errors.Join(err, <-pressed); err != nil {
		return nil, err
	}
	key.note("the slowest echo took %s ms", number(key.values.max()))
	return []row{published, restart, key}, nil
}

// crashAgain makes the agent of a session crash and starts the session again, n times.
func (b *bench) crashAgain(ctx context.Context, n int, id string, s *stage, published, restart *row) error {
	for range n {
		failed := b.listener.expect(changed(id, "State", "failed"))
		if err := s.timeToSignal(ctx, failed, &published.values); err != nil {
			return err
		}
		before := time.Now()
		if err := b.client.StartSession(ctx, id); err != nil {
			return err
		}
		restart.values = append(restart.values, milliseconds(time.Since(before)))
		if err := errors.Join(s.awaitReady(), pause(ctx, 100*time.Millisecond)); err != nil {
			return err
		}
	}
	return nil
}

// pressUntil presses one key after the other until done is closed. During the pause the letter
// leaves the screen, before the same letter is pressed again.
func (r *row) pressUntil(ctx context.Context, t *terminal, done <-chan struct{}) error {
	const letters = "QVWY"
	for i := 0; ; i++ {
		took, err := t.press(letters[i%len(letters)])
		if err == nil {
			r.values = append(r.values, milliseconds(took))
			err = t.discard(ctx, 20*time.Millisecond)
		}
		select {
		case <-done:
			return err
		default:
			if err != nil {
				return err
			}
		}
	}
}

// discard reads and ignores the terminal's output for the duration d.
func (t *terminal) discard(ctx context.Context, d time.Duration) error {
	if err := t.master.SetReadDeadline(time.Now().Add(d)); err != nil {
		return err
	}
	for b := make([]byte, 16<<10); ; {
		if _, err := t.master.Read(b); errors.Is(err, os.ErrDeadlineExceeded) {
			return ctx.Err()
		} else if err != nil {
			return err
		}
	}
}

// The output of the agents of these rows: about 10,000 lines a second.
const (
	linesAtOnce = 100
	linesEvery  = 10 * time.Millisecond
)

// printLines is the agent: it prints numbered lines with the last pressed key, and kills itself on
// cue. A key printed only once could scroll away before tmux draws it.
func printLines(args []string) error {
	a, err := enter(args[0])
	if err != nil {
		return err
	}
	if err := readSingleKeys(); err != nil {
		return err
	}
	keys := make(chan byte, 64)
	go func() {
		for b := make([]byte, 1); ; {
			if _, err := os.Stdin.Read(b); err != nil {
				return
			}
			keys <- b[0]
		}
	}()
	go func() {
		if a.awaitCue() == nil {
			a.recordTime(0)
			_ = unix.Kill(os.Getpid(), unix.SIGKILL)
		}
	}()
	if err := a.signalReady(); err != nil {
		return err
	}
	next := time.NewTicker(linesEvery)
	for number, key := 0, byte('.'); ; {
		var text []byte
		select {
		case key = <-keys:
			text = append(text, key)
		case <-next.C:
			for range linesAtOnce {
				text = fmt.Appendf(text, "%08d %c\n", number, key)
				number++
			}
		}
		if _, err := os.Stdout.Write(text); err != nil {
			return err
		}
	}
}
