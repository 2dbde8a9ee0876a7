package effects

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/shimwire"
	"github.com/corrald/corral/supervisor"
	"github.com/corrald/corral/supervisor/session"
)

// inputSeq is the number of a text or of keys. Each of them is sent over a connection of its own.
const inputSeq = 1

// typeText sends a text to the agent's terminal, as a whole. The shim writes texts in the order in
// which it receives them. The context has a deadline.
func typeText(ctx context.Context, t supervisor.Target, e session.TypeText) error {
	fd, _, err := dialShim(t)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	deadline, _ := ctx.Deadline()
	text := e.Text
	for first := true; first || text != ""; first = false {
		n := min(len(text), shimwire.MaxData)
		m := shimwire.Message{Kind: shimwire.Input, Seq: inputSeq, Data: []byte(text[:n])}
		text = text[n:]
		switch {
		case text != "":
			m.Flags = shimwire.FlagMore
		case e.Enter:
			m.Flags = shimwire.FlagEnter
		}
		if err := send(fd, m, deadline); err != nil {
			return fmt.Errorf("its shim rejected the text: %w", err)
		}
	}
	return waitInputDone(fd, deadline)
}

// pressKeys sends keys to the agent's terminal. A shim of an older version does not accept keys:
// then tmux presses them in the session's pane, unless the keys depend on a request of the agent,
// which tmux cannot check. The context has a deadline.
func (x *Executor) pressKeys(ctx context.Context, t supervisor.Target, e session.PressKeys) error {
	fd, _, err := dialShim(t)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	deadline, _ := ctx.Deadline()
	switch hello, err := receiveHello(fd, deadline); {
	case err != nil:
		return err
	case !hello.TakesKeys && e.Asked != nil:
		return supervisor.ErrOldShim
	case !hello.TakesKeys:
		s, err := tmuxSession(t)
		if err != nil {
			return err
		}
		return x.tmux.SendKeys(ctx, s, e.Keys)
	}
	m := shimwire.Message{Kind: shimwire.Keys, Seq: inputSeq, Data: []byte(strings.Join(e.Keys, "\x00"))}
	if e.Asked != nil {
		m.Flags, m.Source = shimwire.FlagIfStillAsking, string(e.Asked.Source)
		m.SinceMonotonic, m.KnownSeq = e.Asked.Monotonic, uint32(e.Asked.Known)
	}
	if err := send(fd, m, deadline); err != nil {
		return fmt.Errorf("its shim rejected the keys: %w", err)
	}
	return waitInputDone(fd, deadline)
}

// receiveHello receives the Hello of a shim, which is the first message that a shim sends.
func receiveHello(fd int, deadline time.Time) (shimwire.Message, error) {
	b, err := receive(fd, deadline, "its shim does not answer")
	if err != nil {
		return shimwire.Message{}, err
	}
	return shimwire.ParseMessage(b)
}

// waitInputDone waits until the shim reports that the agent's terminal has accepted the text or the
// keys. It ignores the shim's other messages.
func waitInputDone(fd int, deadline time.Time) error {
	for {
		b, err := receive(fd, deadline, "its agent does not read its input")
		if err != nil {
			return err
		}
		m, err := shimwire.ParseMessage(b)
		switch {
		case err != nil || m.Kind != shimwire.InputDone || m.Seq != inputSeq:
			continue
		case m.Error != "" && m.Flags&shimwire.FlagIfStillAsking != 0:
			return &supervisor.NotAskedError{Why: m.Error}
		case m.Error != "":
			return errors.New(m.Error)
		}
		return nil
	}
}

// send sends a message to the shim that is connected to fd.
func send(fd int, m shimwire.Message, deadline time.Time) error {
	b := m.Append(nil)
	return untilDeadline(deadline, fd, unix.SO_SNDTIMEO, func() error { return unix.Send(fd, b, unix.MSG_NOSIGNAL) })
}

// receive receives a message from the shim that is connected to fd. Silence is the text of the
// error if there is none until the deadline.
func receive(fd int, deadline time.Time, silence string) ([]byte, error) {
	buf := make([]byte, shimwire.MaxMessage)
	n := 0
	err := untilDeadline(deadline, fd, unix.SO_RCVTIMEO, func() (err error) {
		n, _, err = unix.Recvfrom(fd, buf, 0)
		return err
	})
	switch {
	case errors.Is(err, unix.EAGAIN):
		return nil, errors.New(silence)
	case err != nil:
		return nil, err
	case n == 0:
		return nil, errors.New("its agent has ended")
	}
	return buf[:n], nil
}

// untilDeadline calls a function that blocks on a socket, and repeats it if a signal interrupts it.
// It sets the timeout of the socket to the remaining time before each call, because the timeout
// applies to one call. If no time remains, it returns unix.EAGAIN.
func untilDeadline(deadline time.Time, fd, timeout int, call func() error) error {
	for {
		left := time.Until(deadline)
		if left <= 0 {
			return unix.EAGAIN
		}
		limit := unix.NsecToTimeval(max(left, time.Millisecond).Nanoseconds()) // 0 would mean no limit
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, timeout, &limit); err != nil {
			return err
		}
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
