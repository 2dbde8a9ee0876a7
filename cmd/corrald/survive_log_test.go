package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
)

// TestOpenLog_LeaksNoDescriptors checks that the daemon has no more descriptors open after a log
// was read many times.
func TestOpenLog_LeaksNoDescriptors(t *testing.T) {
	d := startDaemon(t)
	s := d.run(t, "chatty", "echo hello; exec sleep 1000")
	waitFile(t, d.stateDir("chatty")+"/output.log", "hello")
	descriptors := func() int {
		all, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", d.process.Process.Pid))
		require.NoError(t, err)
		return len(all)
	}
	before := descriptors()
	for range 50 {
		var fd dbus.UnixFD
		require.NoError(t, s.call(dbusapi.SessionPath(s.id), dbusapi.SessionInterface+".OpenLog", nil, &fd))
		log := os.NewFile(uintptr(fd), "log")
		text, err := io.ReadAll(log)
		require.NoError(t, err)
		require.Contains(t, string(text), "hello")
		require.NoError(t, log.Close())
	}
	assert.LessOrEqual(t, descriptors(), before+2, "after reading the log 50 times")
}
