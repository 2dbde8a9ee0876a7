package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/testbed"
)

// cpuTime returns the CPU time that the daemon has used.
func (d *corrald) cpuTime(t *testing.T) time.Duration {
	t.Helper()
	stat := readFile(t, fmt.Sprintf("/proc/%d/stat", d.process.Process.Pid))
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	var ticks int
	for _, field := range fields[11:13] { // utime and stime, in units of 1/100 s: proc_pid_stat(5)
		n, err := strconv.Atoi(field)
		require.NoError(t, err)
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// measureFlood makes calls about another session until the flood is over, and logs what the flood
// costs the daemon: the latency of the slowest calls, its share of a CPU, its memory.
func (d *corrald) measureFlood(t *testing.T, what string, over func() bool) {
	t.Helper()
	other := d.run(t, "other", "exec sleep 1000")
	other.waitState("running")
	var calls []time.Duration
	begin, used := time.Now(), d.cpuTime(t)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !over() {
		<-tick.C
		call := time.Now()
		other.must("SetDescription", fmt.Sprint(len(calls)))
		calls = append(calls, time.Since(call))
	}
	lasted := time.Since(begin)
	used = d.cpuTime(t) - used
	slices.Sort(calls)
	t.Logf("%s: %v; %d calls, median %v, slowest %v; %.1f %% of a core, %d KiB at most", what,
		lasted.Round(time.Millisecond), len(calls),
		calls[len(calls)/2], calls[len(calls)-1], 100*used.Seconds()/lasted.Seconds(), d.memoryKiB(t, "VmHWM"))
	other.waitState("running")
}

// TestFlood_OfBrokenExitRecords checks that broken exit records are logged only once in ten
// seconds, and that the valid one at the end is not missed.
func TestFlood_OfBrokenExitRecords(t *testing.T) {
	d := startProgram(t, testbed.CorraldWithoutRace(t))
	s := d.create(t, "shop", d.witness("shop"))
	pid := d.waitAgents(t, "shop", 1)[0]
	dir := d.stateDir("shop")
	const many, atOnce = 10_000, 5 // per millisecond
	done := make(chan time.Duration, 1)
	go func() {
		begin := time.Now()
		temp := filepath.Join(dir, "broken")
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for n := range many {
			if n%atOnce == 0 {
				<-tick.C
			}
			if err := os.WriteFile(temp, []byte("broken"), 0o600); err != nil {
				break
			}
			_ = os.Rename(temp, filepath.Join(dir, "exit_status"))
		}
		done <- time.Since(begin)
	}()
	var lasted time.Duration
	d.measureFlood(t, "broken exit records", func() bool {
		select {
		case lasted = <-done:
			return true
		default:
			return false
		}
	})
	logged := d.countLogged("cannot read an exit status")
	assert.Positive(t, logged)
	assert.LessOrEqual(t, logged, 1+int(lasted/(10*time.Second)))
	kill(t, pid, syscall.SIGUSR1)
	s.waitOutcome(outcome{"failed", "exit-code", 1, 9, "command exited with code 9", "error"})
}

// floodingShim replaces the shim and, after its first message, sends reports without pause.
const floodingShim = `#!/usr/bin/env python3
import os, re, socket, struct, subprocess, sys
spec = open(sys.argv[2], "rb").read()
os.remove(sys.argv[2])
def field(tag, value):
    assert len(value) < 128
    return tag + bytes([len(value)]) + value
def number(tag, n):
    out = b""
    while n >= 128:
        out += bytes([n & 127 | 128])
        n >>= 7
    return field(tag, out + bytes([n]))
def text(tag):
    i = 0
    while i < len(spec):
        t, i = spec[i:i+1], i + 1
        size = shift = 0
        while True:
            c, i = spec[i], i + 1
            size |= (c & 127) << shift
            shift += 7
            if c < 128: break
        if t == tag: return spec[i:i+size]
        i += size
agent = subprocess.Popen(["sleep", "1000"])
start = int(open("/proc/%d/stat" % agent.pid).read().rpartition(")")[2].split()[19])
path = text(b"k").decode()
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.bind(path + ".new")
s.listen(8)
os.rename(path + ".new", path)
while True:
    c, _ = s.accept()
    try:
        c.send(b"h" + field(b"r", text(b"r")) + number(b"s", os.getpid()) + number(b"a", agent.pid) + number(b"t", start) + number(b"b", 1700000000000000))
        n = 0
        while True:
            n += 1
            c.send(b"s" + field(b"o", b"osc7501") + field(b"y", [b"working", b"waiting"][n % 2]) + field(b"x", b"text %d" % n) + number(b"q", n))
    except OSError:
        pass
`

// TestFlood_OfShimMessages checks that the messages of a shim that sends without pause are read in
// slices: its reports are still published, and cost little.
func TestFlood_OfShimMessages(t *testing.T) {
	d := startProgram(t, testbed.CorraldWithoutRace(t))
	d.write("flooding-shim", floodingShim)
	shim := filepath.Join(d.dir, "flooding-shim")
	require.NoError(t, os.Chmod(shim, 0o700))
	d.kill(syscall.SIGTERM)
	d.env = append(d.env, "CORRAL_SHIM="+shim)
	d.launch()
	s := d.run(t, "shop", "ignored")
	s.waitState("running")
	s.wait("reporting", func(p properties) bool { return p.text("Activity") == "waiting" })
	begin := time.Now()
	mark := d.signals.mark()
	d.measureFlood(t, "a shim that floods", func() bool { return time.Since(begin) > 5*time.Second })
	changes := 0
	for _, signal := range d.signals.after(mark) {
		if signal.Name == propertiesChanged && signal.Path == dbusapi.SessionPath("shop") {
			changes++
		}
	}
	assert.LessOrEqual(t, changes, int(time.Since(begin)/(400*time.Millisecond)+1)*64)
	s.waitState("running")
	s.must("Stop", uint64(time.Second/time.Microsecond))
}
