package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi/client"
	"github.com/corrald/corral/dbusapi/word"
	"github.com/corrald/corral/internal/outcome"
)

// menuItem is one action on a session whose agent has ended.
type menuItem struct {
	name        string // the word for the action, which usually begins with key
	key         rune
	aliases     []rune // further keys for the same item
	description string // what it does to this session in its current state
}

// The names of the items that have no option of attach.
const (
	itemStart   = "start"
	itemThaw    = "thaw"
	itemLog     = "log"
	itemArchive = "archive"
	itemLeave   = "leave"
)

// endMenu is the menu for a session whose agent has ended: the actions, the default and the reason
// for that default.
type endMenu struct {
	items       []menuItem
	defaultItem string // the name of the item that Enter selects
	reason      string
}

// endMenuFor returns the menu for a session with this number of leftover processes.
func endMenuFor(s client.Session, leftovers int) endMenu {
	program := programOf(s)
	log := menuItem{itemLog, 'l', nil, "show everything that it has printed"}
	leave := menuItem{itemLeave, 'q', []rune{'c'}, "change nothing"}
	archive := menuItem{itemArchive, 'a', nil,
		"hide it and keep its record and log; it cannot be started again" + leftoversSuffix(leftovers)}
	ended := []menuItem{
		{answerRestart, 's', nil, "start " + program + " from the beginning" + leftoversSuffix(leftovers)}, log, archive,
	}
	if s.Resumable {
		ended[0].description = "start " + program + " with a new conversation" + leftoversSuffix(leftovers)
		ended = slices.Insert(ended, 0,
			menuItem{answerResume, 'r', nil, "continue the conversation in a new run" + leftoversSuffix(leftovers)})
	} else {
		ended[0].aliases = []rune{'r'}
	}
	if leftovers > 0 {
		ended = append(ended, menuItem{answerTearDown, 't', nil, "end " + leftoversText(leftovers)})
	}
	ended = append(ended, leave)
	switch {
	case s.Frozen:
		thaw := menuItem{itemThaw, 't', nil, "let its processes continue, and attach"}
		return endMenu{[]menuItem{thaw, log, leave}, itemThaw, "a frozen agent does not answer"}
	case s.State == word.Created:
		start := menuItem{itemStart, 's', []rune{'r'}, "start " + program + ", and attach"}
		if s.Reason != "" {
			log.description = "show the output of the setup"
			return endMenu{[]menuItem{start, log, leave}, itemStart, "it has never been started"}
		}
		return endMenu{[]menuItem{start, leave}, itemStart, "it has never been started"}
	case s.State == word.Archived:
		return endMenu{[]menuItem{log, leave}, itemLeave, "an archived session cannot be started again"}
	case s.AgentAlive:
		return endMenu{[]menuItem{
			{answerResume, 'r', nil, "show the running agent in a new tmux server"},
			{answerRestart, 's', nil, "end the agent and start " + program + " from the beginning"},
			log, {answerTearDown, 't', nil, "end the agent and all other processes of the session"}, leave,
		}, answerResume, "the agent is still running, and nothing was lost"}
	case s.State == word.Stale || s.State == word.Orphaned:
		ended = slices.DeleteFunc(ended, func(item menuItem) bool { return item.name == answerResume })
		ended[0].aliases = nil
		beside := menuItem{answerResume, 'r', nil, "start " + program + " again and keep " + leftoversText(leftovers)}
		return endMenu{slices.Insert(ended, 0, beside), answerResume, leftoversText(leftovers) + " may still be needed"}
	case s.Resumable:
		return endMenu{ended, answerResume, "the agent can continue its conversation"}
	case s.State == word.Suspended:
		return endMenu{ended, answerRestart, "it was suspended to be continued"}
	}
	return endMenu{ended, itemLeave, program + " would start from the beginning"}
}

func leftoversSuffix(leftovers int) string {
	if leftovers == 0 {
		return ""
	}
	return "; ends " + leftoversText(leftovers)
}

func leftoversText(leftovers int) string {
	if leftovers == 1 {
		return "the process that it left behind"
	}
	return fmt.Sprintf("the %d processes that it left behind", leftovers)
}

