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
	"github.com/corrald/corral/internal/bus"
)

// asUnitVerb is what corral@ID.service runs, corral@.service(5). It has no summary: it is no word
// for people.
var asUnitVerb = verb{name: "as-unit", args: "ID", options: plainVerb(func(ctx context.Context, c *ctl, args []string) error {
	if len(args) != 1 {
		return usagef("as-unit", "as-unit: expected one ID")
	}
	u := &asUnit{c: c, id: args[0]}
	u.watch = &lastingWatch{c: c, ids: args, away: func(why string) { u.setStatus("state unknown (" + why + ")") }}
	wanted, release := signal.NotifyContext(ctx, unix.SIGTERM, unix.SIGINT)
	defer release()
	err := u.run(wanted)
	if wanted.Err() != nil {
		return u.suspend(ctx)
	}
	return err
})}

// asUnit is one session for as long as its unit is active. The agent is no child of it: it runs in
// the session's scope, as ever, and goes on if this process or the daemon is killed.
type asUnit struct {
	c       *ctl
	watch   *lastingWatch
	id      string
	session client.Session // as it was told last
	ended   bool           // it has ended, and is not about to go on
	ready   bool           // systemd was told that the unit is active
	status  string         // as systemd was told it last
}

// run starts the session, or joins one that lives, and returns once it has ended: nil where
// systemd is to find the unit inactive, else a failure with the agent's own exit code. It outlives
// the daemon and the bus.
func (u *asUnit) run(ctx context.Context) error {
	err := u.watch.listen(ctx)
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

// start has the session run: one that was suspended goes on, one that lives is joined, any other is
// started afresh.
func (u *asUnit) start(ctx context.Context) error {
	for {
		u.c.client.Environment = nil // a unit has none but the manager's
		s, err := u.c.client.Session(ctx, u.id)
		if err != nil {
			return err
		}
		switch {
		case s.State == "stopping": // until it has, nothing can be begun
			if _, err := u.watch.next(ctx); err != nil {
				return err
			}
			continue
		case !wording.IsEnded(s.State) && (s.State != "orphaned" || s.NRuns > 0): // one that never ran has nothing to be joined
			return u.update(ctx, s)
		case s.State == "suspended":
			err = u.c.client.ResumeSession(ctx, u.id)
		default:
			err = u.c.client.StartSession(ctx, u.id)
		}
		if err == nil {
			return u.refresh(ctx)
		}
		now, again := u.c.client.Session(ctx, u.id)
		if !isInvalidState(err) || again != nil || wording.IsEnded(now.State) {
			return err
		} // else somebody else was faster
	}
}

// apply takes in what was told of the session.
func (u *asUnit) apply(ctx context.Context, event client.Event) error {
	switch e := event.(type) {
	case client.SessionChanged:
		if isOutdated(e.Properties, u.session) {
			return nil
		}
		s := u.session
		if err := e.Properties.Decode(&s); err != nil {
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

// refresh asks for the session, where it can be known.
func (u *asUnit) refresh(ctx context.Context) error {
	s, known, err := u.watch.session(ctx, u.id)
	if gone(err) {
		u.ended = true
		return nil
	}
	if err != nil || !known {
		return err
	}
	return u.update(ctx, s)
}

// update takes the session as it is now, and tells systemd.
func (u *asUnit) update(ctx context.Context, s client.Session) error {
	var err error
	if u.ended, err = u.watch.ended(ctx, s); err != nil {
		return err
	}
	u.session = s
	if !u.ended && s.State != "starting" {
		u.setReady()
	}
	status := s.State
	if activity, _ := wording.Activity(s); activity != "" {
		status += ", " + activity
	}
	u.setStatus(status)
	return nil
}

// result tells how the session has ended.
func (u *asUnit) result() error {
	if u.session.State == "failed" {
		u.setStatus(u.session.Reason)
		return &failure{code: endCode(u.session), message: fmt.Sprintf("%q has failed: %s", u.id, u.session.Reason)}
	}
	u.setReady() // of one that ended as soon as it had begun; without it the start would have failed
	return nil
}

// suspend is what stopping the unit means.
func (u *asUnit) suspend(ctx context.Context) error {
	_, _ = daemon.SdNotify(false, daemon.SdNotifyStopping)
	if isManagerStopping(ctx) {
		return nil // corrald, which is stopped next, suspends all sessions at the same time, and notes why
	}
	err := u.watch.listen(ctx)
	if err == nil {
		err = u.c.client.SuspendSession(ctx, u.id)
	}
	if err == nil || gone(err) {
		return nil
	}
	if isInvalidState(err) { // it ends, or has ended, by itself or by somebody else
		if u.session, err = u.c.client.Session(ctx, u.id); err == nil {
			return u.result()
		}
	}
	return u.c.cannot("suspend", u.id, err)
}

// isManagerStopping tells whether all that the user runs is being stopped: a logout, a reboot.
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
	var state string
	err = conn.Object("org.freedesktop.systemd1", "/org/freedesktop/systemd1").CallWithContext(ctx,
		"org.freedesktop.DBus.Properties.Get", 0, "org.freedesktop.systemd1.Manager", "SystemState").Store(&state)
	return err == nil && state == "stopping"
}

func (u *asUnit) setReady() {
	if !u.ready {
		u.ready = true
		_, _ = daemon.SdNotify(false, daemon.SdNotifyReady)
	}
}

// reportChange tells systemd the line that systemctl status shows.
func (u *asUnit) setStatus(status string) {
	if status != u.status {
		u.status = status
		_, _ = daemon.SdNotify(false, "STATUS="+wording.Printable(status))
	}
}
