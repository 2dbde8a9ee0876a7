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

// pressKeys sends keys to the agent's terminal. A shim of an older version does not accept keys:
// then tmux presses them in the session's pane, unless the keys depend on a request of the agent,
// which tmux cannot check. The context has a deadline.
func (x *Executor) pressKeys(ctx context.Context, t supervisor.Target, e session.PressKeys) error {
	keys, asked := e.Keys, e.Asked
	fd, _, err := x.DialShim(t)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	deadline, _ := ctx.Deadline()
	switch hello, err := receiveHello(fd, deadline); {
	case err != nil:
		return err
	case !hello.TakesKeys && asked != nil:
		return supervisor.ErrOldShim
	case !hello.TakesKeys:
		s, err := x.session(t)
		if err != nil {
			return err
		}
		return x.Tmux.SendKeys(ctx, s, keys)
	}
	const seq = 1
	m := shimwire.Message{Kind: shimwire.Keys, Seq: seq, Data: []byte(strings.Join(keys, "\x00"))}
	if asked != nil {
		m.Flags, m.Source = shimwire.FlagIfStillAsking, string(asked.Source)
		m.SinceMonotonic, m.KnownSeq = asked.Monotonic, uint32(asked.Known)
	}
	if err := send(fd, m, deadline); err != nil {
		return fmt.Errorf("its shim rejected the keys: %w", err)
	}
	return waitInputDone(fd, seq, deadline)
}

// receiveHello receives the Hello of a shim, which is the first message that a shim sends.
func receiveHello(fd int, deadline time.Time) (shimwire.Message, error) {
	buf := make([]byte, shimwire.MaxMessage)
	n := 0
	err := untilDeadline(deadline, fd, unix.SO_RCVTIMEO, func() (err error) {
		n, _, err = unix.Recvfrom(fd, buf, 0)
		return err
	})
	switch {
	case errors.Is(err, unix.EAGAIN):
		return shimwire.Message{}, errors.New("its shim does not answer")
	case err != nil:
		return shimwire.Message{}, err
	case n == 0:
		return shimwire.Message{}, errors.New("its agent has ended")
	}
	return shimwire.ParseMessage(buf[:n])
}
