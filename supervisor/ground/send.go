package ground

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/shimwire"
	"github.com/corrald/corral/supervisor"
)

// Send has the agent's terminal take the text, whole, over a connection of its own. The shim writes texts in the order they come in. The context has a
// deadline.
func (g *Ground) Send(ctx context.Context, t supervisor.Target, text string, enter bool) error {
	fd, _, err := g.DialShim(t)
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
		case enter:
			m.Flags = shimwire.FlagEnter
		}
		b := m.Append(nil)
		err := within(deadline, fd, unix.SO_SNDTIMEO, func() error { return unix.Send(fd, b, unix.MSG_NOSIGNAL) })
		if err != nil {
			return fmt.Errorf("its shim rejected the text: %w", err)
		}
	}
	return taken(fd, seq, deadline)
}

// within makes a call that blocks, by the socket's timeout, until the deadline at most: that of the socket is for one call, and a signal begins it anew. What
// has no time left is over with unix.EAGAIN.
func within(deadline time.Time, fd, timeout int, call func() error) error {
	for {
		left := time.Until(deadline)
		if left <= 0 {
			return unix.EAGAIN
		}
		limit := unix.NsecToTimeval(max(left, time.Millisecond).Nanoseconds()) // 0 would be for ever
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, timeout, &limit); err != nil {
			return err
		}
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// taken waits until the shim says that the text with this number was taken. It says other things meanwhile.
func taken(fd int, seq uint32, deadline time.Time) error {
	buf := make([]byte, shimwire.MaxMessage)
	for {
		n := 0
		err := within(deadline, fd, unix.SO_RCVTIMEO, func() (err error) {
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
