//go:build limits

package e2e

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/testbed/guest"
)

// TestLimits_OfTheCaller runs corralctl in a system service with limits, as in the job of a
// scheduler: they do not apply to the session, which run reports, unless --same-limits sets them.
func TestLimits_OfTheCaller(t *testing.T) {
	output, status := guest.Run(t, guestFiles(t), `
set -e
systemctl --user daemon-reload
cat >job <<'END'
for id in without with; do
	options=--wait
	[ $id = without ] || options="--wait -p MemoryHigh=60M --same-limits"
	corralctl run -f $options --id $id -- systemctl --user --no-pager show -p MemoryMax,MemoryHigh,CPUQuotaPerSecUSec app-corral-command-$id.scope
done
corralctl run -f --wait --same-limits -- tail /dev/zero || echo "exit $?"
END
echo 'systemd-run --quiet --uid=alice --setenv=XDG_RUNTIME_DIR=/run/user/1000 -p WorkingDirectory=/home/alice -p MemoryMax=64M -p MemorySwapMax=0 -p CPUQuota=50% --wait timeout 60 sh -c "sh job >out 2>&1"; touch /home/alice/done' >/run/guest/root
until [ -e done ]; do sleep 0.1; done
cat out
`)
	require.Zero(t, status, "%s", output)
	// The guest's kernel has no controller for sets of CPUs.
	assert.Equal(t, `corralctl: these limits of this process do not apply to the session: MemoryMax=67108864 MemorySwapMax=0 CPUQuota=50%
hint: corralctl run --same-limits
CPUQuotaPerSecUSec=infinity
MemoryHigh=infinity
MemoryMax=infinity
CPUQuotaPerSecUSec=500ms
MemoryHigh=62914560
MemoryMax=67108864
exit 137
`, output)
}
