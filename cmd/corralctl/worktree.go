package main

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi/client"
)

// generatedBranch is the value of --worktree without a branch, for a branch that corrald chooses.
// It is not a valid name of a branch.
const generatedBranch = " "

// worktrees returns the sessions that have a worktree, by id. It returns none if corrald cannot be
// reached.
func (c *ctl) worktrees(ctx context.Context) map[string]client.Session {
	list, err := c.readTable(ctx)
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

// reportKeptWorktree prints where the worktree of a removed session is, if it still exists. For
// another machine it always prints it, because it cannot check.
func (c *ctl) reportKeptWorktree(s client.Session) {
	if c.quiet || s.Worktree == "" {
		return
	}
	if _, err := os.Stat(s.WorkingDirectory); c.isOnHost(s.Id) || !errors.Is(err, fs.ErrNotExist) {
		c.print("The worktree of %s was kept: %s\n", s.Id,
			wording.Printable(wording.OnBranch(s.WorkingDirectory, s.Worktree)))
	}
}
