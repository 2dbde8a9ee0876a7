package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi/client"
	"github.com/corrald/corral/internal/worktree"
)

var diffVerb = verb{
	name: "diff", args: "ID", summary: "Show what has changed in a session's git working tree",
	options: func(f *pflag.FlagSet) action {
		o := &diffOptions{}
		f.StringVar(&o.base, "base", "", "compare with the merge base with `REV` instead of the default branch")
		f.BoolVar(&o.stat, "stat", false, "show a summary of each file")
		f.BoolVar(&o.nameOnly, "name-only", false, "show only the names of changed files")
		return o.run
	},
}

type diffOptions struct {
	base           string
	stat, nameOnly bool
}

// run shows a session's changes. Git runs in this process's environment, as if the user had typed
// git diff, but executes nothing that the repository configures: an agent can have written to it.
func (o *diffOptions) run(ctx context.Context, c *ctl, args []string) error {
	switch {
	case len(args) == 0:
		return usagef("diff", "diff: missing ID")
	case len(args) > 1:
		return usagef("diff", "diff: expected one ID, not %d", len(args))
	case o.stat && o.nameOnly:
		return usagef("diff", "diff: --stat and --name-only exclude each other")
	case c.wantsJSON():
		return usagef("diff", "diff: --json is not supported; use --name-only in scripts")
	}
	id, err := c.resolveHere(ctx, "diff", args[0])
	if err != nil {
		return err
	}
	s, err := c.client.Session(ctx, id)
	if err != nil {
		return c.cannot(c.doing(), id, err)
	}
	limited := ctx // ends after --timeout
	// The copy of the index is removed even if the user interrupts or does not read to the end.
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	defer stop()
	diff, err := worktree.NewDiff(ctx, os.Environ(), s.WorkingDirectory, o.base, s.Worktree != "")
	if err != nil {
		return c.diffError(s, err)
	}
	defer func() { _ = diff.Close() }()
	c.startDiffPager(diff.Pager)
	out := &diffWriter{c: c, title: diffTitle(s, diff), plain: o.stat || o.nameOnly}
	if o.nameOnly {
		out.title = ""
	}
	err = diff.Write(ctx, out, o.gitOptions(c)...)
	switch {
	case limited.Err() != nil:
		return c.cannot(c.doing(), id, limited.Err())
	case out.err != nil || ctx.Err() != nil:
		return nil // the user interrupted, or does not read to the end
	case err != nil:
		return c.cannot(c.doing(), id, err)
	}
	if !out.started && !o.nameOnly && !c.quiet {
		c.print("No %s.\n", out.title)
	}
	return nil
}

// gitOptions returns the options for git diff.
func (o *diffOptions) gitOptions(c *ctl) []string {
	switch {
	case o.nameOnly:
		return []string{"--name-only", "--no-color"}
	case o.stat && c.hasColour():
		return []string{fmt.Sprintf("--stat=%d", c.outTTY.width), "--color"}
	case o.stat && c.outTTY != nil:
		return []string{fmt.Sprintf("--stat=%d", c.outTTY.width), "--no-color"}
	case o.stat:
		return []string{"--stat", "--no-color"}
	}
	return []string{"--no-color"} // diffWriter colours it
}

// diffError returns the error about a session whose changes cannot be shown, with what to do about
// it.
func (c *ctl) diffError(s client.Session, err error) error {
	f := c.cannot(c.doing(), s.Id, err)
	switch {
	case errors.Is(err, worktree.ErrNoRepository):
		directory := wording.AbbreviateHome(s.WorkingDirectory)
		f.message = fmt.Sprintf("cannot %s %q: %s is not in a git repository", c.doing(), s.Id, directory)
		f.hint = "git init " + wording.ShellWord(s.WorkingDirectory)
	case errors.Is(err, worktree.ErrNoGit):
		f.message = fmt.Sprintf("cannot %s %q: git is not installed, or not in PATH", c.doing(), s.Id)
	case errors.Is(err, worktree.ErrUnknownRevision):
		f.code, f.hint = exitUsage, "git -C "+wording.ShellWord(s.WorkingDirectory)+" branch --all"
	}
	return f
}

