package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// exitCode is the exit code of the agents in the exit rows.
const exitCode = 3

func exitAmongOne(ctx context.Context, b *bench) ([]row, error) {
	r, err := exits(ctx, b)
	r.name = "agent's exit to State, 1 session"
	return []row{r}, err
}

func exitAmongMany(ctx context.Context, b *bench) ([]row, error) {
	r, err := exits(ctx, b)
	r.name = fmt.Sprintf("agent's exit to State, %d beside it", b.sessions)
	return []row{r}, err
}

// exits measures the time from an agent's exit to the signal with the session's new State. The
// floor is a parent that waits for the same program with wait4 and then emits one signal.
func exits(ctx context.Context, b *bench) (row, error) {
	r := row{unit: "ms", bar: ratioAtMost(3).and(neverAbove(50, "ms"))}
	s, err := build(filepath.Join(b.work(), "exits"))
	if err != nil {
		return r, err
	}
	defer s.close()
	parent, err := startParent(b, s)
	if err != nil {
		return r, err
	}
	defer parent.close()
	for range b.times(200) {
		if err := exitOfSession(ctx, b, s, &r.values); err != nil {
			return r, err
		}
		if err := parent.exitOfChild(ctx, b, s, &r.floor); err != nil {
			return r, err
		}
	}
	r.note("the slowest exit took %s ms to be published, the floor's %s ms", number(r.values.max()), number(r.floor.max()))
	return r, nil
}

func exitOfSession(ctx context.Context, b *bench, s *stage, to *sample) error {
	id := b.newID("exit")
	if err := b.create(ctx, id, b.as(roleExit, s.dir)); err != nil {
		return err
	}
	if err := exitOnStage(ctx, s, b.listener.expect(becomes(id, "failed")), to); err != nil {
		return err
	}
	return b.remove(ctx, id)
}

// exitOnStage lets the program on the stage exit and appends the time until the signal to the
// sample.
func exitOnStage(ctx context.Context, s *stage, published <-chan time.Duration, to *sample) error {
	if err := s.awaitReady(); err != nil {
		return err
	}
	if err := pause(ctx, 10*time.Millisecond); err != nil {
		return err
	}
	if err := s.giveCue(); err != nil {
		return err
	}
	select {
	case at := <-published:
		*to = append(*to, milliseconds(at-s.recorded(0)))
		return nil
	case <-time.After(timeout):
		return errors.New("an exit was not published")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// exitOnCue is the agent.
func exitOnCue(dir string) error {
	a, err := enter(dir)
	if err != nil {
		return err
	}
	if err := errors.Join(a.signalReady(), a.awaitCue()); err != nil {
		return err
	}
	a.recordTime(0)
	unix.Exit(exitCode)
	return nil
}

// parent is a running parentOfExits.
type parent struct {
	cmd   *exec.Cmd
	wants io.WriteCloser // one byte starts one child
}

func startParent(b *bench, s *stage) (*parent, error) {
	command := b.as(roleParent, s.dir)
	p := &parent{cmd: exec.Command(command[0], command[1:]...)}
	p.cmd.Stderr = os.Stderr
	var err error
	if p.wants, err = p.cmd.StdinPipe(); err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("cannot start the floor: %w", err)
	}
	return p, nil
}

func (p *parent) close() {
	_ = p.wants.Close()
	_ = p.cmd.Wait()
}

func (p *parent) exitOfChild(ctx context.Context, b *bench, s *stage, to *sample) error {
	published := b.listener.expect(childExited)
	if _, err := p.wants.Write([]byte{1}); err != nil {
		return fmt.Errorf("cannot start a child of the floor: %w", err)
	}
	return exitOnStage(ctx, s, published, to)
}

// parentOfExits is the floor: the simplest program that publishes the exits of children on the bus.
func parentOfExits(dir string) error {
	conn, err := connect(context.Background())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for want := make([]byte, 1); ; {
		if _, err := os.Stdin.Read(want); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		pid, err := syscall.ForkExec(self, []string{self, roleWord, roleExit, dir}, &syscall.ProcAttr{
			Env: os.Environ(), Files: []uintptr{0, 1, 2},
		})
		if err != nil {
			return err
		}
		var status unix.WaitStatus
		for {
			if _, err := unix.Wait4(pid, &status, 0, nil); !errors.Is(err, unix.EINTR) {
				break
			}
		}
		if err := conn.Emit(floorPath, floorSignal, int32(status.ExitStatus())); err != nil {
			return err
		}
	}
}
