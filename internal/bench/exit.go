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
	return exits(ctx, b, "agent's exit to State, 1 session")
}

func exitAmongMany(ctx context.Context, b *bench) ([]row, error) {
	return exits(ctx, b, fmt.Sprintf("agent's exit to State, %d beside it", b.sessions))
}

// exits measures the time from an agent's exit to the signal with the session's new State. The
// floor is a parent that waits for the same program with wait4 and then emits one signal. The floor
// of the second row is what systemd publishes of a service that runs the program.
func exits(ctx context.Context, b *bench, name string) ([]row, error) {
	r := row{name: name, unit: "ms", bar: ratioAtMost(3).and(neverAbove(50, "ms"))}
	s, err := build(filepath.Join(b.work(), "exits"))
	if err != nil {
		return nil, err
	}
	defer s.close()
	parent, err := startParent(b, s)
	if err != nil {
		return nil, err
	}
	defer parent.close()
	service := row{name: name + ", beside a service's", unit: "ms", bar: ratioAtMost(1.5)}
	if err := b.listener.watchService(ctx); err != nil {
		return nil, err
	}
	for range b.times(200) {
		if err := exitOfSession(ctx, b, s, &r.values); err != nil {
			return nil, err
		}
		if err := parent.exitOfChild(ctx, b, s, &r.floor); err != nil {
			return nil, err
		}
		if err := exitOfService(ctx, b, s, &service.floor); err != nil {
			return nil, err
		}
	}
	r.note("the slowest exit took %s ms to be published, the floor's %s ms", number(r.values.max()), number(r.floor.max()))
	service.values = r.values
	return []row{r, service}, nil
}

// exitOfService is the floor with systemd.
func exitOfService(ctx context.Context, b *bench, s *stage, to *sample) error {
	args := append([]string{"--user", "--quiet", "--collect", "--unit=" + plainService}, b.as(roleExit, s.dir)...)
	if err := run(ctx, "systemd-run", args...); err != nil {
		return err
	}
	return exitOnStage(ctx, s, b.listener.expect(serviceFailed), to)
}

func exitOfSession(ctx context.Context, b *bench, s *stage, to *sample) error {
	id := b.newID("exit")
	if err := b.create(ctx, id, b.as(roleExit, s.dir)); err != nil {
		return err
	}
	if err := exitOnStage(ctx, s, b.listener.expect(changed(id, "State", "failed")), to); err != nil {
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
	return s.timeToSignal(ctx, published, to)
}

// exitOnCue is the agent.
func exitOnCue(args []string) error {
	return actOnCues(args[0], func(int) error {
		unix.Exit(exitCode)
		return nil
	})
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
func parentOfExits(args []string) error {
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
		pid, err := syscall.ForkExec(self, []string{self, roleWord, roleExit, args[0]}, &syscall.ProcAttr{
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
