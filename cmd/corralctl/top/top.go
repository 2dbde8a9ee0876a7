// Package top is corralctl top: all sessions on a full screen, live. What it shows comes from the
// daemon's signals; only what signals do not carry is read, and only while it is on the screen: the
// counters of control groups, from the kernel, and the screen of the selected session.
//
// The model decides what is shown and what each key does, and performs nothing itself: it takes
// messages and returns effects. Run carries them out.
package top

import (
	"context"
	"fmt"
	"os/exec"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/corrald/corral/dbusapi/client"
)

// Options say what is shown, and provide what only corralctl can do.
type Options struct {
	Host      string // for the header
	Remote    bool   // Host is another machine: its control groups cannot be read here
	Archived  bool   // archived sessions, too
	Sort      string // one of Sortings, "" for the first
	LeaveKey  string // tmux's name of the key that ends the pass-through mode, "" for the usual one
	Settings  string // path of the file that the view is remembered in, "" for none
	Directory string // the workspace of a new session, where no session is selected

	// AttachCommand is a command that joins a session's terminal.
	AttachCommand func(ctx context.Context, id string) (*exec.Cmd, error)
	// ShowCommand is a command that shows in a pager what a verb of corralctl prints about a session:
	// logs, why, status or diff.
	ShowCommand func(verb, id string) *exec.Cmd
	// Create creates a session and starts it.
	Create func(ctx context.Context, spec NewSession) (id string, err error)
	// CountLeftovers counts the processes in a control group that are neither shim nor tmux.
	CountLeftovers func(group string) int
	// ErrorText is the sentence for a person about what could not be done with a session.
	ErrorText func(doing, id string, err error) string
}

// Sortings are what rows can be ordered by.
func Sortings() []string { return sortings }

// Run shows the sessions on the terminal of stdin and stdout until the user has seen enough.
// Errors: what the client returned where there is no daemon at the beginning, or that the
// connection was lost.
func Run(ctx context.Context, bus *client.Client, o Options) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f, err := openFeed(ctx, bus)
	if err != nil {
		return err
	}
	bus.DisableAutoStart() // one that is stopped meanwhile is not to come back because somebody looks
	go f.run(ctx)
	order, known := parseSorting(o.Sort)
	if !known && o.Sort != "" {
		return fmt.Errorf("cannot sort by %q", o.Sort)
	}
	s := screen{
		model: &model{
			host: o.Host, remote: o.Remote, archived: o.Archived, directory: o.Directory, leaveKey: o.LeaveKey, explain: o.ErrorText, clock: time.Now,
			sort: order, now: time.Now(), view: loadSettings(o.Settings),
		},
		runner: &runner{ctx, bus, f, o},
	}
	_, err = tea.NewProgram(s, tea.WithContext(ctx), tea.WithFPS(frames)).Run()
	if s.model.lost {
		return &client.ConnectError{Err: errLost}
	}
	return err
}

// frames are drawn a second at most: no more than a slow line can take, and still at once for the
// eye.
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
	v := tea.View{Content: s.model.screen(), AltScreen: true, WindowTitle: "corralctl top", Cursor: s.model.cursor()}
	if !s.model.view.NoMouse {
		v.MouseMode = tea.MouseModeCellMotion
	}
	return v
}
