//go:build limits

package e2e

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/testbed/guest"
)

// limitsScript runs in a guest, which has the memory and pids controllers. TestLimits compares the
// lines that it prints.
const limitsScript = `
set -e
result() { echo "$1:" $(corralctl show -p State,Result,ExecMainCode,ExecMainStatus,Reason --value "$1" | tr '\n' '|'); }
systemctl --user daemon-reload
systemctl --user start corrald

# The agent itself needs more memory than its limit.
corralctl run --id greedy -p MemoryMax=64M -p MemorySwapMax=0 -- tail /dev/zero || true
corralctl wait --timeout=60 greedy || true
result greedy

# A child of the agent does: only the child is killed.
corralctl run --id survivor -p MemoryMax=64M -p MemorySwapMax=0 -- sh -c 'tail /dev/zero; exit 4'
corralctl wait --timeout=60 survivor || true
result survivor

# The agent uses up the task limit of its scope, and exits while its children keep running: its exit
# is still recorded.
corralctl run --id bomb -p TasksMax=40 -- sh -c 'trap "" HUP; while sleep 1000 & do :; done 2>/dev/null'
corralctl wait --timeout=120 bomb || true
result bomb
group=$(corralctl show -p ControlGroup --value bomb)
echo "left: $(cat /sys/fs/cgroup$group/pids.events)" $(grep -c . /sys/fs/cgroup$group/cgroup.procs)

# Other sessions are not affected, and the session can be stopped.
corralctl run --id neighbour -- true
corralctl wait --timeout=60 neighbour
result neighbour
corralctl stop bomb
test ! -e /sys/fs/cgroup$group && echo "bomb: empty"
`

// TestLimits checks that the exit of agents that reach the limits of their scope is recorded and
// reported correctly.
func TestLimits(t *testing.T) {
	output, status := guest.Run(t, guestFiles(t), limitsScript)
	require.Zero(t, status, "%s", output)
	for _, line := range []string{
		"greedy: failed|oom-kill|2|9|out of memory (limit 64M)|",
		"survivor: failed|exit-code|1|4|command exited with code 4|",
		"bomb: failed|exit-code|1|2|command exited with code 2|",
		"neighbour: completed|success|1|0||",
		"bomb: empty",
	} {
		assert.Contains(t, output, line)
	}
	assert.Regexp(t, `left: max [1-9]\d* [23]\d\n`, output, "the limit was hit, and what hit it outlives the agent")
}

// guestFiles returns the files to install in a guest: path there, path here.
func guestFiles(t *testing.T) map[string]string {
	dir := installed(t)
	files := map[string]string{}
	for _, path := range []string{
		"usr/bin/corrald", "usr/bin/corralctl", "usr/libexec/corral/corral-shim",
		"usr/lib/systemd/user/corrald.service", "usr/lib/systemd/user/app-corral.slice",
		"usr/share/dbus-1/services/io.github.corrald.Corral1.service",
	} {
		files["/"+path] = filepath.Join(dir, path)
	}
	return files
}
