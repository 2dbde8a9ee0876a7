package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/internal/trust"
	"github.com/corrald/corral/internal/worktree"
	"github.com/corrald/corral/supervisor/session"
)

var trustVerb = verb{
	name: "trust", args: "[PATH]", summary: "Approve the scripts that set worktrees of a repository up",
	options: func(f *pflag.FlagSet) action {
		o := &trustOptions{}
		f.BoolVar(&o.list, "list", false, "list what was approved")
		f.BoolVar(&o.remove, "remove", false, "remove all approvals for the repository")
		f.BoolVarP(&o.yes, "yes", "y", false, "approve the scripts without a question")
		return o.run
	},
}

type trustOptions struct{ list, remove, yes bool }

func (o *trustOptions) run(ctx context.Context, c *ctl, args []string) error {
	switch {
	case len(args) > 1:
		return usagef("trust", "trust: expected one PATH, not %s", wording.Plural(len(args), "word"))
	case o.list && o.remove, o.list && len(args) > 0:
		return usagef("trust", "--list excludes --remove and PATH")
	case c.isRemote():
		return c.execHost(c.onlyHost(), "trust", args...)
	}
	approvals := trust.Approvals(filepath.Join(stateDirectory(), "trusted"))
	if o.list {
		return c.listApprovals(approvals)
	}
	path := "."
	if len(args) > 0 {
		path = args[0]
	}
	if o.remove {
		return c.removeApprovals(ctx, approvals, path)
	}
	if c.isInsideSession(ctx) {
		return &failure{code: exitFailed, message: "cannot approve scripts: this is a session, and an agent cannot approve " +
			"what Corral executes"}
	}
	return o.approve(ctx, c, approvals, path)
}

// isInsideSession reports whether the process belongs to a session, according to its environment or
// to corrald. This is not a security boundary: a process of the user could also write the approval.
func (c *ctl) isInsideSession(ctx context.Context) bool {
	if isFromSession() {
		return true
	}
	bus, err := c.connect(ctx)
	if err != nil {
		return false
	}
	if running, err := bus.Running(ctx); err != nil || !running {
		return false
	}
	_, err = bus.SessionByPID(ctx, 0)
	return err == nil
}

// locate returns the repository and the working tree at a path.
func locate(ctx context.Context, path string) (repository, top string, err error) {
	git, top, err := worktree.Locate(ctx, os.Environ(), path)
	switch {
	case errors.Is(err, worktree.ErrNoRepository):
		err = fmt.Errorf("%s is not in a working tree of git", wording.Printable(path))
	case errors.Is(err, worktree.ErrNoGit):
		err = errors.New("git is not installed, or not in PATH")
	}
	return session.Worktree{Repository: git}.Directory(), top, err
}

// approve shows the scripts and asks whether to approve them.
func (o *trustOptions) approve(ctx context.Context, c *ctl, approvals trust.Approvals, path string) error {
	cannot := func(err error) error { return c.cannot("approve scripts", "", err) }
	repository, top, err := locate(ctx, path)
	if err != nil {
		return cannot(err)
	}
	var scripts []trust.Script
	for _, name := range []string{trust.Setup, trust.Teardown} {
		script, err := trust.Read(repository, top, name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return cannot(err)
		case approvals.Has(script):
			if !c.quiet {
				c.print("%s of %s is approved already.\n", name, wording.AbbreviateHome(script.Repository))
			}
			continue
		}
		scripts = append(scripts, script)
		c.print("==> %s <==\n", filepath.Join(top, name))
		fmt.Fprintln(c.out, wording.PrintableLines(strings.TrimSuffix(string(script.Content), "\n")))
	}
	if len(scripts) == 0 {
		return nil
	}
	if err := o.confirm(ctx, c, scripts); err != nil {
		return err
	}
	for _, script := range scripts {
		if err := approvals.Add(script, time.Now()); err != nil {
			return cannot(err)
		}
		if !c.quiet {
			c.print("Approved %s of %s.\n", script.Name, wording.AbbreviateHome(script.Repository))
		}
	}
	return nil
}

// confirm asks whether to approve the scripts. Unlike other questions, it has to be answered, on a
// terminal or by --yes.
func (o *trustOptions) confirm(ctx context.Context, c *ctl, scripts []trust.Script) error {
	if o.yes {
		return nil
	}
	if c.errTTY == nil || openTerminal(c.in) == nil {
		return &failure{exitFailed, "cannot approve scripts: there is no terminal to ask on", "corralctl trust --yes"}
	}
	if err := c.out.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(c.err, "Execute %s for new worktrees of this repository? [y/N] ",
		wording.Plural(len(scripts), "script"))
	answer, err := readAnswer(ctx, c.in)
	if err != nil {
		fmt.Fprintln(c.err)
	}
	if answer == "y" || answer == "yes" {
		return nil
	}
	fmt.Fprintln(c.err, "Aborted.")
	return exit(exitFailed)
}

// removeApprovals removes the approvals for the repository at a path, which may not exist any more.
func (c *ctl) removeApprovals(ctx context.Context, approvals trust.Approvals, path string) error {
	repository, _, err := locate(ctx, path)
	if err != nil {
		if repository, err = filepath.Abs(path); err != nil {
			return c.cannot("remove approvals", "", err)
		}
	}
	if resolved, err := filepath.EvalSymlinks(repository); err == nil {
		repository = resolved
	}
	n, err := approvals.Remove(repository)
	if err != nil {
		return c.cannot("remove approvals", "", err)
	}
	if n == 0 {
		return &failure{exitFailed, "no script of " + wording.AbbreviateHome(repository) + " was approved",
			"corralctl trust --list"}
	}
	if !c.quiet {
		c.print("Removed %s for %s.\n", wording.Plural(n, "approval"), wording.AbbreviateHome(repository))
	}
	return nil
}

// listApprovals prints what was approved.
func (c *ctl) listApprovals(approvals trust.Approvals) error {
	all, err := approvals.List()
	if err != nil {
		return c.cannot("list approvals", "", err)
	}
	if c.wantsJSON() {
		if all == nil {
			all = []trust.Approval{}
		}
		return c.printJSON(all)
	}
	t := table{columns: []column{
		{title: "REPOSITORY", minWidth: 12, cut: wording.EllipsizePath}, {title: "SCRIPT"}, {title: "APPROVED"},
		{title: "SHA256", minWidth: 12, cut: wording.Ellipsize},
	}}
	for _, a := range all {
		t.rows = append(t.rows, []cell{
			{wording.AbbreviateHome(a.Repository), ""}, {a.Script, ""},
			{wording.Timestamp(uint64(a.Approved.UnixMicro())), ""}, {a.SHA256, ""},
		})
	}
	c.printTable(t)
	return nil
}
