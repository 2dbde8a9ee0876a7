package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/cmd/corralctl/transcript"
	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi/client"
)

// errChanged is that a session is not what it was any more when a person was asked about it.
var errChanged = errors.New("the session has changed")

// quietPeriod is for how long no key has to be pressed after an agent has ended under a person who
// was attached: what they were typing to it is no answer.
const quietPeriod = 500 * time.Millisecond

// keyboard reads the keys of a terminal, and can be woken while it waits for one.
type keyboard struct {
	terminal *os.File
	wake     *os.File // readable once somebody wakes it
}

// read returns what was pressed, nothing if it was woken or the time is over; a negative time is
// none.
func (k keyboard) read(limit time.Duration) (pressed []byte, woken bool, err error) {
	milliseconds := -1
	if limit >= 0 {
		milliseconds = int(limit.Milliseconds())
	}
	files := []unix.PollFd{{Fd: int32(k.terminal.Fd()), Events: unix.POLLIN}, {Fd: int32(k.wake.Fd()), Events: unix.POLLIN}}
	n, err := unix.Poll(files, milliseconds)
	switch {
	case errors.Is(err, unix.EINTR):
		return nil, false, nil
	case err != nil || n == 0:
		return nil, false, err
	case files[1].Revents != 0:
		return nil, true, nil
	}
	buffer := make([]byte, 256)
	n, err = k.terminal.Read(buffer)
	return buffer[:n], false, err
}

// choose asks the question and returns the name of what was chosen. Errors: errChanged; a failure
// with the code of a signal.
func (a *attachment) choose(ctx context.Context, s client.Session, q endMenu) (string, error) {
	wake, waker, err := os.Pipe()
	if err != nil {
		return "", fmt.Errorf("cannot wait for keys: %w", err)
	}
	defer func() { _ = wake.Close() }()
	ctx, cancel := context.WithCancel(ctx)
	woken := a.wakeOnChange(ctx, s, waker)
	defer cancel()
	restore, err := rawTerminal(int(a.c.in.Fd()))
	if err != nil {
		return "", fmt.Errorf("cannot ask on the terminal: %w", err)
	}
	defer func() { restore() }()
	keys := keyboard{a.c.in, wake}
	if a.mayBeTyping {
		if err := keys.discardInput(); err != nil {
			return "", err
		}
	}
	a.mayBeTyping = false
	m := &menu{choices: q, a: a, keys: keys}
	fmt.Fprintf(a.c.out, "%s\n\n", strings.Join(q.lines(a.c.outTTY.width), "\n"))
	for {
		fmt.Fprint(a.c.out, m.prompt())
		if err := a.c.out.Flush(); err != nil {
			return "", err
		}
		pressed, isWoken, err := keys.read(-1)
		switch {
		case isWoken:
			fmt.Fprintln(a.c.out)
			return "", <-woken
		case errors.Is(err, io.EOF) || errors.Is(err, unix.EIO): // the terminal is gone
			return choiceLeave, nil
		case err != nil:
			return "", fmt.Errorf("cannot read from the terminal: %w", err)
		case bytes.IndexByte(pressed, keySuspend) >= 0:
			restore()
			stopSelf(unix.SIGTSTP)
			if restore, err = rawTerminal(int(a.c.in.Fd())); err != nil {
				return "", fmt.Errorf("cannot ask on the terminal: %w", err)
			}
			fmt.Fprint(a.c.out, "\n")
			m.prompted = false
		}
		if name := m.press(readKeys(pressed)); name != "" {
			return name, nil
		}
	}
}

// wakeOnChange closes waker when the session is not as it was any more, or a signal has come, and returns
// which; or at the end of ctx.
func (a *attachment) wakeOnChange(ctx context.Context, s client.Session, waker *os.File) <-chan error {
	changed := make(chan error, 1)
	go func() {
		changed <- a.c.follow(ctx, a.id, func(_ context.Context, _ *reconnectingWatch, now client.Session) (bool, error) {
			return now.State != s.State || now.NRuns != s.NRuns || now.Frozen != s.Frozen, nil
		})
	}()
	woken := make(chan error, 1)
	go func() {
		defer func() { _ = waker.Close() }()
		for {
			select {
			case err := <-changed:
				if err == nil || isRemoved(err) {
					woken <- errChanged
					return
				} // else nothing is to be known of it any more
			case sig := <-a.signals:
				woken <- exit(signalCode(sig))
				return
			case <-ctx.Done():
				return
			}
		}
	}()
	return woken
}

// keySuspend is what Ctrl-z sends.
const keySuspend = 0x1a

// discardInput waits until no key has been pressed for a while, and forgets what was.
func (k keyboard) discardInput() error {
	for {
		pressed, woken, err := k.read(quietPeriod)
		if err != nil || woken || len(pressed) == 0 {
			if errors.Is(err, io.EOF) || errors.Is(err, unix.EIO) {
				return nil
			}
			return err
		}
	}
}

