package store

import (
	"slices"

	"github.com/corrald/corral/supervisor/session"
)

// sharedStrings contains one copy of each string that is equal in many records, such as the id of
// the boot. A record is decoded with strings of its own: of a thousand sessions, these are a
// quarter of a megabyte.
type sharedStrings map[string]string

// apply makes the session use the copies, and no more memory for its earlier runs than they need.
func (all sharedStrings) apply(s *session.Session) {
	all.share(
		&s.Agent, &s.WorkingDirectory, &s.Workspace, &s.OnLogin, (*string)(&s.State),
		&s.ChangedOn.ID, &s.SeenOn.ID, &s.ReleasedOn.ID,
	)
	for i := range s.Command {
		all.share(&s.Command[i])
	}
	for i := range s.ResumeCommand {
		all.share(&s.ResumeCommand[i])
	}
	if cap(s.Past) > len(s.Past) {
		s.Past = slices.Clone(s.Past)
	}
	for i := range s.Past {
		all.shareRun(&s.Past[i])
	}
	if s.Run != nil {
		all.shareRun(s.Run)
	}
}

func (all sharedStrings) shareRun(r *session.Run) {
	all.share(&r.BootID, &r.Unit, &r.ControlGroup, &r.Sources, &r.ScopeResult)
}

func (all sharedStrings) share(strings ...*string) {
	for _, s := range strings {
		if first, ok := all[*s]; ok {
			*s = first
		} else {
			all[*s] = *s
		}
	}
}
