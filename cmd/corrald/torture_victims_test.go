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

// victim is a session with what is in store for it.
type victim struct {
	id    string
	role  role
	code  int
	early bool          // it is there before the first fault
	after time.Duration // until its agent ends, or something is done to it

	seen    bool // a daemon has seen its agent
	stopped bool
}

// role is what is in store for a session.
type role string

const (
	leaves    role = "leaves"     // its agent ends with a code
	waits     role = "waits"      // its agent ends with a code, together with others
	dies      role = "dies"       // its agent is killed by a signal
	shouts    role = "shouts"     // it prints a lot and ends with a code
	clutters  role = "clutters"   // it leaves processes behind and ends with a code
	lives     role = "lives"      // nothing becomes of it
	isStopped role = "is stopped" // by its user
	losesTmux role = "loses tmux" // and goes on
	losesBoth role = "loses tmux, then leaves"
	losesShim role = "loses its shim"
	isResumed role = "loses tmux and is resumed"
	bombs     role = "fills the process table" // as far as RLIMIT_NPROC lets it, and ends with a code
)

var roles = []role{
	leaves, leaves, leaves, leaves, waits, waits, waits, waits, waits, dies, dies, shouts, clutters, lives, isStopped, isStopped,
	losesTmux, losesBoth, losesShim, isResumed, bombs,
}

// cast returns the sessions of a round. Two of three are there before its first fault.
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

// script is the agent: it writes down that it is there, that it was sent SIGTERM, and, before it
// ends by itself, how. What has written down how it ends is not to be ended otherwise.
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
	case bombs: // the limit counts every thread of the user's
		return start + `(ulimit -p 300 || ulimit -u 300; n=0; while [ $((n += 1)) -lt 400 ]; do sleep 1006 & done) 2>/dev/null; ` + sleep + leave
	case clutters:
		return start + "setsid -f sleep 1004; " + sleep + leave
	case leaves, losesBoth:
		return start + sleep + leave
	}
	return start + "sleep 1005 & wait $!"
}

func (w *torture) path(v *victim) string { return w.dir + "/" + v.id }

// create creates a session, again and again until it is there. A creation that was interrupted has
// failed, or succeeded: the next attempt is told.
func (w *torture) create(v *victim) {
	var id string
	var path dbus.ObjectPath
	sp := spec{"Id": v.id, "WorkingDirectory": w.dir, "Command": []string{"sh", "-c", v.script(w.gate.path), w.path(v)}}
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-time.After(20 * time.Millisecond) {
		err := w.call(dbusapi.ManagerPath, dbusapi.ManagerInterface+".CreateSession", []any{"command", sp.variants()}, &id, &path)
		var answer dbus.Error
		if f, answers := w.facts(v.id); err == nil && answers { // a daemon that ends meanwhile answers too
			v.seen = v.seen || f.text("State") != "starting" && f.number("MainPID") > 0
		}
		if err == nil || errors.As(err, &answer) && (answer.Name == dbusapi.ErrorName(dbusapi.SessionExists) || answer.Name == dbusapi.ErrorName(dbusapi.StartFailed)) {
			return
		}
	}
}

// live does to a session what is in store for it.
func (w *torture) live(v *victim) {
	<-time.After(v.after)
	switch v.role {
	case isStopped:
		v.stopped = w.call(dbusapi.SessionPath(v.id), dbusapi.SessionInterface+".Stop", []any{uint64(0)}) == nil
	case losesTmux, losesBoth:
		w.killThat(w.isTmux(v))
	case isResumed:
		if v.executed(w) {
			if killed := w.killThat(w.isTmux(v)); len(killed) > 0 {
				w.resume(v, killed)
			}
		}
	case losesShim:
		w.killThat(w.isShim(v))
	}
}

func (w *torture) runtime(v *victim) string {
	return filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "corral", v.id)
}

// isTmux tells a session's tmux server by its arguments.
func (w *torture) isTmux(v *victim) func([]string) bool {
	return func(args []string) bool {
		return slices.Contains(args, "-D") && slices.Contains(args, w.runtime(v)+"/tmux")
	}
}

// isShim tells a session's shim by its arguments.
func (w *torture) isShim(v *victim) func([]string) bool {
	return func(args []string) bool { return len(args) == 3 && args[1] == "run" && args[2] == w.runtime(v)+"/run" }
}

// resume resumes a session whose tmux servers were killed, until that was answered or is seen to
// have worked. A systemd whose bus was killed may take a minute and a half until it is there again,
// and the daemon with it.
func (w *torture) resume(v *victim, killed []int) {
	for deadline := time.Now().Add(6 * patience); time.Now().Before(deadline); <-time.After(50 * time.Millisecond) {
		if w.call(dbusapi.SessionPath(v.id), dbusapi.SessionInterface+".Resume", nil) == nil {
			return
		}
		if f, answers := w.facts(v.id); answers && f.text("State") == "running" {
			// Those that were killed may still be there, and the daemon may not know yet.
			if slices.ContainsFunc(that(w.isTmux(v)), func(pid int) bool { return !slices.Contains(killed, pid) }) {
				return
			}
		}
	}
	w.t.Errorf("session %s could not be resumed within %v", v.id, 6*patience)
}

// killThat kills the processes that were executed with such arguments, and returns them.
func (w *torture) killThat(is func([]string) bool) []int {
	pids := that(is)
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	return pids
}

// that returns the processes that were executed with such arguments.
func that(is func([]string) bool) []int {
	pids, _ := proc.All()
	return slices.DeleteFunc(pids, func(pid int) bool {
		args, err := proc.Arguments(pid)
		return err != nil || !is(args)
	})
}

// executed tells whether there was ever an agent.
func (v *victim) executed(w *torture) bool { return v.wrote(w, ".agents") }

// ended tells whether its agent has written down how it ends.
func (v *victim) ended(w *torture) bool { return v.wrote(w, "") }

func (v *victim) wrote(w *torture, suffix string) bool {
	_, err := os.Stat(w.path(v) + suffix)
	return err == nil
}
