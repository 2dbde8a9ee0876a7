package main

import (
	"context"
	"time"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/dbusapi/client"
	"github.com/corrald/corral/dbusapi/word"
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

// reconnectingWatch follows sessions. It survives restarts of corrald and of the bus, and the loss
// of the connection to another machine.
type reconnectingWatch struct {
	c        *ctl
	ids      []string
	events   <-chan client.Event // nil before connect or subscribe
	onOutage func(why string)    // called, maybe several times, when sessions cannot be observed
}

// connect connects to the bus and subscribes to events of the sessions.
func (w *reconnectingWatch) connect(ctx context.Context) error {
	if w.c.client != nil {
		_ = w.c.client.Close()
		w.c.client = nil
	}
	if _, err := w.c.connect(ctx); err != nil {
		return err
	}
	return w.subscribe(ctx)
}

// subscribe subscribes over the existing connection.
func (w *reconnectingWatch) subscribe(ctx context.Context) (err error) {
	w.events, err = w.c.client.Watch(ctx, w.ids...)
	return err
}

// next returns the next event. After a DaemonBack the caller has to read everything again. From its
// first call on, this client does not start corrald: a corrald that was stopped or removed must not
// be started because a client watches.
func (w *reconnectingWatch) next(ctx context.Context) (client.Event, error) {
	w.c.client.DisableAutoStart()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case event, connected := <-w.events:
		if gone, is := event.(client.DaemonGone); is {
			w.onOutage(w.c.outage(client.HostError(gone)))
		}
		if connected {
			return event, nil
		}
	}
	return client.DaemonBack{}, w.reconnect(ctx)
}

// reconnect reconnects as soon as there is a bus again.
func (w *reconnectingWatch) reconnect(ctx context.Context) error {
	for pause := shortestPause; ; pause = min(2*pause, longestPause) {
		w.onOutage(busAway)
		err := w.connect(ctx)
		if err == nil {
			w.c.client.DisableAutoStart()
		}
		if err == nil || !client.IsUnreachable(err) {
			return err
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// query calls question, which is about a session, until it succeeds or fails for good. It returns
// false if corrald or the bus is not available: an event then reports when it is.
func (w *reconnectingWatch) query(ctx context.Context, id string, question func() error) (known bool, err error) {
	for pause := shortestPause; ; pause = min(2*pause, longestPause) {
		running, err := w.c.client.OfSession(id).Running(ctx)
		if err == nil && !running {
			w.onOutage(daemonAway)
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
func (w *reconnectingWatch) session(ctx context.Context, id string) (s client.Session, known bool, err error) {
	known, err = w.query(ctx, id, func() (err error) {
		s, err = w.c.client.Session(ctx, id)
		return err
	})
	return s, known, err
}

// hasEnded returns whether the session has ended for good. A corrald that shuts down marks all
// sessions as suspended while their agents keep running. Before a shutdown of the machine it
// suspends them, and resumes them if the shutdown is cancelled. A queued session is going to run.
func (w *reconnectingWatch) hasEnded(ctx context.Context, s client.Session) (bool, error) {
	if s.QueuedTimestamp != 0 {
		return false, nil
	}
	if s.State != word.Suspended {
		return wording.IsEnded(s.State), nil
	}
	if s.AgentAlive {
		return false, nil
	}
	var manager client.Manager
	known, err := w.query(ctx, s.Id, func() (err error) {
		manager, err = w.c.client.OfSession(s.Id).Manager(ctx)
		return err
	})
	return known && err == nil && !manager.ShuttingDown, err
}

// applyChange updates a session with the properties that an event announces. It returns false if
// they were announced before the session was read, and then changes nothing. It compares monotonic
// times: the clock that shows the time of day can be set back.
func applyChange(s *client.Session, e client.SessionChanged) (applied bool, err error) {
	at, ok := e.Properties["StateChangeTimestampMonotonic"].Value().(uint64)
	if ok && at < s.StateChangeTimestampMonotonic {
		return false, nil
	}
	return true, e.Properties.Decode(s)
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
