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

// readGroups reads the counters of control groups of this machine. leftovers counts the processes
// that are left of an ended session.
func readGroups(targets []target, leftovers func(group string) int) measured {
	m := measured{values: make([]values, 0, len(targets))}
	root, err := proc.CgroupRoot()
	for _, t := range targets {
		v := values{id: t.id}
		if err == nil {
			v.read(filepath.Join(root, filepath.Clean("/"+t.group)))
		}
		if v.there && t.ended {
			v.left = leftovers(t.group)
		}
		m.values = append(m.values, v)
	}
	m.at = time.Now()
	return m
}

const unknown = math.MaxUint64 // as on the bus: the counter cannot be had

// read reads the counters of a control group. Which of them there are depends on the controllers
// that the user has been given.
func (v *values) read(directory string) {
	v.memory, v.cpuTime, v.tasks = unknown, unknown, unknown
	stat, err := proc.ReadFile(filepath.Join(directory, "cpu.stat"))
	if err != nil {
		_, err = os.Stat(directory)
		v.there = err == nil
		return
	}
	v.there = true
	for lines := bufio.NewScanner(bytes.NewReader(stat)); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "usage_usec "); ok {
			if usec, err := strconv.ParseUint(text, 10, 64); err == nil {
				v.cpuTime = usec * 1000
			}
			break
		}
	}
	v.memory = readCounter(filepath.Join(directory, "memory.current"))
	v.tasks = readCounter(filepath.Join(directory, "pids.current"))
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

// askGroups asks the daemon for the counters, where the control groups are those of another
// machine.
func askGroups(ctx context.Context, bus *client.Client, targets []target) measured {
	m := measured{values: make([]values, len(targets))}
	var asked sync.WaitGroup
	for i, t := range targets {
		asked.Go(func() {
			v := values{id: t.id, memory: unknown, cpuTime: unknown, tasks: unknown}
			if s, err := bus.Session(ctx, t.id); err == nil {
				v = values{id: t.id, there: s.ControlGroup != "", memory: s.MemoryCurrent, cpuTime: s.CPUUsageNSec, tasks: s.TasksCurrent}
			}
			m.values[i] = v
		})
	}
	asked.Wait()
	m.at = time.Now()
	return m
}
