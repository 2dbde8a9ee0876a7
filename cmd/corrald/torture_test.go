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
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/testbed"
)

// TestTorture injects faults for TORTURE_ROUNDS rounds while sessions start, run and end. After
// each round the reported state of every session must match its actual one: the agents themselves
// record how they end. TORTURE_SEED, and TORTURE_ROUND for the first round, repeat a failure as far
// as timing allows.
func TestTorture(t *testing.T) {
	rounds, seed := number(t, "TORTURE_ROUNDS", 3), number(t, "TORTURE_SEED", uint64(time.Now().UnixNano()%1e9))
	first := number(t, "TORTURE_ROUND", 0)
	t.Logf("SEED=%d ROUND=%d ROUNDS=%d", seed, first, rounds)
	w := newTorture(t)
	if rounds >= longRun {
		w.random = rand.New(rand.NewPCG(seed, 0))
		w.standstill(5 * time.Minute)
	}
	for round := first; round < first+rounds; round++ {
		begin := time.Now()
		w.round(seed, round)
		w.rounds++
		t.Logf("round %d took %v", round, time.Since(begin).Round(100*time.Millisecond))
		if w.lost+w.untrue > 0 {
			t.Errorf("corrald reports untrue states; repeat with: make torture SEED=%d ROUND=%d ROUNDS=1", seed, round)
			break // one round is enough to investigate
		}
	}
	t.Logf("%d rounds, %d sessions (%d interrupted before they had an agent), %d faults:", w.rounds, w.sessions,
		w.interrupted, w.total())
	for _, kind := range slices.Sorted(maps.Keys(w.faults)) {
		t.Logf("%6d  %s", w.faults[kind], kind)
	}
	t.Logf("%d exits, at least %d of them while no daemon was running; lost exits: %d, untrue states: %d", w.exits,
		w.missed, w.lost, w.untrue)
}

// longRun is the number of rounds from which the test has time for a fault that takes minutes.
const longRun = 50

// crashed finds a crash of the daemon in its log. It does not match the goroutine dump of a daemon
// that its watchdog has killed, which mentions runtime/panic.go.
var crashed = regexp.MustCompile(`(?m)^(panic|fatal error): `)

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

// torture is a daemon that systemd runs and restarts, and the faults injected so far.
type torture struct {
	t      *testing.T
	dir    string
	random *rand.Rand // of the round; used by the goroutine of the faults only

	victims    []*victim // of the round, like the following fields
	gate       *gate
	injected   []string // the faults of the round so far
	allStopped bool     // systemd was asked to stop every session

	rounds, sessions, interrupted, exits, missed, lost, untrue int
	faults                                                     map[string]int
}

func (w *torture) total() (n int) {
	for _, count := range w.faults {
		n += count
	}
	return n
}

