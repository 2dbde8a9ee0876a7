package supervisor

import (
	"context"
	"slices"

	"github.com/corrald/corral/internal/unitproperty"
	"github.com/corrald/corral/supervisor/session"
)

// SetUnitProperties changes properties of the session's scope, all or none of them: now, if there is one, and at every later start. Errors:
// NoSuchSession, Invalid with the name of a property that systemd does not take, OverLimit.
func (s *Supervisor) SetUnitProperties(ctx context.Context, id string, properties []session.Property) error {
	return s.with(ctx, id, func(e *entry) (<-chan error, error) {
		if err := checkProperties(mergeProperties(e.rec.UnitProperties, properties)); err != nil {
			return nil, err
		}
		reply := make(chan error, 1)
		s.setProperties(e, properties, reply)
		return reply, nil
	})
}

// setProperties has the scope changed, after what is being done with the session.
func (s *Supervisor) setProperties(e *entry, properties []session.Property, reply chan<- error) {
	run, scope := identity(e.rec.Run)
	s.effect(e, func() {
		err := s.World.SetProperties(s.ctx, scope, properties)
		s.post(func() {
			switch nowRun, nowScope := identity(e.rec.Run); {
			case e.removed:
				err = refuse(NoSuchSession, "session %q was removed", e.rec.ID)
			case err == nil && nowRun != "" && (nowRun != run || nowScope != scope):
				s.setProperties(e, properties, reply) // a run began meanwhile, without them
				return
			case err == nil:
				e.rec.UnitProperties = mergeProperties(e.rec.UnitProperties, properties)
				e.unsaved, e.exited = true, false
				s.touch(e)
			}
			s.after = append(s.after, func() { reply <- err })
		})
	})
}

// identity names a run and its scope.
func identity(r *session.Run) (run, scope string) {
	if !r.Live() {
		return "", ""
	}
	return r.ID, r.InvocationID
}

// mergeProperties returns the properties with the later ones in the place of the same earlier ones, in the order in which they were first set: each is there
// once, as the last one counts when the scope is started.
func mergeProperties(earlier, later []session.Property) []session.Property {
	merged := slices.Clone(earlier)
	for _, p := range later {
		same := func(old session.Property) bool { return unitproperty.SameLimit(old.Name, p.Name) }
		if i := slices.IndexFunc(merged, same); i >= 0 {
			merged[i] = p
			merged = append(merged[:i+1], slices.DeleteFunc(merged[i+1:], same)...)
		} else {
			merged = append(merged, p)
		}
	}
	return merged
}

// checkProperties refuses more properties than any scope has.
func checkProperties(properties []session.Property) error {
	size := 0
	for _, p := range properties {
		size += len(p.Name) + len(p.Value)
	}
	if len(properties) > maxProperties || size > maxPropertySize {
		return refuse(OverLimit, "too many unit properties: at most %d, of %d bytes in total, are allowed", maxProperties, maxPropertySize)
	}
	return nil
}
