package client

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/corrald/corral/internal/config"
)

// Bounds of the delay before a host is connected to again, and how long a connection may be silent
// before the host is pinged.
const (
	shortestPause = 100 * time.Millisecond
	longestPause  = 10 * time.Second
	keepAlive     = 5 * time.Second
)

var errLost = &ConnectError{errors.New("the connection was lost")}

// watchHosts is Watch for a Client of ConnectHosts.
func (c *Client) watchHosts(ctx context.Context, ids []string) (<-chan Event, error) {
	ctx, cancel := context.WithCancel(ctx)
	events := make(chan Event)
	var running sync.WaitGroup
	var followers []*follower
	for _, h := range c.hosts.all {
		var own []string
		for _, id := range ids {
			if host, rest := SplitID(id); host == h.Name {
				own = append(own, rest)
			}
		}
		if len(own) == 0 && len(ids) > 0 {
			continue
		}
		f := &follower{host: h, client: c, ids: own, events: events, tried: make(chan struct{})}
		followers = append(followers, f)
		running.Go(func() { f.run(ctx) })
	}
	go func() {
		running.Wait()
		cancel()
		close(events)
	}()
	patience := time.NewTimer(hostTimeout)
	defer patience.Stop()
	for _, f := range followers {
		if !c.hosts.several {
			<-f.tried
			if f.firstErr != nil {
				cancel()
				return nil, f.firstErr
			}
			break
		}
		select {
		case <-f.tried: // an error is followed by DaemonGone
		case <-patience.C:
			return events, nil
		}
	}
	return events, nil
}

// follower follows the signals of one host.
type follower struct {
	host   *host
	client *Client
	ids    []string // on the host; none for all
	events chan<- Event

	tried    chan struct{} // closed once the first attempt to subscribe has ended
	firstErr error         // of that attempt
}

// run follows the host until ctx is done, and connects again whenever the connection is lost.
func (f *follower) run(ctx context.Context) {
	isFirst := true
	for pause := shortestPause; ; pause = min(2*pause, longestPause) {
		last := f.host.last.Load()
		bus, err := f.client.connectedTo(ctx, f.host)
		var changes <-chan Event
		if err == nil {
			changes, err = bus.Watch(ctx, f.ids...)
		}
		switch {
		case isFirst:
			f.firstErr, isFirst = err, false
			close(f.tried)
		case err == nil:
			f.emit(ctx, DaemonBack{f.host.Name})
		}
		if err == nil {
			f.forward(ctx, bus, changes)
			err, pause = errLost, shortestPause
		}
		f.emit(ctx, DaemonGone{f.host.Name, err})
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		if bus != nil {
			_ = bus.Close()
		}
		f.host.dial(f.client.hosts.ctx, last)
	}
}

// forward emits the events of the host until the connection is lost. It pings a silent host.
func (f *follower) forward(ctx context.Context, bus *Client, changes <-chan Event) {
	var silence <-chan time.Time // nil for a host on this machine
	if bus.lastRead != nil {
		ticker := time.NewTicker(keepAlive)
		defer ticker.Stop()
		silence = ticker.C
	}
	for {
		select {
		case event, open := <-changes:
			if !open {
				return
			}
			if event = f.qualified(event); event != nil {
				f.emit(ctx, event)
			}
		case <-silence:
			if time.Since(time.Unix(0, bus.lastRead.Load())) >= keepAlive && !bus.answersPing(ctx) {
				_ = bus.Close()
				return
			}
		}
	}
}

// answersPing reports whether the bus answers within hostTimeout.
func (c *Client) answersPing(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, hostTimeout)
	defer cancel()
	_, err := c.Running(ctx)
	return err == nil
}

// qualified returns an event of the host as one of several hosts, nil if it is about no session
// that can be named.
func (f *follower) qualified(event Event) Event {
	id := ""
	switch e := event.(type) {
	case SessionChanged:
		f.host.qualify(e.Properties)
		id, e.ID = e.ID, f.host.idOn(e.ID)
		event = e
	case SessionNew:
		id, event = e.ID, SessionNew{f.host.idOn(e.ID)}
	case SessionRemoved:
		id, event = e.ID, SessionRemoved{f.host.idOn(e.ID)}
	case StateChanged:
		id, e.ID = e.ID, f.host.idOn(e.ID)
		event = e
	case AttentionRequested:
		id, e.ID = e.ID, f.host.idOn(e.ID)
		event = e
	case ManagerChanged:
		return ManagerChanged{f.host.Name, e.Properties}
	case DaemonGone:
		return DaemonGone{Host: f.host.Name}
	case DaemonBack:
		return DaemonBack{f.host.Name}
	}
	if !config.ValidName(id) {
		return nil
	}
	return event
}

func (f *follower) emit(ctx context.Context, event Event) {
	select {
	case f.events <- event:
	case <-ctx.Done():
	}
}
