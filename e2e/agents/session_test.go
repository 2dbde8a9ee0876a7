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

// subject is a session under test.
type subject struct {
	*fixture
	id        string
	workspace string

	mu      sync.Mutex
	changes []change
	more    chan struct{} // closed at the next change
}

// change is a published change of a session's activity and attention, with the time of its arrival.
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

// run starts a session of an agent in a new workspace. more contains further options and, after
// "--", arguments for the agent.
func (f *fixture) run(agent, id string, more ...string) *subject {
	f.t.Helper()
	workspace := filepath.Join(f.dir, "work", id)
	require.NoError(f.t, os.MkdirAll(workspace, 0o755))
	return f.runIn(workspace, agent, id, more...)
}

func (f *fixture) runIn(workspace, agent, id string, more ...string) *subject {
	f.t.Helper()
	s := &subject{fixture: f, id: id, workspace: workspace, more: make(chan struct{})}
	f.t.Cleanup(s.logOutput)
	f.t.Cleanup(func() { recordResult(agent, !f.t.Failed()) })
	s.watch()
	args := []string{"run", "--id", id, "--dir", workspace}
	for _, entry := range f.setup(agent, workspace) {
		args = append(args, "-E", entry)
	}
	f.corralctl(append(append(args, agent), more...)...)
	return s
}

// logOutput logs the agent's output if the test has failed, because an agent that has exited has no
// screen any more.
func (s *subject) logOutput() {
	if s.t.Failed() {
		printed, _ := s.tryCorralctl("logs", "--lines", "60", s.id)
		s.t.Logf("session %s printed:\n%s", s.id, printed)
	}
}

// watch records every published change.
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
				s.record(changed.Properties)
			}
		}
	}()
}

func (s *subject) record(p client.Properties) {
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

// since returns the changes after a mark, the mark after them, and a channel that is closed at the
// next change.
func (s *subject) since(mark int) ([]change, int, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.changes[mark:]), len(s.changes), s.more
}

// mark returns the mark after the last published change.
func (s *subject) mark() int {
	_, mark, _ := s.since(0)
	return mark
}

// becomes waits for a change after the mark that String formats as what, and returns it with the
// mark after it.
func (s *subject) becomes(mark int, what string) (change, int) {
	s.t.Helper()
	for deadline := time.After(timeout); ; {
		changes, _, more := s.since(mark)
		for i, c := range changes {
			if c.String() == what {
				return c, mark + i + 1
			}
		}
		select {
		case <-more:
		case <-deadline:
			s.t.Fatalf("session %s is not published as %s but as %v\n%s", s.id, what, changes, s.look())
		}
	}
}

// await waits until accept returns true for the session's properties.
func (s *subject) await(what string, accept func(client.Session) bool) client.Session {
	s.t.Helper()
	for deadline := time.After(timeout); ; {
		_, _, more := s.since(0)
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

// known waits for the id of the session's conversation and returns it.
func (s *subject) known() string {
	s.t.Helper()
	return s.await("known by its id", func(now client.Session) bool { return now.ConversationId != "" }).ConversationId
}

// awaitAttention waits until the session has an attention.
func (s *subject) awaitAttention() client.Session {
	s.t.Helper()
	return s.await("needing attention", func(now client.Session) bool { return now.Attention != "" })
}

// look returns the screen and the explanation that a user sees.
func (s *subject) look() string {
	screen, _ := s.tryCorralctl("peek", s.id)
	why, _ := s.tryCorralctl("why", s.id)
	return screen + "\n" + why
}

// screen returns the text on the session's screen.
func (s *subject) screen() string {
	text, err := exec.Command("tmux", "-S", s.tmuxSocket(), "capture-pane", "-p").Output()
	if err != nil {
		return ""
	}
	return string(text)
}

// tmuxSocket returns the path of the socket of the session's tmux server.
func (s *subject) tmuxSocket() string {
	return filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "corral", s.id, "tmux")
}

// shows waits until a text is on the screen, and returns the time.
func (s *subject) shows(text string) time.Time {
	s.t.Helper()
	for deadline := time.Now().Add(timeout); !strings.Contains(s.screen(), text); {
		if time.Now().After(deadline) {
			s.t.Fatalf("session %s does not show %q\n%s", s.id, text, s.look())
		}
	}
	return time.Now()
}

// send types a text and presses Enter, with corralctl send.
func (s *subject) send(text string) { s.t.Helper(); s.corralctl("send", s.id, text) }

// press presses keys, given by their tmux names.
func (s *subject) press(keys ...string) {
	s.t.Helper()
	require.NoError(s.t, s.client.SendKeys(s.t.Context(), s.id, keys...))
}

// asked waits until the model has received this prompt the given number of times in total.
func (f *fixture) asked(prompt string, times int) {
	f.t.Helper()
	for deadline := time.After(timeout); ; {
		prompts, more := f.model.Prompts()
		n := 0
		for _, p := range prompts {
			if strings.TrimSpace(p) == prompt {
				n++
			}
		}
		if n >= times {
			require.Equal(f.t, times, n, "the model was asked %q", prompt)
			return
		}
		select {
		case <-more:
		case <-deadline:
			shown, _ := f.tryCorralctl("peek", "--all")
			f.t.Fatalf("the model was asked %q %d times and not %d, but this: %q\n%s", prompt, n, times, prompts, shown)
		}
	}
}

// kill sends a signal to the agent's main process, from outside of Corral.
func (s *subject) kill(signal syscall.Signal) {
	s.t.Helper()
	now, err := s.client.Session(s.t.Context(), s.id)
	require.NoError(s.t, err)
	require.NotZero(s.t, now.MainPID)
	require.NoError(s.t, syscall.Kill(int(now.MainPID), signal))
}

// is waits until the session is in a state.
func (s *subject) is(state string) client.Session {
	s.t.Helper()
	return s.await(state, func(now client.Session) bool { return now.State == state })
}
