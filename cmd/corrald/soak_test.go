package main

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/testbed"
)

// TestSoak stops and starts the bus, the notification server and the display in random order for
// SOAK_TIME, while sessions need attention. A notification server must show each of these sessions,
// a hook must get each unless a person has acknowledged it before, and the daemon's resources must
// not grow. A daemon does not survive a restart of the bus: after a third of the time the bus is
// left alone, so that the last daemon lives long. SOAK_SEED repeats a run as far as timing allows.
func TestSoak(t *testing.T) {
	text := os.Getenv("SOAK_TIME")
	if text == "" {
		text = "10s" // one round
	}
	span, err := config.ParseTimeSpan(text)
	require.NoError(t, err)
	seed := number(t, "SOAK_SEED", uint64(time.Now().UnixNano()%1e9))
	t.Logf("SOAK_SEED=%d SOAK_TIME=%v", seed, span)
	s := newSoak(t, seed)
	if s.between = 1500 * time.Millisecond; span < time.Minute {
		s.between /= 3
	}
	begin := time.Now()
	for s.rounds = 0; s.rounds == 0 || time.Since(begin) < span; s.rounds++ {
		s.round(time.Since(begin) < span/3)
		if s.lost > 0 {
			break // one failure is enough to investigate
		}
	}
	s.dump()
	s.report()
}

// soak is a daemon that systemd runs, and the desktop around it.
type soak struct {
	*torture
	desktop  testDesktop
	between  time.Duration   // maximum time between two faults
	pending  map[string]bool // sessions that need attention and were not both shown and passed to the hook
	closed   map[string]bool // sessions that were pending when a person closed all notifications
	created  int             // number of sessions created
	lost     int
	repeated int // events that the hook got twice
	unhooked int // sessions that a person acknowledged before the hook got them
	latest   time.Duration
	since    map[string]time.Time
	samples  []sample
	dumps    []int // numbers of goroutines of idle daemons when they were ended
	dumped   int   // bytes of the log that were searched
	hooked   map[string]int
}

// sample is what an idle daemon uses.
type sample struct {
	// Sizes are in KiB, except that of notifications.json (file), in bytes.
	pid, descriptors, threads, rss, anonymous, file int
}

func newSoak(t *testing.T, seed uint64) *soak {
	s := &soak{torture: newTorture(t), pending: map[string]bool{}, closed: map[string]bool{},
		since: map[string]time.Time{}, hooked: map[string]int{}}
	s.random = rand.New(rand.NewPCG(seed, 0))
	s.desktop = testDesktop{t: t, dir: s.dir, bus: testbed.Bus(t)}
	t.Cleanup(s.desktop.stopAll)
	s.desktop.writeConfiguration()
	hook := filepath.Join(s.dir, "config/corral/hooks.d/log")
	require.NoError(t, os.MkdirAll(filepath.Dir(hook), 0o700))
	require.NoError(t, os.WriteFile(hook, fmt.Appendf(nil, "#!/bin/sh\nexec cat >> %s/hooked\n", s.dir), 0o700))
	return s
}

// maxPending limits how many sessions need attention at the same time: a summary names at most
// eight.
const maxPending = 5

// round injects each kind of fault, and then waits, without faults, until every session was shown
// and passed to the hook. With endDaemons it also restarts the bus in some rounds, and ends the
// daemon with a dump after some.
func (s *soak) round(endDaemons bool) {
	kinds := slices.Sorted(maps.Keys(desktopFaults))
	if endDaemons && s.rounds%4 == 0 {
		kinds = append(kinds, busRestarts)
	}
	s.random.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	for _, kind := range kinds {
		if len(s.pending) < maxPending {
			s.create()
		}
		s.pause(0, s.between)
		s.inject(kind)
		s.collect()
	}
	s.waitReady()
	s.desktop.startServer(s.random.IntN(2) == 0)
	for deadline := time.Now().Add(2 * patience); len(s.pending) > 0; <-time.After(20 * time.Millisecond) {
		if s.collect(); time.Now().After(deadline) {
			s.lost += len(s.pending)
			s.t.Errorf("not reported: %v; shown: %v; passed to the hook: %v", slices.Sorted(maps.Keys(s.pending)),
				s.desktop.shown, s.hooked)
			return
		}
	}
	<-time.After(trimDelay + time.Second) // by then it has released its memory
	s.samples = append(s.samples, s.sample())
	if endDaemons && s.rounds%12 == 11 {
		s.dump()
	}
}

