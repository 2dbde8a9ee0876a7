package main

import (
	"context"
	"time"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/dbusapi/client"
)

// Reasons why sessions cannot be observed.
const (
	daemonAway = "corrald is not running"
	busAway    = "not connected to the bus"
)

// Bounds of the delay before an operation is retried.
const (
	shortestPause = 100 * time.Millisecond
	longestPause  = 5 * time.Second
)

// reconnectingWatch follows sessions while corrald, the bus or the connection to another machine
// restarts.
type reconnectingWatch struct {
	c        *ctl
	ids      []string
	events   <-chan client.Event // nil before connect or subscribe
	onOutage func(why string)    // called, maybe several times, when sessions cannot be observed
}

// connect connects to the bus and subscribes to events of the sessions.
func (l *reconnectingWatch) connect(ctx context.Context) error {
	if l.c.client != nil {
		_ = l.c.client.Close()
		l.c.client = nil
	}
	if _, err := l.c.connect(ctx); err != nil {
		return err
	}
	return l.subscribe(ctx)
}

// subscribe subscribes over the existing connection.
func (l *reconnectingWatch) subscribe(ctx context.Context) (err error) {
	l.events, err = l.c.client.Watch(ctx, l.ids...)
	return err
}

// next returns the next event. After a DaemonBack the caller has to read everything again. From its
// first call on, corrald is never started by this client: it must not return because of a client
// that only watches if it was stopped or removed.
func (l *reconnectingWatch) next(ctx context.Context) (client.Event, error) {
	l.c.client.DisableAutoStart()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case event, connected := <-l.events:
		if _, gone := event.(client.DaemonGone); gone {
			l.onOutage(daemonAway)
		}
		if connected {
			return event, nil
		}
	}
	return client.DaemonBack{}, l.reconnect(ctx)
}

// reconnect reconnects as soon as there is a bus again.
func (l *reconnectingWatch) reconnect(ctx context.Context) error {
	for pause := shortestPause; ; pause = min(2*pause, longestPause) {
		l.onOutage(busAway)
		err := l.connect(ctx)
		if err == nil {
			l.c.client.DisableAutoStart()
		}
		if err == nil || !client.IsUnreachable(err) {
			return err
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// query calls question until it succeeds or fails for good. It returns false if corrald or the bus
// is not available: an event then reports when it is.
func (l *reconnectingWatch) query(ctx context.Context, question func() error) (known bool, err error) {
	for pause := shortestPause; ; pause = min(2*pause, longestPause) {
		running, err := l.c.client.Running(ctx)
		if err == nil && !running {
			l.onOutage(daemonAway)
			return false, nil
		}
		if err == nil {
			err = question()
		}
		switch {
		case ctx.Err() != nil:
			return false, ctx.Err()
		case client.IsDisconnected(err):
			return false, nil
		case !client.IsUnavailable(err):
			return true, err
		}
		if err := sleep(ctx, pause); err != nil {
			return false, err
		}
	}
}

// session reads a session. It returns false for known if corrald is not available.
func (l *reconnectingWatch) session(ctx context.Context, id string) (s client.Session, known bool, err error) {
	known, err = l.query(ctx, func() (err error) {
		s, err = l.c.client.Session(ctx, id)
		return err
	})
	return s, known, err
}

// hasEnded returns whether the session has ended for good. A corrald that shuts down marks all
// sessions as suspended while their agents keep running. Before a shutdown of the machine it
// suspends them, and resumes them if the shutdown is cancelled.
func (l *reconnectingWatch) hasEnded(ctx context.Context, s client.Session) (bool, error) {
	if s.State != "suspended" {
		return wording.IsEnded(s.State), nil
	}
	if s.AgentAlive {
		return false, nil
	}
	var manager client.Manager
	known, err := l.query(ctx, func() (err error) {
		manager, err = l.c.client.Manager(ctx)
		return err
	})
	return known && err == nil && !manager.ShuttingDown, err
}

// isNoSuchSession returns whether err means that the session does not exist.
func isNoSuchSession(err error) bool {
	name := dbusapi.ShortErrorName(err)
	return name == dbusapi.NoSuchSession || name == dbusapi.UnknownObject
}

func sleep(ctx context.Context, pause time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(pause):
		return nil
	}
}
