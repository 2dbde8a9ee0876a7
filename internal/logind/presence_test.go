package logind

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestShowsPresence_OfALoginSession(t *testing.T) {
	for _, row := range []struct {
		name    string
		change  func(*loginSession)
		present bool
	}{
		{"a desktop in use", func(*loginSession) {}, true},
		{"X11", func(s *loginSession) { s.Type = "x11" }, true},
		{"idle", func(s *loginSession) { s.IdleHint = true }, false},
		{"locked", func(s *loginSession) { s.LockedHint = true }, false},
		{"a desktop that has never changed its idle hint", func(s *loginSession) { s.IdleSinceHint = 0 }, false},
		{"another user's session is in the foreground", func(s *loginSession) { s.Active, s.State = false, "online" }, false},
		{"the user has logged out", func(s *loginSession) { s.State = "closing" }, false},
		{"a remote desktop", func(s *loginSession) { s.Remote = true }, false},
		{"a terminal or ssh", func(s *loginSession) { s.Type = "tty" }, false},
		{"a greeter", func(s *loginSession) { s.Class = "greeter" }, false},
		{"a session that has ended", func(s *loginSession) { *s = loginSession{} }, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := loginSession{State: "active", Type: "wayland", Class: "user", Active: true, IdleSinceHint: 1}
			row.change(&s)
			assert.Equal(t, row.present, s.showsPresence())
		})
	}
}
