package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"time"

	"github.com/corrald/corral/dbusapi"
)

// top measures the time from the exec of `corralctl top` until its first frame has a session, and
// from a key that selects another session to the end of the frame that shows this. The floor of the
// first is busctl with the simplest call that lists sessions.
func top(ctx context.Context, b *bench) ([]row, error) {
	first := row{name: fmt.Sprintf("corralctl top, %d sessions: first frame", b.sessions), unit: "ms"}
	next := row{name: fmt.Sprintf("corralctl top, %d sessions: frame after a key", b.sessions), unit: "ms"}
	for range b.times(10) {
		before := time.Now()
		client := exec.Command(b.program("corralctl"), "top")
		t, err := startInTerminal(client)
		if err != nil {
			return nil, err
		}
		err = t.awaitOutput("many-")
		first.values = append(first.values, milliseconds(time.Since(before)))
		for range 5 {
			if err == nil {
				err = t.discard(ctx, 200*time.Millisecond)
			}
			before := time.Now()
			if err == nil {
				_, err = t.master.Write([]byte("j"))
			}
			if err == nil {
				err = t.awaitOutput("many-")
			}
			next.values = append(next.values, milliseconds(time.Since(before)))
		}
		t.close()
		if err != nil {
			return nil, err
		}
		if err := timed(&first.floor, func() error {
			return run(ctx, "busctl", "--user", "call", dbusapi.BusName, string(dbusapi.ManagerPath),
				dbusapi.ManagerInterface, "ListSessions")
		}); err != nil {
			return nil, err
		}
	}
	return []row{first, next}, nil
}

// awaitOutput reads the output until the text has appeared in it.
func (t *terminal) awaitOutput(text string) error {
	if err := t.master.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	var output []byte
	for b := make([]byte, 64<<10); !bytes.Contains(output, []byte(text)); {
		n, err := t.master.Read(b)
		if err != nil {
			return fmt.Errorf("waited for %q on a terminal: %w", text, err)
		}
		output = append(output, b[:n]...)
	}
	return nil
}
