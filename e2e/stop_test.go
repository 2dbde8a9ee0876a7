//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// recorder is an agent that records, with one write each, that it has received SIGTERM and that it
// exits. It takes $2 seconds to save and exits with code $3.
const recorder = `#!/bin/sh
trap 'echo asked >>"$HOME/log-$1"; sleep $2; echo ended >>"$HOME/log-$1"; exit $3' TERM
echo begun >>"$HOME/log-$1"
sleep 1000 &
wait
`

// TestStop_OfSliceWithDaemonOrBus checks that agents get SIGTERM first, have their time,
// and are recorded as stopped, whatever systemd stops at the same time. CORRAL_ROUNDS and
// CORRAL_AGENTS extend the test.
func TestStop_OfSliceWithDaemonOrBus(t *testing.T) {
	rounds, agents := countOf(t, "CORRAL_ROUNDS", 1), countOf(t, "CORRAL_AGENTS", 8)
	onEach(t, func(t *testing.T, d *desk) {
		agent := d.write("recorder", recorder)
		// These are started more often here than StartLimitBurst= allows.
		for _, unit := range []string{"corrald.service", "dbus.service", "dbus.socket"} {
			d.do("sh", "-c", `mkdir -p .config/systemd/user/$1.d && printf '[Unit]\nStartLimitIntervalSec=0\n' >.config/systemd/user/$1.d/often.conf`, "sh", unit)
		}
		d.do("systemctl", "--user", "daemon-reload")
		for round := range rounds {
			for n, row := range []struct{ units, save string }{
				{"app-corral.slice corrald.service", "0.5"},
				{"corrald.service app-corral.slice", "0.5"},
				{"app.slice", "0.5"},
				{"dbus.service app-corral.slice", "0.5"},
				{"dbus.service app-corral.slice", "0"},
			} {
				var ids []string
				for i := range agents {
					ids = append(ids, fmt.Sprintf("s%dx%dx%d", round, n, i))
				}
				const start = `agent=$1 save=$2; shift 2; for id; do corralctl run --id $id -- "$agent" $id $save $((${#id} + ${id##*x} % 2)) >/dev/null & done; wait`
				d.do(append([]string{"sh", "-c", start, "sh", agent, row.save}, ids...)...)
				for _, id := range ids {
					d.waitFile("/home/ann/log-" + id)
				}
				// systemctl may lose its connection with the bus
				_, _ = d.try(append([]string{"systemctl", "--user", "stop"}, strings.Fields(row.units)...)...)
				d.do("timeout", "30", "sh", "-c", `until [ -z "$(systemctl --user list-units --plain --no-legend --state=active,deactivating 'app-corral-*.scope')" ]; do sleep 0.1; done`)
				d.do("systemctl", "--user", "start", "dbus.socket", "dbus.service", "corrald.service")
				var want []string
				for i, id := range ids {
					want = append(want, fmt.Sprintf("Id=%s\nState=stopped\nResult=success\nReason=its scope was stopped\n"+
						"ExecMainCode=1\nExecMainStatus=%d", id, len(id)+i%2))
				}
				shown := d.do(append([]string{"corralctl", "show", "-p", "Id,State,Result,Reason,ExecMainCode,ExecMainStatus"},
					ids...)...)
				require.Equal(t, strings.Join(want, "\n\n"), shown, "after systemctl --user stop %s", row.units)
				logs := d.do("sh", "-c", "cat log-*")
				for _, word := range []string{"begun", "asked", "ended"} {
					assert.Equal(t, agents, strings.Count(logs, word), "%s, after systemctl --user stop %s", word, row.units)
				}
				d.do(append([]string{"sh", "-c", `rm log-*; corralctl rm --force "$@"`, "sh"}, ids...)...)
			}
		}
	})
}

// countOf returns the number in an environment variable, or a default value.
func countOf(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err, variable)
	return n
}
