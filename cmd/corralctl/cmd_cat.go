package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/safefile"
)

var catVerb = verb{
	name: "cat", args: "AGENT…", summary: "Show the files that define an agent", pages: true,
	options: plainVerb(func(_ context.Context, c *ctl, args []string) error {
		if len(args) == 0 {
			return usagef("cat", "cat: missing AGENT")
		}
		if c.isRemote() {
			return c.execHost(c.onlyHost(), "cat", args...)
		}
		shown := false
		var failed failures
		for _, name := range args {
			files, err := agentFiles(name)
			if err != nil {
				failed.add(c, prefixed(fmt.Sprintf("cannot show %q: ", name), err))
				continue
			}
			for _, file := range files {
				if shown {
					fmt.Fprintln(c.out)
				}
				shown = true
				if err := c.showFile(file); err != nil {
					failed.add(c, err)
				}
			}
			if len(files) == 0 {
				c.print("# agent %s is built in: it runs the given command and has no file\n", name)
			}
		}
		return failed.first()
	}),
}

// agentFiles returns the files that define an agent, as the daemon finds them. Errors: *failure,
// whose message the caller has to prefix with what it cannot do.
func agentFiles(name string) ([]string, error) {
	unknown := &failure{exitFailed, "no such agent", "corralctl agents"}
	if !config.ValidAgentName(name) && !config.IsTemplate(name) {
		return nil, unknown
	}
	files, err := config.AgentFiles(configDirs(), name)
	if err == nil && len(files) == 0 && name != config.CommandAgent {
		return nil, unknown
	}
	return files, err
}

// maxDefinition limits what is read of a configuration file, in bytes. It is more than corrald
// accepts, so that a file that is too long can be shown and edited.
const maxDefinition = 16 << 20

// showFile prints a file below its path, as systemctl cat does.
func (c *ctl) showFile(path string) error {
	heading := "# " + wording.Printable(path)
	if config.IsMasked(path) {
		heading += " (masked: the installed agent of this name is ignored)"
	}
	fmt.Fprintln(c.out, c.paint(wording.Bold, heading))
	text, err := safefile.ReadLinked(path, maxDefinition)
	if err != nil {
		return fmt.Errorf("cannot read the file: %w", err)
	}
	fmt.Fprint(c.out, wording.PrintableLines(string(text)))
	if len(text) > 0 && !strings.HasSuffix(string(text), "\n") {
		fmt.Fprintln(c.out)
	}
	return nil
}
