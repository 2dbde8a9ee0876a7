package top

import (
	"context"
	"errors"

	"github.com/corrald/corral/dbusapi/client"
)

// errLost says that the connection to the bus has ended, and with it all that could be shown.
var errLost = errors.New("the connection to the bus was lost")

// news is what has changed since the last news.
type news struct {
	all     bool // changed has every session there is
	changed []snapshot
	removed []string
	manager *client.Manager // nil: as it was
	gone    bool            // there is no daemon now
	lost    bool            // there is no connection any more: no news will follow
}

// snapshot is a session as signals describe it. Details that they do not carry, its control group
// and what its agent asks, are read once for each detail number, if they are to be shown.
type snapshot struct {
	client.Session
	detail uint64
}

// feed follows the daemon's signals. It collects changes until the model takes them, each session
// once however often it changed: while nobody wants anything, as long as a session is attached to,
// it grows no further than the sessions do.
//
// All that it reads it reads between two signals, so that an answer is never older than what was
// reported before.
type feed struct {
	bus     *client.Client
	events  <-chan client.Event
	wanted  chan struct{}
	ready   chan news
	manager client.Manager
	every   map[string]snapshot
	changed map[string]bool // ids of what is new; false: removed
	next    news            // but for changed and removed
}

// openFeed subscribes and reads what there is.
func openFeed(ctx context.Context, bus *client.Client) (*feed, error) {
	events, err := bus.Watch(ctx)
	if err != nil {
		return nil, err
	}
	f := &feed{bus: bus, events: events, wanted: make(chan struct{}), ready: make(chan news), changed: map[string]bool{}}
	if err := f.readAll(ctx); err != nil {
		return nil, err
	}
	return f, nil
}

// receive waits until there are news, and returns them. Without a result, ctx has ended.
func (f *feed) receive(ctx context.Context) (news, bool) {
	select {
	case f.wanted <- struct{}{}:
	case <-ctx.Done():
		return news{}, false
	}
	select {
	case n := <-f.ready:
		return n, true
	case <-ctx.Done():
		return news{}, false
	}
}

// run follows the signals until ctx ends.
func (f *feed) run(ctx context.Context) {
	wanted := false
	for {
		if wanted && f.pending() {
			select {
			case f.ready <- f.take():
				wanted = false
			case <-ctx.Done():
				return
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-f.wanted:
			wanted = true
		case event, open := <-f.events:
			if !open {
				f.next.lost = true
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
	clear(f.changed)
	before := f.every
	f.every = make(map[string]snapshot, len(sessions))
	for _, s := range sessions {
		f.every[s.Id] = snapshot{s, before[s.Id].detail + 1}
		f.changed[s.Id] = true
	}
	f.manager = manager
	f.next = news{all: true, manager: &manager}
	return nil
}

func (f *feed) handle(ctx context.Context, event client.Event) {
	switch e := event.(type) {
	case client.SessionNew:
		if s, err := f.bus.Session(ctx, e.ID); err == nil { // else it is gone again, or the daemon is: both will be reported
			f.every[e.ID] = snapshot{s, f.every[e.ID].detail + 1}
			f.changed[e.ID] = true
		}
	case client.SessionRemoved:
		delete(f.every, e.ID)
		f.changed[e.ID] = false
	case client.SessionChanged:
		f.apply(e)
	case client.ManagerChanged:
		f.applyManager(e)
	case client.DaemonGone:
		f.next.gone = true
	case client.DaemonBack:
		if f.readAll(ctx) != nil {
			f.next.gone = true // it did not live long; the next one will be reported
		}
	}
}

func (f *feed) apply(e client.SessionChanged) {
	s, known := f.every[e.ID]
	if !known {
		return
	}
	runs, state := s.NRuns, s.State
	if e.Properties.Decode(&s.Session) != nil {
		return // of another contract than ours: what is shown stays as it was
	}
	if len(e.Invalidated) > 0 || s.NRuns != runs || s.State != state {
		s.detail++
	}
	f.every[e.ID] = s
	f.changed[e.ID] = true
}

// applyManager keeps what is shown of the daemon. Its counts change with nearly every session, and
// are not: the sessions themselves are counted.
func (f *feed) applyManager(e client.ManagerChanged) {
	before := f.manager
	if e.Properties.Decode(&f.manager) != nil || before.Lingering == f.manager.Lingering && before.ShuttingDown == f.manager.ShuttingDown {
		return
	}
	manager := f.manager
	f.next.manager = &manager
}

func (f *feed) pending() bool {
	return len(f.changed) > 0 || f.next.manager != nil || f.next.gone || f.next.lost
}

func (f *feed) take() news {
	n := f.next
	for id, there := range f.changed {
		if there {
			n.changed = append(n.changed, f.every[id])
		} else {
			n.removed = append(n.removed, id)
		}
	}
	clear(f.changed)
	f.next = news{}
	return n
}
