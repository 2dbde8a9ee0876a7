package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/clock"
)

// stage is a directory through which the bench controls a program that another process has started
// elsewhere: it signals when to act, and receives the times of the actions. Only one program at a
// time uses it.
type stage struct {
	dir   string
	cue   *os.File // a FIFO: a byte is the cue
	ready *os.File // a FIFO: a byte means that the program waits for the cue or is done
	times []byte   // shared memory with two times of CLOCK_MONOTONIC
}

// The files of a stage.
const (
	cueName   = "cue"
	readyName = "ready"
	timesName = "times"
	timesSize = 4096
)

// build creates a stage. The caller closes it.
func build(dir string) (*stage, error) {
	s, err := &stage{dir: dir}, os.Mkdir(dir, 0o700)
	for _, fifo := range []struct {
		name string
		file **os.File
	}{{cueName, &s.cue}, {readyName, &s.ready}} {
		path := filepath.Join(dir, fifo.name)
		if err == nil {
			err = unix.Mkfifo(path, 0o600)
		}
		if err == nil {
			*fifo.file, err = os.OpenFile(path, os.O_RDWR, 0)
		}
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, timesName), make([]byte, timesSize), 0o600)
	}
	if err == nil {
		s.times, err = mapTimes(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot build a stage: %w", err)
	}
	return s, nil
}

func mapTimes(dir string) ([]byte, error) {
	file, err := os.OpenFile(filepath.Join(dir, timesName), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	return unix.Mmap(int(file.Fd()), 0, timesSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

func (s *stage) close() {
	_, _ = s.cue.Close(), s.ready.Close()
	_ = unix.Munmap(s.times)
	_ = os.RemoveAll(s.dir)
}

// awaitReady waits until the program reports that it is ready.
func (s *stage) awaitReady() error {
	if err := s.ready.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	if _, err := s.ready.Read(make([]byte, 1)); err != nil {
		return fmt.Errorf("waited for a program to be ready: %w", err)
	}
	return nil
}

func (s *stage) giveCue() error {
	_, err := s.cue.Write([]byte{1})
	return err
}

// recorded returns time number i that the program has recorded.
func (s *stage) recorded(i int) time.Duration {
	return time.Duration(binary.NativeEndian.Uint64(s.times[8*i:]))
}

// timeToSignal gives the cue and appends the time from the program's action to the arrival of the
// signal to the sample.
func (s *stage) timeToSignal(ctx context.Context, arrival <-chan time.Duration, to *sample) error {
	if err := s.giveCue(); err != nil {
		return err
	}
	select {
	case at := <-arrival:
		*to = append(*to, milliseconds(at-s.recorded(0)))
		return nil
	case <-time.After(timeout):
		return fmt.Errorf("waited %v for a signal", timeout)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// createOnStage starts a session whose agent plays a role on a stage of its own, and returns once
// the agent is ready.
func (b *bench) createOnStage(ctx context.Context, role string) (id string, s *stage, err error) {
	id = b.newID(role)
	if s, err = build(filepath.Join(b.work(), "stage-"+id)); err != nil {
		return "", nil, err
	}
	if err = b.create(ctx, id, b.as(role, s.dir)); err == nil {
		err = s.awaitReady()
	}
	if err != nil {
		s.close()
	}
	return id, s, err
}

func (b *bench) removeFromStage(ctx context.Context, id string, s *stage) error {
	defer s.close()
	return b.remove(context.WithoutCancel(ctx), id)
}

// actor is the program's side of a stage.
type actor struct {
	cue, ready int
	times      []byte
}

func enter(dir string) (*actor, error) {
	a := &actor{}
	var err1, err2, err3 error
	a.times, err1 = mapTimes(dir)
	a.ready, err2 = unix.Open(filepath.Join(dir, readyName), unix.O_RDWR|unix.O_CLOEXEC, 0)
	a.cue, err3 = unix.Open(filepath.Join(dir, cueName), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, fmt.Errorf("cannot enter the stage: %w", err)
	}
	return a, nil
}

func (a *actor) signalReady() error {
	_, err := unix.Write(a.ready, []byte{1})
	return err
}

func (a *actor) awaitCue() error {
	for {
		if _, err := unix.Read(a.cue, make([]byte, 1)); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// recordTime records the current time as number i.
func (a *actor) recordTime(i int) {
	binary.NativeEndian.PutUint64(a.times[8*i:], uint64(clock.Monotonic()))
}

// actOnCues plays on a stage: at each cue it records the time as number 0 and calls act with the
// number of the cue.
func actOnCues(dir string, act func(i int) error) error {
	a, err := enter(dir)
	if err == nil {
		err = a.signalReady()
	}
	for i := 0; err == nil; i++ {
		if err = a.awaitCue(); err == nil {
			a.recordTime(0)
			err = act(i)
		}
	}
	return err
}
