package effects

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/shimwire"
	"github.com/corrald/corral/supervisor"
	"github.com/corrald/corral/supervisor/session"
)

// TestTypeText_FailsAtItsDeadline checks this although the shim sends other messages in the
// meantime.
func TestTypeText_FailsAtItsDeadline(t *testing.T) {
	target := supervisor.Target{RuntimeDir: t.TempDir(), Shim: process(t, os.Getpid())}
	path := target.ShimSocket()
	listener, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer func() { _ = unix.Close(listener) }()
	require.NoError(t, unix.Bind(listener, &unix.SockaddrUnix{Name: path}))
	require.NoError(t, unix.Listen(listener, 1))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		conn, _, err := unix.Accept(listener)
		if !assert.NoError(t, err) {
			return
		}
		defer func() { _ = unix.Close(conn) }()
		m := shimwire.Message{Kind: shimwire.Working}
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for range tick.C {
			if unix.Send(conn, m.Append(nil), unix.MSG_NOSIGNAL) != nil {
				return
			}
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	err = typeText(ctx, target, session.TypeText{Text: "hello", Enter: true})
	require.EqualError(t, err, "its agent does not read its input")
	<-ended // the shim's side of the connection is closed
}
