package main

import (
	"context"
	"time"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/dbusapi/client"
)

// Why nothing is to be known of a session.
const (
	daemonAway = "corrald is not running"
	busAway    = "not connected to the bus"
)

// How long is waited before something is tried again.
const (
	shortestPause = 100 * time.Millisecond
	longestPause  = 5 * time.Second
)

// reconnectingWatch follows sessions for as long as somebody wants to know of them: it outlives the
// daemon, the bus, and a connection to another machine.
type reconnectingWatch struct {
	c        *ctl
	ids      []string
	events   <-chan client.Event // nil before listen or subscribe
	onOutage func(why string)    // is told, maybe several times, that nothing is to be known for now
}

// connect connects and subscribes to what the sessions do.
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

// subscribe is listen, over the connection that is there.
func (l *reconnectingWatch) subscribe(ctx context.Context) (err error) {
	l.events, err = l.c.client.Watch(ctx, l.ids...)
	return err
}

// prefix returns what is told next. After a DaemonBack everything is to be read anew. From the first
// call on no daemon is started: one that was stopped, or removed, is not to come back for that.
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

// reconnect listens anew once there is a bus again.
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

// run asks the daemon something until it answers; known is false where there is none, or no bus: an
// event tells when it is to be asked again.
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

// session reads one, where it can be known.
func (l *reconnectingWatch) session(ctx context.Context, id string) (s client.Session, known bool, err error) {
	known, err = l.query(ctx, func() (err error) {
		s, err = l.c.client.Session(ctx, id)
		return err
	})
	return s, known, err
}

// stopped tells whether the session has ended, and not only for now: a daemon that ends marks all as
// suspended, and their agents live on; before a shutdown it suspends them, and resumes them if that
// is called off.
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

// isNoSuchSession tells whether err says that there is no such session.
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
