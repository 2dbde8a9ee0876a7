package shimwire

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestIsInfrastructure(t *testing.T) {
	for _, row := range []struct {
		name string
		args []string
		want bool
	}{
		{"tmux: server", nil, true},
		{"tmux: client", nil, true},
		{"corral-shim", nil, true},
		{"utempter", nil, true},
		{"exe", []string{TmuxClient, "-u", "-N"}, true},
		{"exe", []string{"chromium", "--type=zygote"}, false},
		{"exe", nil, false},
		{"tmux", []string{"tmux"}, false},
		{"claude", nil, false},
	} {
		got := IsInfrastructure(row.name, func() []string { return row.args })
		assert.Equal(t, row.want, got, "%s %v", row.name, row.args)
	}
}

func TestSessionScope_IsTheInnermost(t *testing.T) {
	const user = "/user.slice/user-1000.slice/user@1000.service"
	const scope = user + "/app.slice/app-corral.slice/app-corral-claude-shop.scope"
	const nested = scope + "/init.scope/app.slice/app-corral.slice/app-corral-claude-inner.scope"
	for path, want := range map[string]string{
		scope:                 scope,
		scope + "/inner":      scope,
		nested + "/inner":     nested,
		"/app-corral-x.scope": "/app-corral-x.scope",

		"": "", "/": "",
		"/user.slice/user-1000.slice/session-2.scope": "",
		user + "/session.slice/corrald.service":       "",
		"/app-corral-x.scope.d":                       "",
	} {
		got := SessionScope([]byte(path))
		assert.Equal(t, want, string(got), path)
		assert.Equal(t, want == "", got == nil, path)
	}
}
