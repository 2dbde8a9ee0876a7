package session

import (
	"maps"
	"slices"
)

// Clone returns a copy that shares nothing with s.
func (s *Session) Clone() *Session {
	c := *s
	c.Command = slices.Clone(s.Command)
	c.ResumeCommand = slices.Clone(s.ResumeCommand)
	c.Arguments = slices.Clone(s.Arguments)
	c.EarlierConversations = slices.Clone(s.EarlierConversations)
	c.Environment = slices.Clone(s.Environment)
	c.Labels = maps.Clone(s.Labels)
	c.UnitProperties = slices.Clone(s.UnitProperties)
	if s.Worktree != nil {
		w := *s.Worktree
		c.Worktree = &w
	}
	if s.Fork != nil {
		f := *s.Fork
		c.Fork = &f
	}
	c.Past = slices.Clone(s.Past)
	if s.Run != nil {
		r := *s.Run
		if r.Exit != nil {
			e := *r.Exit
			r.Exit = &e
		}
		c.Run = &r
	}
	return &c
}
