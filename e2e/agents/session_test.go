//go:build e2e || agents

package agents

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi/client"
)

// subject is a session that a test looks at.
type subject struct {
	*world
	id        string
	workspace string

	mu      sync.Mutex
	changes []change
	more    chan struct{} // closed with the next change
}

// change is what the bus told of a session's activity and attention, and when it was heard.
type change struct {
	activity, attention string
	at                  time.Time
}

func (c change) String() string {
	if c.attention == "" {
		return c.activity
	}
	return c.activity + " (" + c.attention + ")"
}

// run starts a session of an agent in a workspace of its own, with more options and, behind "--",
// more arguments for the agent.
func (w *world) run(agent, id string, more ...string) *subject {
	w.t.Helper()
	workspace := filepath.Join(w.dir, "work", id)
	require.NoError(w.t, os.MkdirAll(workspace, 0o755))
	return w.runIn(workspace, agent, id, more...)
}

func (w *world) runIn(workspace, agent, id string, more ...string) *subject {
	w.t.Helper()
	s := &subject{world: w, id: id, workspace: workspace, more: make(chan struct{})}
	w.t.Cleanup(s.tell)
	s.watch()
	args := []string{"run", "--id", id, "--dir", workspace}
	for _, entry := range w.setup(agent, workspace) {
		args = append(args, "-E", entry)
	}
	w.corralctl(append(append(args, agent), more...)...)
	return s
}

// tell says what the agent printed, if the test has failed: an agent that is gone has no screen any
// more.
func (s *subject) tell() {
	if s.t.Failed() {
		printed, _ := s.tryCorralctl("logs", "--lines", "60", s.id)
		s.t.Logf("session %s printed:\n%s", s.id, printed)
	}
}

// watch takes note of every change that the bus tells.
func (s *subject) watch() {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s.t.Cleanup(cancel)
	bus, err := client.Connect(ctx)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = bus.Close() })
	events, err := bus.Watch(ctx, s.id)
	require.NoError(s.t, err)
	go func() {
		for event := range events {
			if changed, ok := event.(client.SessionChanged); ok {
				s.heard(changed.Properties)
			}
		}
	}()
}

func (s *subject) heard(p client.Properties) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := change{}
	if len(s.changes) > 0 {
		last = s.changes[len(s.changes)-1]
	}
	next := last
	if text, ok := p["Activity"].Value().(string); ok {
		next.activity = text
	}
	if text, ok := p["Attention"].Value().(string); ok {
		next.attention = text
	}
	if next.activity != last.activity || next.attention != last.attention {
		next.at = time.Now()
		s.changes = append(s.changes, next)
	}
	close(s.more)
	s.more = make(chan struct{})
}

// told returns the changes after a mark, the mark behind them, and what is closed with the next.
func (s *subject) told(mark int) ([]change, int, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.changes[mark:]), len(s.changes), s.more
}

// mark is the place behind all that was told.
func (s *subject) mark() int {
	_, mark, _ := s.told(0)
	return mark
}

// becomes waits for a change after the mark to this, as String has it, and returns it with the mark
// behind it.
func (s *subject) becomes(mark int, what string) (change, int) {
	s.t.Helper()
	for deadline := time.After(patience); ; {
		changes, _, more := s.told(mark)
		for i, c := range changes {
			if c.String() == what {
				return c, mark + i + 1
			}
		}
		select {
		case <-more:
		case <-deadline:
			s.t.Fatalf("session %s is not told to be %s but %v\n%s", s.id, what, changes, s.look())
		}
	}
}

// await waits until the session's properties are accepted.
func (s *subject) await(what string, accept func(client.Session) bool) client.Session {
	s.t.Helper()
	for deadline := time.After(patience); ; {
		_, _, more := s.told(0)
		now, err := s.client.Session(s.t.Context(), s.id)
		require.NoError(s.t, err)
		if accept(now) {
			return now
		}
		select {
		case <-more:
		case <-deadline:
			s.t.Fatalf("session %s is not %s but %s, %s, %q\n%s", s.id, what, now.State, now.Activity, now.Attention, s.look())
		}
	}
}

// known waits until the id of the session's conversation is known.
func (s *subject) known() string {
	s.t.Helper()
	return s.await("known by its id", func(now client.Session) bool { return now.ConversationId != "" }).ConversationId
}

// awaitAttention waits until the session wants a person.
func (s *subject) awaitAttention() client.Session {
	s.t.Helper()
	return s.await("wanting somebody", func(now client.Session) bool { return now.Attention != "" })
}

// look is what a person sees of it.
func (s *subject) look() string {
	screen, _ := s.tryCorralctl("peek", s.id)
	why, _ := s.tryCorralctl("why", s.id)
	return screen + "\n" + why
}

// screen is what is on the session's screen.
func (s *subject) screen() string {
	text, err := exec.Command("tmux", "-S", filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "corral", s.id, "tmux"), "capture-pane", "-p").Output()
	if err != nil {
		return ""
	}
	return string(text)
}

// shows waits until a text is on the screen, and returns when that was.
func (s *subject) shows(text string) time.Time {
	s.t.Helper()
	for deadline := time.Now().Add(patience); !strings.Contains(s.screen(), text); {
		if time.Now().After(deadline) {
			s.t.Fatalf("session %s does not show %q\n%s", s.id, text, s.look())
		}
	}
	return time.Now()
}

// type_ types a text and presses Enter, as corralctl send.
func (s *subject) send(text string) { s.t.Helper(); s.corralctl("send", s.id, text) }

// press presses keys by tmux's names for them.
func (s *subject) press(keys ...string) {
	s.t.Helper()
	require.NoError(s.t, s.client.SendKeys(s.t.Context(), s.id, keys...))
}

// asked waits until the model was asked this by a person so many times in all.
func (w *world) asked(prompt string, times int) {
	w.t.Helper()
	for deadline := time.After(patience); ; {
		prompts, more := w.model.Prompts()
		n := 0
		for _, p := range prompts {
			if strings.TrimSpace(p) == prompt {
				n++
			}
		}
		if n >= times {
			require.Equal(w.t, times, n, "the model was asked %q", prompt)
			return
		}
		select {
		case <-more:
		case <-deadline:
			shown, _ := w.tryCorralctl("peek", "--all")
			w.t.Fatalf("the model was asked %q %d times and not %d, but this: %q\n%s", prompt, n, times, prompts, shown)
		}
	}
}

// kill sends the agent's own process a signal, from outside.
func (s *subject) kill(signal syscall.Signal) {
	s.t.Helper()
	now, err := s.client.Session(s.t.Context(), s.id)
	require.NoError(s.t, err)
	require.NotZero(s.t, now.MainPID)
	require.NoError(s.t, syscall.Kill(int(now.MainPID), signal))
}

// is waits for a state.
func (s *subject) is(state string) client.Session {
	s.t.Helper()
	return s.await(state, func(now client.Session) bool { return now.State == state })
}
