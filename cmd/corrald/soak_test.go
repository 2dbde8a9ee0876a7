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

// TestSoak has the bus, the notification server and the display come and go in any order for
// SOAK_TIME, while sessions want a person. Each of them has to be shown by one server or another,
// and told to a hook; and what the daemon holds must not grow. No daemon outlives the bus: it is
// left alone after a third of the time, so that the last one gets old. SOAK_SEED repeats it as far
// as time allows.
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
			break // one is enough to look into
		}
	}
	s.dump()
	s.report()
}

// soak is a daemon that systemd runs, and the desktop around it.
type soak struct {
	*torture
	desk    screens
	between time.Duration   // two faults, at most
	wanted  map[string]bool // sessions that want a person, and were not seen to
	named   int             // how many sessions there were
	lost    int
	twice   int // hooks that were told again of what they had been told
	latest  time.Duration
	since   map[string]time.Time
	samples []sample
	dumps   []int // goroutines of daemons at rest, at their ends
	dumped  int   // bytes of the log that were looked through
	hooked  map[string]int
}

// sample is what a daemon at rest holds.
type sample struct {
	pid, descriptors, threads, rss, anonymous, file int // sizes in KiB, but that of the file that remembers notifications, in bytes
}

func newSoak(t *testing.T, seed uint64) *soak {
	s := &soak{torture: newTorture(t), wanted: map[string]bool{}, since: map[string]time.Time{}, hooked: map[string]int{}}
	s.random = rand.New(rand.NewPCG(seed, 0))
	s.desk = screens{t: t, dir: s.dir, bus: testbed.Bus(t)}
	t.Cleanup(s.desk.leave)
	s.desk.prepare()
	hook := filepath.Join(s.dir, "config/corral/hooks.d/log")
	require.NoError(t, os.MkdirAll(filepath.Dir(hook), 0o700))
	require.NoError(t, os.WriteFile(hook, fmt.Appendf(nil, "#!/bin/sh\nexec cat >> %s/hooked\n", s.dir), 0o700))
	return s
}

// maxWanted is how many sessions want a person at most: a summary names no more than eight.
const maxWanted = 5

// round is some bad seconds, in which everything happens that can, and then a rest, in which
// everything has to be told.
func (s *soak) round(mortal bool) {
	kinds := slices.Sorted(maps.Keys(upsets))
	if mortal && s.rounds%4 == 0 {
		kinds = append(kinds, busRestarts)
	}
	s.random.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	for _, kind := range kinds {
		if len(s.wanted) < maxWanted {
			s.create()
		}
		s.pause(0, s.between)
		s.upset(kind)
		s.look()
	}
	s.steady()
	s.desk.show(s.random.IntN(2) == 0)
	for deadline := time.Now().Add(2 * patience); len(s.wanted) > 0; <-time.After(20 * time.Millisecond) {
		if s.look(); time.Now().After(deadline) {
			s.lost += len(s.wanted)
			s.t.Errorf("never told of %v; told by %v, hooks of %v", slices.Sorted(maps.Keys(s.wanted)), s.desk.shown, s.hooked)
			return
		}
	}
	<-time.After(restAfter + time.Second) // then it has given its memory back
	s.samples = append(s.samples, s.sample())
	if mortal && s.rounds%12 == 11 {
		s.dump()
	}
}

// busRestarts is seldom: no daemon outlives it.
const busRestarts = "the bus restarts"

// upset does something to the desktop, or to the bus.
func (s *soak) upset(kind string) {
	s.faults[kind]++
	if kind != busRestarts {
		upsets[kind](&s.desk, s.random.IntN(2) == 0)
		return
	}
	s.desk.leave()
	s.systemctl("restart", "dbus.service")
	s.systemctl("start", "corrald.service")
	s.desk.bus = testbed.Bus(s.t)
}