// busRestarts is rare: no daemon survives it.
const busRestarts = "the bus restarts"

// inject injects a fault into the desktop or the bus.
func (s *soak) inject(kind string) {
	s.faults[kind]++
	if kind == personCloses {
		maps.Copy(s.closed, s.pending)
	}
	if kind != busRestarts {
		desktopFaults[kind](&s.desktop, s.random.IntN(2) == 0)
		return
	}
	s.desktop.stopAll()
	s.systemctl("restart", "dbus.service")
	s.systemctl("start", "corrald.service")
	s.desktop.bus = testbed.Bus(s.t)
}

// create creates a session that soon needs attention. A session whose start was interrupted by a
// restart of the bus is not counted.
func (s *soak) create() {
	script := "exit 3"
	if s.random.IntN(3) == 0 {
		script = `printf "\a"; exec sleep 1000`
	}
	s.created++
	name := fmt.Sprintf("n%d", s.created)
	var id string
	var path dbus.ObjectPath
	sp := spec{"Id": name, "WorkingDirectory": s.dir, "Command": []string{"sh", "-c", script}}
	if err := s.call(dbusapi.ManagerPath, dbusapi.ManagerInterface+".CreateSession", []any{"command", sp.variants()},
		&id, &path); err != nil {
		_ = s.remove(name)
		return
	}
	s.pending[name], s.since[name] = true, time.Now()
	s.sessions++
}

func (s *soak) remove(name string) error {
	return s.call(dbusapi.ManagerPath, dbusapi.ManagerInterface+".RemoveSession", []any{name, dbusapi.RemoveForce})
}

var namedInHook = regexp.MustCompile(`"Id":"(n\d+)"`)

// collect reads what was shown and what the hook got, and removes the sessions that need no more.
func (s *soak) collect() {
	s.desktop.countShown()
	s.hooked = map[string]int{}
	content, _ := os.ReadFile(s.dir + "/hooked")
	for _, m := range namedInHook.FindAllStringSubmatch(string(content), -1) {
		s.hooked[m[1]]++
	}
	for name := range s.pending {
		if s.desktop.shown[name] == 0 || s.hooked[name] == 0 && !s.isAcknowledged(name) || s.remove(name) != nil {
			continue
		}
		s.latest = max(s.latest, time.Since(s.since[name]))
		delete(s.pending, name)
		switch {
		case s.hooked[name] > 1:
			s.repeated++
		case s.hooked[name] == 0:
			s.unhooked++
		}
	}
}

// isAcknowledged reports whether a person has closed the session's notification. The hook gets no
// such session: calls of hooks that exceed their limit are delayed, and then the event is obsolete.
func (s *soak) isAcknowledged(name string) bool {
	if !s.closed[name] {
		return false
	}
	p, answers := s.properties(name)
	return answers && p != nil && p.text("Attention") == ""
}

func (s *soak) sample() sample {
	pid := s.mainPID("corrald.service")
	m := sample{pid: pid, threads: s.count(fmt.Sprintf("/proc/%d/task", pid)),
		descriptors: s.count(fmt.Sprintf("/proc/%d/fd", pid))}
	for line := range strings.Lines(readFile(s.t, fmt.Sprintf("/proc/%d/status", pid))) {
		name, value, _ := strings.Cut(line, ":")
		n, _ := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(value), " kB"))
		switch name {
		case "VmRSS":
			m.rss = n
		case "RssAnon":
			m.anonymous = n
		}
	}
	info, err := os.Stat(s.dir + "/state/corral/notifications.json")
	require.NoError(s.t, err)
	m.file = int(info.Size())
	return m
}

