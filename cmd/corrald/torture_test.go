package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/proc"
	"github.com/corrald/corral/internal/testbed"
)

// TestTorture does everything to Corral that a bad day can, for TORTURE_ROUNDS rounds, while sessions start, run and end. After each round every session
// has to be what has really become of it: the agents themselves write down how they end. TORTURE_SEED repeats a failure as far as time allows.
func TestTorture(t *testing.T) {
	rounds, seed := number(t, "TORTURE_ROUNDS", 3), number(t, "TORTURE_SEED", uint64(time.Now().UnixNano()%1e9))
	t.Logf("TORTURE_SEED=%d TORTURE_ROUNDS=%d", seed, rounds)
	w := newTorture(t)
	for round := range rounds {
		w.random = rand.New(rand.NewPCG(seed, round))
		w.round(fmt.Sprintf("r%d", round))
		w.rounds++
		if w.lost+w.untrue > 0 {
			break // one round is enough to look into
		}
	}
	t.Logf("%d rounds, %d sessions (%d interrupted before they had an agent), %d faults: %v", w.rounds, w.sessions, w.interrupted, w.total(), w.faults)
	t.Logf("%d exits, %d of them while no daemon was there; lost exits: %d, untrue states: %d", w.exits, w.away, w.lost, w.untrue)
	if w.lost+w.untrue > 0 {
		t.Errorf("what corrald says is not what has happened; again with TORTURE_SEED=%d TORTURE_ROUNDS=%d", seed, rounds)
	}
}

func number(t *testing.T, variable string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	require.NoError(t, err, variable)
	return n
}

// torture is a daemon that systemd runs and starts again, with what was done to it.
type torture struct {
	t      *testing.T
	dir    string
	random *rand.Rand // of the round: belongs to the goroutine of the faults

	rounds, sessions, interrupted, exits, away, lost, untrue int
	faults                                                   map[string]int
}

func (w *torture) total() (n int) {
	for _, count := range w.faults {
		n += count
	}
	return n
}

// newTorture installs corrald as the service that it is. Its failpoint, if a round wants one, comes from a file, which systemd reads at each start.
func newTorture(t *testing.T) *torture {
	dir := testbed.Dir(t)
	w := &torture{t: t, dir: dir, faults: map[string]int{}}
	unit := filepath.Join(os.Getenv("XDG_CONFIG_HOME"), "systemd/user/corrald.service")
	require.NoError(t, os.MkdirAll(filepath.Dir(unit), 0o755))
	programs := testbed.Programs(t)
	require.NoError(t, os.WriteFile(unit, fmt.Appendf(nil, `[Unit]
StartLimitIntervalSec=0
After=dbus.service dbus.socket
[Service]
Type=notify
ExecStart=%[1]s
Restart=on-failure
RestartSec=50ms
KillMode=mixed
Environment=HOME=%[2]s XDG_STATE_HOME=%[2]s/state XDG_CONFIG_HOME=%[2]s/config CORRAL_SHIM=%[3]s "GORACE=atexit_sleep_ms=0 log_path=%[2]s/race"
EnvironmentFile=-%[2]s/failpoint
StandardError=append:%[2]s/log
`, programs.Corrald, dir, programs.Shim), 0o644))
	testbed.Systemctl(t, "daemon-reload")
	t.Cleanup(func() {
		_ = exec.Command("systemctl", "--user", "stop", "corrald.service").Run()
		_ = exec.Command("systemctl", "--user", "kill", "--signal=KILL", "app-corral-*.scope").Run()
		require.NoError(t, os.Remove(unit))
		_ = exec.Command("systemctl", "--user", "daemon-reload").Run()
		races, err := filepath.Glob(dir + "/race*")
		require.NoError(t, err)
		for _, race := range races {
			t.Errorf("%s", readFile(t, race))
		}
		if text := readFile(t, dir+"/log"); t.Failed() || strings.Contains(text, "panic") {
			t.Errorf("corrald said:\n%s", text[max(0, len(text)-20_000):])
		}
	})
	testbed.Systemctl(t, "start", "corrald.service")
	return w
}

