//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/supervisor/session"
)

// limitedAgent is an agent that reports that it has reached a usage limit if that is typed, and
// records in a file what else is typed.
const limitedAgent = `#!/bin/sh
while read line; do
	case $line in
	limit*) corralctl report idle --reason=limit --until=@${line#limit } --message="Limit reached" ;;
	*) echo "$line" >>$HOME/typed-$CORRAL_SESSION; corralctl report working ;;
	esac
done
`

// reachLimit makes the session's agent report a limit that resets in at least this time: at a time
// at which the random part of the delay until the session is continued is short.
func (d *desk) reachLimit(id string, after time.Duration) {
	d.t.Helper()
	usec := func(property string) (n int64) {
		_, err := fmt.Sscanf(d.property(id, property), "t %d", &n)
		require.NoError(d.t, err)
		return n
	}
	begun := time.UnixMicro(usec("Timestamp"))
	rec := session.Session{ID: id, Created: begun, Run: &session.Run{
		Started: begun, Scope: session.ScopeActive, Shim: session.Alive, ShimSendsTyped: true,
	}}
	first := time.Now().Add(after).Truncate(time.Second)
	until, at := first, first.Add(time.Hour)
	for later := range 30 {
		rec.Limit.Until = first.Add(time.Duration(later) * time.Second)
		if continues := rec.ContinueAt(0); continues.Before(at) {
			until, at = rec.Limit.Until, continues
		}
	}
	d.do("corralctl", "send", id, fmt.Sprint("limit ", until.Unix()))
	isReported := func() bool { return usec("AttentionUntil") == until.UnixMicro() }
	require.Eventually(d.t, isReported, 10*time.Second, 20*time.Millisecond)
	require.Equal(d.t, at.UnixMicro(), usec("ContinueTimestamp"))
}

// awaitContinuation waits until the agent of a session was given ContinueText=, and checks that it
// was given it once.
func (d *desk) awaitContinuation(id string) {
	d.t.Helper()
	d.Run("timeout", "60", "sh", "-c", `until test -s "$1"; do sleep 0.1; done`, "sh", "/home/ann/typed-"+id)
	d.until(id, "working")
	assert.Equal(d.t, "go on", d.do("cat", "typed-"+id))
	assert.Equal(d.t, "t 0", d.property(id, "ContinueTimestamp"))
}

// TestUsageLimit_IsContinued without a daemon, which the timer starts, and after a reboot, at which
// the session is suspended; but not if somebody has typed while no daemon was running.
func TestUsageLimit_IsContinued(t *testing.T) {
	onEach(t, func(t *testing.T, d *desk) {
		agent := d.write("agent", limitedAgent)
		d.do("mkdir", "-p", ".config/corral/agents", ".config/corral/corral.conf.d")
		d.write(".config/corral/agents/limited.agent", "[Agent]\nCommand="+agent+"\nResumeCommand="+agent+"\n")
		d.write(".config/corral/corral.conf.d/limit.conf", "[Corral]\nOnLimit=continue\nContinueText=go on\n")
		d.Run("loginctl", "enable-linger", d.user)
		for _, id := range []string{"daemon", "typed", "reboot"} {
			d.run(id, "limited")
		}

		d.reachLimit("typed", time.Hour)
		d.reachLimit("daemon", 5*time.Second)
		d.do("systemctl", "--user", "stop", "corrald")
		socket := strings.Fields(d.do("sh", "-c", "ls $XDG_RUNTIME_DIR/corral/typed/*tmux*"))[0]
		d.do("tmux", "-S", socket, "send-keys", "x")
		d.awaitContinuation("daemon")
		assert.Equal(t, "t 0", d.property("typed", "ContinueTimestamp"))
		assert.Equal(t, `s "limit"`, d.property("typed", "Attention"))

		d.reachLimit("reboot", 5*time.Second)
		d.PowerOff()
		d.Boot()
		d.awaitContinuation("reboot")
		assert.Equal(t, "u 2", d.property("reboot", "NRuns"))
		assert.Equal(t, `s "suspended"`, d.property("daemon", "State"), "it was continued before")
		assert.Equal(t, `s "suspended"`, d.property("typed", "State"))
	})
}
