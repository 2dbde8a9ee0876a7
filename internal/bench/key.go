package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// key measures the time from a key press in an attached terminal to its echo, in a session with its
// shim and in tmux alone.
func key(ctx context.Context, b *bench) (rows []row, err error) {
	id, s, err := b.createOnStage(ctx, roleEcho)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.removeFromStage(ctx, id, s)) }()
	server := plainTmux("key")
	if err := errors.Join(server.start(ctx, b.as(roleEcho, s.dir)), s.awaitReady()); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.end(context.WithoutCancel(ctx))) }()

	ours, err := b.attach(ctx, id)
	if err != nil {
		return nil, err
	}
	defer ours.close()
	plain, err := openTerminal(exec.Command("tmux", server.command("attach-session")...))
	if err != nil {
		return nil, err
	}
	defer plain.close()
	r := row{name: "key press to echo, attached", unit: "ms", bar: laterAtMost(0.3, "ms")}
	if err := r.pressKeys(ctx, b.times(400), ours, plain); err != nil {
		return nil, err
	}
	return []row{r}, nil
}

// pressKeys presses keys in both terminals alternately.
func (r *row) pressKeys(ctx context.Context, n int, ours, plain *terminal) error {
	// These letters end no escape sequence that tmux writes.
	const letters = "QVWY"
	for i := range n {
		for _, t := range []struct {
			*terminal
			to *sample
		}{{ours, &r.values}, {plain, &r.floor}} {
			took, err := t.press(letters[i%len(letters)])
			if err == nil {
				err = pause(ctx, 2*time.Millisecond)
			}
			if err != nil {
				return err
			}
			*t.to = append(*t.to, milliseconds(took))
		}
	}
	r.note("with the shim the echo comes %s ms later", number(r.values.median()-r.floor.median()))
	return nil
}

// terminal is a pseudoterminal in which a tmux client shows a session. The bench has the master
// side.
type terminal struct {
	master *os.File
	client *exec.Cmd
}

// attach opens a terminal in which a tmux client shows the session.
func (b *bench) attach(ctx context.Context, id string) (*terminal, error) {
	argv, environment, err := b.client.AttachCommand(ctx, id)
	if err != nil {
		return nil, err
	}
	client := exec.Command(argv[0], argv[1:]...)
	client.Env = environment
	return openTerminal(client)
}

// openTerminal is startInTerminal for a command that echoes keys, and waits until it does.
func openTerminal(client *exec.Cmd) (*terminal, error) {
	t, err := startInTerminal(client)
	if err != nil {
		return nil, err
	}
	if _, err := t.press('Q'); err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

// startInTerminal runs the command in a new terminal, with additional variables in its environment.
func startInTerminal(client *exec.Cmd) (*terminal, error) {
	master, slave, err := openPty()
	if err != nil {
		return nil, fmt.Errorf("cannot open a terminal: %w", err)
	}
	client.Env = slices.Concat(os.Environ(), client.Env, []string{"TERM=xterm-256color"})
	client.Stdin, client.Stdout, client.Stderr = slave, slave, slave
	client.SysProcAttr = &unix.SysProcAttr{Setsid: true, Setctty: true}
	err = client.Start()
	_ = slave.Close()
	if err != nil {
		_ = master.Close()
		return nil, fmt.Errorf("cannot attach: %w", err)
	}
	return &terminal{master, client}, nil
}

func openPty() (master, slave *os.File, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	master = os.NewFile(uintptr(fd), "/dev/ptmx")
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: lines, Col: columns})
	}
	if err == nil {
		slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		_ = master.Close()
		return nil, nil, err
	}
	return master, slave, nil
}

// press presses a key and returns the time until its letter appears in the output.
func (t *terminal) press(letter byte) (time.Duration, error) {
	if err := t.master.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		return 0, err
	}
	before := time.Now()
	if _, err := t.master.Write([]byte{letter}); err != nil {
		return 0, fmt.Errorf("cannot press a key: %w", err)
	}
	for b := make([]byte, 16<<10); ; {
		n, err := t.master.Read(b)
		if err != nil {
			return 0, fmt.Errorf("waited for the echo of a key: %w", err)
		}
		if bytes.IndexByte(b[:n], letter) >= 0 {
			return time.Since(before), nil
		}
	}
}

// close closes the master side, whose SIGHUP ends the client.
func (t *terminal) close() {
	_ = t.master.Close()
	_ = t.client.Wait()
}

// echoKeys is the agent: a program that reads keys in raw mode and draws itself, as agents do.
func echoKeys(args []string) error {
	a, err := enter(args[0])
	if err != nil {
		return err
	}
	if err := readSingleKeys(); err != nil {
		return err
	}
	if err := a.signalReady(); err != nil {
		return err
	}
	for b := make([]byte, 64); ; {
		n, err := os.Stdin.Read(b)
		if err != nil {
			return err
		}
		for _, k := range b[:n] {
			if _, err := os.Stdout.Write([]byte{'\r', k}); err != nil {
				return err
			}
		}
	}
}

// readSingleKeys switches the terminal to a mode in which each key can be read at once, and is not
// echoed.
func readSingleKeys() error {
	mode, err := unix.IoctlGetTermios(0, unix.TCGETS)
	if err != nil {
		return err
	}
	mode.Lflag &^= unix.ICANON | unix.ECHO | unix.ISIG
	return unix.IoctlSetTermios(0, unix.TCSETS, mode)
}