// call calls a method over a connection of its own: those that were there before may have been lost with the bus.
func (w *torture) call(path dbus.ObjectPath, method string, args []any, results ...any) error {
	conn, err := dbus.Connect(os.Getenv("DBUS_SESSION_BUS_ADDRESS"))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	return conn.Object(dbusapi.BusName, path).CallWithContext(ctx, method, 0, args...).Store(results...)
}

// facts returns a session's properties; answers is false if nobody answers, and both are empty if there is no such session.
func (w *torture) facts(id string) (f facts, answers bool) {
	err := w.call(dbusapi.SessionPath(id), "org.freedesktop.DBus.Properties.GetAll", []any{dbusapi.SessionInterface}, &f)
	var answer dbus.Error
	if errors.As(err, &answer) && slices.Contains([]string{"org.freedesktop.DBus.Error.UnknownObject", dbusapi.ErrorName(dbusapi.NoSuchSession)}, answer.Name) {
		return nil, true
	}
	return f, err == nil
}

// pause waits for a part of the schedule of faults.
func (w *torture) pause(least, most time.Duration) {
	<-time.After(least + time.Duration(w.random.Int64N(int64(most-least))))
}

// victim is a session with what is in store for it.
type victim struct {
	id    string
	role  role
	code  int
	after time.Duration // until its agent ends, or something is done to it

	created bool // the call has said so
	stopped bool
}

// role is what is in store for a session.
type role string

