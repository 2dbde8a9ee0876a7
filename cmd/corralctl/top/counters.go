package top

import (
	"context"
	"sync"
	"time"

	"github.com/corrald/corral/dbusapi/client"
	"github.com/corrald/corral/internal/proc"
	"github.com/corrald/corral/internal/shimwire"
)

// unknown is the value of a counter that is not available, as on the bus.
const unknown = proc.Unknown

// readCounters reads the counters of control groups of this machine, and from the daemons those of
// targets without a control group, which are on other machines.
func readCounters(ctx context.Context, bus *client.Client, targets []measureTarget) measured {
	m := measured{counters: make([]counters, len(targets))}
	var pending sync.WaitGroup
	for i, t := range targets {
		if t.group == "" {
			pending.Go(func() { m.counters[i] = requestCounters(ctx, bus, t.id) })
			continue
		}
		u, exists := proc.ReadUsage(t.group)
		c := counters{id: t.id, exists: exists, memory: u.Memory, cpuTime: u.CPUTime, tasks: u.Tasks}
		if exists && t.ended {
			c.leftovers = shimwire.CountLeftovers(t.group)
		}
		m.counters[i] = c
	}
	pending.Wait()
	m.at = time.Now()
	return m
}

// requestCounters reads the counters of a session from its daemon.
func requestCounters(ctx context.Context, bus *client.Client, id string) counters {
	c := counters{id: id, memory: unknown, cpuTime: unknown, tasks: unknown}
	if s, err := bus.Session(ctx, id); err == nil {
		c.exists = s.ControlGroup != ""
		c.memory, c.cpuTime, c.tasks = s.MemoryCurrent, s.CPUUsageNSec, s.TasksCurrent
	}
	return c
}
