//go:build limits

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/testbed/guest"
)

// TestLimits_NightlyTimer runs the nightly example of corral@.service(5) with its timer in a guest,
// which has its own clock.
func TestLimits_NightlyTimer(t *testing.T) {
	claude := filepath.Join(t.TempDir(), "claude")
	require.NoError(t, os.WriteFile(claude, []byte("#!/bin/sh\necho \"prompt: $2\"\n"), 0o755))
	files := guestFiles(t)
	files["/usr/local/bin/claude"] = claude
	files["/usr/lib/systemd/user/corral@.service"] = filepath.Join(installed(t), "usr/lib/systemd/user/corral@.service")
	// The guest's user lingers already.
	example := strings.ReplaceAll(exampleOf(t, "An agent that runs every night").script(), "corralctl linger on\n", "")
	// The timer is enabled on the day before, after two o'clock: a Persistent= timer would immediately
	// make up for a night that a jump of the clock has skipped.
	output, status := guest.Run(t, files, `
set -e
echo 'date -s "2031-05-31 03:00:00" >/dev/null' >/run/guest/root
until [ "$(date +%Y)" = 2031 ]; do sleep 0.1; done
mkdir -p src/shop
systemctl --user daemon-reload
(`+example+`) >/dev/null 2>&1
corralctl is-active nightly || :
echo 'date -s "2031-06-01 01:59:50" >/dev/null' >/run/guest/root
corralctl wait --until=completed --timeout=120 nightly
corralctl logs nightly
date -d "@$(($(busctl --user get-property io.github.corrald.Corral1 \
	/io/github/corrald/Corral1/session/nightly io.github.corrald.Corral1.Session ExecMainStartTimestamp | cut -d ' ' -f 2) / 1000000))" '+%F %H'
`)
	require.Zero(t, status, "%s", output)
	assert.Equal(t, "created\nprompt: Update the dependencies, run the tests, open a pull request\n2031-06-01 02\n",
		output)
}
