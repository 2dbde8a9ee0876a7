package main

import (
	"context"
	"fmt"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi"
)

// problemsOf returns the problems of each session, by id.
func (c *ctl) problemsOf(ctx context.Context) map[string][]dbusapi.Problem {
	by := map[string][]dbusapi.Problem{}
	manager, _ := c.client.Manager(ctx)
	for _, p := range manager.Problems {
		by[p.Session] = append(by[p.Session], p)
	}
	return by
}

// printProblems prints problems. Of a long list it prints only the first ones and the number of the
// others.
func (c *ctl) printProblems(problems []dbusapi.Problem, named bool) {
	const most = 10
	for i, p := range problems {
		text := p.Text
		if named && p.Session != "" {
			text = p.Session + ": " + text
		}
		last := i == most && len(problems) > most+1
		if last {
			text = fmt.Sprintf("and %d more: corralctl status --json=pretty", len(problems)-most)
		}
		fmt.Fprintf(c.out, "%13s: %s\n", "Problem", c.paint(wording.Red, wording.Printable(text)))
		if last {
			return
		}
	}
}
