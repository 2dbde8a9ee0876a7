package server

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/proc"
	"github.com/corrald/corral/supervisor"
)

func listStrays(_ context.Context, o *object, _ *dbus.Message) ([]any, error) {
	return []any{strays(o.server.snapshots(), ownProcesses())}, nil
}

// process is one that may belong to a session.
type process struct {
	pid, parent int
	name        string
	group       string // the control group that it is in
	says        string // the session that it was started in, by its environment; "" if it does not say
}

// ownProcesses are the user's processes, without this one.
func ownProcesses() []process {
	pids, _ := proc.All()
	var all []process
	for _, pid := range pids {
		stat, err := proc.Stat(pid)
		if err != nil || stat.State == 'Z' || pid == os.Getpid() || !isOwn(pid) {
			continue
		}
		group, err := proc.Cgroup(pid)
		if err != nil {
			continue
		}
		says, _ := proc.Variable(pid, "CORRAL_SESSION")
		all = append(all, process{pid, stat.Parent, stat.Comm, group, says})
	}
	return all
}

func isOwn(pid int) bool {
	info, err := os.Stat(filepath.Join("/proc", strconv.Itoa(pid)))
	if err != nil {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Getuid()
}

// strays are those of the processes that belong to a session, and are not in its scope: they were
// started in it, by what their environment says, or by a process that is in it, and went somewhere
// else.
func strays(sessions []*supervisor.Snapshot, processes []process) []dbusapi.Stray {
	known, scopes := map[string]bool{}, map[string]string{}
	for _, n := range sessions {
		known[n.ID] = true
		if n.ControlGroup != "" {
			scopes[n.ControlGroup] = n.ID
		}
	}
	byPID := map[int]process{}
	for _, p := range processes {
		byPID[p.pid] = p
	}
	found := []dbusapi.Stray{}
	for _, p := range processes {
		in := sessionAround(p.group, scopes)
		of := p.says
		if !known[of] {
			of = sessionAbove(p, byPID, scopes)
		}
		if of != "" && in != of {
			found = append(found, dbusapi.Stray{Session: of, PID: uint32(p.pid), ControlGroup: strings.ToValidUTF8(p.group, "\uFFFD"), Name: strings.ToValidUTF8(p.name, "\uFFFD")})
		}
	}
	slices.SortFunc(found, func(a, b dbusapi.Stray) int {
		return cmp.Or(strings.Compare(a.Session, b.Session), cmp.Compare(a.PID, b.PID))
	})
	return found
}

// sessionAround is the session in whose scope a control group is, "" if it is in none.
func sessionAround(group string, scopes map[string]string) string {
	for dir := group; len(dir) > 1; dir = filepath.Dir(dir) {
		if id := scopes[dir]; id != "" {
			return id
		}
	}
	return ""
}

// sessionAbove is the session that the process, or the nearest of its parents that is in any, is
// in.
func sessionAbove(p process, all map[int]process, scopes map[string]string) string {
	for range len(all) + 1 { // what is read one after the other may be no tree
		if id := sessionAround(p.group, scopes); id != "" {
			return id
		}
		parent, ok := all[p.parent]
		if !ok {
			return ""
		}
		p = parent
	}
	return ""
}