// diffTitle names what the working tree is compared with.
func diffTitle(s client.Session, diff *worktree.Diff) string {
	title := "changes of " + s.Id
	switch {
	case diff.Against != "":
		return fmt.Sprintf("%s since %.10s, the merge base with %s", title, diff.Base, diff.Against)
	case diff.Unborn:
		return title + " in a repository without a commit"
	}
	return fmt.Sprintf("%s since %.10s, the last commit", title, diff.Base)
}

// startDiffPager starts the pager that git would use: GIT_PAGER, or the one in the user's git
// configuration. CORRAL_PAGER takes precedence.
func (c *ctl) startDiffPager(configured string) {
	if own := os.Getenv("GIT_PAGER"); own != "" {
		configured = own
	}
	if _, chosen := os.LookupEnv("CORRAL_PAGER"); !chosen && configured != "" && isRunnable(configured) {
		c.startPagerFor(0, configured) // for short output too: it may do more than page
		return
	}
	c.startPager()
}

// diffWriter prints a title before a diff. On a terminal it colours the diff as git does, and
// escapes the control characters in files: an agent must not be able to hide its changes. Otherwise
// it leaves the diff unchanged, since git can apply it.
type diffWriter struct {
	c        *ctl
	title    string
	plain    bool // the output is names, which git escapes itself, and not a patch
	started  bool
	partial  []byte // an incomplete line
	old, new int    // lines of the hunk that are still to come
	err      error
}

func (w *diffWriter) Write(text []byte) (int, error) {
	if !w.started {
		w.started = true
		if w.title != "" && !w.c.noLegend {
			fmt.Fprintf(w.c.out, "%s\n\n", w.c.paint(wording.Dim, wording.Printable(strings.ToUpper(w.title[:1])+w.title[1:])))
		}
	}
	if w.plain || w.c.outTTY == nil {
		_, w.err = w.c.out.Write(text)
		return len(text), w.err
	}
	// Only the new text is searched for a newline, lest each part of a long line search all of it
	// again.
	if w.partial = append(w.partial, text...); bytes.IndexByte(text, '\n') < 0 {
		return len(text), nil
	}
	for {
		line, rest, whole := bytes.Cut(w.partial, []byte("\n"))
		if !whole {
			return len(text), nil
		}
		shown := w.c.paint(w.colour(string(line)), wording.PrintableLines(string(line)))
		if _, w.err = fmt.Fprintln(w.c.out, shown); w.err != nil {
			return 0, w.err
		}
		w.partial = rest
	}
}

// The colours of a diff, the same as git's.
const (
	diffOld  = "\x1b[31m"
	diffNew  = "\x1b[32m"
	diffHunk = "\x1b[36m"
)

var hunk = regexp.MustCompile(`^@@ -[0-9]+(?:,([0-9]+))? \+[0-9]+(?:,([0-9]+))? @@`)

// colour returns the colour of a line. It depends on the position in the diff, because a line of a
// file can look like a line of the diff.
func (w *diffWriter) colour(line string) string {
	if w.old > 0 || w.new > 0 {
		switch {
		case line == "" || line[0] == ' ':
			w.old, w.new = w.old-1, w.new-1
		case line[0] == '-':
			w.old--
			return diffOld
		case line[0] == '+':
			w.new--
			return diffNew
		}
		return ""
	}
	if counts := hunk.FindStringSubmatch(line); counts != nil {
		w.old, w.new = lineCount(counts[1]), lineCount(counts[2])
		return diffHunk
	}
	if strings.HasPrefix(line, `\ `) { // No newline at end of file
		return ""
	}
	return wording.Bold
}

// lineCount parses a number of lines in the header of a hunk, which omits the number 1.
func lineCount(text string) int {
	if text == "" {
		return 1
	}
	n, _ := strconv.Atoi(text)
	return n
}
