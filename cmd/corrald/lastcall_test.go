package main

import (
	"context"
	"log/slog"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/testbed"
)

// TestShutdownInhibitor_HoldsNoLockDuringSleep: an agent begins to live, the login manager says for
// the first time that the machine does not go down, and that it is about to sleep, all before
// anybody listens. In whichever order that is heard, no lock keeps the machine awake.
func TestShutdownInhibitor_HoldsNoLockDuringSleep(t *testing.T) {
	m := newLoginManager(t)
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", os.Getenv("DBUS_SESSION_BUS_ADDRESS"))
	for range 20 {
		l := newLastCall(slog.New(slog.DiscardHandler))
		l.settle = func(context.Context) error { return nil }
		l.manager = l.connect(t.Context())
		require.NotNil(t, l.manager)
		m.sleeps(t, true)
		testbed.Poll(t, "word of the sleep", func() bool { return len(l.manager.PreparingForSleep()) == 1 })
		l.live(true)
		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan struct{})
		go func() {
			defer close(served)
			l.serve(ctx)
		}()
		testbed.Poll(t, "all of it is heard", func() bool {
			return len(l.busy)+len(l.manager.PreparingForShutdown())+len(l.manager.PreparingForSleep()) == 0
		})
		cancel()
		<-served
		assert.Nil(t, l.lock)
		l.letGo()
		require.NoError(t, l.manager.Close())
		for len(m.asked) > 0 {
			<-m.asked
		}
	}
}
