package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/corrald/corral/cmd/corralctl/hosts"
	"github.com/corrald/corral/cmd/corralctl/top"
	"github.com/corrald/corral/dbusapi/client"
	"github.com/corrald/corral/internal/config"
)

// topDetails does not list the keys: there are more than fit on a screen of help. top shows them
// itself, and so does the manual.
const topDetails = `Sessions that need a person are at the top, with the reason; below is the screen of the selected session. The line at the bottom names the
keys that matter for it, ? all of them, as does KEYS OF TOP in corralctl(1). The columns, the grouping and the size of the preview are remembered in
$XDG_STATE_HOME/corral/top.json.
`

var topVerb = verb{name: "top", summary: "Watch and control all sessions on a full screen", details: topDetails,
	useless: ": press / in it to filter sessions",
	options: func(f *pflag.FlagSet) action {
		sort := f.String("sort", "attention", "order by `KEY`: "+strings.Join(top.Sortings(), ", "))
		return func(ctx context.Context, c *ctl, _ []string) error {
			if !slices.Contains(top.Sortings(), *sort) {
				return usagef("top", "invalid value %q for --sort: expected one of %s", *sort,
					strings.Join(top.Sortings(), ", "))
			}
			if !c.onTerminal() {
				return &failure{exitFailed, "cannot show a full screen: standard input is not a terminal", "corralctl monitor"}
			}
			if term := os.Getenv("TERM"); term == "dumb" || term == "" {
				return &failure{exitFailed, "cannot show a full screen: the terminal does not support it (TERM=" + term + ")",
					"corralctl monitor"}
			}
			bus, err := c.connect(ctx)
			if err != nil {
				return err
			}
			return top.Run(ctx, bus, c.topOptions(bus, *sort))
		}
	}}

func (c *ctl) topOptions(bus *client.Client, sort string) top.Options {
	here, _ := os.Getwd()
	if c.isRemote() {
		here = ""
	}
	var several []top.Host
	var titles []string
	for _, h := range c.hosts {
		titles = append(titles, titleOf(h))
		if h.Name != "" || c.hasSeveralHosts() {
			several = append(several, top.Host{Name: h.Name, Title: titleOf(h), Remote: !h.IsLocal()})
		}
	}
	if len(titles) == 0 {
		titles = []string{titleOf(hosts.Host{})}
	}
	conf, _, _ := config.Load(configDirs()) // corrald and doctor report its errors
	return top.Options{
		Host: strings.Join(titles, ", "), Remote: c.isRemote(), Hosts: several, Archived: c.all, Sort: sort,
		Settings:  filepath.Join(stateDirectory(), "top.json"),
		Directory: here,
		LeaveKey:  conf.DetachKey,
		AttachCommand: func(ctx context.Context, id string) (*exec.Cmd, error) {
			if err := c.refuseOwnSession(ctx, bus, id, "attach to"); err != nil {
				return nil, err
			}
			self, err := ownPath()
			if err != nil {
				return nil, fmt.Errorf("cannot find the path of this program: %w", err)
			}
			return exec.Command(self, c.reach(id, "attach")...), nil
		},
		ShowCommand: c.pagedCommand,
		Create: func(ctx context.Context, spec top.NewSession) (string, error) {
			return c.createFromForm(ctx, bus, spec)
		},
		ErrorText: func(doing, id string, err error) string {
			return c.cannot(doing, id, err).message
		},
		OutageText: c.outage,
	}
}

// titleOf returns how top calls a host.
func titleOf(h hosts.Host) string {
	if name, err := os.Hostname(); h.IsLocal() && err == nil {
		return name
	}
	return h.String()
}

// returnPrompt waits for the user, because top would otherwise cover the output at once.
const returnPrompt = `printf '\nPress Enter to return to top. '; read -r line </dev/tty`

// pagedCommand returns a command that shows the output of a verb for a session. It returns once the
// user has read it: its pager waits however short the output is. diff chooses its pager itself, as
// git does, and uses colours only on a terminal.
func (c *ctl) pagedCommand(verb, id string) *exec.Cmd {
	pager, less := chosenPager(), "RSMK"
	if verb == "logs" {
		less += " +G" // start at the end
	}
	if pager == "" || pager == "cat" {
		pager = "cat; " + returnPrompt
	}
	self, err := ownPath()
	if err != nil {
		self = os.Args[0]
	}
	words := []string{"-c", `"$0" --no-pager "$@" 2>&1 | { ` + pager + "; }", self}
	if verb == "diff" {
		words[1] = `"$0" "$@"; ` + returnPrompt
	}
	command := exec.Command("sh", append(words, c.reach(id, verb)...)...)
	command.Env = append(os.Environ(), "LESS="+less, "LESSSECURE=1")
	return command
}

// createFromForm creates the session that the form of top describes.
func (c *ctl) createFromForm(ctx context.Context, bus *client.Client, form top.NewSession) (string, error) {
	r := &runOptions{directory: form.Directory, spec: client.Spec{Prompt: form.Prompt}}
	rest, ok := strings.CutPrefix(form.Directory, "~")
	if ok && (rest == "" || rest[0] == '/') && c.hostNamed(form.Host).IsLocal() {
		r.directory = filepath.Join(os.Getenv("HOME"), rest)
	}
	var err error
	if r.spec.WorkingDirectory, err = r.workspace(c); err != nil {
		return "", err
	}
	if form.Branch != "" {
		r.spec.Worktree = &form.Branch
	}
	if form.Agent == commandAgent {
		if r.spec.Command, err = config.SplitWords(form.Command); err != nil {
			return "", err
		}
	}
	if err := r.checkEncoding(); err != nil {
		return "", err
	}
	return bus.Of(form.Host).CreateSession(ctx, form.Agent, r.spec)
}
