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

// TestShutdownInhibitor_HoldsNoLockDuringSleep queues three events before any is handled: the first
// agent starts, the login manager announces for the first time that the machine does not shut down,
// and that it is about to sleep. In whichever order they are handled, no lock may keep the machine
// awake.
func TestShutdownInhibitor_HoldsNoLockDuringSleep(t *testing.T) {
	m := newLoginManager(t)
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", os.Getenv("DBUS_SESSION_BUS_ADDRESS"))
	for range 20 {
		i := newShutdownInhibitor(slog.New(slog.DiscardHandler))
		i.flush = func(context.Context) error { return nil }
		i.present = func(bool) {}
		i.manager = i.connect(t.Context())
		require.NotNil(t, i.manager)
		m.announceSleep(t, true)
		testbed.Poll(t, "the announcement of the sleep", func() bool { return len(i.manager.PreparingForSleep()) == 1 })
		i.setAnyRunning(true)
		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan struct{})
		go func() {
			defer close(served)
			i.loop(ctx)
		}()
		testbed.Poll(t, "everything is handled", func() bool {
			return len(i.running)+len(i.manager.PreparingForShutdown())+len(i.manager.PreparingForSleep()) == 0
		})
		cancel()
		<-served
		assert.Nil(t, i.lock)
		i.releaseLock()
		require.NoError(t, i.manager.Close())
		for len(m.requests) > 0 {
			<-m.requests
		}
	}
}
