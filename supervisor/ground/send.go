package ground

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/shimwire"
)

// Send has the agent's terminal take the text, whole, over a connection of its own. The shim writes texts in the order they come in. The context has a
// deadline.
func (g *Ground) Send(ctx context.Context, socket, text string, enter bool) error {
	fd, err := shimwire.Dial(socket)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	// The deadline is the socket's: neither call below outlives it.
	deadline, _ := ctx.Deadline()
	limit := unix.NsecToTimeval(max(time.Until(deadline), time.Millisecond).Nanoseconds())
	for _, option := range []int{unix.SO_SNDTIMEO, unix.SO_RCVTIMEO} {
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, option, &limit); err != nil {
			return err
		}
	}
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
		if err := unix.Send(fd, m.Append(nil), unix.MSG_NOSIGNAL); err != nil {
			return fmt.Errorf("its shim does not take the text: %w", err)
		}
	}
	return taken(fd, seq)
}

// taken waits until the shim says that the text with this number was taken.
func taken(fd int, seq uint32) error {
	buf := make([]byte, 4096)
	for {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			return errors.New("its agent does not read the text")
		case err != nil:
			return err
		case n == 0:
			return errors.New("its agent has ended")
		}
		m, err := shimwire.ParseMessage(buf[:n])
		if err == nil && m.Kind == shimwire.InputDone && m.Seq == seq {
			if m.Error != "" {
				return errors.New(m.Error)
			}
			return nil
		}
	}
}
