package supervisor

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/unitname"
	"github.com/corrald/corral/supervisor/session"
)

// TestRebuild_MatchesScopesWithSessions: names of agents and ids of sessions may both contain '-'.
func TestRebuild_MatchesScopesWithSessions(t *testing.T) {
	for _, row := range []struct {
		name      string
		unit      string
		sockets   []string // ids of sessions with a shim's socket
		known     string   // the id of a session that exists, with another scope
		id, agent string
		err       string
	}{
		{"one possible id", "app-corral-claude-shop.scope", []string{"shop", "other"}, "", "shop", "claude", ""},
		{"an id with a dash", "app-corral-claude-my-shop.scope", []string{"my-shop"}, "", "my-shop", "claude", ""},
		{"an agent with a dash", "app-corral-my-claude-shop.scope", []string{"shop"}, "", "shop", "my-claude", ""},
		{"two possible ids", "app-corral-claude-my-shop.scope", []string{"shop", "my-shop"}, "",
			"", "", "it may belong to session"},
		{"no socket of that session", "app-corral-claude-shop.scope", []string{"other"}, "",
			"", "", "no runtime directory"},
		{"a session with that id has another scope", "app-corral-claude-shop.scope", []string{"shop"}, "shop",
			"", "", "has another scope"},
		{"not the scope of a session", "app-corral-.scope", nil, "", "", "", "no runtime directory"},
	} {
		t.Run(row.name, func(t *testing.T) {
			l := &loop{settings: settings{runDir: t.TempDir()}, sessions: index{byID: map[string]*entry{}}}
			l.adoption.loop = l
			for _, id := range row.sockets {
				require.NoError(t, os.Mkdir(l.settings.runtimeDir(id), 0o700))
				require.NoError(t, os.WriteFile(filepath.Join(l.settings.runtimeDir(id), shimSocket), nil, 0o600))
			}
			if row.known != "" {
				l.sessions.byID[row.known] = &entry{rec: &session.Session{ID: row.known}}
			}
			id, agent, err := l.adoption.identifySession(row.unit)
			assert.Equal(t, []string{row.id, row.agent}, []string{id, agent})
			if row.err != "" {
				require.ErrorContains(t, err, row.err)
			} else {
				require.NoError(t, err)
			}
		})
	}
}

// TestRebuild_MakesTextOfTheCommandAndDirectory: the kernel accepts any bytes in an argument and in
// a path.
func TestRebuild_MakesTextOfTheCommandAndDirectory(t *testing.T) {
	command, dir := asText([]string{"claude", "--name", "caf\xe9\n"}, "/home/ann/src\xff/shop")
	assert.Equal(t, []string{"claude", "--name", `caf\xe9\n`}, command)
	assert.Equal(t, "/home/ann", dir)
	command, dir = asText([]string{"vi", "a\"b\n"}, "/home/ann/für")
	assert.Equal(t, []string{"vi", "a\"b\n"}, command, "valid text stays unchanged")
	assert.Equal(t, "/home/ann/für", dir)
	_, dir = asText(nil, "\xff")
	assert.Equal(t, ".", dir)
}

// FuzzScopeName checks, for any name of a scope, that the session found for it has a runtime
// directory, and that the names of agent and session together result in the name of the scope.
func FuzzScopeName(f *testing.F) {
	for _, seed := range []string{
		"app-corral-claude-shop.scope", "app-corral-my-claude-my-shop.scope", "app-corral-.scope",
		"app-corral-claude-../../x.scope", "session-1.scope", "app-corral-a--b.scope",
		"app-corral-claude-:work-shop.scope", "app-corral-claude@work-shop.scope", "app-corral-claude-:a-:b-shop.scope",
	} {
		f.Add(seed)
	}
	l := &loop{settings: settings{runDir: f.TempDir()}, sessions: index{byID: map[string]*entry{}}}
	l.adoption.loop = l
	for _, id := range []string{"shop", "my-shop", "b"} {
		require.NoError(f, os.Mkdir(l.settings.runtimeDir(id), 0o700))
		require.NoError(f, os.WriteFile(filepath.Join(l.settings.runtimeDir(id), shimSocket), nil, 0o600))
	}
	f.Fuzz(func(t *testing.T, unit string) {
		id, agent, err := l.adoption.identifySession(unit)
		if err != nil {
			return
		}
		require.Contains(t, []string{"shop", "my-shop", "b"}, id)
		require.Equal(t, unit, unitname.Scope(agent, id))
	})
}
