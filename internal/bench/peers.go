package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/clock"
	"github.com/corrald/corral/internal/proc"
)

// peer is a supervisor that runs programs as services.
type peer interface {
	// start starts a service that runs a command.
	start(ctx context.Context, name string, command []string) error
	// expectEnd returns a function that waits until the peer has reported the end of the service,
	// which runs now.
	expectEnd(ctx context.Context, name string) (wait func() error, err error)
	// reported returns how the peer reports that the service has ended.
	reported(ctx context.Context, name string) string
	// pid returns the process that the peer reports as the running service, 0 if there is none.
	pid(ctx context.Context, name string) int
	// processes returns the processes with which the peer supervises all services.
	processes(ctx context.Context) ([]int, error)
	// victims returns the processes of the peer that are killed, by what they are.
	victims(ctx context.Context, name string) []victim
	close()
}

// victim is a process of a peer that is killed, and what starts the peer again.
type victim struct {
	name    string
	kill    func() error
	restart func() error
}

// peerKind is how to start a peer.
type peerKind struct {
	name    string
	version []string // the command that prints its version
	open    func(ctx context.Context, b *bench, dir string) (peer, error)
}

func (b *bench) peerKinds() []peerKind {
	return []peerKind{
		{"Corral", []string{b.program("corrald"), "--version"}, openCorral},
		{"systemd service", []string{"systemctl", "--version"}, openSystemd},
		{"systemd scope with tmux", []string{"tmux", "-V"}, openScopes},
		{"supervisord", []string{"supervisord", "--version"}, openSupervisord},
		{"s6", []string{"dpkg-query", "--show", "--showformat=${Version}", "s6"}, openS6},
		{"process-compose", []string{"process-compose", "version", "--short"}, nil},
		{"overmind", []string{"overmind", "--version"}, nil},
	}
}

// peers measures each peer that is installed.
func (b *bench) peers(ctx context.Context) (section, error) {
	s := section{name: "peers"}
	table := &strings.Builder{}
	table.WriteString("| | start, ms | exit reported after, ms | exit 3 is reported as | SIGKILL is reported as | " +
		"private memory, MiB: itself; for each service | CPU in 10 s with 10 idle services, ms | killed with SIGKILL |\n")
	table.WriteString("|---|---:|---:|---|---|---|---:|---|\n")
	var missing []string
	for i, kind := range b.peerKinds() {
		version := versionOf(kind.version[0], kind.version[1:]...)
		if kind.open == nil || version == "" {
			missing = append(missing, kind.name)
			continue
		}
		fmt.Fprintf(os.Stderr, "bench: %s\n", kind.name)
		line, err := b.measurePeer(ctx, kind, filepath.Join(b.work(), fmt.Sprintf("peer-%d", i)))
		if err != nil {
			return s, fmt.Errorf("cannot measure %s: %w", kind.name, err)
		}
		fmt.Fprintf(table, "| %s (%s) | %s |\n", kind.name, version, strings.Join(line, " | "))
	}
	s.text = table.String()
	if len(missing) > 0 {
		s.text += "\nNot measured, because it is not installed, or because the bench cannot drive it yet: " +
			strings.Join(missing, ", ") + ".\n"
	}
	return s, nil
}

// idlePeerServices is the number of idle services while the memory and the CPU time of a peer are
// measured.
const idlePeerServices = 10

// measurePeer returns the cells of the peer's line.
func (b *bench) measurePeer(ctx context.Context, kind peerKind, dir string) (cells []string, err error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	p, err := kind.open(ctx, b, dir)
	if err != nil {
		return nil, err
	}
	defer p.close()
	s, err := build(filepath.Join(dir, "stage"))
	if err != nil {
		return nil, err
	}
	defer s.close()
	var starts, ends sample
	asCode := ""
	for i := range b.times(20) {
		name := fmt.Sprintf("exits-%d", i)
		if err := timed(&starts, func() error {
			return errors.Join(p.start(ctx, name, b.as(roleExit, s.dir)), s.awaitReady())
		}); err != nil {
			return nil, err
		}
		wait, err := p.expectEnd(ctx, name)
		if err == nil {
			err = errors.Join(pause(ctx, 50*time.Millisecond), s.giveCue())
		}
		if err == nil {
			err = wait()
		}
		if err != nil {
			return nil, err
		}
		ends = append(ends, milliseconds(clock.Monotonic()-s.recorded(0)))
		asCode = p.reported(ctx, name)
	}
	asSignal, err := b.endBySignal(ctx, p, "killed")
	if err != nil {
		return nil, err
	}
	memory, cpu, err := b.idlePeer(ctx, p)
	if err != nil {
		return nil, err
	}
	var deaths []string
	for i := range p.victims(ctx, "") {
		death, err := b.killPeer(ctx, p, i)
		if err != nil {
			return nil, err
		}
		deaths = append(deaths, death)
	}
	if len(deaths) == 0 {
		deaths = []string{"not measured: the user manager is what everything of the user runs in"}
	}
	return []string{
		number(starts.median()), number(ends.median()), asCode, asSignal, memory, cpu, strings.Join(deaths, "; "),
	}, nil
}