// itemFor returns the item that a key selects.
func (m endMenu) itemFor(k key) (menuItem, bool) {
	for _, item := range m.items {
		pressed := []rune(strings.ToLower(string(rune(max(k, 0)))))[0]
		if item.key == pressed || slices.Contains(item.aliases, pressed) || k == keyEnter && item.name == m.defaultItem ||
			k == keyCancel && item.name == itemLeave {
			return item, true
		}
	}
	return menuItem{}, false
}

// lines returns the menu as lines of a terminal, with what Enter does.
func (m endMenu) lines(width int) []string {
	lines := make([]string, 0, len(m.items)+2)
	for _, item := range m.items {
		lines = append(lines, wording.Ellipsize(fmt.Sprintf("  %c  %-10s %s", item.key, item.name, item.description), width))
	}
	return append(lines, "", wording.Ellipsize("Enter: "+m.defaultItem+", because "+m.reason+".", width))
}

// keys lists the valid keys, for a message about an invalid one.
func (m endMenu) keys() string {
	keys := make([]string, len(m.items))
	for i, item := range m.items {
		keys[i] = string(item.key)
	}
	return strings.Join(keys, ", ") + " or Enter"
}

// programOf returns the name of the program that a session runs, with control characters escaped:
// the name of a file can contain any.
func programOf(s client.Session) string {
	if len(s.Command) == 0 {
		return wording.Printable(s.Agent)
	}
	return wording.Printable(filepath.Base(s.Command[0]))
}

// resultSentence describes in one sentence how and when a session's agent has ended.
func resultSentence(s client.Session, leftovers int, now time.Time) string {
	program := programOf(s)
	switch {
	case s.Frozen:
		return program + " is frozen"
	case s.State == word.Created && s.Reason != "":
		return program + " has never been started: " + wording.Reason(s)
	case s.State == word.Created:
		return program + " has never been started"
	case s.AgentAlive:
		return fmt.Sprintf("its tmux server died; %s (PID %d) is still running", program, s.MainPID)
	case s.State == word.Stale || s.State == word.Orphaned:
		return fmt.Sprintf("its tmux server died and %s has ended without an exit status; %s", program,
			leftoversRunning(leftovers))
	}
	text := program + " " + endPhrase(s)
	at := s.StateChangeTimestamp
	if s.ExecMainExitTimestamp != 0 && s.Result != word.SessionLost {
		at = s.ExecMainExitTimestamp
	}
	if at != 0 {
		text += ", " + ago(now.Sub(wording.BusTime(at)))
	}
	if leftovers > 0 {
		text += "; " + leftoversRunning(leftovers)
	}
	return text
}

func leftoversRunning(leftovers int) string {
	if leftovers == 1 {
		return "1 of its processes is still running"
	}
	return fmt.Sprintf("%d of its processes are still running", leftovers)
}

// endPhrase describes how an agent has ended, to follow the name of its program.
func endPhrase(s client.Session) string {
	because := ""
	if s.Reason != "" {
		because = " (" + s.Reason + ")"
	}
	switch {
	case s.State == word.Suspended && s.Reason == "":
		return "was suspended on request"
	case s.State == word.Suspended:
		return "was suspended" + because
	case s.State == word.Stopped:
		return "was stopped" + cmp.Or(because, " on request")
	}
	switch s.Result {
	case word.Success:
		return "exited with code 0"
	case word.ExitCode, word.Signal, word.CoreDump:
		return outcome.Phrase(s.Result, int(s.ExecMainStatus))
	case word.OOMKill:
		return "was killed: " + s.Reason
	case word.Timeout:
		return "was ended" + because
	case word.StartFailed:
		return "could not be started" + because
	}
	return "has ended without an exit status" + because
}

// ago formats a duration in words: "3 minutes ago".
func ago(d time.Duration) string {
	for _, unit := range []struct {
		length time.Duration
		name   string
	}{{24 * time.Hour, "day"}, {time.Hour, "hour"}, {time.Minute, "minute"}, {time.Second, "second"}} {
		if n := int(d / unit.length); n > 0 {
			return wording.Plural(n, unit.name) + " ago"
		}
	}
	return "just now"
}

