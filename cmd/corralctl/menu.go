package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/cmd/corralctl/transcript"
	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi/client"
	"github.com/corrald/corral/dbusapi/word"
)

// errChanged means that the session has changed while the user was asked about it.
var errChanged = errors.New("the session has changed")

// quietPeriod is how long no key must have been pressed before a menu is shown to a user whose
// agent has just ended: what they were typing was for the agent.
const quietPeriod = 500 * time.Millisecond

// keyboard reads the keys of a terminal. A read can be interrupted.
type keyboard struct {
	terminal *os.File
	wake     *os.File // becomes readable to interrupt a read
}

// read returns the pressed keys, or nothing after the limit or when it was interrupted, which woken
// reports. A negative limit is none.
func (k keyboard) read(limit time.Duration) (pressed []byte, woken bool, err error) {
	milliseconds := -1
	if limit >= 0 {
		milliseconds = int(limit.Milliseconds())
	}
	files := []unix.PollFd{{Fd: int32(k.terminal.Fd()), Events: unix.POLLIN},
		{Fd: int32(k.wake.Fd()), Events: unix.POLLIN}}
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

// choose shows the menu and returns the name of the chosen item. Errors: errChanged; a failure with
// the exit code for a signal.
func (a *attachment) choose(ctx context.Context, s client.Session, choices endMenu) (string, error) {
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
	m := &menu{choices: choices, a: a, keys: keys}
	fmt.Fprintf(a.c.out, "%s\n\n", strings.Join(choices.lines(a.c.outTTY.width), "\n"))
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
		case errors.Is(err, io.EOF) || errors.Is(err, unix.EIO): // the terminal was closed
			return itemLeave, nil
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

// wakeOnChange closes waker when the session has changed or a signal has arrived, and sends which
// on the returned channel. At the end of ctx it closes waker without a value.
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
				} // other errors: the session cannot be watched any longer
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

// keySuspend is the character of Ctrl-z.
const keySuspend = 0x1a

// discardInput drops pressed keys until none has been pressed for quietPeriod.
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

// menu is an endMenu on the terminal.
type menu struct {
	choices    endMenu
	a          *attachment
	keys       keyboard
	confirming *menuItem // the chosen item, to be confirmed
	prompted   bool      // the prompt has been printed
}

// prompt returns what is printed before the next key.
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

// maxTypedKeys is how many keys a person may press before the first of them is read. A longer input
// was pasted.
const maxTypedKeys = 4

// press handles keys and returns the name of the chosen item, "" for none.
func (m *menu) press(pressed []key) string {
	if len(pressed) > maxTypedKeys {
		m.a.c.print("\nPasted text is ignored: press %s.\n", m.choices.keys())
		m.confirming, m.prompted = nil, false
		_ = m.keys.discardInput() // drops the rest of the paste; the next read returns the same error
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
		item, is := m.choices.itemFor(k)
		switch {
		case is && item.name == itemArchive:
			m.a.c.print("%s\n", item.name)
			m.confirming, m.prompted = &item, false
		case is:
			m.a.c.print("%s\n", item.name)
			// drops keys typed after a choice: they are not for the agent
			_ = unix.IoctlSetInt(int(m.a.c.in.Fd()), unix.TCFLSH, unix.TCIFLUSH)
			return item.name
		case k > 0:
			m.a.c.print("\n%q is not a choice: press %s.\n", string(rune(k)), m.choices.keys())
			m.prompted = false
		}
	}
	return ""
}

// showScreen prints the last screen of a session's agent from its log. In tmux's own copy, "Pane is
// dead" has scrolled the first line off the screen.
func (a *attachment) showScreen(ctx context.Context, s client.Session) {
	if s.State == word.Created {
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

// lastScreen returns as many of the last lines of the log as the agent's terminal had rows.
func (a *attachment) lastScreen(ctx context.Context) (string, error) {
	manager, err := a.c.client.OfSession(a.id).Manager(ctx)
	if err != nil {
		return "", err
	}
	directory := sessionDirectory(manager, a.id)
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

// showLog shows the whole log in the pager.
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
	err = command.Run() // it prints its own errors
	for len(a.signals) > 0 {
		// these are for the pager
		if sig := <-a.signals; sig != unix.SIGINT && sig != unix.SIGQUIT {
			return exit(signalCode(sig))
		}
	}
	if exited := (*exec.ExitError)(nil); errors.As(err, &exited) {
		return nil
	}
	fmt.Fprintln(a.c.out)
	return err
}

// untilSignal returns a context that is cancelled by a signal, and a function that cancels it and
// returns the signal, if any.
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
