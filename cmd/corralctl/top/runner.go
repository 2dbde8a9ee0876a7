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
)

// runner carries out effects.
type runner struct {
	ctx  context.Context // until the program ends
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

// gathering is how long after news the next are left to gather: a thousand exits at once are a few
// pictures, not a thousand.
const gathering = 30 * time.Millisecond

func (r *runner) command(e effect) tea.Cmd {
	switch e := e.(type) {
	case listen:
		return r.listen
	case wait:
		return tea.Every(time.Second, func(now time.Time) tea.Msg { return second{now} })
	case measure:
		return func() tea.Msg {
			if r.Remote {
				return askGroups(r.ctx, r.bus, e.of)
			}
			return readGroups(e.of, r.CountLeftovers)
		}
	case inspect:
		return func() tea.Msg {
			s, err := r.bus.Session(r.ctx, e.id)
			return inspected{e.id, e.detail, s.ControlGroup, s.AttentionMessage, err}
		}
	case pause:
		return tea.Tick(e.until, func(time.Time) tea.Msg { return due{e.id} })
	case capture:
		return func() tea.Msg {
			text, err := r.bus.Capture(r.ctx, e.id, uint32(e.lines), dbusapi.CaptureEscapes)
			return captured{e.id, text, err}
		}
	case call:
		return func() tea.Msg { return r.call(e) }
	case strokes:
		return func() tea.Msg { return pressed{e.id, r.press(e)} }
	case listAgents:
		return r.agents
	case save:
		return func() tea.Msg { return saved{saveSettings(r.Settings, e.settings)} }
	case show:
		return r.show(e)
	case attach:
		return func() tea.Msg { return r.attach(e) }
	case doubt:
		return func() tea.Msg { return r.doubt(e) }
	case suspendSelf:
		return tea.Suspend
	case quit:
		return tea.Quit
	}
	panic(fmt.Sprintf("no such effect: %T", e))
}

func (r *runner) listen() tea.Msg {
	select {
	case <-time.After(gathering):
	case <-r.ctx.Done():
	}
	if n, ok := r.feed.receive(r.ctx); ok {
		return n
	}
	return nil
}

// call makes the call. The daemon's answer may take as long as the agent.
func (r *runner) call(c call) called {
	if c.verb == create {
		id, err := r.Create(r.ctx, c.spec)
		return called{c, id, err}
	}
	return called{c, c.id, r.callFor(c)}
}

// simple are the calls that need nothing but the id.
func (r *runner) simple() map[verb]func(context.Context, string) error {
	return map[verb]func(context.Context, string) error{
		start: r.bus.StartSession, resume: r.bus.ResumeSession, restart: r.bus.RestartSession, suspend: r.bus.SuspendSession,
		freeze: r.bus.FreezeSession, thaw: r.bus.ThawSession, archive: r.bus.ArchiveSession, ack: r.bus.Acknowledge,
		approve: r.bus.Approve, deny: r.bus.Deny,
	}
}

func (r *runner) callFor(c call) error {
	if do, simple := r.simple()[c.verb]; simple {
		return do(r.ctx, c.id)
	}
	switch c.verb {
	case stop:
		return r.bus.StopSession(r.ctx, c.id, 0)
	case remove:
		return r.bus.RemoveSession(r.ctx, c.id, c.force)
	case kill, reap:
		return r.bus.KillSession(r.ctx, c.id, c.whom, c.signal)
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

// press sends keys, or a text as if it was pasted.
func (r *runner) press(s strokes) error {
	if s.text != "" {
		return r.bus.SendInput(r.ctx, s.id, s.text, 0)
	}
	return r.bus.SendKeys(r.ctx, s.id, s.keys...)
}

// agents lists the agents that can be run.
func (r *runner) agents() tea.Msg {
	rows, err := r.bus.ListAgents(r.ctx)
	message := agents{err: err}
	for _, row := range rows {
		if available, _ := row.Details["Available"].Value().(bool); available || row.Name == "command" {
			message.names = append(message.names, row.Name)
		}
	}
	return message
}

// show gives the terminal to a pager.
func (r *runner) show(s show) tea.Cmd {
	name := map[verb]string{logs: "logs", why: "why", status: "status", diff: "diff"}[s.verb]
	return tea.ExecProcess(r.ShowCommand(name, s.id), func(err error) tea.Msg { return attached{verb: s.verb, id: s.id, err: err} })
}

// attach asks how to join the session, and has bubbletea give the terminal away meanwhile.
func (r *runner) attach(a attach) tea.Msg {
	command, err := r.AttachCommand(r.ctx, a.id)
	if err != nil {
		return attached{attachTo, a.id, err, true}
	}
	var said strings.Builder
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, io.MultiWriter(os.Stderr, &said)
	return tea.ExecProcess(command, func(err error) tea.Msg {
		if text := strings.TrimSpace(said.String()); err != nil && text != "" {
			line, _, _ := strings.Cut(text, "\n")
			err = errors.New(strings.TrimPrefix(line, "corralctl: "))
		}
		return attached{verb: attachTo, id: a.id, err: err}
	})()
}

// doubt keeps the error only if the session could still be joined. One that is being stopped may
// have its terminal no more before that is known.
func (r *runner) doubt(d doubt) tea.Msg {
	s, err := r.bus.Session(r.ctx, d.id)
	if err == nil && (!s.SessionAlive || s.State == "stopping") || dbusapi.ShortErrorName(err) == dbusapi.UnknownObject || dbusapi.ShortErrorName(err) == dbusapi.NoSuchSession {
		return attached{verb: attachTo, id: d.id}
	}
	return attached{attachTo, d.id, d.err, true}
}
