//go:build limits

package guest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/testbed/guest"
)

func TestLimits_ApplyInGuest(t *testing.T) {
	greeting := filepath.Join(t.TempDir(), "greeting")
	require.NoError(t, os.WriteFile(greeting, []byte("hello\n"), 0o644))
	output, status := guest.Run(t, map[string]string{"/opt/greeting": greeting}, `
		cat /opt/greeting
		whoami
		systemctl --user is-system-running --wait
		cat /sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/cgroup.controllers
		exec 2>complaints
		systemd-run --user --scope --quiet --unit=greedy.scope -p MemoryMax=32M -p MemorySwapMax=0 tail -n1 /dev/zero
		echo "tail: $?"
		systemctl --user show -P Result greedy.scope
		systemd-run --user --scope --quiet --unit=crowd.scope -p TasksMax=4 sh -c 'for i in 1 2 3 4 5 6; do sleep 60 & done'
		echo "crowd: $?"
		cat "/sys/fs/cgroup$(systemctl --user show -P ControlGroup crowd.scope)/pids.current"
		grep -o "Cannot fork" complaints
		exit 7`)
	assert.Equal(t, "hello\nalice\nrunning\ncpu memory pids\ntail: 137\noom-kill\ncrowd: 2\n3\nCannot fork\n", output)
	assert.Equal(t, 7, status)
}

// A panic of the guest's kernel is reported at once, with its message; the guest would reboot
// endlessly.
func TestLimits_ReportsKernelPanic(t *testing.T) {
	failure := make(chan string, 1)
	go func() { // Fatalf ends the goroutine
		guest.Run(failing{T: t, failure: failure}, nil, `echo 'echo c >/proc/sysrq-trigger' >/run/guest/root; sleep 1000`)
		failure <- "it did not fail"
	}()
	assert.Contains(t, <-failure,
		"cannot run a guest: its kernel panicked: sysrq: Trigger a crash: Kernel panic - not syncing: sysrq triggered crash")
}

// failing is a test that sends its failure to a channel.
type failing struct {
	*testing.T
	failure chan<- string
}

func (f failing) Fatalf(format string, args ...any) {
	f.failure <- fmt.Sprintf(format, args...)
	runtime.Goexit()
}
