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

// asUnprivileged makes an unprivileged user the owner of the test session, and returns a function
// that makes the shim run as that user. Unlike root, that user cannot write to a read-only
// directory.
func (ts *testSession) asUnprivileged() func(*exec.Cmd) {
	if os.Getuid() != 0 {
		return func(*exec.Cmd) {}
	}
	ts.chown(54321)
	return func(c *exec.Cmd) { c.SysProcAttr.Credential = &syscall.Credential{Uid: 54321, Gid: 54321} }
}

// runtimeFiles returns the names of the files in the session's runtime directory.
func (ts *testSession) runtimeFiles() (names []string) {
	ts.t.Helper()
	files, err := os.ReadDir(filepath.Dir(ts.spec.Socket))
	require.NoError(ts.t, err)
	for _, f := range files {
		names = append(names, f.Name())
	}
	return names
}

func TestExitStatus_IsWrittenToBothDirectories(t *testing.T) {
	ts := newTestSession(t, "sh", "-c", "exit 7")
	assert.Equal(t, 7, ts.startShim().wait())
	copied, err := exitstatus.Read(filepath.Dir(ts.spec.Socket))
	require.NoError(t, err)
	assert.Equal(t, ts.status(), copied)
	assert.Equal(t, 7, copied.Value)
	assert.Equal(t, []string{exitstatus.FileName}, ts.runtimeFiles())
}

// TestStartError_WithoutStateDirectory checks that the error is shown and recorded if nothing else
// could be prepared yet.
func TestStartError_WithoutStateDirectory(t *testing.T) {
	ts := newTestSession(t, "true")
	require.NoError(t, os.Remove(ts.spec.StateDir))
	s := ts.startShim()
	assert.Equal(t, exitFailure, s.wait())
	const want = "cannot prepare a terminal for the command"
	s.waitFor(want)
	status, err := exitstatus.Read(filepath.Dir(ts.spec.Socket))
	require.NoError(t, err)
	assert.Equal(t, exitstatus.NotStarted, status.Code)
	assert.Contains(t, status.Error, want)
}

// TestExitStatus_FallsBackToTheRuntimeDirectory checks that the record is written to the runtime
// directory if the state directory is not writable, and that no other file remains there.
func TestExitStatus_FallsBackToTheRuntimeDirectory(t *testing.T) {
	ts := newTestSession(t, "sh", "-c", "read a; exit 7")
	s := ts.startShim(ts.asUnprivileged())
	s.connect()
	require.NoError(t, os.Chmod(ts.spec.StateDir, 0o500))
	s.typeKeys("\n")
	assert.Equal(t, 7, s.wait())
	_, err := exitstatus.Read(ts.spec.StateDir)
	require.ErrorIs(t, err, os.ErrNotExist)
	status, err := exitstatus.Read(filepath.Dir(ts.spec.Socket))
	require.NoError(t, err)
	assert.Equal(t, "run-1", status.RunID)
	assert.Equal(t, exitstatus.Exited, status.Code)
	assert.Equal(t, 7, status.Value)
	assert.Equal(t, []string{exitstatus.FileName}, ts.runtimeFiles())
}

// The agent starts and ends without a writable state directory.
func TestExitStatus_IsRecordedWithoutAWritableStateDirectory(t *testing.T) {
	ts := newTestSession(t, "sh", "-c", "exit 7")
	change := ts.asUnprivileged()
	require.NoError(t, os.Chmod(ts.spec.StateDir, 0o500))
	s := ts.startShim(change)
	assert.Equal(t, 7, s.wait())
	status, err := exitstatus.Read(filepath.Dir(ts.spec.Socket))
	require.NoError(t, err)
	assert.Equal(t, 7, status.Value)
}

// TestExitStatus_IsRetriedUntilWritten checks that the shim reports the problem in the pane and
// keeps running until it can write the record.
func TestExitStatus_IsRetriedUntilWritten(t *testing.T) {
	ts := newTestSession(t, "sh", "-c", "read a; echo the last word; exit 7")
	s := ts.startShim(ts.asUnprivileged())
	s.connect()
	for _, dir := range []string{ts.spec.StateDir, filepath.Dir(ts.spec.Socket)} {
		require.NoError(t, os.Chmod(dir, 0o500))
	}
	s.typeKeys("\n")
	s.waitFor("the last word")
	s.waitFor("its exit status cannot be written")
	select {
	case <-s.done:
		t.Fatal("the shim has exited without recording the exit status")
	default:
	}
	require.NoError(t, os.Chmod(ts.spec.StateDir, 0o700))
	assert.Equal(t, 7, s.wait())
	assert.Equal(t, 7, s.status().Value)
}
