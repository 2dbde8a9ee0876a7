//go:build e2e

package e2e

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/corrald/corral/internal/testbed"
)

// TestDisk_FullThenReadOnly makes the file system with the state full, then read-only, while agents
// run. Agents continue or exit as usual, and every exit is recorded and reported, also by a
// restarted daemon. corralctl status and the journal report the problem. After that, everything is
// saved without intervention.
func TestDisk_FullThenReadOnly(t *testing.T) {
	onEach(t, func(t *testing.T, d *desk) {
		const at = "/home/ann/.local/state/corral"
		d.do("systemctl", "--user", "stop", "corrald")
		d.Run("sh", "-ec", "mkdir -p "+at+"; mount -t tmpfs -o size=512k,mode=700,uid=$(id -u ann) none "+at)
		d.do("systemctl", "--user", "start", "corrald")
		wait := d.write("wait", "#!/bin/sh\nuntil read line <\"$HOME/$1\"; do :; done\nexit $2\n")
		for _, id := range []string{"full", "readonly", "unseen", "lives"} {
			d.do("mkfifo", "/home/ann/"+id)
			d.run(id, "--", wait, id, "7")
		}
		ends := func(id string) { d.do("sh", "-c", "echo >/home/ann/"+id) }
		pid := d.pid("lives")
		problems := func() string { return d.do("corralctl", "status") }

		d.Run("sh", "-c", "cat /dev/zero >"+at+"/fill || true")
		ends("full")
		d.until("full", "failed")
		assert.Equal(t, "failed | exit-code | 1 | 7 | command exited with code 7", d.result("full"))
		out := ""
		testbed.Poll(t, "there is no room for a session", func() bool { // ended sessions may have freed some
			d.Run("sh", "-c", "cat /dev/zero >>"+at+"/fill || true")
			var code int
			if out, code = d.try("corralctl", "run", "--id", "new", "--", "true"); code == 0 {
				d.do("corralctl", "rm", "--force", "new")
			}
			return code == 1
		})
		assert.Contains(t, out, "no space left on device")
		assert.Contains(t, problems(), `new: cannot save session`)
		assert.Contains(t, problems(), "free space on the disk")

		// Open files of shims keep the file system from becoming read-only, so only a bind mount over its
		// path becomes read-only.
		d.Run("sh", "-ec", "mount --bind "+at+" "+at+"; mount -o remount,bind,ro "+at)
		ends("readonly")
		d.until("readonly", "failed")
		assert.Equal(t, "failed | exit-code | 1 | 7 | command exited with code 7", d.result("readonly"))
		assert.Contains(t, d.do("sh", "-c", "corralctl status readonly || true"), "make the file system writable again")
		d.do("systemctl", "--user", "kill", "-s", "KILL", "corrald")
		ends("unseen")
		d.do("systemctl", "--user", "start", "corrald")
		for _, id := range []string{"full", "readonly", "unseen"} {
			d.until(id, "failed")
			assert.Equal(t, "failed | exit-code | 1 | 7 | command exited with code 7", d.result(id))
		}
		assert.Equal(t, pid, d.pid("lives"))

		d.Run("mount", "-o", "remount,bind,rw", at)
		d.Run("rm", at+"/fill")
		testbed.Poll(t, "all is saved", func() bool { return !strings.Contains(problems(), "Problem:") })
		for _, id := range []string{"full", "readonly", "unseen"} {
			assert.True(t, strings.HasPrefix(d.do("cat", at+"/sessions/"+id+"/exit_status"), "RUN_ID="), id)
			assert.Contains(t, d.do("cat", at+"/sessions/"+id+"/session.json"), `"Value": 7`)
		}
		assert.Equal(t, pid, d.pid("lives"))
	})
}
