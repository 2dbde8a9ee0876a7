package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi/word"
)

var killVerb = verb{
	name: "kill", args: "ID…", summary: "Send a signal to a session's agent or other processes",
	options: func(f *pflag.FlagSet) action {
		name := f.StringP("signal", "s", "SIGTERM", "the `SIGNAL`, by name or number; default: SIGTERM")
		target := f.String("kill-whom", word.Agent, "`WHOM` to signal: agent (default), all or leftovers")
		return confirmingVerb(func(ctx context.Context, c *ctl, args []string) error {
			signal, err := parseSignal(*name)
			if err != nil {
				return usageError("kill", err)
			}
			if !slices.Contains(word.Recipients, *target) {
				return usagef("kill", "invalid value %q for --kill-whom: expected agent, all or leftovers", *target)
			}
			if len(args) == 0 && c.all && *target != word.Agent {
				if args, err = c.sessionsWithProcesses(ctx); err != nil || len(args) == 0 {
					return err
				}
				c.impliesAll = true
			}
			return c.forEach(ctx, args, "", func(ctx context.Context, id string) error {
				return c.client.KillSession(ctx, id, *target, int32(signal))
			})
		})(f)
	},
}

// sessionsWithProcesses returns the ids of the sessions that have processes: the live ones, and
// those that have ended with leftover processes.
func (c *ctl) sessionsWithProcesses(ctx context.Context) ([]string, error) {
	list, err := c.readTable(ctx)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, s := range list.sessions {
		if !wording.IsEnded(s.State) || list.leftovers(s) > 0 {
			ids = append(ids, s.Id)
		}
	}
	return ids, nil
}

// parseSignal parses a signal such as 9, KILL, SIGKILL or RTMIN+3.
func parseSignal(text string) (unix.Signal, error) {
	const least, greatest = 1, 64
	number, err := strconv.Atoi(text)
	if err != nil {
		name := "SIG" + strings.TrimPrefix(strings.ToUpper(text), "SIG")
		if offset, ok := strings.CutPrefix(name, "SIGRTMIN"); ok {
			const first = 34 // the C library's SIGRTMIN, signal(7)
			n, err := strconv.Atoi(strings.TrimPrefix(offset, "+"))
			if offset == "" {
				n, err = 0, nil
			}
			if err == nil && n >= 0 && first+n <= greatest {
				return unix.Signal(first + n), nil
			}
		}
		number = int(unix.SignalNum(name))
	}
	if number < least || number > greatest {
		return 0, fmt.Errorf("invalid signal %q: expected a name or a number", text)
	}
	return unix.Signal(number), nil
}
