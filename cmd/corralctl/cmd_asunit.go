package main

import (
	"context"
	"fmt"
	"os/signal"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi/client"
	"github.com/corrald/corral/dbusapi/word"
	"github.com/corrald/corral/internal/bus"
)

// asUnitVerb is the verb that corral@ID.service runs, corral@.service(5). It has no summary, so
// help does not list it: people do not call it.
var asUnitVerb = verb{
	name: "as-unit", args: "ID",
	options: plainVerb(func(ctx context.Context, c *ctl, args []string) error {
		if len(args) != 1 {
			return usagef("as-unit", "as-unit: expected one ID")
		}
		u := &asUnit{c: c, id: args[0]}
		u.watch = &reconnectingWatch{c: c, ids: args,
			onOutage: func(why string) { u.setStatus("state unknown (" + why + ")") }}
		stopped, release := signal.NotifyContext(ctx, unix.SIGTERM, unix.SIGINT)
		defer release()
		err := u.run(stopped)
		if stopped.Err() != nil {
			return u.suspend(ctx)
		}
		return err
	}),
}

// asUnit follows one session for as long as its unit is active. The agent is not its child: it runs
// in the session's scope as always, and keeps running if this process or the daemon is killed.
type asUnit struct {
	c       *ctl
	watch   *reconnectingWatch
	id      string
	session client.Session // as last read or announced
	ended   bool           // the session has ended, and the daemon does not intend to resume it
	ready   bool           // READY=1 was sent to systemd
	status  string         // the last STATUS= sent to systemd
}

// run starts the session, or joins a live one, and returns once it has ended: nil if systemd is to
// find the unit inactive, otherwise a failure with the agent's own exit code. It survives restarts
// of the daemon and of the bus.
func (u *asUnit) run(ctx context.Context) error {
	err := u.watch.connect(ctx)
	if err == nil {
		err = u.start(ctx)
	}
	if err != nil {
		return u.c.cannot("start", u.id, err)
	}
	for !u.ended {
		event, err := u.watch.next(ctx)
		if err == nil {
			err = u.apply(ctx, event)
		}
		if err != nil {
			return u.c.cannot("follow", u.id, err)
		}
	}
	return u.result()
}

// start makes the session run: it resumes a suspended one, joins a live one and starts any other
// afresh.
func (u *asUnit) start(ctx context.Context) error {
	for {
		u.c.client.Environment = nil // a unit has only the manager's environment
		s, err := u.c.client.Session(ctx, u.id)
		if err != nil {
			return err
		}
		switch {
		case s.State == word.Stopping: // it cannot be started before it has stopped
			if _, err := u.watch.next(ctx); err != nil {
				return err
			}
			continue
		// An orphaned session that never ran has no agent to join.
		case !wording.IsEnded(s.State) && (s.State != word.Orphaned || s.NRuns > 0):
			return u.update(ctx, s)
		case s.State == word.Suspended:
			err = u.c.client.ResumeSession(ctx, u.id)
		default:
			err = u.c.client.StartSession(ctx, u.id)
		}
		if err == nil {
			return u.refresh(ctx)
		}
		now, readErr := u.c.client.Session(ctx, u.id)
		if !isInvalidState(err) || readErr != nil || wording.IsEnded(now.State) {
			return err
		} // else another client was faster
	}
}

// apply handles an event about the session.
func (u *asUnit) apply(ctx context.Context, event client.Event) error {
	switch e := event.(type) {
	case client.SessionChanged:
		s := u.session
		if applied, err := applyChange(&s, e); err != nil || !applied {
			return err
		}
		return u.update(ctx, s)
	case client.SessionRemoved:
		u.ended = u.ended || e.ID == u.id
	case client.DaemonBack:
		return u.refresh(ctx)
	}
	return nil
}

// refresh reads the session from the daemon, if there is one.
func (u *asUnit) refresh(ctx context.Context) error {
	s, known, err := u.watch.session(ctx, u.id)
	if isNoSuchSession(err) {
		u.ended = true
		return nil
	}
	if err != nil || !known {
		return err
	}
	return u.update(ctx, s)
}

// update stores the session as it is now, and reports its state to systemd.
func (u *asUnit) update(ctx context.Context, s client.Session) error {
	var err error
	if u.ended, err = u.watch.hasEnded(ctx, s); err != nil {
		return err
	}
	u.session = s
	if !u.ended && s.State != word.Starting {
		u.setReady()
	}
	status := s.State
	if activity, _ := wording.Activity(s); activity != "" {
		status += ", " + activity
	}
	u.setStatus(status)
	return nil
}

// result reports to systemd how the session has ended. It returns an error if the session failed.
func (u *asUnit) result() error {
	if u.session.State == word.Failed {
		u.setStatus(u.session.Reason)
		return &failure{code: endCode(u.session), message: fmt.Sprintf("%q has failed: %s", u.id, u.session.Reason)}
	}
	// The session may have ended as soon as it started. Without READY=1 the start of the unit would
	// fail.
	u.setReady()
	return nil
}

// suspend suspends the session: this is what stopping the unit means.
func (u *asUnit) suspend(ctx context.Context) error {
	_, _ = daemon.SdNotify(false, daemon.SdNotifyStopping)
	if isManagerStopping(ctx) {
		// Systemd stops corrald next, which suspends all sessions at once and records why.
		return nil
	}
	err := u.watch.connect(ctx)
	if err == nil {
		err = u.c.client.SuspendSession(ctx, u.id)
	}
	if err == nil || isNoSuchSession(err) {
		return nil
	}
	if isInvalidState(err) && u.c.queued(ctx, u.id) != nil {
		return u.c.client.StopSession(ctx, u.id, 0)
	}
	if isInvalidState(err) { // the session is ending or has ended, by itself or on request
		if u.session, err = u.c.client.Session(ctx, u.id); err == nil {
			return u.result()
		}
	}
	return u.c.cannot("suspend", u.id, err)
}

// isManagerStopping reports whether the user manager is stopping everything: at logout or shutdown.
func isManagerStopping(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	address, err := client.BusAddress()
	if err != nil {
		return false
	}
	conn, err := bus.Dial(ctx, address)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	state, err := bus.SystemdProperty[string](ctx, conn, "SystemState")
	return err == nil && state == bus.SystemStopping
}

func (u *asUnit) setReady() {
	if !u.ready {
		u.ready = true
		_, _ = daemon.SdNotify(false, daemon.SdNotifyReady)
	}
}

// setStatus sends systemd the line that systemctl status shows.
func (u *asUnit) setStatus(status string) {
	if status != u.status {
		u.status = status
		_, _ = daemon.SdNotify(false, "STATUS="+wording.Printable(status))
	}
}
