package top

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/dbusapi/client"
	"github.com/corrald/corral/dbusapi/word"
)

// runner executes effects.
type runner struct {
	ctx  context.Context // ends with the program
	bus  *client.Client
	feed *feed
	Options
}

func (r *runner) commands(effects []effect) tea.Cmd {
	commands := make([]tea.Cmd, len(effects))
	for i, e := range effects {
		commands[i] = r.command(e)
	}
	return tea.Batch(commands...)
}

// gatherTime is how long changes are collected before the screen is drawn again: a thousand exits
// at once are drawn a few times, not a thousand times.
const gatherTime = 30 * time.Millisecond

func (r *runner) command(e effect) tea.Cmd {
	switch e := e.(type) {
	case awaitChanges:
		return r.awaitChanges
	case awaitSecond:
		return tea.Every(time.Second, func(now time.Time) tea.Msg { return second{now} })
	case measure:
		return func() tea.Msg {
			return readCounters(r.ctx, r.bus, e.of)
		}
	case inspect:
		return func() tea.Msg {
			s, err := r.bus.Session(r.ctx, e.id)
			return inspected{e.id, e.detail, s.ControlGroup, s.AttentionMessage, err}
		}
	case delayCapture:
		return tea.Tick(e.delay, func(time.Time) tea.Msg { return captureDue{e.id} })
	case capture:
		return func() tea.Msg {
			text, err := r.bus.Capture(r.ctx, e.id, uint32(e.lines), dbusapi.CaptureEscapes)
			return captured{e.id, text, err}
		}
	case call:
		return func() tea.Msg { return r.call(e) }
	case sendKeys:
		return func() tea.Msg { return keysSent{e.id, r.sendKeys(e)} }
	case listAgents:
		return func() tea.Msg { return r.agents(e.host) }
	case save:
		return func() tea.Msg { return saved{saveSettings(r.Settings, e.settings)} }
	case show:
		return r.show(e)
	case attach:
		return func() tea.Msg { return r.attach(e) }
	case suspendSelf:
		return tea.Suspend
	case quit:
		return tea.Quit
	}
	panic(fmt.Sprintf("no such effect: %T", e))
}

func (r *runner) awaitChanges() tea.Msg {
	select {
	case <-time.After(gatherTime):
	case <-r.ctx.Done():
	}
	if c, ok := r.feed.receive(r.ctx); ok {
		return c
	}
	return nil
}

// call makes the call and waits for the reply, which may take as long as the agent does.
func (r *runner) call(c call) called {
	if c.verb == create {
		id, err := r.Create(r.ctx, c.spec)
		return called{c, id, err}
	}
	return called{c, c.id, r.callDaemon(c)}
}

func (r *runner) callDaemon(c call) error {
	// The calls whose only argument is the id of the session.
	simple := map[verb]func(context.Context, string) error{
		start: r.bus.StartSession, resume: r.bus.ResumeSession, restart: r.bus.RestartSession,
		suspend: r.bus.SuspendSession, archive: r.bus.ArchiveSession,
		freeze: r.bus.FreezeSession, thaw: r.bus.ThawSession,
		approve: r.bus.Approve, deny: r.bus.Deny, ack: r.bus.Acknowledge,
	}
	if do := simple[c.verb]; do != nil {
		return do(r.ctx, c.id)
	}
	switch c.verb {
	case stop:
		return r.bus.StopSession(r.ctx, c.id, 0)
	case remove:
		return r.bus.RemoveSession(r.ctx, c.id, c.force)
	case kill, reap:
		return r.bus.KillSession(r.ctx, c.id, c.recipient, c.signal)
	case send:
		return r.bus.SendInput(r.ctx, c.id, c.text, c.flags)
	case enable, disable:
		return r.bus.SetOnLogin(r.ctx, c.id, c.text)
	case describe:
		return r.bus.SetDescription(r.ctx, c.id, c.text)
	case label:
		return r.bus.SetLabels(r.ctx, c.id, c.labels)
	}
	return fmt.Errorf("corralctl top cannot %s", c.verb)
}

// sendKeys sends keys, or a text as if it was pasted.
func (r *runner) sendKeys(s sendKeys) error {
	if s.text != "" {
		return r.bus.SendInput(r.ctx, s.id, s.text, 0)
	}
	return r.bus.SendKeys(r.ctx, s.id, s.keys...)
}

// agents lists the agents that can be started on a host.
func (r *runner) agents(host string) tea.Msg {
	rows, err := r.bus.Of(host).ListAgents(r.ctx)
	message := agents{err: err}
	for _, row := range rows {
		if available, _ := row.Details["Available"].Value().(bool); available || row.Name == "command" {
			message.names = append(message.names, row.Name)
		}
	}
	return message
}

// show runs a pager on the terminal.
func (r *runner) show(s show) tea.Cmd {
	name := map[verb]string{logs: "logs", why: "why", status: "status", diff: "diff"}[s.verb]
	return tea.ExecProcess(r.ShowCommand(name, s.id), func(err error) tea.Msg {
		return attached{s.verb, s.id, err}
	})
}

// attach runs the command that attaches to the session; bubbletea releases the terminal meanwhile.
// The first line that a failing command prints to stderr is the error.
func (r *runner) attach(a attach) tea.Msg {
	command, err := r.AttachCommand(r.ctx, a.id)
	if err != nil {
		return attached{attachTo, a.id, err}
	}
	var stderr strings.Builder
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, io.MultiWriter(os.Stderr, &stderr)
	return tea.ExecProcess(command, func(err error) tea.Msg {
		if line := firstLine(stderr.String()); err != nil && line != "" {
			err = errors.New(strings.TrimPrefix(line, "corralctl: "))
		}
		// A call of the daemon here would stop the screen from being drawn.
		return tea.BatchMsg{func() tea.Msg { return attached{attachTo, a.id, r.dropEndError(a.id, err)} }}
	})()
}

// dropEndError returns the error of attaching, or nil if the session has ended or is being stopped,
// because then the terminal was lost together with it. A session that is being stopped may lose its
// terminal before its state shows that.
func (r *runner) dropEndError(id string, attachErr error) error {
	if attachErr == nil {
		return nil
	}
	s, err := r.bus.Session(r.ctx, id)
	ended := err == nil && (!s.SessionAlive || s.State == word.Stopping)
	name := dbusapi.ShortErrorName(err)
	if ended || name == dbusapi.UnknownObject || name == dbusapi.NoSuchSession {
		return nil
	}
	return attachErr
}
