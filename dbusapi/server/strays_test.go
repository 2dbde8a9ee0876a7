package server

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/supervisor"
)

// TestStrays_FindsProcessesOutsideOfTheirScope: what belongs to a session, and is not where it
// belongs.
func TestStrays_FindsProcessesOutsideOfTheirScope(t *testing.T) {
	const shop, api, elsewhere = "/app.slice/app-corral-claude-shop.scope", "/app.slice/app-corral-claude-api.scope", "/app.slice/run-u5.scope"
	sessions := []*supervisor.Snapshot{snapshotIn("shop", shop), snapshotIn("api", api), snapshotIn("done", "")}
	for _, row := range []struct {
		name  string
		p     process
		found string // whose stray it is
	}{
		{"the agent", process{10, 9, "claude", shop, "shop"}, ""},
		{"in a group below the scope", process{10, 9, "node", shop + "/a/b", "shop"}, ""},
		{"moved away", process{10, 9, "node", elsewhere, "shop"}, "shop"},
		{"moved into another's scope", process{10, 9, "node", api, "shop"}, "shop"},
		{"of a session that has ended", process{10, 1, "node", elsewhere, "done"}, "done"},
		{"without an environment, with a parent there", process{10, 5, "node", elsewhere, ""}, "shop"},
		{"with a grandparent there", process{10, 6, "node", elsewhere, ""}, "shop"},
		{"of nobody", process{10, 1, "node", elsewhere, ""}, ""},
		{"of a session that is forgotten", process{10, 1, "node", elsewhere, "gone"}, ""},
		{"its parents are a circle", process{10, 7, "node", elsewhere, ""}, ""},
		{"in a group with a similar name", process{10, 1, "node", shop + ".x", "shop"}, "shop"},
	} {
		others := []process{{5, 1, "sh", shop, "shop"}, {6, 5, "sh", "/init.scope", ""}, {7, 8, "sh", "/init.scope", ""}, {8, 7, "sh", "/init.scope", ""}}
		var want []dbusapi.Stray
		for _, s := range strays(sessions, append(others, row.p)) {
			if s.PID == 10 {
				want = append(want, s)
			}
		}
		if row.found == "" {
			assert.Empty(t, want, row.name)
		} else {
			assert.Equal(t, []dbusapi.Stray{{Session: row.found, PID: 10, ControlGroup: row.p.group, Name: row.p.name}}, want, row.name)
		}
	}
}

func snapshotIn(id, group string) *supervisor.Snapshot {
	return &supervisor.Snapshot{ID: id, ControlGroup: group}
}
