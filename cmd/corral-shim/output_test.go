package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/testbed"
)

// TestPane_CanVanishDuringAWrite: its tmux server has died, and the first to see that is a write of
// output that is still to be kept.
func TestPane_CanVanishDuringAWrite(t *testing.T) {
	inner, err := openInner(saneSettings(), &unix.Winsize{Row: 24, Col: 80})
	require.NoError(t, err)
	agent, err := inner.openSlave(0)
	require.NoError(t, err)
	outer, err := openInner(saneSettings(), &unix.Winsize{Row: 24, Col: 80})
	require.NoError(t, err)

	t.Cleanup(func() {
		for _, fd := range []int{agent, inner.master, inner.slave, outer.slave} {
			_ = unix.Close(fd)
		}
	})

	dir := t.TempDir()
	s := &shim{inner: inner, masterWritable: true}
	s.scanner.init(s.handleOSC, s.resetProgramStatus)
	s.log, err = openLog(dir, 1<<20)
	require.NoError(t, err)
	s.timers, err = newTimers()
	require.NoError(t, err)
	s.pane = openPane(outer.slave)
	require.True(t, s.pane.isOpen())
	s.pane.writable = true
	s.pane.joined = &conn{fd: -1} // whose terminal it is: this test keeps its own
	require.NoError(t, unix.Close(outer.master))

	for _, line := range []string{"plain\n", "\x1b]7501;state=working\a and more\n", strings.Repeat("x", 100) + "\n"} {
		_, err = unix.Write(agent, []byte(line))
		require.NoError(t, err)
		s.masterReadable = true
		s.passOutput(s.readOutput())
		assert.False(t, s.pane.isOpen())
		assert.True(t, s.hasRoom(), "the agent is held up by nobody")
	}
	log, err := os.ReadFile(filepath.Join(dir, logName))
	require.NoError(t, err)
	assert.Equal(t, "plain\r\n\x1b]7501;state=working\a and more\r\n"+strings.Repeat("x", 100)+"\r\n", string(log))
	assert.Equal(t, "working", s.reports[sourceOSC7501].activity)
}

// TestReadOutput_ContinuesAfterAFullBuffer: a terminal that has more than the room there was is
// known to have it. Its agent may be waiting for that to be read, and no event would tell of it.
func TestReadOutput_ContinuesAfterAFullBuffer(t *testing.T) {
	inner, err := openInner(saneSettings(), &unix.Winsize{Row: 24, Col: 80})
	require.NoError(t, err)
	agent, err := inner.openSlave(0)
	require.NoError(t, err)
	t.Cleanup(func() {
		for _, fd := range []int{agent, inner.master, inner.slave} {
			_ = unix.Close(fd)
		}
	})
	s := &shim{inner: inner, pane: pane{fd: inner.slave}} // a pane that takes nothing
	const room, more = 100, 500
	s.out.end = outputSize - room
	_, err = unix.Write(agent, bytes.Repeat([]byte("x"), room+more))
	require.NoError(t, err)
	testbed.Poll(t, "all of it can be read", func() bool {
		n, err := unix.IoctlGetInt(inner.master, unix.TIOCINQ)
		return err == nil && n == room+more
	})
	s.masterReadable = true
	assert.Len(t, s.readOutput(), room)
	assert.True(t, s.masterReadable)
	s.out.start = s.out.end // the pane has taken it
	assert.Len(t, s.readOutput(), more)
	assert.False(t, s.masterReadable)
}
