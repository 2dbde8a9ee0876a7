package supervisor

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/supervisor/session"
)

// TestWhoseAScopeIs: agents' names and ids may both have a '-' in them.
func TestWhoseAScopeIs(t *testing.T) {
	for _, row := range []struct {
		name      string
		unit      string
		sockets   []string // of sessions with these ids
		known     string   // a session that there is
		id, agent string
		err       string
	}{
		{"one way to read it", "app-corral-claude-shop.scope", []string{"shop", "other"}, "", "shop", "claude", ""},
		{"an id with a dash", "app-corral-claude-my-shop.scope", []string{"my-shop"}, "", "my-shop", "claude", ""},
		{"an agent with a dash", "app-corral-my-claude-shop.scope", []string{"shop"}, "", "shop", "my-claude", ""},
		{"two ways to read it", "app-corral-claude-my-shop.scope", []string{"shop", "my-shop"}, "", "", "", "it may belong to session"},
		{"nobody's socket", "app-corral-claude-shop.scope", []string{"other"}, "", "", "", "no runtime directory"},
		{"a session of that id has another scope", "app-corral-claude-shop.scope", []string{"shop"}, "shop", "", "", "has another scope"},
		{"no scope of a session", "app-corral-.scope", nil, "", "", "", "no runtime directory"},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := &Supervisor{Options: Options{RuntimeDir: t.TempDir()}, sessions: map[string]*entry{}}
			for _, id := range row.sockets {
				require.NoError(t, os.Mkdir(s.runtimeDir(id), 0o700))
				require.NoError(t, os.WriteFile(filepath.Join(s.runtimeDir(id), shimSocket), nil, 0o600))
			}
			if row.known != "" {
				s.sessions[row.known] = &entry{rec: &session.Session{ID: row.known}}
			}
			id, agent, err := s.whose(row.unit)
			assert.Equal(t, []string{row.id, row.agent}, []string{id, agent})
			if row.err != "" {
				require.ErrorContains(t, err, row.err)
			} else {
				require.NoError(t, err)
			}
		})
	}
}

// TestWhatAnAgentShowsIsMadeText: the kernel takes any bytes for a name.
func TestWhatAnAgentShowsIsMadeText(t *testing.T) {
	command, dir := asText([]string{"claude", "--name", "caf\xe9\n"}, "/home/ann/src\xff/shop")
	assert.Equal(t, []string{"claude", "--name", `caf\xe9\n`}, command)
	assert.Equal(t, "/home/ann", dir)
	command, dir = asText([]string{"vi", "a\"b\n"}, "/home/ann/für")
	assert.Equal(t, []string{"vi", "a\"b\n"}, command, "what is text stays as it is")
	assert.Equal(t, "/home/ann/für", dir)
	_, dir = asText(nil, "\xff")
	assert.Equal(t, ".", dir)
}

// FuzzWhose holds that whatever a scope is called, its session is one that has a runtime directory, and its name is made of the two.
func FuzzWhose(f *testing.F) {
	for _, seed := range []string{"app-corral-claude-shop.scope", "app-corral-my-claude-my-shop.scope", "app-corral-.scope", "app-corral-claude-../../x.scope", "session-1.scope", "app-corral-a--b.scope"} {
		f.Add(seed)
	}
	s := &Supervisor{Options: Options{RuntimeDir: f.TempDir()}, sessions: map[string]*entry{}}
	for _, id := range []string{"shop", "my-shop", "b"} {
		require.NoError(f, os.Mkdir(s.runtimeDir(id), 0o700))
		require.NoError(f, os.WriteFile(filepath.Join(s.runtimeDir(id), shimSocket), nil, 0o600))
	}
	f.Fuzz(func(t *testing.T, unit string) {
		id, agent, err := s.whose(unit)
		if err != nil {
			return
		}
		require.Contains(t, []string{"shop", "my-shop", "b"}, id)
		require.Equal(t, unit, UnitName(agent, id))
	})
}