func (s *soak) count(dir string) int {
	entries, err := os.ReadDir(dir)
	require.NoError(s.t, err)
	return len(entries)
}

// dump ends the daemon with a dump of its goroutines, and counts them. systemd starts the daemon
// again.
func (s *soak) dump() {
	s.signal("corrald.service", syscall.SIGQUIT)
	var text string
	testbed.Poll(s.t, "a dump of the goroutines", func() bool {
		text = readFile(s.t, s.dir+"/log")[s.dumped:]
		return strings.Contains(text, "\nrip ") || strings.Contains(text, "\nr0 ") || strings.Contains(text, "exit status")
	})
	s.dumped += len(text)
	if at := strings.Index(text, "SIGQUIT: quit"); at >= 0 {
		s.dumps = append(s.dumps, len(regexp.MustCompile(`(?m)^goroutine \d+ `).FindAllString(text[at:], -1)))
	}
	s.waitReady()
}

// report logs the measurements, and checks that none of them grows.
func (s *soak) report() {
	s.t.Logf("%d rounds, %d sessions, %d lost; longest delay: %v; passed to the hook twice: %d, "+
		"acknowledged before: %d; %d faults:",
		s.rounds, s.sessions, s.lost, s.latest.Round(time.Millisecond), s.repeated, s.unhooked, s.total())
	for _, kind := range slices.Sorted(maps.Keys(s.faults)) {
		s.t.Logf("%6d  %s", s.faults[kind], kind)
	}
	if len(s.samples) == 0 {
		return
	}
	last := s.samples[len(s.samples)-1]
	old := slices.DeleteFunc(slices.Clone(s.samples), func(m sample) bool { return m.pid != last.pid })
	for i, m := range s.samples {
		if i == 0 || s.samples[i-1].pid != m.pid || i == len(s.samples)-1 || len(s.samples)-i < len(old) && i%10 == 0 {
			s.t.Logf("round %3d: corrald %d: %d descriptors, %d threads, RSS %d KiB (anonymous %d), "+
				"notifications.json %d bytes", i, m.pid, m.descriptors, m.threads, m.rss, m.anonymous, m.file)
		}
	}
	s.t.Logf("goroutines at the ends of daemons: %v", s.dumps)
	s.compare("of all rounds", s.samples)
	s.compare("of the last daemon", old)
	if n := len(s.dumps); n > 1 {
		assert.LessOrEqual(s.t, slices.Max(s.dumps[n/2:]), s.dumps[0]+3, "goroutines grow")
	}
}

// compare logs what daemons used at first and at the end, and checks that it does not grow.
func (s *soak) compare(which string, samples []sample) {
	for _, quantity := range []struct {
		name  string
		of    func(sample) int
		slack int
	}{
		{"descriptors", func(m sample) int { return m.descriptors }, 2},
		{"KiB of memory", func(m sample) int { return m.anonymous }, 2048},
		{"bytes of notifications.json", func(m sample) int { return m.file }, 2048},
	} {
		first, last := third(samples, 0, quantity.of), third(samples, 2, quantity.of)
		s.t.Logf("%s, %d rounds: %d %s in the first third, %d in the last (medians)", which, len(samples),
			first, quantity.name, last)
		if len(samples) >= enoughRounds {
			assert.LessOrEqual(s.t, last, first+quantity.slack, "%s grow", quantity.name)
		}
	}
}

// enoughRounds is the number of rounds from which growth can be judged.
const enoughRounds = 9

// third returns the median of a third of the samples.
func third(samples []sample, which int, of func(sample) int) int {
	n := len(samples)
	part := samples[which*n/3 : max((which+1)*n/3, which*n/3+1)]
	var all []int
	for _, m := range part {
		all = append(all, of(m))
	}
	slices.Sort(all)
	return all[len(all)/2]
}
