package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/corrald/corral/cmd/corralctl/transcript"
	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/dbusapi/client"
	"github.com/corrald/corral/dbusapi/word"
	"github.com/corrald/corral/internal/propertysyntax"
)

var statusVerb = verb{name: "status", args: "[ID…]", summary: "Show the status of sessions; without ID of corrald",
	pages: true,
	options: func(f *pflag.FlagSet) action {
		lines := f.Uint32P("lines", "n", 10, "the last `LINES` of the screen")
		return func(ctx context.Context, c *ctl, args []string) error {
			_, err := c.connect(ctx)
			if err == nil && len(args) == 0 && !c.all {
				err = c.managerStatus(ctx)
			} else if err == nil {
				err = c.sessionsStatus(ctx, args, *lines)
			}
			if client.IsUnavailable(err) {
				return c.savedStatus(args, err)
			}
			return err
		}
	}}

// sessionStatus is what status shows of one session.
type sessionStatus struct {
	session   client.Session
	processes []process
	screen    string // its last lines
	problems  []dbusapi.Problem
	strays    []dbusapi.Stray
}

// sessionsStatus shows the sessions. As with systemctl, the exit code is 3 if the first of them is
// not active, 4 if there is no such session.
func (c *ctl) sessionsStatus(ctx context.Context, words []string, lines uint32) error {
	sessions, err := c.candidates(ctx)
	if err != nil {
		return err
	}
	ids, unmatched := c.matchAll(words, sessions, isAny)
	code := unmatched.code
	problems, strays := c.problemsOf(ctx), c.straysOf(ctx)
	err = c.printStatuses(ids, func(id string) (sessionStatus, error) {
		s, err := c.client.Session(ctx, id)
		if err != nil {
			return sessionStatus{}, c.cannot("show the status of", id, err)
		}
		s.ExpireTimestamp = c.acknowledgeSeen(ctx, s, words)
		if wording.IsEnded(s.State) && code == 0 {
			code = exitNotActive
		}
		status := sessionStatus{session: s, problems: problems[id], strays: strays[id],
			screen: c.lastScreenLines(ctx, s, lines)}
		if !c.isOnHost(id) && s.ControlGroup != "" {
			status.processes = groupProcesses(s.ControlGroup)
		}
		return status, nil
	})
	if err != nil {
		return err
	}
	return exit(code)
}

// isAny is for status, whose --all includes archived sessions.
func isAny(dbusapi.SessionRow) bool { return true }

// printStatuses prints the statuses of sessions, each as soon as status has returned it, or all of
// them in one JSON value.
func (c *ctl) printStatuses(ids []string, status func(id string) (sessionStatus, error)) error {
	var values []statusValue
	for i, id := range ids {
		s, err := status(id)
		switch {
		case err != nil:
			return err
		case c.wantsJSON():
			values = append(values, s.value())
			continue
		case i > 0:
			fmt.Fprintln(c.out)
		}
		c.printStatus(s)
	}
	if len(values) == 0 {
		return nil
	}
	return c.printJSON(values)
}

// acknowledgeSeen reports to corrald that the user has seen what a session asks for: they named it
// and see its status on a terminal. A script that reads the status is not a user. It returns when
// the session expires after that.
func (c *ctl) acknowledgeSeen(ctx context.Context, s client.Session, words []string) (expires uint64) {
	if c.outTTY == nil || len(words) == 0 || s.Attention == "" || s.AttentionAcknowledged {
		return s.ExpireTimestamp
	}
	if c.client.Acknowledge(ctx, s.Id) == nil {
		if seen, err := c.client.Session(ctx, s.Id); err == nil {
			return seen.ExpireTimestamp
		}
	}
	return s.ExpireTimestamp
}

// lastScreenLines returns the last lines of the session's screen, or of its log if its agent or its
// tmux server has ended.
func (c *ctl) lastScreenLines(ctx context.Context, s client.Session, lines uint32) string {
	if lines == 0 || s.State == word.Created && s.Reason == "" { // with a reason, the log is that of its setup
		return ""
	}
	if s.SessionAlive && s.AgentAlive {
		if text, err := c.client.Capture(ctx, s.Id, lines, 0); err == nil {
			return tail(strings.TrimRight(text, "\n "), int(lines))
		}
	}
	log, err := c.client.OpenLog(ctx, s.Id)
	if err != nil {
		return ""
	}
	defer func() { _ = log.Close() }()
	const enough = 64 << 10 // bytes that certainly contain the last lines of a screen
	info, err := log.Stat()
	if err == nil && info.Size() > enough {
		_, err = log.Seek(-enough, io.SeekEnd)
	}
	if err != nil {
		return ""
	}
	var text strings.Builder
	cleaner := transcript.New(&text)
	if manager, err := c.client.OfSession(s.Id).Manager(ctx); err == nil {
		sizes := readSizes(sessionDirectory(manager, s.Id))
		cleaner.Resize(int(sizes.Last().Columns), int(sizes.Last().Rows))
	}
	if _, err := io.Copy(cleaner, io.LimitReader(log, enough)); err != nil || cleaner.Close() != nil {
		return ""
	}
	return tail(strings.TrimRight(text.String(), "\n "), int(lines))
}

