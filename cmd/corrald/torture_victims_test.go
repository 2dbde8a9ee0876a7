package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/proc"
)

// victim is a session and its planned fate.
type victim struct {
	id    string
	role  role
	code  int
	early bool          // it is created before the first fault
	after time.Duration // until its agent ends, or something is done to it

	seen    bool // a daemon has seen its agent
	stopped bool
}

// role is the planned fate of a session.
type role string

const (
	leaves    role = "leaves"     // its agent exits with a code
	waits     role = "waits"      // its agent exits with a code, together with others
	dies      role = "dies"       // its agent is killed by a signal
	shouts    role = "shouts"     // it prints a lot and exits with a code
	clutters  role = "clutters"   // it leaves processes behind and exits with a code
	lives     role = "lives"      // it runs until the end of the round
	isStopped role = "is stopped" // by its user
	losesTmux role = "loses tmux" // and keeps running
	losesBoth role = "loses tmux, then leaves"
	losesShim role = "loses its shim"
	isResumed role = "loses tmux and is resumed"
	bombs     role = "fills the process table" // as far as RLIMIT_NPROC allows, and exits with a code
)

var roles = []role{
	leaves, leaves, leaves, leaves, waits, waits, waits, waits, waits, dies, dies, shouts, clutters,
	lives, isStopped, isStopped,
	losesTmux, losesBoth, losesShim, isResumed, bombs,
}

// cast returns the sessions of a round. Two of three are created before the first fault.
func cast(round string, random *rand.Rand) []*victim {
	all := make([]*victim, 0, len(roles))
	for n, r := range roles {
		all = append(all, &victim{
			id: fmt.Sprintf("%s-%d", round, n), role: r, code: random.IntN(120), early: random.IntN(3) > 0,
			after: time.Duration(random.IntN(4000)) * time.Millisecond,
		})
	}
	return all
}

// script is the agent: it records its process id, a SIGTERM that it gets, and, before it exits by
// itself, how. An agent that has recorded how it exits ignores SIGTERM and SIGHUP.
func (v *victim) script(gate string) string {
	start := `trap 'echo term >"$0.term"; trap - TERM; kill -TERM $$' TERM; echo $$ >>"$0.agents"; `
	sleep := fmt.Sprintf("sleep %.3f & wait $!; ", v.after.Seconds())
	record := func(end string) string { return `trap "" TERM HUP; echo ` + end + ` >"$0.new"; mv "$0.new" "$0"; ` }
	leave := record(strconv.Itoa(v.code)) + "exit " + strconv.Itoa(v.code)
	switch v.role {
	case waits:
		return start + "read -r line <" + gate + "; " + leave
	case dies:
		return start + sleep + record("killed") + "kill -KILL $$"
	case shouts:
		return start + "yes corral | head -c 3000000; " + sleep + leave
	case bombs: // the limit covers every thread of the user
		return start +
			`(ulimit -p 300 || ulimit -u 300; n=0; while [ $((n += 1)) -lt 400 ]; do sleep 1006 & done) 2>/dev/null; ` +
			sleep + leave
	case clutters:
		return start + "setsid -f sleep 1004; " + sleep + leave
	case leaves, losesBoth:
		return start + sleep + leave
	}
	return start + "sleep 1005 & wait $!"
}

func (w *torture) path(v *victim) string { return w.dir + "/" + v.id }

// create creates a session, and repeats that until the session exists. An attempt that was
// interrupted has failed or succeeded: the next attempt shows which.
func (w *torture) create(v *victim) {
	var id string
	var path dbus.ObjectPath
	sp := spec{"Id": v.id, "WorkingDirectory": w.dir, "Command": []string{"sh", "-c", v.script(w.gate.path), w.path(v)}}
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-time.After(20 * time.Millisecond) {
		err := w.call(dbusapi.ManagerPath, dbusapi.ManagerInterface+".CreateSession",
			[]any{"command", sp.variants()}, &id, &path)
		var answer dbus.Error
		if p, answers := w.properties(v.id); err == nil && answers { // a daemon that is exiting replies too
			v.seen = v.seen || p.text("State") != "starting" && p.number("MainPID") > 0
		}
		if err == nil || errors.As(err, &answer) &&
			(answer.Name == dbusapi.ErrorName(dbusapi.SessionExists) || answer.Name == dbusapi.ErrorName(dbusapi.StartFailed)) {
			return
		}
	}
}

// live carries out the session's planned fate.
func (w *torture) live(v *victim) {
	<-time.After(v.after)
	switch v.role {
	case isStopped:
		v.stopped = w.call(dbusapi.SessionPath(v.id), dbusapi.SessionInterface+".Stop", []any{uint64(0)}) == nil
	case losesTmux, losesBoth:
		w.killMatching(w.isTmux(v))
	case isResumed:
		if v.hasStarted(w) {
			if killed := w.killMatching(w.isTmux(v)); len(killed) > 0 {
				w.resume(v, killed)
			}
		}
	case losesShim:
		w.killMatching(w.isShim(v))
	}
}

func (w *torture) runtime(v *victim) string {
	return filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "corral", v.id)
}

// isTmux returns a function that recognises a session's tmux server by its arguments.
func (w *torture) isTmux(v *victim) func([]string) bool {
	return func(args []string) bool {
		return slices.Contains(args, "-D") && slices.Contains(args, w.runtime(v)+"/tmux")
	}
}

// isShim returns a function that recognises a session's shim by its arguments.
func (w *torture) isShim(v *victim) func([]string) bool {
	return func(args []string) bool { return len(args) == 3 && args[1] == "run" && args[2] == w.runtime(v)+"/run" }
}

// resume resumes a session whose tmux servers were killed, until the call succeeds or the session
// is seen to be resumed. If its bus was killed, systemd may take a minute and a half to recover,
// and the daemon with it.
func (w *torture) resume(v *victim, killed []int) {
	for deadline := time.Now().Add(6 * patience); time.Now().Before(deadline); <-time.After(50 * time.Millisecond) {
		if w.call(dbusapi.SessionPath(v.id), dbusapi.SessionInterface+".Resume", nil) == nil {
			return
		}
		if p, answers := w.properties(v.id); answers && p.text("State") == "running" {
			// The killed servers may still exist, and the daemon may not know yet.
			if slices.ContainsFunc(matching(w.isTmux(v)), func(pid int) bool { return !slices.Contains(killed, pid) }) {
				return
			}
		}
	}
	w.t.Errorf("session %s could not be resumed within %v", v.id, 6*patience)
}

// killMatching kills the processes whose arguments match, and returns them.
func (w *torture) killMatching(is func([]string) bool) []int {
	pids := matching(is)
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	return pids
}

// matching returns the processes whose arguments match.
func matching(is func([]string) bool) []int {
	pids, _ := proc.All()
	return slices.DeleteFunc(pids, func(pid int) bool {
		args, err := proc.Arguments(pid)
		return err != nil || !is(args)
	})
}

// hasStarted reports whether an agent was ever executed.
func (v *victim) hasStarted(w *torture) bool { return v.hasFile(w, ".agents") }

// hasEnded reports whether its agent has recorded how it ends.
func (v *victim) hasEnded(w *torture) bool { return v.hasFile(w, "") }

func (v *victim) hasFile(w *torture, suffix string) bool {
	_, err := os.Stat(w.path(v) + suffix)
	return err == nil
}
