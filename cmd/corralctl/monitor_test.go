package main

import (
	"testing"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi/client"
)

// recordedEvents records the calls of a monitor.
type recordedEvents []string

func (t *recordedEvents) start(all map[string]client.Session) error {
	*t = append(*t, "began")
	for _, s := range sortedSessions(all) {
		*t = append(*t, "has "+s.Id)
	}
	return nil
}

func (t *recordedEvents) sessionChanged(before, after *client.Session, _ map[string]client.Session) error {
	switch {
	case before == nil:
		*t = append(*t, "new "+after.Id)
	case after == nil:
		*t = append(*t, "removed "+before.Id)
	default:
		*t = append(*t, after.Id+" "+before.State+" -> "+after.State)
	}
	return nil
}

func (t *recordedEvents) daemonGone(string, string, map[string]client.Session) error {
	*t = append(*t, "gone")
	return nil
}
func (t *recordedEvents) daemonBack(string, map[string]client.Session) error {
	*t = append(*t, "back")
	return nil
}

func TestMonitor_ReportsOnlyChanges(t *testing.T) {
	c, _ := capture(t)
	var lines recordedEvents
	m := &monitor{c: c, format: &lines, started: true, gone: map[string]bool{},
		known: map[string]client.Session{"shop": {Id: "shop", State: "running", StateChangeTimestampMonotonic: 5}}}
	for _, event := range []client.Event{
		changed("shop", "running"),
		client.SessionNew{ID: "shop"},
		client.SessionRemoved{ID: "other"},
		client.StateChanged{ID: "shop", Old: "starting", New: "running"},
		client.SessionChanged{ID: "shop", Invalidated: []string{"AttentionMessage"}},
		client.DaemonGone{},
		client.DaemonGone{},
	} {
		require.NoError(t, m.apply(t.Context(), event))
	}
	assert.Equal(t, recordedEvents{"gone"}, lines)
	late := changed("shop", "starting")
	late.Properties["StateChangeTimestampMonotonic"] = dbus.MakeVariant(uint64(4))
	require.NoError(t, m.apply(t.Context(), late), "announced before the session was read")
	require.NoError(t, m.apply(t.Context(), changed("shop", "failed")))
	require.NoError(t, m.apply(t.Context(), client.SessionRemoved{ID: "shop"}))
	assert.Equal(t, recordedEvents{"gone", "shop running -> failed", "removed shop"}, lines)
}

func TestMonitor_FormatsStatusBars(t *testing.T) {
	running := client.Session{Id: "api", State: "running", Activity: "working"}
	waiting := client.Session{Id: "docs", State: "running", Activity: "waiting", Attention: "<permission>"}
	failed := client.Session{Id: "fix", State: "failed", Reason: "out of memory"}
	ended := func(id string) client.Session {
		return client.Session{Id: id, State: "running", Activity: "idle", Attention: "turn-ended",
			AttentionMessage: "a secret"}
	}
	done := client.Session{Id: "done", State: "completed", Activity: "waiting"}
	all := func(sessions ...client.Session) bar {
		m := map[string]client.Session{}
		for _, s := range sessions {
			m[s.Id] = s
		}
		return barOf(m, nil)
	}
	for _, row := range []struct {
		bar                    bar
		waybar, i3bar, polybar string
	}{
		{all(done), `{"text":"","alt":"idle","tooltip":"","class":"idle"}`, `[]`, ""},
		{all(running, done), `{"text":"1 running","alt":"running","tooltip":"api: working","class":"running"}`,
			`[{"name":"corral","instance":"running","full_text":"1 running","color":"#50fa7b","urgent":false,"separator":true}]`,
			"%{F#50fa7b}1 running%{F-}"},
		{all(waiting, failed),
			`{"text":"1 running, 1 waiting, 1 failed","alt":"waiting","tooltip":"docs: waiting: &lt;permission&gt;\nfix: failed, out of memory","class":"waiting"}`,
			`[{"name":"corral","instance":"running","full_text":"1 running","color":"#50fa7b","urgent":false,"separator":false},` +
				`{"name":"corral","instance":"waiting","full_text":"1 waiting","color":"#f1fa8c","urgent":true,"separator":false},` +
				`{"name":"corral","instance":"failed","full_text":"1 failed","color":"#ff5555","urgent":false,"separator":true}]`,
			"%{F#50fa7b}1 running%{F-} %{F#f1fa8c}1 waiting%{F-} %{F#ff5555}1 failed%{F-}"},
		{all(ended("a"), ended("b")),
			`{"text":"2 running, 2 turns ended","alt":"turn-ended","tooltip":"a: turn ended\nb: turn ended","class":"turn-ended"}`,
			`[{"name":"corral","instance":"running","full_text":"2 running","color":"#50fa7b","urgent":false,"separator":false},` +
				`{"name":"corral","instance":"turn-ended","full_text":"2 turns ended","color":"#8be9fd","urgent":false,"separator":true}]`,
			"%{F#50fa7b}2 running%{F-} %{F#8be9fd}2 turns ended%{F-}"},
		{all(client.Session{Id: "a", State: "running", Activity: "idle", Attention: "error"}),
			`{"text":"1 running, 1 error","alt":"failed","tooltip":"a: error","class":"failed"}`,
			`[{"name":"corral","instance":"running","full_text":"1 running","color":"#50fa7b","urgent":false,"separator":false},` +
				`{"name":"corral","instance":"failed","full_text":"1 error","color":"#ff5555","urgent":false,"separator":true}]`,
			"%{F#50fa7b}1 running%{F-} %{F#ff5555}1 error%{F-}"},
		{bar{offline: "corrald is not running"}, `{"text":"corrald is not running","alt":"offline","tooltip":"","class":"offline"}`,
			`[{"name":"corral","instance":"offline","full_text":"corrald is not running","color":"#888888","urgent":false,"separator":true}]`,
			"%{F#888888}corrald is not running%{F-}"},
	} {
		assert.Equal(t, row.waybar, waybarLine(row.bar))
		assert.Equal(t, row.i3bar, i3barLine(row.bar))
		assert.Equal(t, row.polybar, polybarLine(row.bar))
	}
}
