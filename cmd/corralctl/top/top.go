// Package top implements corralctl top: a full screen that shows all sessions live. The screen
// follows the daemon's signals. What signals do not carry is read only while it is on the screen:
// the counters of control groups, from the kernel, and the screen of the selected session.
//
// The model decides what is shown and what each key does. It has no side effects: it takes messages
// and returns effects, which the runner executes.
package top

import (
	"context"
	"fmt"
	"os/exec"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/corrald/corral/dbusapi/client"
)

// Options configure what is shown, and provide operations that only corralctl has.
type Options struct {
	Host      string // shown in the header
	Remote    bool   // Host is another machine: its control groups cannot be read here
	Hosts     []Host // if ids name their hosts; empty otherwise
	Archived  bool   // list archived sessions, too
	Sort      string // one of Sortings, "" for the first
	LeaveKey  string // tmux's name of the key that ends the pass-through mode, "" for the default
	Settings  string // path of the file that keeps the settings of the view, "" for none
	Directory string // workspace of a new session if no session is selected

	// AttachCommand returns a command that attaches to a session's terminal.
	AttachCommand func(ctx context.Context, id string) (*exec.Cmd, error)
	// ShowCommand returns a command that shows in a pager what corralctl prints about a session with
	// this verb: logs, why, status or diff.
	ShowCommand func(verb, id string) *exec.Cmd
	// Create creates a session and starts it.
	Create func(ctx context.Context, spec NewSession) (id string, err error)
	// ErrorText returns the message for the user about an operation on a session that has failed.
	ErrorText func(doing, id string, err error) string
	// OutageText returns why the sessions of a host are not known.
	OutageText func(client.HostError) string
}

// Host is one of several hosts.
type Host struct {
	Name   string // in ids, "" for this machine
	Title  string // for people
	Remote bool   // its control groups cannot be read here
}

// Sortings returns the names of the orders of the list.
func Sortings() []string { return sortings }

// Run shows the sessions on the terminal of stdin and stdout until the user quits. Errors: that of
// the client if there is no daemon at the start, and a *client.ConnectError if the connection is
// lost.
func Run(ctx context.Context, bus *client.Client, o Options) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f, err := openFeed(ctx, bus, o.OutageText)
	if err != nil {
		return err
	}
	bus.DisableAutoStart() // a daemon that is stopped from now on must not be started by top
	go f.run(ctx)
	order, known := parseSorting(o.Sort)
	if !known && o.Sort != "" {
		return fmt.Errorf("cannot sort by %q", o.Sort)
	}
	var hosts []host
	for _, h := range o.Hosts {
		hosts = append(hosts, host{h.Name, h.Title, h.Remote})
	}
	s := screen{
		model: &model{
			host: o.Host, hosts: hosts, remote: o.Remote, archived: o.Archived, directory: o.Directory, leaveKey: o.LeaveKey,
			errorText: o.ErrorText, clock: time.Now,
			sort: order, now: time.Now(), settings: loadSettings(o.Settings),
		},
		runner: &runner{ctx, bus, f, o},
	}
	_, err = tea.NewProgram(s, tea.WithContext(ctx), tea.WithFPS(framesPerSecond)).Run()
	if s.model.connectionLost {
		return &client.ConnectError{Err: errConnectionLost}
	}
	return err
}

// framesPerSecond limits how often the screen is drawn: rarely enough for a slow line, often enough
// for the eye.
const framesPerSecond = 20

// screen implements tea.Model with a model and a runner.
type screen struct {
	model  *model
	runner *runner
}

// Init returns the first commands.
func (s screen) Init() tea.Cmd { return s.runner.commands([]effect{awaitChanges{}, awaitSecond{}}) }

// Update passes a message to the model and returns the commands for the resulting effects.
func (s screen) Update(message tea.Msg) (tea.Model, tea.Cmd) {
	return s, s.runner.commands(s.model.update(message))
}

// View returns what to draw on the terminal.
func (s screen) View() tea.View {
	v := tea.View{Content: s.model.screen(), AltScreen: true, WindowTitle: "corralctl top", Cursor: s.model.cursor()}
	if !s.model.settings.NoMouse {
		v.MouseMode = tea.MouseModeCellMotion
	}
	return v
}
