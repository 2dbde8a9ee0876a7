package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"

	"github.com/spf13/pflag"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi/client"
	"github.com/corrald/corral/internal/unitname"
)

var logsVerb = verb{
	name: "logs", args: "ID…", summary: "Show the output of a session's agent",
	options: func(f *pflag.FlagSet) action {
		o := &logsOptions{}
		f.BoolVarP(&o.follow, "follow", "f", false, "follow: print new output as it appears")
		f.IntVarP(&o.lines, "lines", "n", -1, "only the last `LINES`; default: all, with -f 10")
		grep := f.StringP("grep", "g", "", "print the lines that match the regular expression `RE`, with session and time")
		f.BoolVar(&o.raw, "raw", false, "keep escape sequences")
		f.BoolVar(&o.journal, "journal", false, "show what corrald and systemd logged about it instead")
		return func(ctx context.Context, c *ctl, args []string) error {
			if f.Changed("lines") && o.lines < 0 {
				return usagef("logs", "invalid value \"%d\" for --lines: expected a number of lines", o.lines)
			}
			if f.Changed("grep") {
				var err error
				if o.pattern, err = parsePattern(*grep); err != nil {
					return err
				}
				if o.follow || o.raw || o.journal {
					return usagef("logs", "--grep excludes --follow, --raw and --journal")
				}
			}
			return o.run(ctx, c, args)
		}
	},
}

type logsOptions struct {
	follow  bool
	lines   int // negative: all
	raw     bool
	journal bool
	pattern *regexp.Regexp // of --grep, nil without it
}

func (o *logsOptions) run(ctx context.Context, c *ctl, args []string) error {
	switch {
	case c.hasSeveralHosts():
		return o.runOnHosts(ctx, c, args)
	case c.isRemote():
		return c.execHost(c.onlyHost(), "logs", args...)
	}
	if o.pattern != nil {
		return o.grep(ctx, c, args)
	}
	if c.wantsJSON() && !o.journal {
		return usagef("logs", "the output of an agent is text: --json needs --journal or --grep")
	}
	if len(args) > 1 && o.follow {
		return usagef("logs", "-f follows one session, not %d", len(args))
	}
	ids, unresolved := c.resolve(ctx, args)
	if len(ids) == 0 {
		return unresolved
	}
	if o.journal {
		return o.showJournal(ctx, c, ids)
	}
	if o.follow {
		if len(ids) > 1 {
			return usagef("logs", "-f follows one session, and %q names %d", args[0], len(ids))
		}
		if c.outTTY != nil {
			if err := c.refuseOwnSession(ctx, c.client, ids[0], "follow the log of"); err != nil {
				return err
			}
		}
		manager, err := c.client.Manager(ctx)
		if err == nil {
			err = o.followLog(ctx, c, sessionDirectory(manager, ids[0]), nil)
		}
		return c.cannotOrNil("follow the log of", ids[0], err)
	}
	if !o.raw {
		c.startPager()
	}
	var failed failures
	for i, id := range ids {
		c.printLogHeading(ids, i)
		if err := o.showLog(ctx, c, id); err != nil {
			f := c.cannot("show the log of", id, err)
			if isInvalidState(err) {
				f.hint = c.fallbackHint(ctx, "status", id)
			}
			failed.add(c, f)
		}
	}
	return cmp.Or(unresolved, failed.first())
}

// printLogHeading prints a heading above the log of the session with this index, if there are
// several.
func (c *ctl) printLogHeading(ids []string, i int) {
	if len(ids) > 1 && !c.noLegend {
		c.print(map[bool]string{true: "\n==> %s <==\n", false: "==> %s <==\n"}[i > 0], ids[i])
	}
}

// cannotOrNil is cannot for an error that may be nil.
func (c *ctl) cannotOrNil(doing, object string, err error) error {
	if err == nil {
		return nil
	}
	return c.cannot(doing, object, err)
}

