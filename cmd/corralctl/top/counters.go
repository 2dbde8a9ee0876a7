package top

import (
	"bufio"
	"bytes"
	"context"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/corrald/corral/dbusapi/client"
	"github.com/corrald/corral/internal/proc"
)

// readCounters reads the counters of control groups of this machine. countLeftovers returns the
// number of leftover processes in the group of an ended session.
func readCounters(targets []measureTarget, countLeftovers func(group string) int) measured {
	m := measured{counters: make([]counters, 0, len(targets))}
	root, err := proc.CgroupRoot()
	for _, t := range targets {
		c := counters{id: t.id}
		if err == nil {
			c.read(filepath.Join(root, filepath.Clean("/"+t.group)))
		}
		if c.exists && t.ended {
			c.leftovers = countLeftovers(t.group)
		}
		m.counters = append(m.counters, c)
	}
	m.at = time.Now()
	return m
}

// unknown is the value of a counter that is not available, as on the bus.
const unknown = math.MaxUint64

// read reads the counters of a control group. Which of them are available depends on the
// controllers that are delegated to the user.
func (c *counters) read(directory string) {
	c.memory, c.cpuTime, c.tasks = unknown, unknown, unknown
	stat, err := proc.ReadFile(filepath.Join(directory, "cpu.stat"))
	if err != nil {
		_, err = os.Stat(directory)
		c.exists = err == nil
		return
	}
	c.exists = true
	for lines := bufio.NewScanner(bytes.NewReader(stat)); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "usage_usec "); ok {
			if usec, err := strconv.ParseUint(text, 10, 64); err == nil {
				c.cpuTime = usec * 1000
			}
			break
		}
	}
	c.memory = readCounter(filepath.Join(directory, "memory.current"))
	c.tasks = readCounter(filepath.Join(directory, "pids.current"))
}

func readCounter(path string) uint64 {
	text, err := proc.ReadFile(path)
	if err != nil {
		return unknown
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return unknown
	}
	return n
}

// requestCounters reads the counters from the daemon, for control groups of another machine.
func requestCounters(ctx context.Context, bus *client.Client, targets []measureTarget) measured {
	m := measured{counters: make([]counters, len(targets))}
	var pending sync.WaitGroup
	for i, t := range targets {
		pending.Go(func() {
			c := counters{id: t.id, memory: unknown, cpuTime: unknown, tasks: unknown}
			if s, err := bus.Session(ctx, t.id); err == nil {
				c.exists = s.ControlGroup != ""
				c.memory, c.cpuTime, c.tasks = s.MemoryCurrent, s.CPUUsageNSec, s.TasksCurrent
			}
			m.counters[i] = c
		})
	}
	pending.Wait()
	m.at = time.Now()
	return m
}