const (
	leaves    role = "leaves"     // its agent ends with a code
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

var roles = []role{leaves, leaves, leaves, dies, shouts, clutters, lives, isStopped, losesTmux, losesBoth, losesShim, isResumed, bombs}

func (w *torture) victims(round string) []*victim {
	all := make([]*victim, 0, len(roles))
	for n, r := range roles {
		all = append(all, &victim{
			id: fmt.Sprintf("%s-%d", round, n), role: r, code: w.random.IntN(120),
			after: time.Duration(w.random.IntN(2500)) * time.Millisecond,
		})
	}
	return all
}

// script is the agent: it writes down that it is there, and, before it ends by itself, how.
func (v *victim) script() string {
	start := `echo $$ >>"$0.agents"; `
	end := fmt.Sprintf(`sleep %.3f; echo %d >"$0.new"; mv "$0.new" "$0"; exit %d`, v.after.Seconds(), v.code, v.code)
	switch v.role {
	case dies:
		return start + fmt.Sprintf(`sleep %.3f; echo killed >"$0.new"; mv "$0.new" "$0"; kill -KILL $$`, v.after.Seconds())
	case shouts:
		return start + "yes corral | head -c 3000000; " + end
	case bombs: // the limit counts every thread of the user's
		return start + `(ulimit -p 300 || ulimit -u 300; n=0; while [ $((n += 1)) -lt 400 ]; do sleep 1006 & done) 2>/dev/null; ` + end
	case clutters:
		return start + "setsid -f sleep 1004; " + end
	case leaves, losesBoth:
		return start + end
	}
	return start + "exec sleep 1005"
}

func (w *torture) path(v *victim) string { return w.dir + "/" + v.id }

// live creates a session, again and again until it is there, and does to it what is in store. A creation that was interrupted has failed, or
// succeeded: the next attempt is told.
func (w *torture) live(v *victim) {
	var id string
	var path dbus.ObjectPath
	sp := spec{"Id": v.id, "WorkingDirectory": w.dir, "Command": []string{"sh", "-c", v.script(), w.path(v)}}
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-time.After(20 * time.Millisecond) {
		err := w.call(dbusapi.ManagerPath, dbusapi.ManagerInterface+".CreateSession", []any{"command", sp.variants()}, &id, &path)
		var answer dbus.Error
		v.created = v.created || err == nil
		if err == nil || errors.As(err, &answer) && (answer.Name == dbusapi.ErrorName(dbusapi.SessionExists) || answer.Name == dbusapi.ErrorName(dbusapi.StartFailed)) {
			break
		}
	}
	<-time.After(v.after)
	switch v.role {
	case isStopped:
		v.stopped = w.call(dbusapi.SessionPath(v.id), dbusapi.SessionInterface+".Stop", []any{uint64(0)}) == nil
	case losesTmux, losesBoth:
		w.killThat(w.isTmux(v))
	case isResumed:
		if v.executed(w) && w.killThat(w.isTmux(v)) {
			w.resume(v)
		}
	case losesShim:
		w.killThat(func(args []string) bool { return len(args) == 3 && args[1] == "run" && args[2] == w.runtime(v)+"/run" })
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

// resume resumes a session, until that was answered or is seen to have worked.
func (w *torture) resume(v *victim) {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-time.After(50 * time.Millisecond) {
		if w.call(dbusapi.SessionPath(v.id), dbusapi.SessionInterface+".Resume", nil) == nil {
			return
		}
		if f, answers := w.facts(v.id); answers && f.text("State") == "running" && len(that(w.isTmux(v))) > 0 {
			return
		}
	}
}

// killThat kills the processes that were executed with such arguments, and tells whether there were any.
func (w *torture) killThat(is func([]string) bool) bool {
	pids := that(is)
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	return len(pids) > 0
}

// that returns the processes that were executed with such arguments.
func that(is func([]string) bool) []int {
	pids, _ := proc.All()
	return slices.DeleteFunc(pids, func(pid int) bool {
		args, err := proc.Arguments(pid)
		return err != nil || !is(args)
	})
}

// faultKinds are what is done to the world around the sessions.
var faultKinds = map[string]func(*torture){
	"SIGKILL":       func(w *torture) { w.signal(syscall.SIGKILL) },
	"failpoint":     (*torture).failpoint,
	"restart":       func(w *torture) { w.systemctl("restart", "corrald.service") },
	"away":          (*torture).leaveAlone,
	"SIGSTOP":       (*torture).freeze,
	"daemon-reload": func(w *torture) { w.repeat("daemon-reload") },
	"daemon-reexec": func(w *torture) { w.repeat("daemon-reexec") },
	"bus restart":   func(w *torture) { w.systemctl("restart", "dbus.service") },
}

// systemctl does what it can: some of the faults are in the way of others.
func (w *torture) systemctl(args ...string) {
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	_ = exec.CommandContext(ctx, "systemctl", append([]string{"--user"}, args...)...).Run()
}

// daemon returns the process id of the daemon, 0 if there is none.
func (w *torture) daemon() int {
	output, _ := exec.CommandContext(w.t.Context(), "systemctl", "--user", "show", "--value", "--property=MainPID", "corrald.service").Output()
	pid, _ := strconv.Atoi(strings.TrimSpace(string(output)))
	return pid
}

func (w *torture) signal(signal syscall.Signal) {
	if pid := w.daemon(); pid > 0 {
		_ = syscall.Kill(pid, signal)
	}
}

// failpoint has the next daemon die at a step, which it may or may not come to.
func (w *torture) failpoint() {
	points := slices.Concat(adoptSteps, saveSteps)
	for _, steps := range [][]stepThen{startSteps, stopSteps} {
		for _, step := range steps {
			points = append(points, step.point)
		}
	}
	point := fmt.Sprintf("CORRAL_FAILPOINT=%s:%d\n", points[w.random.IntN(len(points))], 1+w.random.IntN(3))
	_ = os.WriteFile(w.dir+"/failpoint", []byte(point), 0o600)
	w.signal(syscall.SIGKILL)
	w.pause(200*time.Millisecond, 800*time.Millisecond)
	_ = os.Remove(w.dir + "/failpoint")
}

// leaveAlone has the sessions without a daemon for a while.
func (w *torture) leaveAlone() {
	w.systemctl("stop", "corrald.service")
	before := w.ended()
	w.pause(300*time.Millisecond, 900*time.Millisecond)
	w.away += w.ended() - before
	w.systemctl("start", "corrald.service")
}

// ended counts the agents that have written down how they end.
func (w *torture) ended() int {
	files, _ := filepath.Glob(w.dir + "/r*-*")
	return len(slices.DeleteFunc(files, func(name string) bool { return strings.Contains(filepath.Base(name), ".") }))
}

func (w *torture) freeze() {
	w.signal(syscall.SIGSTOP)
	w.pause(300*time.Millisecond, time.Second)
	w.signal(syscall.SIGCONT)
}

func (w *torture) repeat(verb string) {
	for range 1 + w.random.IntN(3) {
		w.systemctl(verb)
	}
}

// round lets sessions live through faults, and then looks what is said of each.
func (w *torture) round(name string) {
	victims := w.victims(name)
	w.sessions += len(victims)
	var done sync.WaitGroup
	for _, v := range victims {
		done.Go(func() { w.live(v) })
	}
	kinds := slices.Sorted(maps.Keys(faultKinds))
	var story []string
	for range 5 {
		w.pause(50*time.Millisecond, 500*time.Millisecond)
		kind := kinds[w.random.IntN(len(kinds))]
		story = append(story, kind)
		w.faults[kind]++
		faultKinds[kind](w)
	}
	done.Wait()
	w.systemctl("start", "dbus.service", "corrald.service")
	for _, v := range victims {
		if slices.Contains([]role{losesTmux, losesBoth, losesShim, isResumed, bombs}, v.role) {
			w.faults[string(v.role)]++
		}
		w.judge(v, story)
	}
}

// judge compares what is said of a session with what has become of it.
func (w *torture) judge(v *victim, story []string) {
	var want []string
	said := ""
	var f facts
	for deadline := time.Now().Add(patience / 3); ; <-time.After(20 * time.Millisecond) {
		var answers bool
		want = w.want(v)
		if f, answers = w.facts(v.id); answers {
			said = sentence(f)
			if slices.Contains(want, said) {
				break
			}
		}
		if time.Now().After(deadline) {
			if _, err := os.Stat(w.path(v)); err == nil {
				w.lost++
			} else {
				w.untrue++
			}
			w.t.Errorf("session %s, which %s, is %q (%s) and has to be one of %q; %+v after %q",
				v.id, v.role, said, f.text("Reason"), want, *v, story)
			break
		}
	}
	if _, err := os.Stat(w.path(v)); err == nil {
		w.exits++
	}
	if !v.executed(w) {
		w.interrupted++
	}
	if f != nil {
		_ = w.call(dbusapi.ManagerPath, dbusapi.ManagerInterface+".RemoveSession", []any{v.id, dbusapi.RemoveForce})
	}
}

// sentence says what a session says of itself.
func sentence(f facts) string {
	if f == nil {
		return "none"
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s %d/%d", f.text("State"), f.text("Result"), f.number("ExecMainCode"), f.number("ExecMainStatus")))
}

// executed tells whether there was ever an agent.
func (v *victim) executed(w *torture) bool {
	_, err := os.Stat(w.path(v) + ".agents")
	return err == nil
}

// want returns what may be said of a session, by what its agent has written down and by what was done to it.
func (w *torture) want(v *victim) []string {
	if !v.executed(w) { // its start was interrupted, or it was never asked for
		return []string{"none", "failed start-failed 0/0"}
	}
	text, _ := os.ReadFile(w.path(v))
	switch strings.TrimSpace(string(text)) {
	case "killed":
		return []string{"failed signal 2/9"}
	case "0":
		return []string{"completed success 1/0"}
	case "":
	default:
		return []string{fmt.Sprintf("failed exit-code 1/%d", v.code)}
	}
	switch {
	case v.role == isStopped && v.stopped:
		return []string{"stopped success 2/15"}
	case v.role == isStopped:
		return []string{"stopped success 2/15", "running  0/0"}
	case v.role == losesTmux:
		return []string{"stale session-lost 0/0"}
	case v.role == losesShim && v.created:
		return []string{"failed agent-lost 0/0"}
	case v.role == losesShim: // nobody has ever seen its agent
		return []string{"failed agent-lost 0/0", "failed start-failed 0/0"}
	case v.role == lives, v.role == isResumed:
		return []string{"running  0/0"}
	}
	return nil // it is about to end
}
