package ground

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

// Keys has the agent's terminal take keys. A shim of an older version takes none: then tmux presses them in the session's pane, unless it has to be
// checked that the agent asks. The context has a deadline.
func (g *Ground) Keys(ctx context.Context, t supervisor.Target, keys []string, asked *session.PermissionRequest) error {
	fd, _, err := g.DialShim(t)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	deadline, _ := ctx.Deadline()
	switch hello, err := greeting(fd, deadline); {
	case err != nil:
		return err
	case !hello.TakesKeys && asked != nil:
		return supervisor.ErrOldShim
	case !hello.TakesKeys:
		s, err := g.session(t)
		if err != nil {
			return err
		}
		return g.Tmux.SendKeys(ctx, s, keys)
	}
	const seq = 1
	m := shimwire.Message{Kind: shimwire.Keys, Seq: seq, Data: []byte(strings.Join(keys, "\x00"))}
	if asked != nil {
		m.Flags, m.Source, m.SinceMonotonic, m.KnownSeq = shimwire.FlagIfStillAsking, string(asked.Source), asked.Monotonic, uint32(asked.Known)
	}
	b := m.Append(nil)
	if err := within(deadline, fd, unix.SO_SNDTIMEO, func() error { return unix.Send(fd, b, unix.MSG_NOSIGNAL) }); err != nil {
		return fmt.Errorf("its shim rejected the keys: %w", err)
	}
	return taken(fd, seq, deadline)
}

// greeting receives the Hello of a shim, which is the first that it sends.
func greeting(fd int, deadline time.Time) (shimwire.Message, error) {
	buf := make([]byte, shimwire.MaxMessage)
	n := 0
	err := within(deadline, fd, unix.SO_RCVTIMEO, func() (err error) {
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
