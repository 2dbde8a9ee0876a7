//go:build e2e

package e2e

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestWorkspace_OnUnmountedFileSystem unmounts the file system of a workspace while the agent runs:
// the session is orphaned at once, nothing is killed, and mounting it again reverts this.
func TestWorkspace_OnUnmountedFileSystem(t *testing.T) {
	onEach(t, func(t *testing.T, d *desk) {
		const at = "/home/ann/stick"
		plug := func() {
			d.Run("sh", "-ec", "mkdir -p /root/stick/shop "+at+"; chown -R ann /root/stick "+at+"; mount --bind /root/stick "+at)
		}
		plug()
		d.run("shop", "--dir", at+"/shop", "--", "sleep", "1000")
		pid := d.pid("shop")
		for range 3 {
			d.Run("umount", "--lazy", at)
			d.until("shop", "orphaned")
			assert.Equal(t, `s "workspace \"/home/ann/stick/shop\" is gone"`, d.property("shop", "Reason"))
			d.do("kill", "-0", pid)
			plug()
			d.until("shop", "running")
			assert.Equal(t, pid, d.pid("shop"))
		}
	})
}

// TestExclusive_IsReleasedByPowerLoss checks that a power loss releases an exclusive workspace.
func TestExclusive_IsReleasedByPowerLoss(t *testing.T) {
	onEach(t, func(t *testing.T, d *desk) {
		d.run("holder", "--exclusive", "--", "sleep", "1000")
		out, code := d.try("corralctl", "run", "--id", "second", "--exclusive", "--", "sleep", "1000")
		assert.Equal(t, 1, code)
		assert.Contains(t, out, `"holder"`)
		d.Crash()
		d.Boot()
		d.User(d.user)
		d.run("second", "--exclusive", "--", "sleep", "1000")
		assert.Equal(t, `s "running"`, d.property("second", "State"))
		assert.Equal(t, `s "failed"`, d.property("holder", "State"))
	})
}
