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

	"github.com/corrald/corral/internal/shimwire"
	"github.com/corrald/corral/internal/testbed"
)

// TestPane_CanVanishDuringAWrite: the shim notices the exit of the tmux server because writing to
// the pane fails, while it has output that still has to be logged.
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
	s.pane.joined = &conn{fd: -1} // the pane is not the test's own terminal, which closePane would replace
	require.NoError(t, unix.Close(outer.master))

	want := ""
	for _, line := range []string{"plain\n", "\x1b]7501;state=working\a and more\n", strings.Repeat("x", 100) + "\n"} {
		_, err = unix.Write(agent, []byte(line))
		require.NoError(t, err)
		want += strings.ReplaceAll(line, "\n", "\r\n")
		testbed.Poll(t, "the line is passed on", func() bool { // the kernel makes it readable with a delay
			s.masterReadable = true
			s.passOutput(s.readOutput())
			log, err := os.ReadFile(filepath.Join(dir, shimwire.LogName))
			return err == nil && string(log) == want
		})
		assert.False(t, s.pane.isOpen())
		assert.True(t, s.hasRoom(), "output of the agent can be read")
	}
	assert.Equal(t, "working", s.reports[sourceOSC7501].activity)
}

// TestReadOutput_ContinuesAfterAFullBuffer: if the terminal has more output than fits into the
// buffer, masterReadable stays set. No further event would follow, and the agent may wait for the
// rest to be read.
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
	s := &shim{inner: inner, pane: pane{fd: inner.slave}} // a pane that accepts nothing
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
	s.out.start = s.out.end // the pane has accepted it
	assert.Len(t, s.readOutput(), more)
	assert.False(t, s.masterReadable)
}
