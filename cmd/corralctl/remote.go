package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/dbusapi/client"
	"github.com/corrald/corral/dbusapi/word"
	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/deadline"
	"github.com/corrald/corral/internal/plaintext"
	"github.com/corrald/corral/notify"
)

// followOptions are the options of ssh for a connection that stays open without a person: a dead
// one is noticed within a minute, and it does not depend on a connection that another ssh shares.
var followOptions = []string{
	"-oServerAliveInterval=20", "-oServerAliveCountMax=2", "-oControlMaster=no", "-oControlPath=none",
}

const (
	// connectLimit is how long connecting may take until corrald's bus answers.
	connectLimit = time.Minute
	// The delay before the next connection doubles from minReconnectDelay to maxReconnectDelay. It
	// begins again after a connection of stableTime, and when this machine has woken up.
	minReconnectDelay = time.Second
	maxReconnectDelay = time.Minute
	stableTime        = time.Minute
	// readInterval is the minimum time between two reads of sessions: what changes meanwhile is read
	// together.
	readInterval = 100 * time.Millisecond
	// parallelReads is how many sessions are read at a time.
	parallelReads = 8
)

// Limits for what another machine sends.
const (
	maxRemoteSessions = 10_000
	maxRemoteText     = 512 // bytes of a text: a notice shows less
)

var (
	errAsleep = errors.New("this machine was asleep")
	errLost   = errors.New("the connection was lost")
)

// run follows the sessions of the other machine until ctx is done.
func (r *remoteNotifier) run(ctx context.Context) {
	delay := minReconnectDelay
	for {
		began := time.Now()
		err := r.connectAndFollow(ctx)
		r.notifier.Pause()
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) >= stableTime {
			delay = minReconnectDelay
		}
		if !errors.Is(err, errAsleep) {
			r.setLink(linkDown, err)
		}
		if errors.Is(err, errAsleep) || r.sleep(ctx, delay) {
			delay = minReconnectDelay
		} else {
			delay = min(2*delay, maxReconnectDelay)
		}
	}
}

// sleep waits for that time. It returns true at once when this machine has woken up.
func (r *remoteNotifier) sleep(ctx context.Context, pause time.Duration) (awake bool) {
	limit, cancel := deadline.Context(ctx, pause)
	defer cancel()
	select {
	case <-r.awake:
		return true
	case <-limit.Done():
		return false
	}
}

// connectAndFollow follows the sessions for as long as one connection lasts.
func (r *remoteNotifier) connectAndFollow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	limit := deadline.AfterFunc(connectLimit, cancel)
	host, err := r.to.Dial(ctx, false, followOptions...)
	if err == nil {
		defer func() { _ = host.Close() }()
	}
	var events <-chan client.Event
	if err == nil {
		events, err = host.Watch(ctx)
	}
	if err == nil {
		host.DisableAutoStart() // a corrald that was stopped is not started because somebody follows it
	}
	if !limit.Stop() {
		err = fmt.Errorf("no answer within %v", connectLimit)
	}
	if err == nil {
		r.client.Store(host)
		f := &hostFollower{remoteNotifier: r, host: host, results: make(chan readResult, 1), changed: map[string]bool{}}
		err = f.run(ctx, events)
		r.client.Store(nil)
	}
	var connect *client.ConnectError
	if errors.As(err, &connect) {
		err = connect.Err // as ssh explains it
	}
	return err
}

// hostFollower follows the sessions over one connection. It reads them again whenever one of them,
// or corrald, has changed: so what it passes to the notifier is never older than what it passed
// before, and what the other machine sends uses a limited amount of memory.
type hostFollower struct {
	*remoteNotifier
	host    *client.Client
	daemon  int             // number of the corrald that runs there; results of earlier ones are dropped
	readAll bool            // everything has to be read
	changed map[string]bool // ids of the sessions that have to be read
	reading bool
	resting bool // the time since the last read is shorter than readInterval
	results chan readResult
}

// readResult is what was read of sessions.
type readResult struct {
	daemon  int
	all     bool // all sessions that may need a person
	changes []notify.Change
	err     error

	noDaemon bool // they could not be read because no corrald runs
}

// run follows the sessions until the connection is lost or this machine has woken up. It never
// waits for the other machine, so that events do not accumulate.
func (f *hostFollower) run(ctx context.Context, events <-chan client.Event) error {
	f.readAll = true
	rested := make(chan struct{}, 1)
	for {
		if (f.readAll || len(f.changed) > 0) && !f.reading && !f.resting {
			f.read(ctx)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-f.awake:
			return errAsleep
		case event, connected := <-events:
			if !connected {
				return errLost
			}
			f.handle(event)
		case result := <-f.results:
			f.reading, f.resting = false, true
			deadline.AfterFunc(readInterval, func() { rested <- struct{}{} })
			if err := f.apply(result); err != nil {
				return err
			}
		case <-rested:
			f.resting = false
		}
	}
}

// handle records what has to be read after an event.
func (f *hostFollower) handle(event client.Event) {
	switch event := event.(type) {
	case client.DaemonGone:
		f.daemonGone()
	case client.DaemonBack:
		f.daemonGone()
		f.readAll = true
	case client.SessionRemoved:
		f.add(event.ID)
	case client.SessionChanged:
		isRelevant := slices.Contains(event.Invalidated, "AttentionMessage")
		for _, name := range []string{
			"Notification", "Attention", "AttentionTimestamp", "AttentionUntil", "AttentionAcknowledged", "ContinueTimestamp",
			"State", "Resumable",
		} {
			_, changed := event.Properties[name]
			isRelevant = isRelevant || changed
		}
		if isRelevant {
			f.add(event.ID)
		}
	}
}