// showEnded shows how a session has ended, and performs the action that the user chooses or has
// given as an option. It returns whether the session has to be looked at again.
func (a *attachment) showEnded(ctx context.Context, s client.Session) (again bool, err error) {
	given := a.options.answer
	a.options.answer = ""
	switch {
	case given == "":
	case s.Frozen:
		return false, &failure{exitFailed, fmt.Sprintf("cannot attach to %q: it is frozen", s.Id), "corralctl thaw " + s.Id}
	case s.State == word.Created && given != answerRestart:
		return false, &failure{
			exitFailed, fmt.Sprintf("cannot attach to %q: it was never started", s.Id), "corralctl start " + s.Id,
		}
	default:
		return a.perform(ctx, s, given)
	}
	if !a.c.onTerminal() {
		return false, a.c.noTerminalError(ctx, []string{a.id})
	}
	ctx = a.withoutTimeout(ctx)
	bus, err := a.c.connect(ctx)
	if err != nil {
		return false, a.c.cannot("attach to", a.id, err)
	}
	_ = bus.Acknowledge(ctx, a.id) // the user is looking at it now
	leftovers := a.c.leftovers(s)
	if !a.screenShown {
		a.showScreen(ctx, s)
	}
	a.screenShown = false
	fmt.Fprintf(a.c.out, "%s\n\n",
		a.c.paint(wording.Bold, wording.Printable(s.Id+": "+resultSentence(s, leftovers, time.Now())+".")))
	taken, err := a.choose(ctx, s, endMenuFor(s, leftovers))
	switch {
	case errors.Is(err, errChanged):
		return true, nil
	case err != nil || taken == itemLeave:
		return false, err
	}
	again, err = a.perform(ctx, s, taken)
	if err != nil && err.Error() != "" { // for a signal the message is empty
		a.c.report(err)
		fmt.Fprintln(a.c.out)
		a.screenShown, err, again = true, nil, true
	}
	return again, err
}

// callFor returns the client call for an item, the verb for an error message, and the text that is
// shown while the call runs.
func callFor(bus *client.Client, s client.Session, what string) (
	call func(context.Context, string) error, doing, progressive string,
) {
	switch {
	case what == itemStart || what == answerRestart && s.State == word.Created:
		return bus.StartSession, "start", "Starting"
	case what == answerRestart:
		return bus.RestartSession, "restart", "Restarting"
	case what == itemThaw:
		return bus.ThawSession, "thaw", "Thawing"
	case what == itemArchive:
		return bus.ArchiveSession, "archive", "Archiving"
	case what == answerTearDown:
		return func(ctx context.Context, id string) error { return bus.StopSession(ctx, id, 0) }, "tear down", "Stopping"
	}
	return bus.ResumeSession, "resume", "Resuming"
}

// perform performs the action of an item. It returns whether the session has to be looked at again.
func (a *attachment) perform(ctx context.Context, s client.Session, what string) (again bool, err error) {
	bus, err := a.c.connect(ctx)
	if err != nil {
		return false, a.c.cannot("attach to", a.id, err)
	}
	if what == itemLog {
		a.screenShown = true
		return true, a.showLog(ctx)
	}
	call, doing, progressive := callFor(bus, s, what)
	if err := a.c.out.Flush(); err != nil {
		return false, err
	}
	progress := newProgress(a.c, progressive, []string{a.id})
	interruptible, stop := a.untilSignal(ctx)
	err = call(interruptible, a.id)
	sig := stop()
	progress.end()
	if err != nil && sig != nil {
		return false, exit(signalCode(sig))
	}
	if err != nil {
		if now, e := bus.Session(ctx, a.id); e == nil && !isUnattachable(now) && isInvalidState(err) {
			return true, nil // another client has already done it
		}
		return false, a.c.cannot(doing, a.id, err)
	}
	switch what {
	case answerTearDown:
		fmt.Fprintf(a.c.out, "Session %s has no processes left.\n", a.id)
		return false, nil
	case itemArchive:
		fmt.Fprintf(a.c.out, "Archived session %s.\n", a.id)
		return false, nil
	case answerResume, answerRestart, itemStart:
		if s := a.c.queued(ctx, a.id); s != nil {
			return false, queuedError(*s)
		}
	}
	if what == answerResume {
		if now, e := bus.Session(ctx, a.id); e == nil && now.NRuns != s.NRuns && s.Resumable && !now.Resumed {
			a.c.print("%s: no conversation was saved yet; starting a new one.\n", a.id)
		}
	}
	return true, nil
}