// tail returns the last n lines.
func tail(text string, n int) string {
	lines := strings.Split(text, "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// statusIndent is the column where the values of a status begin.
const statusIndent = 15

// fit shortens text that starts at a column to the terminal's width.
func (c *ctl) fit(text string, column int) string {
	if c.outTTY == nil || c.full {
		return text
	}
	return wording.Ellipsize(text, c.outTTY.width-column)
}

// fitPath is fit for a path: it keeps the end and escapes control characters.
func (c *ctl) fitPath(path string, column int) string {
	path = wording.Printable(path)
	if c.outTTY == nil || c.full {
		return path
	}
	return wording.EllipsizePath(path, c.outTTY.width-column)
}

// field prints one line of a status: the name, right-aligned, and the value.
func (c *ctl) field(name, format string, args ...any) {
	fmt.Fprintf(c.out, "%13s: ", name)
	c.print(format+"\n", args...)
}

func (c *ctl) printStatus(status sessionStatus) {
	s, now := status.session, time.Now()
	fmt.Fprintf(c.out, "%s %s", c.statusDot(s), c.paint(wording.Bold, wording.Printable(s.Id)))
	if s.Description != "" {
		fmt.Fprint(c.out, c.fit(" - "+wording.Printable(s.Description), 2+wording.Width(s.Id)))
	}
	fmt.Fprintln(c.out)
	c.printState(s, now)
	c.field("Agent", "%s", s.Agent)
	c.field("Command", "%s", c.fit(wording.Printable(wording.ShellWords(s.Command)), statusIndent))
	c.printWorkspace(s)
	c.printSandbox(s)
	if text := portsText(s.Ports); text != "" {
		c.field("Ports", "%s", text)
	}
	if s.Unit != "" {
		c.field("Unit", "%s", s.Unit)
	}
	if s.ConversationId != "" {
		c.field("Conversation", "%s", c.fit(s.ConversationId, statusIndent))
	}
	if s.Parent != "" {
		c.field("Parent", "%s", s.Parent)
	}
	if s.ForkedFrom != "" {
		c.field("Forked from", "%s", s.ForkedFrom)
	}
	c.field("Runs", "%s", c.runsText(s, now))
	c.printRuns(s)
	c.printAttention(s, now)
	c.printProblems(status.problems, false)
	c.printResources(s)
	c.printSettings(s)
	if s.QueuedTimestamp != 0 {
		c.field("Queued", "since %s", wording.TimestampAge(s.QueuedTimestamp, now))
	}
	if s.ContinueTimestamp != 0 {
		c.field("Continues", "%s", wording.Timestamp(s.ContinueTimestamp))
	}
	if s.ExpireTimestamp != 0 {
		c.field("Expires", "%s", wording.Timestamp(s.ExpireTimestamp))
	}
	if len(status.processes) > 0 {
		c.printProcesses(s, status.processes)
	}
	c.printStrays(status.strays)
	if status.screen != "" {
		fmt.Fprintln(c.out)
		if s.NRuns > 1 && !s.AgentAlive {
			fmt.Fprintln(c.out,
				c.paint(wording.Dim, c.fit(fmt.Sprintf("The last lines of the log, which has %d runs:", s.NRuns), 0)))
		}
		for line := range strings.SplitSeq(wording.PrintableLines(status.screen), "\n") {
			fmt.Fprintln(c.out, c.fit(line, 0))
		}
	}
}

// printSandbox prints what confines the agent.
func (c *ctl) printSandbox(s client.Session) {
	switch {
	case s.Sandbox == "":
		return
	case s.SandboxTool == "":
		c.field("Sandbox", "%s", s.Sandbox)
	case s.SandboxNetwork == "":
		c.field("Sandbox", "%s, %s", wording.Printable(s.SandboxTool), s.Sandbox)
	default:
		c.field("Sandbox", "%s, %s (network %s)", wording.Printable(s.SandboxTool), s.Sandbox, s.SandboxNetwork)
	}
}

// printWorkspace prints the session's workspace; for a worktree also its branch and repository.
func (c *ctl) printWorkspace(s client.Session) {
	if s.Worktree == "" || s.Repository == "" {
		c.field("Workspace", "%s", c.fitPath(wording.OnBranch(s.WorkingDirectory, s.Worktree), statusIndent))
		return
	}
	c.field("Workspace", "%s", c.fitPath(s.WorkingDirectory, statusIndent))
	c.field("Worktree", "%s",
		c.fit(fmt.Sprintf("branch %s of %s", wording.Printable(s.Worktree), wording.Printable(s.Repository)), statusIndent))
}

// portsText returns the ports that are reserved for a session: "20000", "20000-20002".
func portsText(ports []uint16) string {
	switch n := len(ports); n {
	case 0:
		return ""
	case 1:
		return fmt.Sprint(ports[0])
	default:
		return fmt.Sprintf("%d-%d", ports[0], ports[n-1])
	}
}

// printSettings prints what the user has set for the session: limits, action at login, labels.
func (c *ctl) printSettings(s client.Session) {
	var limits []string
	for _, p := range s.UnitProperties {
		limits = append(limits, wording.ShellWord(propertysyntax.Format(p.Name, p.Value)))
	}
	if len(limits) > 0 {
		c.field("Limits", "%s", c.fit(wording.Printable(strings.Join(limits, " ")), statusIndent))
	}
	if s.OnLogin != "" && s.OnLogin != word.Ignore {
		c.field("At login", "%s", s.OnLogin)
	}
	if len(s.Labels) > 0 {
		c.field("Labels", "%s", c.fit(wording.Printable(labelText(s.Labels)), statusIndent))
	}
}

func (c *ctl) printState(s client.Session, now time.Time) {
	text := wording.Printable(wording.StateText(s, c.leftovers, now))
	if s.Result != "" && s.Result != word.Success {
		text += " (Result: " + wording.Printable(s.Result) + ")"
	}
	since := ""
	if s.StateChangeTimestamp != 0 {
		since = " since " + wording.TimestampAge(s.StateChangeTimestamp, now)
		if c.fit(text+since, statusIndent) != text+since {
			since = " for " + wording.Age(s.StateChangeTimestamp, now)
		}
	}
	fmt.Fprintf(c.out, "%13s: %s%s\n", "State", c.paint(wording.StateColour(s), text), since)
	if s.Reason != "" {
		c.field("Reason", "%s", wording.Reason(s))
	}
	if !wording.IsEnded(s.State) && s.Activity != "" && s.Activity != word.Unknown {
		c.field("Activity", "%s", s.Activity)
	}
	if s.StatusText != "" {
		c.field("Status", "%s", c.fit(s.StatusText, statusIndent))
	}
}

func (c *ctl) runsText(s client.Session, now time.Time) string {
	text := fmt.Sprint(s.NRuns)
	start, end := s.ExecMainStartTimestamp, s.ExecMainExitTimestamp
	if start != 0 && end >= start {
		text += fmt.Sprintf(", the last one for %s", wording.Span(wording.BusTime(end).Sub(wording.BusTime(start))))
	} else if start != 0 && s.AgentAlive {
		text += fmt.Sprintf(", this one for %s", wording.Age(start, now))
	}
	if total := wording.Runtime(s.TotalRuntimeUSec); s.NRuns > 1 && total != "-" {
		text += ", in total " + total
	}
	return text
}

// printRuns prints a line for each of the last runs if there was more than one: when it started,
// how long it took, and its result.
func (c *ctl) printRuns(s client.Session) {
	const most = 5
	if len(s.Runs) < 2 {
		return
	}
	for _, r := range s.Runs[max(0, len(s.Runs)-most):] {
		text := wording.Timestamp(r.Start)
		if r.End >= r.Start {
			text += " for " + wording.Span(wording.BusTime(r.End).Sub(wording.BusTime(r.Start)))
		}
		if r.Result == "" {
			text += ": running"
		} else {
			text += ": " + r.Result
		}
		if r.Reason != "" {
			text += " (" + wording.Reason(client.Session{Reason: r.Reason}) + ")"
		}
		fmt.Fprintf(c.out, "%*s%s\n", statusIndent, "", c.fit(wording.Printable(text), statusIndent))
	}
}

// printAttention prints what the agent asks for, which source reported it, and how long ago.
func (c *ctl) printAttention(s client.Session, now time.Time) {
	if s.Attention == "" || s.Attention == s.State { // the State line shows it already
		return
	}
	text := wording.Printable(wording.AttentionText(s.Attention))
	if s.Attention == word.Limit {
		text = wording.LimitText(s, now)
	}
	if s.AttentionMessage != "" {
		text += ": " + wording.Printable(s.AttentionMessage)
	}
	if s.AttentionSource != "" {
		text += " (" + wording.Printable(s.AttentionSource) + ")"
	}
	if s.AttentionTimestamp != 0 {
		text += ", " + wording.Age(s.AttentionTimestamp, now) + " ago"
	}
	if s.AttentionAcknowledged {
		text += ", seen"
	}
	fmt.Fprintf(c.out, "%13s: %s\n", "Attention", c.paint(wording.StateColour(s), text))
}

// printResources prints what the session uses. Unavailable numbers are left out.
func (c *ctl) printResources(s client.Session) {
	if s.MainPID != 0 {
		c.field("Main PID", "%d", s.MainPID)
	}
	if s.ControlGroup == "" {
		return
	}
	if wording.IsAvailable(s.TasksCurrent) && s.TasksCurrent > 0 {
		c.field("Tasks", "%d", s.TasksCurrent)
	}
	if wording.IsAvailable(s.MemoryCurrent) && s.MemoryCurrent > 0 {
		text := wording.Size(s.MemoryCurrent)
		if wording.IsAvailable(s.MemoryPeak) && s.MemoryPeak > 0 {
			text += " (peak: " + wording.Size(s.MemoryPeak) + ")"
		}
		c.field("Memory", "%s", text)
	}
	if wording.IsAvailable(s.CPUUsageNSec) && s.CPUUsageNSec > 0 {
		c.field("CPU", "%s", wording.CPUTime(s.CPUUsageNSec))
	}
}

func (c *ctl) printProcesses(s client.Session, processes []process) {
	c.field("CGroup", "%s", c.fitPath(s.ControlGroup, statusIndent))
	digits := len(fmt.Sprint(processes[len(processes)-1].pid))
	for i, p := range processes {
		branch := "├─"
		if i == len(processes)-1 {
			branch = "└─"
		}
		if c.plain {
			branch = ""
		}
		line := c.fit(fmt.Sprintf("%s%*d %s", branch, digits, p.pid, wording.Printable(p.command())), statusIndent)
		if p.isCorralProcess() {
			line = c.paint(wording.Dim, line)
		}
		fmt.Fprintf(c.out, "%*s%s\n", statusIndent, "", line)
	}
}

// managerStatus prints the status of corrald, of several hosts one after the other.
func (c *ctl) managerStatus(ctx context.Context) error {
	if c.hasSeveralHosts() {
		return c.managerStatuses(ctx)
	}
	m, err := c.client.Manager(ctx)
	switch {
	case err != nil:
		return err
	case c.wantsJSON():
		return c.printJSON(m)
	}
	c.printManagerStatus(m, "corrald")
	return nil
}

func (c *ctl) managerStatuses(ctx context.Context) error {
	if c.wantsJSON() {
		return usagef("status", "--json shows corrald on one host")
	}
	for i, h := range c.hosts {
		m, err := c.client.Of(h.Name).Manager(ctx)
		if err != nil {
			_ = c.tolerate(client.HostErrors{{Host: h.Name, Err: err}})
			continue
		}
		if i > 0 {
			fmt.Fprintln(c.out)
		}
		c.printManagerStatus(m, "corrald on "+h.String())
	}
	return nil
}

func (c *ctl) printManagerStatus(m client.Manager, title string) {
	colour, state := wording.Green, word.Running
	if m.ShuttingDown {
		colour, state = wording.Yellow, "shutting down"
	}
	fmt.Fprintf(c.out, "%s %s\n", c.paint(colour, "●"), c.paint(wording.Bold, title))
	fmt.Fprintf(c.out, "%13s: %s\n", "State", c.paint(colour, state))
	c.field("Version", "%s", m.Version)
	counts := []string{fmt.Sprint(m.NSessions)}
	for _, count := range []struct {
		n    uint32
		word string
	}{
		{m.NRunning, word.Running}, {m.NWaiting, word.Waiting}, {m.NTurnEnded, ""}, {m.NLimited, "at a limit"},
		{m.NFailed, word.Failed}, {m.NStale, word.Stale}, {m.NSuspended, word.Suspended},
		{m.NQueued, wording.QueuedWord},
	} {
		switch {
		case count.n > 0 && count.word == "":
			counts = append(counts, wording.TurnsEnded(int(count.n)))
		case count.n > 0:
			counts = append(counts, fmt.Sprintf("%d %s", count.n, count.word))
		}
	}
	c.field("Sessions", "%s", strings.Join(counts, ", "))
	for _, a := range m.Attention {
		fmt.Fprintf(c.out, "%13s: %s\n", "Attention",
			c.paint(wording.Yellow, wording.Printable(a.ID+" ("+wording.AttentionText(a.Reason)+")")))
	}
	c.printProblems(m.Problems, true)
	c.field("Slice", "%s", m.Slice)
	c.field("State files", "%s", m.StateDirectory)
	lingering := "on"
	if !m.Lingering {
		lingering = "off: sessions end at logout"
	}
	c.field("Lingering", "%s", lingering)
}
