package top

import (
	"context"
	"errors"

	"github.com/corrald/corral/dbusapi/client"
)

// errConnectionLost means that the connection to the bus has ended. Nothing can be shown without
// it.
var errConnectionLost = errors.New("the connection to the bus was lost")

// changes is what has changed since the message before.
type changes struct {
	all            bool // updated contains every existing session
	updated        []snapshot
	removed        []string        // ids
	manager        *client.Manager // nil if it has not changed
	daemonGone     bool            // the daemon is not running
	connectionLost bool            // no further changes will follow
}

// snapshot is a session as signals describe it. They do not carry its control group and the
// question of its agent, which are read once for each detail number if they are to be shown.
type snapshot struct {
	client.Session
	detail uint64 // grows when the control group or the question may have changed
}

// feed follows the daemon's signals. It collects changes until the model requests them, one entry
// for each session however often it changes. Its size is therefore bounded by the number of
// sessions while the model requests nothing, which is as long as the terminal is attached to a
// session.
//
// It reads from the daemon only between two signals, so that what it reads is never older than what
// was reported before.
type feed struct {
	bus       *client.Client
	events    <-chan client.Event
	ready     chan struct{} // received by the model once there are changes, which follow in collected
	collected chan changes
	manager   client.Manager
	sessions  map[string]snapshot
	dirty     map[string]bool // by id of each changed session: whether it exists
	next      changes         // without updated and removed, which dirty stands for
}

// openFeed subscribes to the daemon's signals and reads every session.
func openFeed(ctx context.Context, bus *client.Client) (*feed, error) {
	events, err := bus.Watch(ctx)
	if err != nil {
		return nil, err
	}
	f := &feed{
		bus: bus, events: events,
		ready: make(chan struct{}), collected: make(chan changes), dirty: map[string]bool{},
	}
	if err := f.readAll(ctx); err != nil {
		return nil, err
	}
	return f, nil
}

// receive waits for changes and returns them. It returns false once ctx has ended.
func (f *feed) receive(ctx context.Context) (changes, bool) {
	select {
	case <-f.ready:
		return <-f.collected, true
	case <-ctx.Done():
		return changes{}, false
	}
}

// run follows the signals until ctx ends.
func (f *feed) run(ctx context.Context) {
	for {
		var ready chan struct{} // nil, which nothing can be sent to, while there are no changes
		if f.hasChanges() {
			ready = f.ready
		}
		select {
		case <-ctx.Done():
			return
		case ready <- struct{}{}:
			f.collected <- f.take()
		case event, open := <-f.events:
			if !open {
				f.next.connectionLost = true
				f.events = nil
				continue
			}
			f.handle(ctx, event)
		}
	}
}

// readAll reads every session and the daemon's own properties.
func (f *feed) readAll(ctx context.Context) error {
	sessions, err := f.bus.Sessions(ctx)
	if err != nil {
		return err
	}
	manager, err := f.bus.Manager(ctx)
	if err != nil {
		return err
	}
	clear(f.dirty)
	before := f.sessions
	f.sessions = make(map[string]snapshot, len(sessions))
	for _, s := range sessions {
		f.sessions[s.Id] = snapshot{s, before[s.Id].detail + 1}
		f.dirty[s.Id] = true
	}
	f.manager = manager
	f.next = changes{all: true, manager: &manager}
	return nil
}

func (f *feed) handle(ctx context.Context, event client.Event) {
	switch e := event.(type) {
	case client.SessionNew:
		// On an error the session or the daemon is gone again, which another signal will report.
		if s, err := f.bus.Session(ctx, e.ID); err == nil {
			f.sessions[e.ID] = snapshot{s, f.sessions[e.ID].detail + 1}
			f.dirty[e.ID] = true
		}
	case client.SessionRemoved:
		delete(f.sessions, e.ID)
		f.dirty[e.ID] = false
	case client.SessionChanged:
		f.apply(e)
	case client.ManagerChanged:
		f.applyManager(e)
	case client.DaemonGone:
		f.next.daemonGone = true
	case client.DaemonBack:
		if f.readAll(ctx) != nil {
			f.next.daemonGone = true // it has exited again; another signal will report the next one
		}
	}
}

func (f *feed) apply(e client.SessionChanged) {
	s, known := f.sessions[e.ID]
	if !known {
		return
	}
	runs, state := s.NRuns, s.State
	if e.Properties.Decode(&s.Session) != nil {
		return // the daemon has another version of the interface: the shown values stay
	}
	if len(e.Invalidated) > 0 || s.NRuns != runs || s.State != state {
		s.detail++
	}
	f.sessions[e.ID] = s
	f.dirty[e.ID] = true
}

// applyManager stores the daemon's properties. It reports a change only of those that are shown.
// The daemon's counts of sessions, which change with nearly every session, are not shown: the model
// counts the sessions itself.
func (f *feed) applyManager(e client.ManagerChanged) {
	before := f.manager
	if e.Properties.Decode(&f.manager) != nil {
		return
	}
	if before.Lingering == f.manager.Lingering && before.ShuttingDown == f.manager.ShuttingDown {
		return
	}
	manager := f.manager
	f.next.manager = &manager
}

func (f *feed) hasChanges() bool {
	return len(f.dirty) > 0 || f.next.manager != nil || f.next.daemonGone || f.next.connectionLost
}

// take returns the collected changes and forgets them.
func (f *feed) take() changes {
	c := f.next
	for id, exists := range f.dirty {
		if exists {
			c.updated = append(c.updated, f.sessions[id])
		} else {
			c.removed = append(c.removed, id)
		}
	}
	clear(f.dirty)
	f.next = changes{}
	return c
}
