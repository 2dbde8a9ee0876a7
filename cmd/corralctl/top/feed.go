package top

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/corrald/corral/dbusapi/client"
)

// errConnectionLost means that the connection to the bus has ended. Nothing can be shown without
// it.
var errConnectionLost = errors.New("the connection to the bus was lost")

// changes is what has changed since the message before.
type changes struct {
	updated        []snapshot
	removed        []string                  // ids
	managers       map[string]client.Manager // by host: those that have changed
	gone           map[string]string         // by host: why its daemon cannot be reached
	back           []string                  // hosts whose daemon can be reached again
	connectionLost bool                      // no further changes will follow
}

// snapshot is a session as signals describe it. They do not carry its control group and the
// question of its agent, which are read once for each detail number if they are to be shown.
type snapshot struct {
	client.Session
	detail uint64 // grows when the control group or the question may have changed
	whole  bool   // it was read, and so has both
}

// source follows the signals of one host. It reads from the daemon only between two signals, so
// that what it reads is never older than what was reported before. Each source has a goroutine: a
// host that does not answer does not delay the changes of others.
type source struct {
	host     string // its name, "" if ids have no host
	bus      *client.Client
	outage   func(client.HostError) string
	events   <-chan client.Event
	sessions map[string]snapshot
	manager  client.Manager
	updates  chan<- hostUpdate
}

// hostUpdate is what a source has found.
type hostUpdate struct {
	host    string
	all     bool // changed has every session of the host
	changed []snapshot
	removed []string
	manager *client.Manager // nil if it has not changed
	gone    string          // why the daemon cannot be reached, "" if it can
	lost    bool            // the connection has ended for good
}

// feed collects changes until the model requests them, one entry for each session however often it
// changes. Its size is therefore bounded by the number of sessions while the model requests
// nothing, which is as long as the terminal is attached to a session.
type feed struct {
	sources   []*source
	updates   chan hostUpdate
	ready     chan struct{} // received by the model once there are changes, which follow in collected
	collected chan changes
	sessions  map[string]snapshot
	dirty     map[string]bool // by id of each changed session: whether it exists
	next      changes         // without updated and removed, which dirty stands for
}

// openFeed subscribes to the signals of the daemons and reads every session. If there is only one
// host, it must be reachable; otherwise those that do not answer soon follow later.
func openFeed(ctx context.Context, bus *client.Client, outage func(client.HostError) string) (*feed, error) {
	f := &feed{
		updates: make(chan hostUpdate), ready: make(chan struct{}), collected: make(chan changes),
		sessions: map[string]snapshot{}, dirty: map[string]bool{},
	}
	names := bus.HostNames()
	for _, host := range names {
		f.sources = append(f.sources, &source{host: host, bus: bus.Of(host), outage: outage, updates: f.updates})
	}
	if len(names) == 1 {
		first, err := f.sources[0].open(ctx)
		if err != nil {
			return nil, err
		}
		f.collect(first)
		go f.sources[0].run(ctx)
		return f, nil
	}
	missing := map[string]bool{}
	for _, s := range f.sources {
		missing[s.host] = true
		go func() {
			first, _ := s.open(ctx)
			s.send(ctx, first)
			s.run(ctx)
		}()
	}
	for timeout := time.After(openTimeout); len(missing) > 0; {
		select {
		case u := <-f.updates:
			f.collect(u)
			delete(missing, u.host)
			continue
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-timeout:
		}
		for host := range missing {
			f.collect(hostUpdate{host: host, gone: outage(client.HostError{Host: host, Err: errNoAnswer})})
			delete(missing, host)
		}
	}
	return f, nil
}

// openTimeout is how long the first screen waits for several hosts.
const openTimeout = 2 * time.Second

var errNoAnswer = &client.ConnectError{Err: errors.New("no answer yet")}

// open subscribes to the signals of the host and reads its sessions.
func (s *source) open(ctx context.Context) (first hostUpdate, err error) {
	if s.events, err = s.bus.Watch(ctx); err == nil {
		first, err = s.readAll(ctx)
	}
	if err != nil {
		first = hostUpdate{host: s.host, gone: s.outage(client.HostError{Host: s.host, Err: err})}
	}
	return first, err
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

// run collects changes until ctx ends.
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
		case u := <-f.updates:
			f.collect(u)
		}
	}
}

// run follows the signals until ctx ends.
func (s *source) run(ctx context.Context) {
	for s.events != nil {
		select {
		case <-ctx.Done():
			return
		case event, open := <-s.events:
			u := hostUpdate{host: s.host, lost: !open}
			if open {
				u = s.handle(ctx, event)
			} else {
				s.events = nil
			}
			s.send(ctx, u)
		}
	}
}

