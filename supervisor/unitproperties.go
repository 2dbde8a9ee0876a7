package supervisor

import (
	"context"
	"slices"

	"github.com/corrald/corral/internal/propertysyntax"
	"github.com/corrald/corral/supervisor/session"
)

// SetUnitProperties changes properties of the session's scope, either all or none of them: now, if
// it has a scope, and at every later start. Errors: NoSuchSession; Invalid, with the name of a
// property that systemd rejects; OverLimit.
func (s *Supervisor) SetUnitProperties(ctx context.Context, id string, properties []session.Property) error {
	return s.loop.withSession(ctx, id, func(e *entry) (<-chan error, error) {
		if err := checkProperties(mergeProperties(e.rec.UnitProperties, properties)); err != nil {
			return nil, err
		}
		reply := make(chan error, 1)
		e.setProperties(properties, reply)
		return reply, nil
	})
}

// Limits of the unit properties of a session.
const (
	maxProperties   = 256
	maxPropertySize = 64 << 10 // bytes of their names and values together
)

// checkProperties refuses too many or too long properties.
func checkProperties(properties []session.Property) error {
	size := 0
	for _, p := range properties {
		size += len(p.Name) + len(p.Value)
	}
	if len(properties) > maxProperties || size > maxPropertySize {
		return refuse(OverLimit, "too many unit properties: at most %d, of %d bytes in total, are allowed",
			maxProperties, maxPropertySize)
	}
	return nil
}

// setProperties changes the scope, after the session's earlier effects, then the record, and sends
// the result to reply.
func (e *entry) setProperties(properties []session.Property, reply chan<- error) {
	run, scope := runAndScope(e.rec.Run)
	e.effects.afterSave(func() {
		effect := session.SetProperties{InvocationID: scope, Properties: properties}
		err := e.loop.execute(Target{}, effect)
		e.loop.post(func() {
			switch nowRun, nowScope := runAndScope(e.rec.Run); {
			case e.removed:
				err = refuse(NoSuchSession, "session %q was removed", e.rec.ID)
			case err == nil && nowRun != "" && (nowRun != run || nowScope != scope):
				e.setProperties(properties, reply) // a run has begun meanwhile, without the new properties
				return
			case err == nil:
				e.rec.UnitProperties = mergeProperties(e.rec.UnitProperties, properties)
				e.recordChanged()
			}
			e.loop.answerAfterPublish(reply, err)
		})
	})
}

// runAndScope returns the ids of a run and of its scope, "" if the run does not live.
func runAndScope(r *session.Run) (run, scope string) {
	if !r.Live() {
		return "", ""
	}
	return r.ID, r.InvocationID
}

// mergeProperties replaces earlier properties by later ones that set the same limit, and appends
// the other later ones. Each is contained once: when a scope is started, the last one counts.
func mergeProperties(earlier, later []session.Property) []session.Property {
	merged := slices.Clone(earlier)
	for _, p := range later {
		same := func(old session.Property) bool { return propertysyntax.SameLimit(old.Name, p.Name) }
		if i := slices.IndexFunc(merged, same); i >= 0 {
			merged[i] = p
			merged = append(merged[:i+1], slices.DeleteFunc(merged[i+1:], same)...)
		} else {
			merged = append(merged, p)
		}
	}
	return merged
}
