package server

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/supervisor"
)

// view contains the state that clients know: every session and every property of the Manager as the
// signals that were sent so far describe it. It belongs to the goroutine that sends the signals. A
// reply that is read from the view, and sent by that goroutine, contains exactly the changes whose
// signals precede it, so that a client that keeps a copy and follows the signals is always correct.
// Reading calls do not use the event loop.
type view struct {
	sessions []*supervisor.Snapshot // sorted by creation time, then by id
	byID     map[string]*supervisor.Snapshot
	manager  properties // published properties of the Manager that do not depend on its sessions
	counts   properties // those that count the sessions
}

func newView() *view {
	return &view{byID: map[string]*supervisor.Snapshot{}, manager: properties{}, counts: countProperties(nil)}
}

// apply applies a change of one session to the view.
func (v *view) apply(c supervisor.Change) {
	if c.Old != nil {
		if i, found := v.find(c.Old); found {
			v.sessions = slices.Delete(v.sessions, i, i+1)
		}
		delete(v.byID, c.Old.ID)
	}
	if c.New != nil {
		i, _ := v.find(c.New)
		v.sessions = slices.Insert(v.sessions, i, c.New)
		v.byID[c.New.ID] = c.New
	}
}

func (v *view) find(n *supervisor.Snapshot) (at int, found bool) {
	return slices.BinarySearchFunc(v.sessions, n, func(a, b *supervisor.Snapshot) int {
		if c := a.Created.Compare(b.Created); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
}

// readView runs f with the view, after everything that was published before, and waits for it. A
// panic of f is raised again in the caller.
func (s *Server) readView(f func(*view)) {
	done := make(chan any, 1)
	s.batches <- batch{reads: []func(*view){func(v *view) {
		defer func() { done <- recover() }()
		f(v)
	}}}
	if p := <-done; p != nil {
		panic(p)
	}
}

// replyInOrder replies to a call with what f reads from the view, in order with the signals.
func (s *Server) replyInOrder(msg *dbus.Message, f func(*view) ([]any, error)) ([]any, error) {
	if msg.Flags&dbus.FlagNoReplyExpected != 0 {
		return nil, nil
	}
	var err error
	s.readView(func(v *view) {
		var body []any
		if body, err = f(v); err == nil {
			s.reply(msg, body...)
		}
	})
	return nil, err
}

// snapshots returns all sessions of the view.
func (s *Server) snapshots() (all []*supervisor.Snapshot) {
	s.readView(func(v *view) { all = slices.Clone(v.sessions) })
	return all
}

// snapshot returns the object's session from the view.
func (o *object) snapshot() (n *supervisor.Snapshot, err error) {
	o.server.readView(func(v *view) { n, err = o.findIn(v) })
	return n, err
}

// queuePosition returns the position of a session in the queue, 0 if it is not queued.
func (s *Server) queuePosition(n *supervisor.Snapshot) (position uint32) {
	if n.Queued.IsZero() {
		return 0
	}
	s.readView(func(v *view) {
		for _, other := range v.sessions {
			if !other.Queued.IsZero() && !other.Queued.After(n.Queued) {
				position++
			}
		}
	})
	return position
}

// findIn returns the object's session from the view.
func (o *object) findIn(v *view) (*supervisor.Snapshot, error) {
	if n := v.byID[o.session]; n != nil {
		return n, nil
	}
	return nil, o.unknownObject()
}

// asUnknownObject converts the supervisor's error NoSuchSession to UnknownObject and returns other
// errors unchanged.
func (o *object) asUnknownObject(err error) error {
	var e *supervisor.Error
	if errors.As(err, &e) && e.Kind == supervisor.NoSuchSession {
		return o.unknownObject()
	}
	return err
}

// unknownObject returns the error for calls of a session that does not exist.
func (o *object) unknownObject() error {
	return newError(dbusapi.UnknownObject, fmt.Sprintf("no such object, and no such session: %s", o.path))
}