// newTorture installs corrald as a service. A round that wants a failpoint writes it to a file,
// which systemd reads at each start.
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
WatchdogSec=%[4]v
LimitCORE=0
KillMode=mixed
Environment=HOME=%[2]s XDG_STATE_HOME=%[2]s/state XDG_CONFIG_HOME=%[2]s/config CORRAL_SHIM=%[3]s "GORACE=atexit_sleep_ms=0 log_path=%[2]s/race"
EnvironmentFile=-%[2]s/failpoint
StandardError=append:%[2]s/log
`, programs.Corrald, dir, programs.Shim, watchdog), 0o644))
	// By default systemd stops restarting a bus that has exited five times in ten seconds.
	bus := filepath.Join(filepath.Dir(unit), "dbus.service.d/torture.conf")
	require.NoError(t, os.MkdirAll(filepath.Dir(bus), 0o755))
	require.NoError(t, os.WriteFile(bus, []byte("[Unit]\nStartLimitIntervalSec=0\n"), 0o644))
	testbed.Systemctl(t, "daemon-reload")
	t.Cleanup(func() {
		_ = exec.Command("systemctl", "--user", "stop", "corrald.service").Run()
		_ = exec.Command("systemctl", "--user", "kill", "--signal=KILL", "app-corral-*.scope").Run()
		require.NoError(t, errors.Join(os.Remove(unit), os.Remove(bus)))
		_ = exec.Command("systemctl", "--user", "daemon-reload").Run()
		races, err := filepath.Glob(dir + "/race*")
		require.NoError(t, err)
		for _, race := range races {
			t.Errorf("%s", readFile(t, race))
		}
		text := readFile(t, dir+"/log")
		if at := crashed.FindStringIndex(text); at != nil {
			t.Errorf("log of corrald:\n%s", text[max(0, at[0]-2_000):min(len(text), at[0]+20_000)])
		}
		if t.Failed() {
			t.Logf("the end of corrald's log:\n%s", text[max(0, len(text)-20_000):])
		}
	})
	testbed.Systemctl(t, "start", "corrald.service")
	return w
}

// call calls a method over a new connection: an older one may have been lost with the bus.
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

// properties returns a session's properties, nil if there is no such session; answers is false if
// the daemon does not answer.
func (w *torture) properties(id string) (p properties, answers bool) {
	err := w.call(dbusapi.SessionPath(id), "org.freedesktop.DBus.Properties.GetAll", []any{dbusapi.SessionInterface}, &p)
	var answer dbus.Error
	if errors.As(err, &answer) && slices.Contains([]string{"org.freedesktop.DBus.Error.UnknownObject",
		dbusapi.ErrorName(dbusapi.NoSuchSession)}, answer.Name) {
		return nil, true
	}
	return p, err == nil
}

// round runs sessions while it injects faults, and then checks what is reported of each.
func (w *torture) round(seed, round uint64) {
	w.random = rand.New(rand.NewPCG(seed, round))
	name := fmt.Sprintf("r%d", round)
	w.play(name, cast(name, w.random), func() {
		for range 12 {
			w.pause(50*time.Millisecond, 500*time.Millisecond)
			w.injectFault()
		}
		if w.random.IntN(4) == 0 {
			w.stopEverything()
		}
	})
}

// play runs the sessions of a round during faults, and compares what is reported of each with what
// its agent has recorded.
func (w *torture) play(name string, victims []*victim, faults func()) {
	var err error
	w.gate, err = newGate(w.dir + "/" + name + ".gate")
	require.NoError(w.t, err)
	defer w.gate.close()
	w.victims, w.injected, w.allStopped = victims, nil, false
	w.sessions += len(w.victims)
	var created, done sync.WaitGroup
	for _, v := range w.victims {
		if v.early {
			created.Go(func() { w.create(v) })
		}
	}
	created.Wait()
	for _, v := range w.victims {
		done.Go(func() {
			if !v.early {
				w.create(v)
			}
			w.live(v)
		})
	}
	faults()
	done.Wait()
	w.gate.open()
	w.waitReady()
	for _, v := range w.victims {
		if slices.Contains([]role{losesTmux, losesBoth, losesShim, isResumed, bombs}, v.role) {
			w.faults[string(v.role)]++
		}
		w.judge(v)
	}
}

// countFault counts injected faults.
func (w *torture) countFault(kind string, n int) {
	w.faults[kind] += n
	w.injected = append(w.injected, kind)
}

// waitReady waits until systemd, the bus and the daemon are running again. systemd may block for a
// minute and a half if it was re-executed while there was no bus.
func (w *torture) waitReady() {
	for deadline := time.Now().Add(5 * patience); time.Now().Before(deadline); <-time.After(50 * time.Millisecond) {
		w.systemctl("reset-failed", "dbus.service", "dbus.socket", "corrald.service")
		w.systemctl("start", "dbus.socket", "dbus.service", "corrald.service")
		var version dbus.Variant
		if w.call(dbusapi.ManagerPath, "org.freedesktop.DBus.Properties.Get",
			[]any{dbusapi.ManagerInterface, "Version"}, &version) == nil {
			return
		}
	}
	w.t.Fatal("corrald does not start again")
}

// judge compares the reported state of a session with its actual one.
func (w *torture) judge(v *victim) {
	var want []string
	reported := ""
	var p properties
	for deadline := time.Now().Add(patience / 3); ; <-time.After(20 * time.Millisecond) {
		var answers bool
		want = w.acceptable(v)
		if p, answers = w.properties(v.id); answers {
			reported = summary(p)
			if slices.Contains(want, reported) {
				break
			}
		}
		if time.Now().After(deadline) {
			if v.hasEnded(w) {
				w.lost++
			} else {
				w.untrue++
			}
			w.t.Errorf("session %s, which %s, is %q (%s), expected one of %q; %+v after %q",
				v.id, v.role, reported, p.text("Reason"), want, *v, w.injected)
			break
		}
	}
	if v.hasEnded(w) {
		w.exits++
	}
	if !v.hasStarted(w) {
		w.interrupted++
	}
	if p != nil {
		_ = w.call(dbusapi.ManagerPath, dbusapi.ManagerInterface+".RemoveSession", []any{v.id, dbusapi.RemoveForce})
	}
}

// summary returns a session's state, result and exit status as a text.
func summary(p properties) string {
	if p == nil {
		return "none"
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s %d/%d", p.text("State"), p.text("Result"), p.number("ExecMainCode"),
		p.number("ExecMainStatus")))
}

// acceptable returns the acceptable summaries of a session, by what its agent has recorded and by
// the faults injected into it.
func (w *torture) acceptable(v *victim) []string {
	switch {
	// Its start was interrupted, by the stop or because the daemon was being stopped, too.
	case !v.hasStarted(w) && w.allStopped:
		return []string{"none", "failed start-failed 0/0", "stopped success 0/0", "suspended session-lost 0/0"}
	case !v.hasStarted(w): // its start was interrupted, or it was never requested
		return []string{"none", "failed start-failed 0/0"}
	}
	text, _ := os.ReadFile(w.path(v))
	terminated := v.hasFile(w, ".term")
	switch end := strings.TrimSpace(string(text)); {
	case terminated && v.role == isResumed: // after which it may have been resumed
		return []string{"stopped success 2/15", "running  0/0"}
	case terminated && w.allStopped, terminated && v.role == isStopped:
		return []string{"stopped success 2/15"}
	case terminated: // no client has requested this
		return []string{"an agent that was not sent SIGTERM"}
	case end == "killed":
		return w.orStopped("failed signal 2/9", "stopped success 2/9")
	case end == "0":
		return w.orStopped("completed success 1/0", "stopped success 1/0")
	case end != "":
		return w.orStopped(fmt.Sprintf("failed exit-code 1/%d", v.code), fmt.Sprintf("stopped success 1/%d", v.code))
	case v.role == isStopped && v.stopped:
		return []string{"stopped success 2/15"}
	case v.role == isStopped:
		return []string{"stopped success 2/15", "running  0/0"}
	case v.role == losesTmux:
		return []string{"stale session-lost 0/0"}
	case v.role == losesShim && v.seen:
		return []string{"failed agent-lost 0/0"}
	case v.role == losesShim: // no daemon has ever seen its agent
		return []string{"failed agent-lost 0/0", "failed start-failed 0/0"}
	case v.role == lives, v.role == isResumed:
		return []string{"running  0/0"}
	}
	return nil // it is about to end
}

// orStopped returns the acceptable summaries of a session whose agent ended by itself: during a
// stop of everything it may be reported as stopped.
func (w *torture) orStopped(by, stopped string) []string {
	if w.allStopped {
		return []string{by, stopped}
	}
	return []string{by}
}
