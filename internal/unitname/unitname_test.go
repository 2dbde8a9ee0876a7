package unitname_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/corrald/corral/internal/unitname"
)

func TestScope(t *testing.T) {
	assert.Equal(t, "app-corral-claude-shop.scope", unitname.Scope("claude", "shop"))
	assert.Equal(t, "app-corral-claude-:work-shop.scope", unitname.Scope("claude@work", "shop"))
}

func TestCutScope(t *testing.T) {
	for _, row := range []struct {
		unit, name string
		is         bool
	}{
		{"app-corral-claude-shop.scope", "claude-shop", true},
		{"app-corral-a-b-c.scope", "a-b-c", true},
		{"app-corral.slice", "app-corral.slice", false},
		{"app-corral-claude-shop.service", "claude-shop.service", false},
		{"session-2.scope", "session-2", false},
	} {
		name, is := unitname.CutScope(row.unit)
		assert.Equal(t, row.name, name, row.unit)
		assert.Equal(t, row.is, is, row.unit)
	}
}

func TestSplitScope(t *testing.T) {
	for _, row := range []struct {
		unit        string
		agents, ids []string
	}{
		{"app-corral-claude-shop.scope", []string{"claude"}, []string{"shop"}},
		{"app-corral-a-b-c.scope", []string{"a", "a-b"}, []string{"b-c", "c"}},
		{"app-corral-claude-:work-shop.scope", []string{"claude", "claude@work"}, []string{":work-shop", "shop"}},
		{
			"app-corral-a-:w-x-c.scope", []string{"a", "a@w", "a@w-x"}, []string{":w-x-c", "x-c", "c"},
		},
		{"app-corral-claude.scope", nil, nil},
		{"app-corral-claude@work-shop.scope", nil, nil},
		{"app-corral-claude-shop.service", nil, nil},
	} {
		agents, ids := unitname.SplitScope(row.unit)
		assert.Equal(t, row.agents, agents, row.unit)
		assert.Equal(t, row.ids, ids, row.unit)
	}
}

func TestScopeIn_IsTheInnermost(t *testing.T) {
	const user = "/user.slice/user-1000.slice/user@1000.service"
	const scope = user + "/app.slice/app-corral.slice/app-corral-claude-shop.scope"
	const account = user + "/app.slice/app-corral.slice/app-corral-claude-:work-shop.scope"
	const nested = scope + "/init.scope/app.slice/app-corral.slice/app-corral-claude-inner.scope"
	for path, want := range map[string]string{
		scope:                 scope,
		scope + "/inner":      scope,
		account + "/inner":    account,
		nested + "/inner":     nested,
		"/app-corral-x.scope": "/app-corral-x.scope",

		"": "", "/": "",
		"/user.slice/user-1000.slice/session-2.scope": "",
		user + "/session.slice/corrald.service":       "",
		"/app-corral-x.scope.d":                       "",
	} {
		got := unitname.ScopeIn([]byte(path))
		assert.Equal(t, want, string(got), path)
		assert.Equal(t, want == "", got == nil, path)
	}
}
