//go:build limits

package e2e

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/testbed/guest"
)

// roundsScript makes agents run out of memory and of tasks beside others that keep running, in
// three rounds: with the daemon running, killed and stopped. It prints every deviation.
const roundsScript = `
set -e
systemctl --user daemon-reload
systemctl --user start corrald
wrong=0 sessions=0
is() {
	sessions=$((sessions + 1))
	result=$(corralctl show -p State,Result,ExecMainCode,ExecMainStatus --value "$1" | tr '\n' '|')
	[ "$result" = "$2" ] || { echo "$1 is $result and not $2"; wrong=$((wrong + 1)); }
}
ended() { until [ -e "$HOME/.local/state/corral/sessions/$1/exit_status" ]; do sleep 0.2; done; }
corralctl run -q --id steady -- sleep 1000000
steady=$(corralctl show -p MainPID --value steady)
for daemon in there killed away; do
	corralctl run -q --id "greedy-$daemon" -p MemoryMax=64M -p MemorySwapMax=0 -- sh -c 'until [ -e go ]; do sleep 0.2; done; exec tail /dev/zero'
	corralctl run -q --id "bomb-$daemon" -p TasksMax=40 -- sh -c 'trap "" HUP; until [ -e go ]; do sleep 0.2; done; while sleep 1000 & do :; done 2>/dev/null'
	corralctl run -q --id "beside-$daemon" -- sh -c 'until [ -e go ]; do sleep 0.2; done; sleep 1; exit 7'
	[ "$daemon" != away ] || systemctl --user stop corrald
	touch go
	[ "$daemon" != killed ] || systemctl --user kill -s KILL corrald
	ended "greedy-$daemon"; ended "bomb-$daemon"; ended "beside-$daemon"
	rm go
	systemctl --user start corrald
	corralctl wait --timeout=60 "greedy-$daemon" "bomb-$daemon" "beside-$daemon" || :
	is "greedy-$daemon" 'failed|oom-kill|2|9|'
	is "bomb-$daemon" 'failed|exit-code|1|2|'
	is "beside-$daemon" 'failed|exit-code|1|7|'
	is steady 'running||0|0|'
	[ "$(corralctl show -p MainPID --value steady)" = "$steady" ] || echo "steady is another process"
	corralctl stop "bomb-$daemon"
done
echo "3 rounds, $sessions looks, $wrong wrong"
`

// TestLimits_InEveryStateOfTheDaemon checks that exits at the limits are reported correctly while
// the daemon runs, is killed or is stopped, and that other sessions are not affected.
func TestLimits_InEveryStateOfTheDaemon(t *testing.T) {
	output, status := guest.Run(t, guestFiles(t), roundsScript)
	require.Zero(t, status, "%s", output)
	assert.Equal(t, "3 rounds, 12 looks, 0 wrong\n", output)
}

// clockScript sets the clock back and forth by decades while sessions start, run, exit and are
// stopped.
const clockScript = `
set -e
result() { echo "$1:" $(corralctl show -p State,Result,ExecMainCode,ExecMainStatus,Reason --value "$1" | tr '\n' '|'); }
clock() {
	echo "date -s $1-06-01 >/dev/null" >/run/guest/root
	until [ "$(date +%Y)" = "$1" ]; do sleep 0.1; done
}
left() { # of a session's retention time, in hours
	usec=$(busctl --user get-property io.github.corrald.Corral1 "/io/github/corrald/Corral1/session/$1" io.github.corrald.Corral1.Session ExpireTimestamp)
	echo "$1: $(((${usec#t } / 1000000 - $(date +%s) + 1800) / 3600)) hours left"
}
systemctl --user daemon-reload
systemctl --user start corrald
corralctl run -q --id early -- sh -c 'exit 3'
corralctl wait --timeout=60 early || :
corralctl ack early
corralctl run -q --id stopped -- sleep 1000
corralctl run -q --id suspended -- sh -c 'trap "exit 6" TERM; >ready; while :; do sleep 0.1; done'
corralctl run -q --id leaves -- sh -c 'until [ -e go ]; do sleep 0.2; done; exit 5'
until [ -e ready ]; do sleep 0.1; done

clock 2031
corralctl run -q --id ahead -- sh -c 'exit 4'
corralctl wait --timeout=60 ahead || :
left early; left ahead
corralctl stop stopped
result stopped

systemctl --user kill -s KILL corrald
clock 2019
touch go
until [ -e .local/state/corral/sessions/leaves/exit_status ]; do sleep 0.2; done
systemctl --user start corrald
result leaves
corralctl suspend suspended
result suspended
clock 2027
for id in early ahead stopped; do result $id; done
left early; left ahead
`

// TestLimits_ClockChanges checks that changes of the clock affect neither the states of sessions
// nor their retention time. The guest has its own clock.
func TestLimits_ClockChanges(t *testing.T) {
	output, status := guest.Run(t, guestFiles(t), clockScript)
	require.Zero(t, status, "%s", output)
	assert.Equal(t, `early: 24 hours left
ahead: 168 hours left
stopped: stopped|success|2|15||
leaves: failed|exit-code|1|5|command exited with code 5|
suspended: suspended|success|1|6||
early: failed|exit-code|1|3|command exited with code 3|
ahead: failed|exit-code|1|4|command exited with code 4|
stopped: stopped|success|2|15||
early: 24 hours left
ahead: 168 hours left
`, output)
}
