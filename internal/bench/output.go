package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// printed is how much a program prints, in MiB.
const printed = 64

// output measures how fast a program can print in a session, and in tmux alone.
func output(ctx context.Context, b *bench) ([]row, error) {
	s, err := build(filepath.Join(b.work(), "output"))
	if err != nil {
		return nil, err
	}
	defer s.close()
	command := b.as(rolePrint, s.dir, strconv.Itoa(printed<<20))
	r := row{name: fmt.Sprintf("output of %d MiB", printed), unit: "MiB/s", bar: ratioAtLeast(0.8)}
	var daemon time.Duration
	for range b.times(3) {
		before, err := used(b.daemon.Process.Pid)
		if err != nil {
			return nil, err
		}
		id := b.newID("output")
		if err := b.create(ctx, id, command); err != nil {
			return nil, err
		}
		if err := printOnStage(s, &r.values); err != nil {
			return nil, err
		}
		after, err := used(b.daemon.Process.Pid)
		if err != nil {
			return nil, err
		}
		daemon += after.since(before).cpu
		if err := b.remove(ctx, id); err != nil {
			return nil, err
		}
		if err := b.printPlainly(ctx, s, command, &r.floor); err != nil {
			return nil, err
		}
	}
	r.note("the floor is tmux alone, with the same configuration and size; "+
		"corrald used %s ms of CPU time for each start, print and exit",
		number(milliseconds(daemon)/float64(len(r.values))))
	return []row{r}, nil
}

func (b *bench) printPlainly(ctx context.Context, s *stage, command []string, to *sample) error {
	// A new server each time, because one that was killed still exists for a moment.
	server := plainTmux(b.newID("output"))
	if err := server.start(ctx, command); err != nil {
		return err
	}
	return errors.Join(printOnStage(s, to), server.end(ctx))
}

// printOnStage lets the program on the stage print and appends its speed, in MiB per second, to the
// sample.
func printOnStage(s *stage, to *sample) error {
	if err := errors.Join(s.awaitReady(), s.giveCue(), s.awaitReady()); err != nil {
		return err
	}
	*to = append(*to, printed/(s.recorded(1)-s.recorded(0)).Seconds())
	return nil
}

// printAll is the agent: it prints text as agents and builds print it.
func printAll(args []string) error {
	a, err := enter(args[0])
	if err != nil {
		return err
	}
	left, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	text := typicalText(64 << 10)
	if err := errors.Join(a.signalReady(), a.awaitCue()); err != nil {
		return err
	}
	a.recordTime(0)
	const atOnce = 4096 // bytes, as programs write to a pipe or a buffered stream
	for at := 0; left > 0; {
		n := min(atOnce, left, len(text)-at)
		if _, err := os.Stdout.WriteString(text[at : at+n]); err != nil {
			return err
		}
		left -= n
		at = (at + n) % len(text)
	}
	a.recordTime(1)
	return a.signalReady()
}

// typicalText returns at least size bytes of typical agent output: words, code, paths and colours.
func typicalText(size int) string {
	var b strings.Builder
	for i := 0; b.Len() < size; i++ {
		switch i % 8 {
		case 0:
			fmt.Fprintf(&b, "\x1b[1m● Update(supervisor/session_%d.go)\x1b[0m\n", i)
		case 3:
			fmt.Fprintf(&b, "  \x1b[32m%4d +\tif err := s.save(entry, %d); err != nil {\x1b[0m\n", i, i*7)
		case 4:
			fmt.Fprintf(&b, "  \x1b[31m%4d -\treturn fmt.Errorf(\"cannot save %%q: %%w\", id, err)\x1b[0m\n", i)
		case 6:
			fmt.Fprintf(&b, "ok  \tgithub.com/example/project/package%d\t0.%03ds\n", i, i%1000)
		default:
			fmt.Fprintf(&b, "  %4d  \tfor i, line := range lines { total += weigh(line, i, %d) } // and so on\n", i, i)
		}
	}
	return b.String()
}

// plainTmux is the name of a tmux server without Corral but with Corral's configuration.
type plainTmux string

func (t plainTmux) command(args ...string) []string {
	return append([]string{"-u", "-L", string(t)}, args...)
}

func (t plainTmux) start(ctx context.Context, command []string) error {
	config := filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "corral/.tmux.conf")
	args := []string{"-f", config, "new-session", "-d", "-x", strconv.Itoa(columns), "-y", strconv.Itoa(lines), "--"}
	return run(ctx, "tmux", t.command(append(args, command...)...)...)
}

func (t plainTmux) end(ctx context.Context) error {
	return run(ctx, "tmux", t.command("kill-server")...)
}

// The size of a session's pane while no client is attached.
const (
	columns = 120
	lines   = 40
)
