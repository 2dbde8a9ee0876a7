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

const patience = 10 * time.Second

// A mount is told, and so is a lazy unmounting under somebody who is in it. It is tried in a
// process with a mount namespace of its own.
func TestMounts_ReportsChanges(t *testing.T) {
	if os.Getenv("CORRAL_MOUNTS_TEST") == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestMounts_ReportsChanges$", "-test.v")
		cmd.Env = append(os.Environ(), "CORRAL_MOUNTS_TEST=1", "GORACE=atexit_sleep_ms=0")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}, GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}}
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		assert.Contains(t, string(out), "--- PASS")
		return
	}
	table, err := mounts.Open()
	require.NoError(t, err)
	told, ended := make(chan bool, 16), make(chan bool)
	go func() { table.Run(func() { told <- true }); close(ended) }()

	dir := t.TempDir()
	require.NoError(t, unix.Mount("tmpfs", dir, "tmpfs", 0, ""))
	hear(t, told, "the mount")
	t.Chdir(dir)
	require.NoError(t, unix.Unmount(dir, unix.MNT_DETACH))
	hear(t, told, "the lazy unmounting")

	require.NoError(t, table.Close())
	select {
	case <-ended:
	case <-time.After(patience):
		t.Fatal("Run goes on after Close")
	}
}

func hear(t *testing.T, told <-chan bool, what string) {
	t.Helper()
	select {
	case <-told:
	case <-time.After(patience):
		t.Fatalf("nothing was told of %s", what)
	}
}
