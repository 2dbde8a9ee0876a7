package top

import (
	"bytes"
	"fmt"
	"io"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi/client"
	"github.com/corrald/corral/internal/testbed"
)

// crowd is a model with 500 sessions on a terminal of a usual size.
func crowd() (*model, []client.Session) {
	m := &model{host: "desk", now: noon}
	m.update(tea.WindowSizeMsg{Width: 120, Height: 40})
	sessions := make([]client.Session, 500)
	for i := range sessions {
		sessions[i] = client.Session{
			Id: fmt.Sprintf("session-%03d", i), Agent: "claude", State: "running", Activity: "idle", SessionAlive: true, AgentAlive: true,
			WorkingDirectory: fmt.Sprintf("/home/anna/src/project-%d", i), StateChangeTimestamp: ago(time.Duration(i) * time.Minute), ControlGroup: "/g",
		}
	}
	m.update(news{all: true, changed: tell(1, sessions...), manager: &client.Manager{Version: "1.4.0"}})
	return m, sessions
}

// One of 500 sessions changes: what the model does about it.
func BenchmarkUpdate_OneOf500Sessions(b *testing.B) {
	m, sessions := crowd()
	for i := 0; b.Loop(); i++ {
		s := sessions[i%len(sessions)]
		s.Activity = []string{"working", "waiting"}[i%2]
		m.update(news{changed: tell(2, s)})
	}
}

// The whole screen, with 500 sessions.
func BenchmarkScreen_Of500Sessions(b *testing.B) {
	m, _ := crowd()
	m.update(captured{id: m.chosen, text: agentScreen})
	for b.Loop() {
		m.screen()
	}
}

// wire is a terminal at the end of a line: it counts what comes over it, and tells of each write.
type wire struct {
	bytes.Buffer
	written chan int
}

func (w *wire) Write(p []byte) (int, error) {
	w.written <- len(p)
	return len(p), nil
}

// What a change of one row costs on a slow line: some hundred bytes at most, where the whole screen
// is thousands.
func TestTop_DrawsAChangedRowInFewBytes(t *testing.T) {
	m, sessions := crowd()
	w := &wire{written: make(chan int, 1000)}
	never, _ := io.Pipe()
	p := tea.NewProgram(still{m}, tea.WithOutput(w), tea.WithInput(never), tea.WithWindowSize(120, 40), tea.WithColorProfile(colorprofile.ANSI),
		tea.WithEnvironment([]string{"TERM=xterm-256color"}), tea.WithoutSignals())
	ended := make(chan error)
	go func() { _, err := p.Run(); ended <- err }()
	// settle returns how many bytes come: at least so many, and then all until there are none for
	// several frames.
	settle := func(least int) (n int) {
		for n < least {
			n += testbed.Receive(t, w.written, "what the screen is drawn with")
		}
		for {
			select {
			case more := <-w.written:
				n += more
			case <-time.After(20 * time.Second / frames):
				return n
			}
		}
	}
	whole := settle(2000)
	s := sessions[7]
	s.Activity = "working"
	p.Send(news{changed: tell(2, s)})
	row := settle(1)
	s.Activity, s.Attention = "waiting", "question"
	p.Send(news{changed: tell(3, s)})
	moved := settle(1)
	t.Logf("the whole screen: %d bytes, a row that changes: %d, one that moves to the top: %d", whole, row, moved)
	require.Less(t, row, 100)
	require.Less(t, moved, 1500)
	p.Quit()
	require.NoError(t, <-ended)
}

// still is a screen whose effects nobody carries out.
type still struct{ model *model }

func (s still) Init() tea.Cmd { return nil }
func (s still) Update(message tea.Msg) (tea.Model, tea.Cmd) {
	s.model.update(message)
	return s, nil
}
func (s still) View() tea.View { return screen{model: s.model}.View() }
