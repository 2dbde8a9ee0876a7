package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestPeer_IsKnownByItsControlGroup(t *testing.T) {
	const user = "/user.slice/user-1000.slice/user@1000.service"
	const own = user + "/app.slice/app-corral.slice/app-corral-claude-shop.scope"
	const nested = own + "/init.scope/app.slice/app-corral.slice/app-corral-claude-inner.scope"
	for _, row := range []struct {
		name, own, peer string
		want            peerKind
	}{
		{"the shim's scope", own, own, ownPeer},
		{"below the shim's scope", own, own + "/sandbox", ownPeer},
		{"the shim is below its scope", own + "/moved", own, ownPeer},
		{"a scope with the same prefix", own, own + "-2.scope", foreignPeer},
		{"another session's scope", own, user + "/app.slice/app-corral.slice/app-corral-codex-other.scope", foreignPeer},
		{
			"below another session's scope", own,
			user + "/app.slice/app-corral.slice/app-corral-codex-other.scope/sandbox", foreignPeer,
		},
		{"another session's scope in a slice of its own", own, user + "/big.slice/app-corral-codex-other.scope", foreignPeer},
		{"the daemon's service", own, user + "/session.slice/corrald.service", daemonPeer},
		{
			"a daemon in a terminal of the desktop", own,
			user + "/app.slice/app-org.gnome.Terminal.slice/vte-spawn-1.scope", daemonPeer,
		},
		{"a daemon in a login session", own, "/user.slice/user-1000.slice/session-2.scope", daemonPeer},
		{"a daemon in the slice itself", own, user + "/app.slice/app-corral.slice", daemonPeer},
		{"the hierarchy's root", own, "/", daemonPeer},
		{"a daemon of a nested systemd inside the session", nested, own + "/init.scope/corrald.service", daemonPeer},
		{
			"another session of the nested systemd", nested,
			own + "/init.scope/app.slice/app-corral.slice/app-corral-claude-second.scope", foreignPeer,
		},
		{"the outer session", nested, own, daemonPeer},
		{"a process that has exited", own, "", foreignPeer},
	} {
		assert.Equal(t, row.want, classifyPeer([]byte(row.own), []byte(row.peer)), row.name)
	}
}
