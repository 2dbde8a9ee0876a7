package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"

	"github.com/corrald/corral/cmd/corralctl/hosts"
	"github.com/corrald/corral/dbusapi"
)

// runOnHosts shows logs of several hosts, one session after the other. corralctl on each host reads
// the logs there: the bus carries no files between machines.
func (o *logsOptions) runOnHosts(ctx context.Context, c *ctl, args []string) error {
	included := func(s dbusapi.SessionRow) bool { return isInAll(c.name, s) }
	if o.pattern != nil {
		included = isAny
	}
	ids, unresolved := c.resolveIncluded(ctx, args, included)
	switch {
	case len(ids) == 0:
		return unresolved
	case len(ids) > 1 && (o.follow || o.journal || c.wantsJSON()):
		return usagef("logs", "--follow, --journal and --json show sessions of one host")
	}
	if len(ids) == 1 && c.isOnHost(ids[0]) {
		return c.execHost(c.hostOf(ids[0]), "logs", ids[0])
	}
	code := o.showAll(ctx, c, ids)
	return cmp.Or(unresolved, exit(code))
}

// showAll shows the logs one after the other. It returns the exit code: that of the first log that
// cannot be shown; with --grep also exitFailed if no line matches.
func (o *logsOptions) showAll(ctx context.Context, c *ctl, ids []string) (code int) {
	var failed failures
	found := o.pattern == nil
	for i, id := range ids {
		if o.pattern == nil {
			c.printLogHeading(ids, i)
		}
		err := o.showOn(ctx, c, c.hostOf(id), id)
		if f := (*failure)(nil); o.pattern != nil && errors.As(err, &f) && f.code == exitFailed && f.message == "" {
			continue // no line matches
		}
		found = found || err == nil
		if err != nil {
			failed.add(c, c.cannot("show the log of", id, err))
		}
	}
	if !found && failed.code == 0 {
		return exitFailed
	}
	return failed.code
}

// showOn shows the log of one session.
func (o *logsOptions) showOn(ctx context.Context, c *ctl, h hosts.Host, id string) error {
	if h.IsLocal() {
		here := *c
		here.hosts, here.client = nil, c.client.Of("")
		return o.run(ctx, &here, []string{id})
	}
	argv, err := c.onHost(hosts.Host{Name: h.Name, Destination: h.Destination}, "logs", id)
	if err != nil {
		return err
	}
	if err := c.out.Flush(); err != nil {
		return err
	}
	command := exec.CommandContext(ctx, argv[0], slices.DeleteFunc(argv[1:], func(w string) bool { return w == "-t" })...)
	command.Stderr = os.Stderr
	out, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		return err
	}
	for lines := bufio.NewReader(out); ; {
		line, err := lines.ReadString('\n')
		if line != "" && o.pattern != nil {
			line = h.ID(line) // each line begins with the id of the session
		}
		if _, writeErr := c.out.WriteString(line); writeErr != nil || err != nil {
			break
		}
	}
	err = command.Wait()
	var exited *exec.ExitError
	if errors.As(err, &exited) {
		return &failure{code: exited.ExitCode()} // it has printed why
	}
	if err != nil {
		return fmt.Errorf("cannot run %s: %w", argv[0], err)
	}
	return nil
}
