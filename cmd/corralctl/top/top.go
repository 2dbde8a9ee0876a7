// Package top is corralctl top: all sessions on a full screen, live. What it shows comes from the daemon's signals; only what signals do not tell is
// read, and only while it is on the screen: the counters of control groups, from the kernel, and the screen of the selected session.
//
// The model decides what is shown and what is to be done, and does nothing itself: it takes messages and returns effects. Run carries them out.
package top

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/dbusapi/client"
)

// Options say what is shown, and lend what corralctl can do.
type Options struct {
	Host     string // for the header
	Remote   bool   // Host is another machine: its control groups cannot be read here
	Archived bool   // archived sessions, too
	Sort     string // one of Sortings, "" for the first

	// AttachCommand is a command that joins a session's terminal.
	AttachCommand func(ctx context.Context, id string) (*exec.Cmd, error)
	// Leftovers counts the processes in a control group that are neither shim nor tmux.
	Leftovers func(group string) int
	// Explain is the sentence for a person about what could not be done with a session.
	Explain func(doing, id string, err error) string
}

// Sortings are what rows can be ordered by.
func Sortings() []string { return sortings }

// Run shows the sessions on the terminal of stdin and stdout until the user has seen enough. Errors: what the client returned where there is no daemon
// at the beginning, or that the connection was lost.
func Run(ctx context.Context, bus *client.Client, o Options) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f, err := openFeed(ctx, bus)
	if err != nil {
		return err
	}
	bus.NeverStart() // one that is stopped meanwhile is not to come back because somebody looks
	go f.run(ctx)
	order, known := parseSorting(o.Sort)
	if !known && o.Sort != "" {
		return fmt.Errorf("cannot sort by %q", o.Sort)
	}
	s := screen{
		model:  &model{host: o.Host, remote: o.Remote, archived: o.Archived, explain: o.Explain, sort: order, now: time.Now(), preview: preview{}},
		runner: &runner{ctx, bus, f, o},
	}
	_, err = tea.NewProgram(s, tea.WithContext(ctx), tea.WithFPS(frames)).Run()
	if s.model.lost {
		return &client.ConnectError{Err: errLost}
	}
	return err
}

// frames are drawn a second at most: no more than a slow line can take, and still at once for the eye.
const frames = 30

// screen is the model as bubbletea wants it.
type screen struct {
	model  *model
	runner *runner
}

// Init is what is to be done at first.
func (s screen) Init() tea.Cmd { return s.runner.commands(s.model.begin()) }

// Update hands a message to the model, and what is to be done about it to the runner.
func (s screen) Update(message tea.Msg) (tea.Model, tea.Cmd) {
	return s, s.runner.commands(s.model.update(message))
}

// View is the whole terminal.
func (s screen) View() tea.View {
	return tea.View{Content: s.model.view(), AltScreen: true, WindowTitle: "corralctl top", Cursor: s.model.cursor()}
}

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

// gathering is how long after news the next are left to gather: a thousand exits at once are a few pictures, not a thousand.
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
			return readGroups(e.of, r.Leftovers)
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
		return func() tea.Msg { return called{e, r.call(e)} }
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

func (r *runner) call(c call) error {
	switch c.verb {
	case start:
		return r.bus.StartSession(r.ctx, c.id)
	case stop:
		return r.bus.StopSession(r.ctx, c.id, 0)
	case resume:
		return r.bus.ResumeSession(r.ctx, c.id)
	case suspend:
		return r.bus.SuspendSession(r.ctx, c.id)
	case freeze:
		return r.bus.FreezeSession(r.ctx, c.id)
	case thaw:
		return r.bus.ThawSession(r.ctx, c.id)
	case archive:
		return r.bus.ArchiveSession(r.ctx, c.id)
	case remove:
		return r.bus.RemoveSession(r.ctx, c.id, c.force)
	case kill:
		return r.bus.KillSession(r.ctx, c.id, c.whom, c.signal)
	case send:
		return r.bus.SendInput(r.ctx, c.id, c.text, c.flags)
	case ack:
		return r.bus.Acknowledge(r.ctx, c.id)
	}
	return fmt.Errorf("cannot %s: corralctl top does not do that", c.verb)
}

// attach asks how to join the session, and has bubbletea give the terminal away meanwhile.
func (r *runner) attach(a attach) tea.Msg {
	var refused error
	if a.first != "" {
		if refused = r.call(call{verb: a.first, id: a.id}); refused != nil && dbusapi.ShortErrorName(refused) != dbusapi.InvalidState {
			return attached{a.id, refused, true}
		}
	}
	command, err := r.AttachCommand(r.ctx, a.id)
	if err != nil {
		return attached{a.id, cmp.Or(refused, err), true}
	} // also where it was refused: somebody else was faster
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	return tea.ExecProcess(command, func(err error) tea.Msg { return attached{id: a.id, err: err} })()
}

// doubt keeps the error only if the session could still be joined. One that is being stopped may have its terminal no more before that is known.
func (r *runner) doubt(d doubt) tea.Msg {
	s, err := r.bus.Session(r.ctx, d.id)
	if err == nil && (!s.SessionAlive || s.State == "stopping") || dbusapi.ShortErrorName(err) == dbusapi.UnknownObject || dbusapi.ShortErrorName(err) == dbusapi.NoSuchSession {
		return attached{id: d.id}
	}
	return attached{d.id, d.err, true}
}