// add records that a session has to be read. It ignores what cannot be the id of one.
func (f *hostFollower) add(id string) {
	if config.ValidName(id) && len(f.changed) < maxRemoteSessions {
		f.changed[id] = true
	}
}

// daemonGone keeps the notices as they are until a corrald runs there again.
func (f *hostFollower) daemonGone() {
	f.daemon++
	f.readAll = false
	clear(f.changed)
	f.notifier.Pause()
	f.setLink(linkNoDaemon, nil)
}

// read begins to read what has to be read.
func (f *hostFollower) read(ctx context.Context) {
	ids := make([]string, 0, len(f.changed))
	for id := range f.changed {
		ids = append(ids, id)
	}
	result := readResult{daemon: f.daemon, all: f.readAll}
	f.reading, f.readAll = true, false
	clear(f.changed)
	go func() {
		if result.all {
			ids, result.err = idsToRead(ctx, f.host)
		}
		if result.err == nil {
			result.changes, result.err = readSessions(ctx, f.host, ids)
		}
		var hangs *client.NoAnswerError
		if client.IsUnavailable(result.err) && !errors.As(result.err, &hangs) {
			running, err := f.host.Running(ctx)
			result.noDaemon = err == nil && !running
		}
		f.results <- result
	}()
}

// apply passes to the notifier what was read.
func (f *hostFollower) apply(result readResult) error {
	switch {
	case result.daemon != f.daemon:
		return nil
	case result.noDaemon:
		f.daemonGone() // an event reports when one runs again
		return nil
	case result.err != nil:
		return result.err
	}
	f.reportOld(result.changes)
	f.notifier.Update(result.changes)
	if result.all {
		f.notifier.Begin()
		f.setLink(linkUp, nil)
	}
	return nil
}

// reportOld logs once if the corrald of the other machine does not record who was notified.
func (f *hostFollower) reportOld(changes []notify.Change) {
	isOld := slices.ContainsFunc(changes, func(c notify.Change) bool {
		return c.Session != nil && c.Session.Notification == notify.Unpublished
	})
	if isOld && !f.reportedOld {
		f.reportedOld = true
		f.log.Warn("corrald of the other machine is older and does not record what was notified: " +
			"only what happens while it is connected is shown")
	}
}

// idsToRead returns the ids of the sessions that may need a person.
func idsToRead(ctx context.Context, host *client.Client) ([]string, error) {
	rows, err := host.ListSessionsEx(ctx)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, row := range rows {
		if (row.Attention != "" || row.State == word.Suspended) && config.ValidName(row.ID) && len(ids) < maxRemoteSessions {
			ids = append(ids, row.ID)
		}
	}
	return ids, nil
}

// readSessions reads these sessions. One that does not exist any more is returned as removed.
func readSessions(ctx context.Context, host *client.Client, ids []string) ([]notify.Change, error) {
	changes, errs := make([]notify.Change, len(ids)), make([]error, len(ids))
	slots := make(chan struct{}, parallelReads)
	var all sync.WaitGroup
	for i, id := range ids {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			changes[i].ID = id
			properties, err := host.SessionProperties(ctx, id)
			s := dbusapi.NewSession()
			s.Notification = notify.Unpublished
			if err == nil {
				err = properties.Decode(&s)
			}
			if err == nil {
				changes[i].Session = remoteSession(id, s)
			} else if !isNoSuchSession(err) {
				errs[i] = err
			}
		})
	}
	all.Wait()
	return changes, errors.Join(errs...)
}

// remoteSession returns a session of another machine as the notifier sees it. Its texts are
// limited, and have no characters that are unsafe.
func remoteSession(id string, s client.Session) *notify.Session {
	n := &notify.Session{
		ID: id, Agent: limitText(s.Agent), WorkingDirectory: limitText(s.WorkingDirectory),
		State: limitText(s.State), StateChanged: timeOf(s.StateChangeTimestamp),
		Result: limitText(s.Result), Reason: limitText(s.Reason), EndCause: limitText(s.EndCause),
		Run: notify.Run{
			ExecMainCode: s.ExecMainCode, ExecMainStatus: s.ExecMainStatus, AgentAlive: s.AgentAlive,
			Started: timeOf(s.ExecMainStartTimestamp), Exited: timeOf(s.ExecMainExitTimestamp),
		},
		Attached: s.Attached, Resumable: s.Resumable,
		Attention: limitText(s.Attention), AttentionMessage: limitText(s.AttentionMessage),
		AttentionSource: limitText(s.AttentionSource), AttentionSince: timeOf(s.AttentionTimestamp),
		AttentionUntil: timeOf(s.AttentionUntil), AttentionAcknowledged: s.AttentionAcknowledged,
		ContinueAt:   timeOf(s.ContinueTimestamp),
		Interrupted:  s.State == word.Suspended && s.EndCause == word.Shutdown,
		Notification: limitText(s.Notification),
	}
	if label := s.Labels[config.NotifyLabel]; label != "" {
		n.Labels = map[string]string{config.NotifyLabel: limitText(label)}
	}
	return n
}

// limitText returns the beginning of a text as one line without unsafe characters.
func limitText(text string) string { return plaintext.Line(text[:min(len(text), maxRemoteText)]) }

// timeOf converts a time of the bus, 0 for none.
func timeOf(usec uint64) time.Time {
	if usec == 0 {
		return time.Time{}
	}
	return time.UnixMicro(int64(min(usec, math.MaxInt64)))
}
