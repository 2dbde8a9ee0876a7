package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// faultKinds are the faults of systemd, the bus and the daemon, by name.
var faultKinds = map[string]func(*torture){
	"SIGKILL of corrald":                func(w *torture) { w.signal("corrald.service", syscall.SIGKILL) },
	"SIGKILL of corrald at a failpoint": (*torture).failpoint,
	"restart of corrald":                func(w *torture) { w.systemctl("restart", "corrald.service") },
	"corrald away": func(w *torture) {
		w.away(func() { w.pause(300*time.Millisecond, 900*time.Millisecond) })
	},
	"exits at once":                        (*torture).openGate,
	"exits at once, corrald away":          func(w *torture) { w.away(w.openGate) },
	"exits at once, corrald killed":        (*torture).openGateAndKill,
	"SIGSTOP of corrald":                   func(w *torture) { w.stopDaemon(300*time.Millisecond, time.Second) },
	"SIGSTOP of corrald, for the watchdog": func(w *torture) { w.stopDaemon(watchdog, watchdog+time.Second) },
	"daemon-reload":                        func(w *torture) { w.repeat("daemon-reload") },
	"daemon-reexec":                        func(w *torture) { w.repeat("daemon-reexec") },
	"reloads and bus restarts in a loop":   (*torture).reloadRepeatedly,
	"restart of the bus":                   func(w *torture) { w.systemctl("restart", "dbus.service") },
	busKilled:                              (*torture).killBus,
}

// busKilled is rarer than the others: systemd blocks for a minute and a half if it waits for the
// bus that it would have to start itself.
const busKilled = "SIGKILL of the bus"

// watchdog is WatchdogSec= of the service: short enough for a daemon that hangs to be killed within
// a round.
const watchdog = 4 * time.Second

// injectFault injects one of them, or one of hostileFaults.
func (w *torture) injectFault() {
	if kinds := slices.Sorted(maps.Keys(hostileFaults)); w.random.IntN(2) == 0 {
		kind := kinds[w.random.IntN(len(kinds))]
		w.countFault(kind, hostileFaults[kind](w))
		return
	}
	kinds := slices.Sorted(maps.Keys(faultKinds))
	kind := kinds[w.random.IntN(len(kinds))]
	for kind == busKilled && w.random.IntN(6) > 0 {
		kind = kinds[w.random.IntN(len(kinds))]
	}
	w.countFault(kind, 1)
	faultKinds[kind](w)
}

// pause waits for a random time.
func (w *torture) pause(least, most time.Duration) {
	<-time.After(least + time.Duration(w.random.Int64N(int64(most-least))))
}

// systemctl runs systemctl and ignores failures: some faults prevent others.
func (w *torture) systemctl(args ...string) {
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	_ = exec.CommandContext(ctx, "systemctl", append([]string{"--user"}, args...)...).Run()
}

// mainPID returns the main process id of a service, 0 if there is none.
func (w *torture) mainPID(unit string) int {
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	output, _ := exec.CommandContext(ctx, "systemctl", "--user", "show", "--value", "--property=MainPID", unit).Output()
	pid, _ := strconv.Atoi(strings.TrimSpace(string(output)))
	return pid
}

func (w *torture) signal(unit string, signal syscall.Signal) {
	if pid := w.mainPID(unit); pid > 0 {
		_ = syscall.Kill(pid, signal)
	}
}

// failpoint makes the next daemon die at a random failpoint, if it gets there.
func (w *torture) failpoint() {
	points := slices.Concat(adoptSteps, saveSteps)
	for _, steps := range [][]crashStep{startSteps, stopSteps, rejoinSteps, enterSteps} {
		for _, step := range steps {
			points = append(points, step.point)
		}
	}
	point := fmt.Sprintf("CORRAL_FAILPOINT=%s:%d\n", points[w.random.IntN(len(points))], 1+w.random.IntN(3))
	_ = os.WriteFile(w.dir+"/failpoint", []byte(point), 0o600)
	w.signal("corrald.service", syscall.SIGKILL)
	w.pause(200*time.Millisecond, 800*time.Millisecond)
	_ = os.Remove(w.dir + "/failpoint")
}

// away runs f while no daemon is running.
func (w *torture) away(f func()) {
	w.systemctl("stop", "corrald.service")
	before := w.countEnded()
	f()
	w.missed += w.countEnded() - before
	w.systemctl("start", "corrald.service")
}

// countEnded counts the agents that have recorded how they end.
func (w *torture) countEnded() int {
	files, _ := filepath.Glob(w.dir + "/r*-*")
	return len(slices.DeleteFunc(files, func(name string) bool { return strings.Contains(filepath.Base(name), ".") }))
}

// openGate makes all agents that wait at the gate exit at once, and returns when those that run
// have recorded their exits.
func (w *torture) openGate() {
	w.gate.open()
	for deadline := time.Now().Add(patience / 3); time.Now().Before(deadline); <-time.After(10 * time.Millisecond) {
		if !slices.ContainsFunc(w.victims, func(v *victim) bool {
			return v.role == waits && v.hasStarted(w) && !v.hasEnded(w)
		}) {
			return
		}
	}
}

// openGateAndKill opens the gate, and kills the daemon while the agents exit.
func (w *torture) openGateAndKill() {
	pid := w.mainPID("corrald.service")
	w.gate.open()
	w.pause(0, 30*time.Millisecond)
	if pid > 0 {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

func (w *torture) stopDaemon(least, most time.Duration) {
	pid := w.mainPID("corrald.service")
	if pid == 0 {
		return
	}
	_ = syscall.Kill(pid, syscall.SIGSTOP)
	w.pause(least, most)
	_ = syscall.Kill(pid, syscall.SIGCONT)
}

// killBus kills the bus and, with a probability of one half, the daemon.
func (w *torture) killBus() {
	w.signal("dbus.service", syscall.SIGKILL)
	if w.random.IntN(2) == 0 {
		w.signal("corrald.service", syscall.SIGKILL)
	}
}

func (w *torture) repeat(verb string) {
	for range 1 + w.random.IntN(3) {
		w.systemctl(verb)
	}
}

// reloadRepeatedly reloads and re-executes systemd and restarts the bus, in random order without
// pauses.
func (w *torture) reloadRepeatedly() {
	verbs := [][]string{{"daemon-reload"}, {"daemon-reexec"}, {"restart", "dbus.service"}}
	for range 6 {
		w.systemctl(verbs[w.random.IntN(len(verbs))]...)
	}
}

// gate is a FIFO at which agents wait: opening it for reading blocks until it is opened for
// writing.
type gate struct {
	path   string
	writer *os.File // nil while it is closed
}

func newGate(path string) (*gate, error) {
	return &gate{path: path}, syscall.Mkfifo(path, 0o600)
}

// open lets all agents pass that wait or arrive later.
func (g *gate) open() {
	if g.writer == nil {
		g.writer, _ = os.OpenFile(g.path, os.O_RDWR, 0)
		_, _ = g.writer.WriteString(strings.Repeat("\n", 1000))
	}
}

func (g *gate) close() {
	if g.writer != nil {
		_ = g.writer.Close()
	}
	_ = os.Remove(g.path)
}
