package mounts_test

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/mounts"
)

const timeout = 10 * time.Second

// TestMounts_ReportsChanges covers a mount and the lazy unmount of a directory in use. It runs in a
// process with its own mount namespace.
func TestMounts_ReportsChanges(t *testing.T) {
	if os.Getenv("CORRAL_MOUNTS_TEST") == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestMounts_ReportsChanges$", "-test.v")
		cmd.Env = append(os.Environ(), "CORRAL_MOUNTS_TEST=1", "GORACE=atexit_sleep_ms=0")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}}
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		assert.Contains(t, string(out), "--- PASS")
		return
	}
	table, err := mounts.Open()
	require.NoError(t, err)
	changes, ended := make(chan bool, 16), make(chan bool)
	go func() { table.Run(func() { changes <- true }); close(ended) }()

	dir := t.TempDir()
	require.NoError(t, unix.Mount("tmpfs", dir, "tmpfs", 0, ""))
	receive(t, changes, "the mount")
	t.Chdir(dir)
	require.NoError(t, unix.Unmount(dir, unix.MNT_DETACH))
	receive(t, changes, "the lazy unmount")

	require.NoError(t, table.Close())
	select {
	case <-ended:
	case <-time.After(timeout):
		t.Fatal("Run did not return after Close")
	}
}

func receive(t *testing.T, changes <-chan bool, what string) {
	t.Helper()
	select {
	case <-changes:
	case <-time.After(timeout):
		t.Fatalf("%s was not reported", what)
	}
}