// create makes a session that wants a person soon. One whose start a bus restart has come between
// is nobody's.
func (s *soak) create() {
	script := "exit 3"
	if s.random.IntN(3) == 0 {
		script = `printf "\a"; exec sleep 1000`
	}
	s.named++
	name := fmt.Sprintf("n%d", s.named)
	var id string
	var path dbus.ObjectPath
	sp := spec{"Id": name, "WorkingDirectory": s.dir, "Command": []string{"sh", "-c", script}}
	if err := s.call(dbusapi.ManagerPath, dbusapi.ManagerInterface+".CreateSession", []any{"command", sp.variants()}, &id, &path); err != nil {
		_ = s.remove(name)
		return
	}
	s.wanted[name], s.since[name] = true, time.Now()
	s.sessions++
}

func (s *soak) remove(name string) error {
	return s.call(dbusapi.ManagerPath, dbusapi.ManagerInterface+".RemoveSession", []any{name, dbusapi.RemoveForce})
}

var namedInHook = regexp.MustCompile(`"Id":"(n\d+)"`)

// look finds out what was told, and sees to it.
func (s *soak) look() {
	s.desk.gather()
	s.hooked = map[string]int{}
	content, _ := os.ReadFile(s.dir + "/hooked")
	for _, m := range namedInHook.FindAllStringSubmatch(string(content), -1) {
		s.hooked[m[1]]++
	}
	for name := range s.wanted {
		if s.desk.shown[name] > 0 && s.hooked[name] > 0 && s.remove(name) == nil {
			s.latest = max(s.latest, time.Since(s.since[name]))
			delete(s.wanted, name)
			if s.hooked[name] > 1 {
				s.twice++
			}
		}
	}
}

func (s *soak) sample() sample {
	pid := s.mainPID("corrald.service")
	m := sample{pid: pid, threads: s.count(fmt.Sprintf("/proc/%d/task", pid)), descriptors: s.count(fmt.Sprintf("/proc/%d/fd", pid))}
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

// dump has the daemon end with a list of its goroutines, which are counted. systemd starts it
// again.
func (s *soak) dump() {
	s.signal("corrald.service", syscall.SIGQUIT)
	var text string
	testbed.Poll(s.t, "a dump", func() bool {
		text = readFile(s.t, s.dir+"/log")[s.dumped:]
		return strings.Contains(text, "\nrip ") || strings.Contains(text, "\nr0 ") || strings.Contains(text, "exit status")
	})
	s.dumped += len(text)
	if at := strings.Index(text, "SIGQUIT: quit"); at >= 0 {
		s.dumps = append(s.dumps, len(regexp.MustCompile(`(?m)^goroutine \d+ `).FindAllString(text[at:], -1)))
	}
	s.steady()
}

// report tells what was measured, and that it does not grow.
func (s *soak) report() {
	s.t.Logf("%d rounds, %d sessions, %d lost; the longest until one was told: %v; told to the hook twice: %d; %d faults:",
		s.rounds, s.sessions, s.lost, s.latest.Round(time.Millisecond), s.twice, s.total())
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
			s.t.Logf("round %3d: corrald %d: %d descriptors, %d threads, RSS %d KiB (anonymous %d), notifications.json %d bytes", i, m.pid, m.descriptors, m.threads, m.rss, m.anonymous, m.file)
		}
	}
	s.t.Logf("goroutines at the ends of daemons: %v", s.dumps)
	s.compare("of all rounds", s.samples)
	s.compare("of the last daemon", old)
	if n := len(s.dumps); n > 1 {
		assert.LessOrEqual(s.t, slices.Max(s.dumps[n/2:]), s.dumps[0]+3, "goroutines grow")
	}
}

// compare tells what daemons held first and last, and that it does not grow.
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
		s.t.Logf("%s, %d rounds: %d %s in the first third, %d in the last (medians)", which, len(samples), first, quantity.name, last)
		if len(samples) >= enoughRounds {
			assert.LessOrEqual(s.t, last, first+quantity.slack, "%s grow", quantity.name)
		}
	}
}

// enoughRounds is of how many something can be said to grow.
const enoughRounds = 9

// third is the median of a third of the samples.
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
