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
	"github.com/corrald/corral/internal/unitname"
	"github.com/corrald/corral/supervisor"
)

func listStrays(_ context.Context, o *object, _ *dbus.Message) ([]any, error) {
	return []any{strays(o.server.snapshots(), userProcesses())}, nil
}

// process is a process that may belong to a session.
type process struct {
	pid, parent int
	name        string
	group       string // its control group
	session     string // its session according to its environment, "" if that names none
}

// userProcesses returns the processes of this user, without the calling process.
func userProcesses() []process {
	pids, _ := proc.All()
	var all []process
	for _, pid := range pids {
		stat, err := proc.Stat(pid)
		if err != nil || stat.State == 'Z' || pid == os.Getpid() || !isOfThisUser(pid) {
			continue
		}
		group, err := proc.Cgroup(pid)
		if err != nil {
			continue
		}
		id, _ := proc.Variable(pid, "CORRAL_SESSION")
		all = append(all, process{pid, stat.Parent, stat.Comm, group, id})
	}
	return all
}

func isOfThisUser(pid int) bool {
	info, err := os.Stat(filepath.Join("/proc", strconv.Itoa(pid)))
	if err != nil {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Getuid()
}

// strays returns the processes that belong to a session but are outside of its scope. A process
// belongs to the session that its environment names, or else to the session of its nearest ancestor
// that is in a scope.
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
		if unitname.IsWorktreeStep(p.group) { // it sets a worktree up, and ends with its service
			continue
		}
		in := sessionOfGroup(p.group, scopes)
		of := p.session
		if !known[of] {
			of = sessionOfAncestor(p, byPID, scopes)
		}
		if of != "" && in != of {
			found = append(found, dbusapi.Stray{
				Session:      of,
				PID:          uint32(p.pid),
				ControlGroup: strings.ToValidUTF8(p.group, "\uFFFD"),
				Name:         strings.ToValidUTF8(p.name, "\uFFFD"),
			})
		}
	}
	slices.SortFunc(found, func(a, b dbusapi.Stray) int {
		return cmp.Or(strings.Compare(a.Session, b.Session), cmp.Compare(a.PID, b.PID))
	})
	return found
}

// sessionOfGroup returns the session whose scope contains a control group, "" if there is none.
func sessionOfGroup(group string, scopes map[string]string) string {
	for dir := group; len(dir) > 1; dir = filepath.Dir(dir) {
		if id := scopes[dir]; id != "" {
			return id
		}
	}
	return ""
}

// sessionOfAncestor returns the session whose scope contains the process or its nearest ancestor
// that is in a scope.
func sessionOfAncestor(p process, all map[int]process, scopes map[string]string) string {
	for range len(all) + 1 { // bounded: processes that were read one after the other may form a cycle
		if id := sessionOfGroup(p.group, scopes); id != "" {
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
