package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/corrald/corral/internal/proc"
)

// scaleGroups are the groups that -scale measures with each number of sessions.
var scaleGroups = []string{"start", "exit-many", "idle", "list", "top", "memory", "stop", "suspend", "adopt"}

// scale measures the scaleGroups with increasing numbers of sessions, and calls add with the
// section of each. If a number does not fit into the machine, it measures with as many as do.
func (b *bench) scale(ctx context.Context, add func(section) error) error {
	for _, wanted := range b.scaled {
		n, limit, err := b.fitting(wanted)
		if err != nil {
			return err
		}
		s := section{name: fmt.Sprintf("sessions-%d", wanted)}
		if n < wanted {
			s.text = fmt.Sprintf("%s sessions do not fit into this machine, because of %s: measured with %s.\n\n",
				thousands(wanted), limit, thousands(n))
		}
		fmt.Fprintf(os.Stderr, "bench: %d sessions\n", n)
		b.sessions = n
		if err := b.gather(ctx, n); err != nil {
			return fmt.Errorf("cannot start %d sessions: %w", n, err)
		}
		for _, name := range scaleGroups {
			fmt.Fprintf(os.Stderr, "bench: %s\n", name)
			rows, err := groupNamed(name).rows(ctx, b)
			if err != nil {
				return fmt.Errorf("cannot measure %s: %w", name, errors.Join(err, b.daemonError()))
			}
			s.rows = append(s.rows, rows...)
		}
		if err := add(s); err != nil {
			return err
		}
	}
	return nil
}

func groupNamed(name string) group {
	for _, g := range groups {
		if g.name == name {
			return g
		}
	}
	panic("no group " + name)
}

// reserved is the memory that stays free for everything else on the machine, in bytes.
const reserved = 3 << 30

// fitting returns how many of the wanted sessions fit into the machine, and what limits them. What
// a session takes is known from those that run: before the first ones, it returns wanted.
func (b *bench) fitting(wanted int) (n int, limit string, err error) {
	if b.many == 0 {
		return wanted, "", nil
	}
	now, err := usageOfMachine()
	if err != nil {
		return 0, "", err
	}
	n = wanted
	atMost := func(what string, available, perSession float64) {
		if more := int(available / perSession); b.many+more < n {
			n, limit = b.many+more, what
		}
	}
	sessions := float64(b.many)
	atMost("its memory", now.available-reserved, (b.before.available-now.available)/sessions)
	atMost("its limit of processes and threads (kernel.pid_max)",
		0.9*now.maxThreads-now.threads, (now.threads-b.before.threads)/sessions)
	const spare = 50 // for terminals that the measurements open, and for everybody else
	atMost("its limit of pseudoterminals (kernel.pty.max)",
		now.maxPtys-now.ptys-spare, (now.ptys-b.before.ptys)/sessions)
	return n, limit, nil
}

// machineUse is what the sessions of the whole machine use up.
type machineUse struct {
	available  float64 // bytes of memory
	threads    float64
	maxThreads float64
	ptys       float64
	maxPtys    float64
}

func usageOfMachine() (u machineUse, err error) {
	memory, err := readFields("/proc/meminfo")
	if err != nil {
		return u, err
	}
	u.available = float64(memory["MemAvailable"]) * 1024
	load, err := os.ReadFile("/proc/loadavg") // the fourth field is RUNNING/ALL
	if err != nil {
		return u, err
	}
	_, all, _ := strings.Cut(strings.Fields(string(load))[3], "/")
	if u.threads, err = strconv.ParseFloat(all, 64); err != nil {
		return u, err
	}
	for name, value := range map[string]*float64{
		"pid_max": &u.maxThreads, "pty/nr": &u.ptys, "pty/max": &u.maxPtys,
	} {
		text, err := proc.ReadFile("/proc/sys/kernel/" + name)
		if err != nil {
			return u, err
		}
		if *value, err = strconv.ParseFloat(strings.TrimSpace(string(text)), 64); err != nil {
			return u, err
		}
	}
	return u, nil
}

// thousands formats a number as 5,000.
func thousands(n int) string {
	if n < 1000 {
		return strconv.Itoa(n)
	}
	return thousands(n/1000) + fmt.Sprintf(",%03d", n%1000)
}