// endBySignal starts a service, kills its program, and returns how that is reported.
func (b *bench) endBySignal(ctx context.Context, p peer, name string) (string, error) {
	pid, err := startIdle(ctx, p, name)
	if err != nil {
		return "", err
	}
	wait, err := p.expectEnd(ctx, name)
	if err == nil {
		err = unix.Kill(pid, unix.SIGKILL)
	}
	if err == nil {
		err = wait()
	}
	return p.reported(ctx, name), err
}

// startIdle starts a silent service, and returns its process.
func startIdle(ctx context.Context, p peer, name string) (int, error) {
	if err := p.start(ctx, name, silent); err != nil {
		return 0, err
	}
	for range 100 {
		if pid := p.pid(ctx, name); pid != 0 {
			return pid, nil
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return 0, err
		}
	}
	return 0, fmt.Errorf("service %q does not run", name)
}

// idlePeer measures the memory of the peer without services and for each of them, and its CPU time.
func (b *bench) idlePeer(ctx context.Context, p peer) (memory, cpu string, err error) {
	const calm, span = 5 * time.Second, 10 * time.Second
	if err := pause(ctx, calm); err != nil {
		return "", "", err
	}
	before, _, err := occupiedByAll(ctx, p)
	if err != nil {
		return "", "", err
	}
	for i := range idlePeerServices {
		if _, err := startIdle(ctx, p, fmt.Sprintf("idle-%d", i)); err != nil {
			return "", "", err
		}
	}
	if err := pause(ctx, calm); err != nil {
		return "", "", err
	}
	after, pids, err := occupiedByAll(ctx, p)
	if err != nil {
		return "", "", err
	}
	first, err := usedByEach(pids)
	if err == nil {
		err = pause(ctx, span)
	}
	if err != nil {
		return "", "", err
	}
	last, err := usedByEach(pids)
	if err != nil {
		return "", "", err
	}
	var total time.Duration
	for i := range last {
		total += last[i].since(first[i]).cpu
	}
	memory = number(before) + "; " + number(max(0, after-before)/idlePeerServices)
	return memory, number(milliseconds(total)), nil
}

func occupiedByAll(ctx context.Context, p peer) (private float64, pids []int, err error) {
	if pids, err = p.processes(ctx); err != nil {
		return 0, nil, err
	}
	for _, pid := range pids {
		m, err := occupied(pid)
		if err != nil {
			return 0, nil, err
		}
		private += m.private
	}
	return private, pids, nil
}

// killPeer kills a process of the peer while a service runs, starts the peer again, and then ends
// the program of the service. It returns what has become of it and what the peer knows.
func (b *bench) killPeer(ctx context.Context, p peer, number int) (string, error) {
	name := fmt.Sprintf("survivor-%d", number)
	pid, err := startIdle(ctx, p, name)
	if err != nil {
		return "", err
	}
	v := p.victims(ctx, name)[number]
	if err := errors.Join(v.kill(), pause(ctx, time.Second)); err != nil {
		return "", err
	}
	lives := isAlive(pid)
	if err := v.restart(); err != nil {
		return "", err
	}
	if err := pause(ctx, 2*time.Second); err != nil {
		return "", err
	}
	if !lives {
		return fmt.Sprintf("%s: the program ends, reported as %s", v.name, p.reported(ctx, name)), nil
	}
	adopted := p.pid(ctx, name)
	switch adopted {
	case pid:
	case 0:
		_ = unix.Kill(pid, unix.SIGKILL)
		return v.name + ": the program lives on, unknown to it", nil
	default:
		_ = unix.Kill(pid, unix.SIGKILL)
		return v.name + ": the program lives on, unknown to it, and is started a second time", nil
	}
	if err := errors.Join(unix.Kill(pid, unix.SIGTERM), pause(ctx, 2*time.Second)); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s: the program lives on and is adopted; its later SIGTERM is reported as %s",
		v.name, p.reported(ctx, name)), nil
}

// isAlive reports whether the process exists and is not a zombie.
func isAlive(pid int) bool {
	status, err := proc.Stat(pid)
	return err == nil && status.State != 'Z'
}

// outputOf returns what a command prints, without surrounding white space.
func outputOf(ctx context.Context, name string, args ...string) string {
	out, _ := exec.CommandContext(ctx, name, args...).Output()
	return strings.Join(strings.Fields(string(out)), " ")
}

// processesNamed returns the own processes with this name (at most 15 bytes).
func processesNamed(comm string) (pids []int, err error) {
	all, err := proc.All()
	for _, pid := range all {
		var st unix.Stat_t
		status, e := proc.Stat(pid)
		if e == nil && status.Comm == comm && unix.Stat(fmt.Sprintf("/proc/%d", pid), &st) == nil &&
			int(st.Uid) == os.Getuid() && status.State != 'Z' {
			pids = append(pids, pid)
		}
	}
	return pids, err
}
