package effects

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/shimwire"
	"github.com/corrald/corral/supervisor"
	"github.com/corrald/corral/supervisor/session"
)

// typeText sends a text to the agent's terminal, as a whole, over a connection of its own. The shim
// writes texts in the order in which it receives them. The context has a deadline.
func (x *Executor) typeText(ctx context.Context, t supervisor.Target, e session.TypeText) error {
	text := e.Text
	fd, _, err := x.DialShim(t)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	deadline, _ := ctx.Deadline()
	const seq = 1
	for first := true; first || text != ""; first = false {
		n := min(len(text), shimwire.MaxData)
		m := shimwire.Message{Kind: shimwire.Input, Seq: seq, Data: []byte(text[:n])}
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
	return waitInputDone(fd, seq, deadline)
}

// send sends a message to the shim that is connected to fd.
func send(fd int, m shimwire.Message, deadline time.Time) error {
	b := m.Append(nil)
	return untilDeadline(deadline, fd, unix.SO_SNDTIMEO, func() error { return unix.Send(fd, b, unix.MSG_NOSIGNAL) })
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

// waitInputDone waits until the shim reports that the agent's terminal has accepted the text or the
// keys with number seq. It ignores the shim's other messages.
func waitInputDone(fd int, seq uint32, deadline time.Time) error {
	buf := make([]byte, shimwire.MaxMessage)
	for {
		n := 0
		err := untilDeadline(deadline, fd, unix.SO_RCVTIMEO, func() (err error) {
			n, _, err = unix.Recvfrom(fd, buf, 0)
			return err
		})
		switch {
		case errors.Is(err, unix.EAGAIN):
			return errors.New("its agent does not read its input")
		case err != nil:
			return err
		case n == 0:
			return errors.New("its agent has ended")
		}
		m, err := shimwire.ParseMessage(buf[:n])
		if err == nil && m.Kind == shimwire.InputDone && m.Seq == seq {
			switch {
			case m.Error != "" && m.Flags&shimwire.FlagIfStillAsking != 0:
				return &supervisor.NotAskedError{Why: m.Error}
			case m.Error != "":
				return errors.New(m.Error)
			}
			return nil
		}
	}
}