// sessionDirectory returns the directory with the record and the log of a session.
func sessionDirectory(manager client.Manager, id string) string {
	return filepath.Join(manager.StateDirectory, "sessions", id)
}

// showLog writes the log of one session.
func (o *logsOptions) showLog(ctx context.Context, c *ctl, id string) error {
	manager, err := c.client.OfSession(id).Manager(ctx)
	if err != nil {
		return err
	}
	directory := sessionDirectory(manager, id)
	files, err := openLogFiles(directory, func() (*os.File, error) { return c.client.OpenLog(ctx, id) })
	if err != nil {
		return err
	}
	defer files.close()
	out := &lineWriter{Writer: c.out, endsLine: true}
	p := newPlayback(out, o.raw, o.lines)
	if err := p.play(files); err != nil {
		return err
	}
	if err := p.Close(); err != nil {
		return err
	}
	// What follows on the terminal is to begin on a line of its own.
	if !out.endsLine && c.outTTY != nil && !o.raw {
		_, err = c.out.WriteString("\n")
	}
	return err
}

// lineWriter records whether what was written ends with a newline.
type lineWriter struct {
	io.Writer
	endsLine bool
}

func (w *lineWriter) Write(text []byte) (int, error) {
	if len(text) > 0 {
		w.endsLine = text[len(text)-1] == '\n'
	}
	return w.Writer.Write(text)
}

// escapingWriter escapes the control characters in an agent's text. Each write has to end with a
// whole character.
type escapingWriter struct{ io.Writer }

func (w escapingWriter) Write(text []byte) (int, error) {
	if _, err := io.WriteString(w.Writer, wording.PrintableLines(string(text))); err != nil {
		return 0, err
	}
	return len(text), nil
}

// lastLines keeps the last lines of what is written, and writes them to out at Close.
type lastLines struct {
	out     io.Writer
	limit   int
	lines   [][]byte
	partial []byte // an incomplete line
}

func (l *lastLines) Write(p []byte) (int, error) {
	n := len(p)
	for {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			l.partial = append(l.partial, p...)
			return n, nil
		}
		l.add(append(l.partial, p[:i+1]...))
		l.partial, p = nil, p[i+1:]
	}
}

func (l *lastLines) add(line []byte) {
	l.lines = append(l.lines, line)
	if len(l.lines)/2-512 > l.limit { // the limit may be the largest int, so nothing is added to it
		l.lines = append([][]byte(nil), l.lines[len(l.lines)-l.limit:]...)
	}
}

func (l *lastLines) Close() error {
	if len(l.partial) > 0 {
		l.add(l.partial)
	}
	for _, line := range l.lines[max(0, len(l.lines)-l.limit):] {
		if _, err := l.out.Write(line); err != nil {
			return err
		}
	}
	l.lines, l.partial = nil, nil
	return nil
}

// showJournal replaces this process by journalctl, which shows systemd's records about the scopes,
// and corrald's.
func (o *logsOptions) showJournal(ctx context.Context, c *ctl, ids []string) error {
	command := []string{"journalctl", "--user"}
	for _, id := range ids {
		s, err := c.client.Session(ctx, id)
		if err != nil {
			return c.cannot("show the journal of", id, err)
		}
		if s.NRuns == 0 {
			message := fmt.Sprintf("cannot show the journal of %q: it was never started", id)
			return &failure{exitFailed, message, "corralctl start " + id}
		}
		command = append(command, "--unit="+unitname.Scope(s.Agent, s.Id))
	}
	if o.follow {
		command = append(command, "--follow")
	}
	if o.lines >= 0 {
		command = append(command, fmt.Sprintf("--lines=%d", o.lines))
	}
	if c.wantsJSON() {
		command = append(command, map[bool]string{false: "--output=json", true: "--output=json-pretty"}[c.prettyJSON()])
	}
	if c.noPager {
		command = append(command, "--no-pager")
	}
	return c.cannotOrNil("show the journal of", ids[0], c.exec(command, os.Environ()))
}
