package server

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/supervisor"
)

// TestStrays_FindsProcessesOutsideOfTheirScope: a process that belongs to a session and is not in
// the session's scope is a stray.
func TestStrays_FindsProcessesOutsideOfTheirScope(t *testing.T) {
	const (
		shop      = "/app.slice/app-corral-claude-shop.scope"
		api       = "/app.slice/app-corral-claude-api.scope"
		elsewhere = "/app.slice/run-u5.scope"
	)
	sessions := []*supervisor.Snapshot{snapshotIn("shop", shop), snapshotIn("api", api), snapshotIn("done", "")}
	for _, row := range []struct {
		name string
		p    process
		want string // the session whose stray the process is
	}{
		{"the agent", process{10, 9, "claude", shop, "shop"}, ""},
		{"a process in a group below the scope", process{10, 9, "node", shop + "/a/b", "shop"}, ""},
		{"moved to another unit", process{10, 9, "node", elsewhere, "shop"}, "shop"},
		{"moved to another session's scope", process{10, 9, "node", api, "shop"}, "shop"},
		{"setting the worktree up", process{10, 9, "npm", "/app.slice/corral-worktree-setup-shop-x.service", "shop"}, ""},
		{"the session has ended", process{10, 1, "node", elsewhere, "done"}, "done"},
		{"without an environment, the parent is in the scope", process{10, 5, "node", elsewhere, ""}, "shop"},
		{"the grandparent is in the scope", process{10, 6, "node", elsewhere, ""}, "shop"},
		{"unrelated to any session", process{10, 1, "node", elsewhere, ""}, ""},
		{"the session was removed", process{10, 1, "node", elsewhere, "gone"}, ""},
		{"the parents form a cycle", process{10, 7, "node", elsewhere, ""}, ""},
		{"in a group with a similar name", process{10, 1, "node", shop + ".x", "shop"}, "shop"},
	} {
		others := []process{
			{5, 1, "sh", shop, "shop"}, {6, 5, "sh", "/init.scope", ""},
			{7, 8, "sh", "/init.scope", ""}, {8, 7, "sh", "/init.scope", ""},
		}
		var found []dbusapi.Stray
		for _, s := range strays(sessions, append(others, row.p)) {
			if s.PID == 10 {
				found = append(found, s)
			}
		}
		if row.want == "" {
			assert.Empty(t, found, row.name)
			continue
		}
		stray := dbusapi.Stray{Session: row.want, PID: 10, ControlGroup: row.p.group, Name: row.p.name}
		assert.Equal(t, []dbusapi.Stray{stray}, found, row.name)
	}
}

func snapshotIn(id, group string) *supervisor.Snapshot {
	return &supervisor.Snapshot{ID: id, ControlGroup: group}
}