func (s *source) send(ctx context.Context, u hostUpdate) {
	select {
	case s.updates <- u:
	case <-ctx.Done():
	}
}

// readAll reads every session of the host and the properties of its daemon.
func (s *source) readAll(ctx context.Context) (hostUpdate, error) {
	sessions, err := s.bus.Sessions(ctx)
	if err != nil {
		return hostUpdate{}, err
	}
	manager, err := s.bus.Manager(ctx)
	if err != nil {
		return hostUpdate{}, err
	}
	before := s.sessions
	s.sessions = make(map[string]snapshot, len(sessions))
	u := hostUpdate{host: s.host, all: true, manager: &manager}
	for _, one := range sessions {
		s.sessions[one.Id] = snapshot{one, before[one.Id].detail + 1, false}
		u.changed = append(u.changed, snapshot{one, before[one.Id].detail + 1, true})
	}
	s.manager = manager
	return u, nil
}

func (s *source) handle(ctx context.Context, event client.Event) hostUpdate {
	u := hostUpdate{host: s.host}
	switch e := event.(type) {
	case client.SessionNew:
		// On an error the session or the daemon is gone again, which another signal will report.
		if one, err := s.bus.Session(ctx, e.ID); err == nil {
			s.sessions[e.ID] = snapshot{one, s.sessions[e.ID].detail + 1, false}
			u.changed = []snapshot{s.sessions[e.ID]}
		}
	case client.SessionRemoved:
		delete(s.sessions, e.ID)
		u.removed = []string{e.ID}
	case client.SessionChanged:
		u.changed = s.apply(e)
	case client.ManagerChanged:
		u.manager = s.applyManager(e)
	case client.DaemonGone:
		u.gone = s.outage(client.HostError(e))
	case client.DaemonBack:
		all, err := s.readAll(ctx)
		if err != nil { // it has exited again; another signal will report the next one
			u.gone = s.outage(client.HostError{Host: s.host, Err: err})
			return u
		}
		return all
	}
	return u
}

func (s *source) apply(e client.SessionChanged) []snapshot {
	one, known := s.sessions[e.ID]
	if !known {
		return nil
	}
	runs, state := one.NRuns, one.State
	if e.Properties.Decode(&one.Session) != nil {
		return nil // the daemon has another version of the interface: the shown values stay
	}
	if len(e.Invalidated) > 0 || one.NRuns != runs || one.State != state {
		one.detail++
	}
	s.sessions[e.ID] = one
	return []snapshot{one}
}

// applyManager stores the daemon's properties. It returns them if those have changed that are
// shown. The daemon's counts of sessions, which change with nearly every session, are not shown:
// the model counts the sessions itself.
func (s *source) applyManager(e client.ManagerChanged) *client.Manager {
	before := s.manager
	if e.Properties.Decode(&s.manager) != nil {
		return nil
	}
	if before.Lingering == s.manager.Lingering && before.ShuttingDown == s.manager.ShuttingDown {
		return nil
	}
	manager := s.manager
	return &manager
}

// collect adds what a source has found.
func (f *feed) collect(u hostUpdate) {
	if u.all {
		for id := range f.sessions {
			if host, _ := client.SplitID(id); host == u.host {
				u.removed = append(u.removed, id)
			}
		}
		f.next.back = append(f.next.back, u.host)
		delete(f.next.gone, u.host)
	}
	for _, id := range u.removed {
		delete(f.sessions, id)
		f.dirty[id] = false
	}
	for _, s := range u.changed {
		before := f.sessions[s.Id]
		s.whole = s.whole || f.dirty[s.Id] && before.whole && before.detail == s.detail
		f.sessions[s.Id] = s
		f.dirty[s.Id] = true
	}
	if u.manager != nil {
		if f.next.managers == nil {
			f.next.managers = map[string]client.Manager{}
		}
		f.next.managers[u.host] = *u.manager
	}
	if u.gone != "" {
		if f.next.gone == nil {
			f.next.gone = map[string]string{}
		}
		f.next.gone[u.host] = u.gone
		f.next.back = slices.DeleteFunc(f.next.back, func(host string) bool { return host == u.host })
	}
	f.next.connectionLost = f.next.connectionLost || u.lost
}

func (f *feed) hasChanges() bool {
	return len(f.dirty) > 0 || len(f.next.managers) > 0 || len(f.next.gone) > 0 || len(f.next.back) > 0 ||
		f.next.connectionLost
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
