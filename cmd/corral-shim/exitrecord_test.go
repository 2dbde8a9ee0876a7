package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/exitstatus"
)

// asUnprivileged makes the home an ordinary user's, whom a directory's mode keeps from writing, and has
// the shim run as that one.
func (h *testSession) asUnprivileged() func(*exec.Cmd) {
	if os.Getuid() != 0 {
		return func(*exec.Cmd) {}
	}
	h.chown(54321)
	return func(c *exec.Cmd) { c.SysProcAttr.Credential = &syscall.Credential{Uid: 54321, Gid: 54321} }
}

// TestExitStatus_FallsBackToTheRuntimeDirectory: where the state directory takes no record any
// more, the runtime directory has it, and nothing else is left there.
func TestExitStatus_FallsBackToTheRuntimeDirectory(t *testing.T) {
	h := newHome(t, "sh", "-c", "read a; exit 7")
	s := h.startShim(h.asUnprivileged())
	s.connect()
	require.NoError(t, os.Chmod(h.spec.StateDir, 0o500))
	s.typeKeys("\n")
	assert.Equal(t, 7, s.wait())
	_, err := exitstatus.Read(h.spec.StateDir)
	require.ErrorIs(t, err, os.ErrNotExist)
	status, err := exitstatus.Read(filepath.Dir(h.spec.Socket))
	require.NoError(t, err)
	assert.Equal(t, "run-1", status.RunID)
	assert.Equal(t, exitstatus.Exited, status.Code)
	assert.Equal(t, 7, status.Value)
	left, err := os.ReadDir(filepath.Dir(h.spec.Socket))
	require.NoError(t, err)
	assert.Len(t, left, 1)
}

// TestExitStatus_IsRecordedWithoutAWritableStateDirectory that can be written to, neither for its
// start nor for its end.
func TestExitStatus_IsRecordedWithoutAWritableStateDirectory(t *testing.T) {
	h := newHome(t, "sh", "-c", "exit 7")
	change := h.asUnprivileged()
	require.NoError(t, os.Chmod(h.spec.StateDir, 0o500))
	s := h.startShim(change)
	assert.Equal(t, 7, s.wait())
	status, err := exitstatus.Read(filepath.Dir(h.spec.Socket))
	require.NoError(t, err)
	assert.Equal(t, 7, status.Value)
}

// TestExitStatus_IsRetriedUntilWritten: where it can be written nowhere, the shim says so in the
// pane and stays until it can.
func TestExitStatus_IsRetriedUntilWritten(t *testing.T) {
	h := newHome(t, "sh", "-c", "read a; echo the last word; exit 7")
	s := h.startShim(h.asUnprivileged())
	s.connect()
	for _, dir := range []string{h.spec.StateDir, filepath.Dir(h.spec.Socket)} {
		require.NoError(t, os.Chmod(dir, 0o500))
	}
	s.typeKeys("\n")
	s.waitFor("the last word")
	s.waitFor("its exit status cannot be written")
	select {
	case <-s.done:
		t.Fatal("the shim has ended, and nothing tells how its agent did")
	default:
	}
	require.NoError(t, os.Chmod(h.spec.StateDir, 0o700))
	assert.Equal(t, 7, s.wait())
	assert.Equal(t, 7, s.status().Value)
}
