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

// modelOf500 returns a model with 500 sessions on a terminal of a usual size.
func modelOf500() (*model, []client.Session) {
	m := &model{host: "desk", now: noon, clock: time.Now}
	m.update(tea.WindowSizeMsg{Width: 120, Height: 40})
	sessions := make([]client.Session, 500)
	for i := range sessions {
		sessions[i] = client.Session{
			Id: fmt.Sprintf("session-%03d", i), Agent: "claude", State: "running", Activity: "idle",
			SessionAlive: true, AgentAlive: true, ControlGroup: "/g",
			WorkingDirectory:     fmt.Sprintf("/home/anna/src/project-%d", i),
			StateChangeTimestamp: ago(time.Duration(i) * time.Minute),
		}
	}
	m.update(wholeList(m, 1, client.Manager{Version: "1.4.0"}, sessions...))
	return m, sessions
}

// BenchmarkUpdate_OneOf500Sessions measures the model's handling of a change of one session.
func BenchmarkUpdate_OneOf500Sessions(b *testing.B) {
	m, sessions := modelOf500()
	for i := 0; b.Loop(); i++ {
		s := sessions[i%len(sessions)]
		s.Activity = []string{"working", "waiting"}[i%2]
		m.update(changes{updated: snapshots(2, s)})
	}
}

// BenchmarkScreen_Of500Sessions measures the rendering of the whole screen.
func BenchmarkScreen_Of500Sessions(b *testing.B) {
	m, _ := modelOf500()
	m.update(captured{id: m.selectedID, text: agentScreen})
	for b.Loop() {
		m.screen()
	}
}

// countingWriter stands for a terminal. It discards what is written and reports the size of each
// write.
type countingWriter struct {
	bytes.Buffer
	written chan int
}

func (w *countingWriter) Write(p []byte) (int, error) {
	w.written <- len(p)
	return len(p), nil
}

// A change of one row must stay cheap on a slow line: at most some hundred bytes, where the whole
// screen has thousands.
func TestTop_DrawsAChangedRowInFewBytes(t *testing.T) {
	m, sessions := modelOf500()
	w := &countingWriter{written: make(chan int, 1000)}
	never, _ := io.Pipe()
	p := tea.NewProgram(inertScreen{m}, tea.WithOutput(w), tea.WithInput(never), tea.WithoutSignals(),
		tea.WithWindowSize(120, 40), tea.WithColorProfile(colorprofile.ANSI),
		tea.WithEnvironment([]string{"TERM=xterm-256color"}))
	ended := make(chan error)
	go func() { _, err := p.Run(); ended <- err }()
	// bytesDrawn returns the number of bytes that are drawn. It waits for at least this number, and
	// then until nothing is drawn for several frames.
	bytesDrawn := func(atLeast int) (n int) {
		for n < atLeast {
			n += testbed.Receive(t, w.written, "what the screen is drawn with")
		}
		for {
			select {
			case more := <-w.written:
				n += more
			case <-time.After(20 * time.Second / framesPerSecond):
				return n
			}
		}
	}
	whole := bytesDrawn(2000)
	s := sessions[7]
	s.Activity = "working"
	p.Send(changes{updated: snapshots(2, s)})
	row := bytesDrawn(1)
	s.Activity, s.Attention = "waiting", "question"
	p.Send(changes{updated: snapshots(3, s)})
	moved := bytesDrawn(1)
	t.Logf("the whole screen: %d bytes, a row that changes: %d, one that moves to the top: %d", whole, row, moved)
	require.Less(t, row, 100)
	require.Less(t, moved, 1500)
	p.Quit()
	require.NoError(t, <-ended)
}

// inertScreen is a screen whose effects are not executed.
type inertScreen struct{ model *model }

func (s inertScreen) Init() tea.Cmd { return nil }
func (s inertScreen) Update(message tea.Msg) (tea.Model, tea.Cmd) {
	s.model.update(message)
	return s, nil
}
func (s inertScreen) View() tea.View { return screen{model: s.model}.View() }
