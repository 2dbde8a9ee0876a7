package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/corrald/corral/cmd/corralctl/wording"
)

// Levels of findings.
const (
	levelOK    = "ok"
	levelNote  = "note"  // Corral works; something optional is missing or could be better
	levelFault = "fault" // Corral does not work, or not reliably
)

// finding is the result of one check. Text and Remedy are for people; other programs may show them.
type finding struct {
	Check  string
	Level  string
	Text   string
	Remedy string // a command or a sentence; "" if nothing is wrong
}

func ok(format string, args ...any) finding {
	return finding{Level: levelOK, Text: fmt.Sprintf(format, args...)}
}

func note(remedy, format string, args ...any) finding {
	return finding{Level: levelNote, Text: fmt.Sprintf(format, args...), Remedy: remedy}
}

func fault(remedy, format string, args ...any) finding {
	return finding{Level: levelFault, Text: fmt.Sprintf(format, args...), Remedy: remedy}
}

// queryTimeout bounds each query to another program.
const queryTimeout = 3 * time.Second

var doctorVerb = verb{
	name: "doctor", summary: "Check this machine and suggest fixes",
	options: plainVerb(func(ctx context.Context, c *ctl, _ []string) error {
		if c.isRemote() {
			return c.execHost(c.onlyHost(), "doctor")
		}
		findings := runChecks(ctx)
		if c.wantsJSON() {
			if err := c.printJSON(findings); err != nil {
				return err
			}
		} else {
			c.printFindings(findings)
		}
		if count(findings, levelFault) > 0 {
			return exit(exitFailed)
		}
		return nil
	}),
}

// runChecks runs every check. A check comes after those that it depends on.
func runChecks(ctx context.Context) []finding {
	e := newExamination(ctx)
	defer e.close()
	findings := []finding{}
	for _, check := range []struct {
		name string
		do   func(context.Context) []finding
	}{
		{"user bus", e.checkBus}, {"systemd", e.checkSystemd}, {"cgroup v2", checkCgroup},
		{"controllers", e.checkControllers}, {"tmux", e.checkTmux}, {"git", e.checkGit},
		{"corrald", e.checkDaemon}, {"corral-shim", checkShim}, {"configuration", e.checkConfiguration},
		{"state", checkState}, {"inotify", checkInotify}, {"linger", checkLinger}, {"shutdown lock", checkLock},
		{"notifications", e.checkNotifications}, {"hooks", checkHooks}, {"terminal", e.checkTerminal},
		{"ssh-agent", checkSSHAgent}, {"sandbox", e.checkSandbox}, {"agents", e.checkAgents},
		{"accounts", e.checkAccounts}, {"strays", e.checkStrays},
	} {
		ctx, cancel := context.WithTimeout(ctx, queryTimeout)
		for _, f := range check.do(ctx) {
			f.Check = check.name
			findings = append(findings, f)
		}
		cancel()
	}
	return findings
}

func count(findings []finding, level string) int {
	n := 0
	for _, f := range findings {
		if f.Level == level {
			n++
		}
	}
	return n
}

func (c *ctl) printFindings(findings []finding) {
	const arrow = "-> "
	width := 0
	for _, f := range findings {
		width = max(width, len(f.Check))
	}
	indent := width + 4 // the mark and three spaces
	if c.outTTY == nil || c.plain {
		indent = width + len(levelFault) + len("   ")
	}
	for _, f := range findings {
		if c.quiet && f.Level != levelFault {
			continue
		}
		for i, line := range c.findingLines(f.Text, indent) {
			if i == 0 {
				fmt.Fprintf(c.out, "%s %-*s  %s\n", c.levelMark(f.Level), width, f.Check, line)
			} else {
				fmt.Fprintf(c.out, "%*s%s\n", indent, "", line)
			}
		}
		if f.Remedy == "" {
			continue
		}
		for i, line := range c.findingLines(f.Remedy, indent+len(arrow)) {
			before := c.paint(wording.Dim, arrow)
			if i > 0 {
				before = strings.Repeat(" ", len(arrow))
			}
			fmt.Fprintf(c.out, "%*s%s%s\n", indent, "", before, line)
		}
	}
	if c.quiet || c.noLegend {
		return
	}
	faults, notes := count(findings, levelFault), count(findings, levelNote)
	switch {
	case faults == 0 && notes == 0:
		fmt.Fprintf(c.out, "\nNo problems found.\n")
	case faults == 0:
		fmt.Fprintf(c.out, "\nNo problems found; %s.\n", wording.Plural(notes, "note"))
	default:
		fmt.Fprintf(c.out, "\n%s, %s.\n", wording.Plural(faults, "fault"), wording.Plural(notes, "note"))
	}
}

// findingLines breaks a text between words into lines that fit into the terminal behind an
// indentation. It returns one line if there is no terminal.
func (c *ctl) findingLines(text string, indent int) []string {
	text = wording.Printable(text)
	if c.outTTY == nil || c.full || c.outTTY.width <= 0 {
		return []string{text}
	}
	return wrapText(text, c.outTTY.width-indent)
}

// levelMark returns the sign before a finding: a coloured symbol in a terminal, otherwise the
// level's name.
func (c *ctl) levelMark(level string) string {
	if c.outTTY == nil || c.plain {
		return fmt.Sprintf("%-*s", len(levelFault), level)
	}
	switch level {
	case levelOK:
		return c.paint(wording.Green, "✓")
	case levelNote:
		return c.paint(wording.Yellow, "•")
	}
	return c.paint(wording.Red, "✗")
}