// menu is a question that is being asked.
type menu struct {
	choices    endMenu
	a          *attachment
	keys       keyboard
	confirming *menuItem // what was chosen, and is to be confirmed
	prompted   bool      // the prompt is there already
}

// prompt is what is to be printed before the next key.
func (m *menu) prompt() string {
	if m.prompted {
		return ""
	}
	m.prompted = true
	if m.confirming != nil {
		return fmt.Sprintf("Archive %s? It cannot be started again. [y/N] ", m.a.id)
	}
	return "Choice: "
}

// maxTypedKeys is the number of keys that a person may have pressed before the first of them is read.
// More than that were pasted.
const maxTypedKeys = 4

// press takes keys, and returns the name of what was chosen, "" if nothing was.
func (m *menu) press(pressed []key) string {
	if len(pressed) > maxTypedKeys {
		m.a.c.print("\nPasted text is ignored: press %s.\n", m.choices.keys())
		m.confirming, m.prompted = nil, false
		_ = m.keys.discardInput() // the rest of it is no answer either; the next read meets the same error
		return ""
	}
	for _, k := range pressed {
		if m.confirming != nil {
			name := m.confirming.name
			m.confirming, m.prompted = nil, false
			if k == 'y' || k == 'Y' {
				m.a.c.print("yes\n")
				return name
			}
			m.a.c.print("no\n")
			continue
		}
		c, is := m.choices.itemFor(k)
		switch {
		case is && c.name == choiceArchive:
			m.a.c.print("%s\n", c.name)
			m.confirming, m.prompted = &c, false
		case is:
			m.a.c.print("%s\n", c.name)
			_ = unix.IoctlSetInt(int(m.a.c.in.Fd()), unix.TCFLSH, unix.TCIFLUSH) // what is typed after a choice is not for the agent
			return c.name
		case k > 0:
			m.a.c.print("\n%q is not a choice: press %s.\n", string(rune(k)), m.choices.keys())
			m.prompted = false
		}
	}
	return ""
}

// showScreen prints the last screen of a session's agent, as its log has it: tmux's own picture
// lacks the line that "Pane is dead" has scrolled away.
func (a *attachment) showScreen(ctx context.Context, s client.Session) {
	if s.State == "created" {
		return
	}
	text, err := a.lastScreen(ctx)
	if err != nil && s.SessionAlive {
		text, _ = a.c.client.Capture(ctx, a.id, 0, 0)
	}
	if text = strings.Trim(text, "\n"); text != "" {
		fmt.Fprintf(a.c.out, "%s\n\n", wording.PrintableLines(text))
	}
}

// lastScreen returns the last lines of the log, as many as the agent's terminal had.
func (a *attachment) lastScreen(ctx context.Context) (string, error) {
	manager, err := a.c.client.Manager(ctx)
	if err != nil {
		return "", err
	}
	directory := filepath.Join(manager.StateDirectory, "sessions", a.id)
	files, err := openLogFiles(directory, func() (*os.File, error) { return a.c.client.OpenLog(ctx, a.id) })
	if err != nil {
		return "", err
	}
	defer files.close()
	rows := int(files.sizes.Last().Rows)
	if rows == 0 {
		rows = a.c.outTTY.height
	}
	var text strings.Builder
	p := &playback{transcript: transcript.New(&text)}
	p.sink = p.transcript
	err = p.play(files)
	if err == nil {
		err = p.transcript.Close()
	}
	return tail(strings.TrimRight(text.String(), "\n "), rows), err
}

// showLog shows the whole log, in the pager.
func (a *attachment) showLog(ctx context.Context) error {
	self, err := ownPath()
	if err != nil {
		return fmt.Errorf("cannot find the path of this program: %w", err)
	}
	if err := a.c.out.Flush(); err != nil {
		return err
	}
	command := exec.CommandContext(ctx, self, "logs", "--", a.id)
	command.Stdin, command.Stdout, command.Stderr = a.c.in, os.Stdout, os.Stderr
	err = command.Run() // says itself what is wrong
	for len(a.signals) > 0 {
		if sig := <-a.signals; sig != unix.SIGINT && sig != unix.SIGQUIT { // those are for the pager
			return exit(signalCode(sig))
		}
	}
	if exited := (*exec.ExitError)(nil); errors.As(err, &exited) {
		return nil
	}
	fmt.Fprintln(a.c.out)
	return err
}

// untilSignal returns a context that a signal ends, and what returns that signal, if there was one.
func (a *attachment) untilSignal(ctx context.Context) (context.Context, func() os.Signal) {
	ctx, cancel := context.WithCancel(ctx)
	caught := make(chan os.Signal, 1)
	go func() {
		select {
		case sig := <-a.signals:
			caught <- sig
			cancel()
		case <-ctx.Done():
		}
		close(caught)
	}()
	return ctx, func() os.Signal {
		cancel()
		return <-caught
	}
}
