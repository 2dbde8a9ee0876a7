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

// view is what clients have been told: every session as the signals that are on their way say it
// is. It belongs to the goroutine that emits them. What is read from it, and answered there, agrees
// with every signal that the client gets before that answer, and with none that it gets later: who
// keeps a copy and follows the signals is never wrong. And who only reads never bothers the loop.
type view struct {
	sessions []*supervisor.Snapshot // the oldest first, then by id
	byID     map[string]*supervisor.Snapshot
	manager  properties // what was told of the Manager that does not follow from its sessions
}

// apply follows a change of one session.
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

// look has f look at the view, after what was published before, and waits for it. A panic of f's is
// the caller's.
func (s *Server) look(f func(*view)) {
	looked := make(chan any, 1)
	s.batches <- batch{looks: []func(*view){func(v *view) {
		defer func() { looked <- recover() }()
		f(v)
	}}}
	if p := <-looked; p != nil {
		panic(p)
	}
}

// inOrder answers a call with what f reads from the view, at its place among the signals.
func (s *Server) inOrder(msg *dbus.Message, f func(*view) ([]any, error)) ([]any, error) {
	if msg.Flags&dbus.FlagNoReplyExpected != 0 {
		return nil, nil
	}
	var err error
	s.look(func(v *view) {
		var body []any
		if body, err = f(v); err == nil {
			s.reply(msg, body...)
		}
	})
	return nil, err
}

// snapshots returns all sessions, as the view has them.
func (s *Server) snapshots() (all []*supervisor.Snapshot) {
	s.look(func(v *view) { all = slices.Clone(v.sessions) })
	return all
}

// known returns an error if the view has no such session.
func (o *object) known() error {
	_, err := o.snapshot()
	return err
}

// snapshot returns the object's session, as the view has it.
func (o *object) snapshot() (n *supervisor.Snapshot, err error) {
	o.server.look(func(v *view) { n, err = o.in(v) })
	return n, err
}

// in finds the object's session in the view.
func (o *object) in(v *view) (*supervisor.Snapshot, error) {
	if n := v.byID[o.session]; n != nil {
		return n, nil
	}
	return nil, o.unknown()
}

// orUnknown puts it into the words of the bus that the loop knows no such session.
func (o *object) orUnknown(err error) error {
	var e *supervisor.Error
	if errors.As(err, &e) && e.Kind == supervisor.NoSuchSession {
		return o.unknown()
	}
	return err
}

// unknown is the answer to whatever is asked of a session that is not there.
func (o *object) unknown() error {
	return answer(dbusapi.UnknownObject, fmt.Sprintf("no such object, and no such session: %s", o.path))
}
