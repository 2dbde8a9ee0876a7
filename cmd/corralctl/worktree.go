package main

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi/client"
)

// generatedBranch is what --worktree is without a value. No branch can be called so.
const generatedBranch = " "

// branchValue is an option that takes a branch, or nothing for one that the daemon chooses.
type branchValue struct{ branch **string }

func (v branchValue) Set(text string) error {
	if text == generatedBranch {
		text = ""
	}
	*v.branch = &text
	return nil
}

func (v branchValue) String() string {
	if v.branch == nil || *v.branch == nil {
		return ""
	}
	return **v.branch
}

// Type implements pflag.Value.
func (v branchValue) Type() string { return "branch" }

// worktrees are the sessions that have one, with what is told of it. Where they cannot be asked for
// withHost are none.
func (c *ctl) worktrees(ctx context.Context) map[string]client.Session {
	bus, err := c.connect(ctx)
	if err != nil {
		return nil
	}
	list, err := c.readTable(ctx, bus)
	if err != nil {
		return nil
	}
	all := map[string]client.Session{}
	for _, s := range list.sessions {
		if s.Worktree != "" {
			all[s.Id] = s
		}
	}
	return all
}

// reportKeptWorktree says where the worktree of a session that was removed is, if it is there, as far as that
// can be seen from here.
func (c *ctl) reportKeptWorktree(s client.Session) {
	if c.quiet || s.Worktree == "" {
		return
	}
	if _, err := os.Stat(s.WorkingDirectory); c.host != "" || !errors.Is(err, fs.ErrNotExist) {
		c.print("The worktree of %s was kept: %s\n", s.Id, wording.Printable(wording.OnBranch(s.WorkingDirectory, s.Worktree)))
	}
}
