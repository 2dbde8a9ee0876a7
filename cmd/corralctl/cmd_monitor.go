package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/dbusapi/client"
)

var monitorVerb = verb{name: "monitor", summary: "Print a line for each change of a session", options: func(f *pflag.FlagSet) action {
	format := f.String("format", "plain", "`FORMAT`: plain, json; for a bar: waybar, i3bar, polybar")
	return func(ctx context.Context, c *ctl, args []string) error {
		if len(args) > 0 {
			return usagef("monitor", "monitor takes no arguments: it shows every session")
		}
		if c.wantsJSON() && *format == "plain" {
			*format = "json"
		}
		teller := newTeller(c, *format)
		if teller == nil {
			return usagef("monitor", "invalid value %q for --format: expected one of %s", *format, strings.Join(monitorFormats, ", "))
		}
		return c.monitor(ctx, teller)
	}
}}

var monitorFormats = []string{"plain", "json", "waybar", "i3bar", "polybar"}

// teller writes what monitor has to tell, in one of the formats. Sessions that it is given it does
// not keep.
type teller interface {
	// began is called at the beginning, with the sessions that there are; nil where there is no
	// daemon.
	began(sessions map[string]client.Session) error
	// changed tells that a session is new (before is nil), changed, or was removed (after is nil); all
	// has the sessions as they are now.
	changed(before, after *client.Session, all map[string]client.Session) error
	// gone tells that there is no daemon; back, that there is one again, with the sessions that it
	// has: the differences follow as changes.
	gone() error
	back(all map[string]client.Session) error
}

func newTeller(c *ctl, format string) teller {
	switch format {
	case "plain":
		return &plainTeller{c}
	case "json":
		return &jsonTeller{c}
	case "waybar":
		return &barTeller{c: c, line: waybarLine}
	case "i3bar":
		return &barTeller{c: c, head: "{\"version\":1}\n[\n", next: ",", line: i3barLine}
	case "polybar":
		return &barTeller{c: c, line: polybarLine}
	}
	return nil
}

// monitor is what is known of the sessions, and whom to tell.
type monitor struct {
	c      *ctl
	teller teller
	known  map[string]client.Session
	begun  bool
	absent bool // it was told that there is no daemon
}

// monitor tells until nobody reads it any more. A daemon, a bus or a connection to another machine
// that is lost is waited for.
func (c *ctl) monitor(ctx context.Context, t teller) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	signal.Ignore(unix.SIGPIPE) // it ends as it should, and not as if something had gone wrong
	go func() {
		awaitHangup(os.Stdout)
		cancel()
	}()
	m := &monitor{c: c, teller: t, known: map[string]client.Session{}}
	const shortest, longest = 100 * time.Millisecond, 5 * time.Second
	for delay := shortest; ; delay = min(2*delay, longest) {
		err := m.listen(ctx)
		if ctx.Err() != nil || errors.Is(err, unix.EPIPE) {
			c.out.Reset(io.Discard)
			return nil
		}
		var connect *client.ConnectError
		var f *failure
		if errors.As(err, &f) || !m.begun && errors.As(err, &connect) {
			return c.cannot("monitor", "", err) // it will not be better for waiting
		}
		if err != nil && !client.IsUnavailable(err) {
			return c.cannot("monitor", "", err)
		}
		if err == nil { // it was connected
			delay = shortest
		}
		if err := m.lost(); err != nil {
			c.out.Reset(io.Discard)
			return nil // nobody reads any more
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(delay):
		}
	}
}

// listen tells of changes for as long as the connection lives; nil says that it did live.
func (m *monitor) listen(ctx context.Context) error {
	if m.c.client != nil {
		_ = m.c.client.Close()
		m.c.client = nil
	}
	bus, err := m.c.connect(ctx)
	if err != nil {
		return err
	}
	events, err := bus.Watch(ctx)
	if err != nil {
		return err
	}
	if m.begun { // it starts a daemon once, and none that was stopped since
		bus.DisableAutoStart()
	}
	if err := m.sync(ctx); err != nil {
		return err
	}
	bus.DisableAutoStart()
	for event := range events {
		if err := m.apply(ctx, event); err != nil {
			return err
		}
		if err := m.c.out.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// sync reads every session and tells what is different from what was known.
func (m *monitor) sync(ctx context.Context) error {
	sessions, err := m.c.client.Sessions(ctx)
	if client.IsUnavailable(err) && ctx.Err() == nil {
		return m.lost()
	}
	if err != nil {
		return err
	}
	now := make(map[string]client.Session, len(sessions))
	for _, s := range sessions {
		now[s.Id] = s
	}
	if !m.begun {
		m.begun, m.known = true, now
		err = m.teller.began(now)
		return errors.Join(err, m.c.out.Flush())
	}
	before := m.known
	m.known = now // tellers show nothing in between
	if m.absent {
		m.absent = false
		if err := m.teller.back(now); err != nil {
			return err
		}
	}
	for _, s := range sortedSessions(before) {
		if _, there := now[s.Id]; !there {
			if err := m.teller.changed(&s, nil, now); err != nil {
				return err
			}
		}
	}
	for _, s := range sessions {
		was, known := before[s.Id]
		if err := m.tell(was, known, s); err != nil {
			return err
		}
	}
	return m.c.out.Flush()
}

// lost tells that there is no daemon, once.
func (m *monitor) lost() error {
	if m.absent {
		return nil
	}
	var err error
	if !m.begun {
		m.begun = true
		err = m.teller.began(nil)
	}
	m.absent = true
	return errors.Join(err, m.teller.gone(), m.c.out.Flush())
}

func (m *monitor) apply(ctx context.Context, event client.Event) error {
	switch e := event.(type) {
	case client.DaemonGone:
		return m.lost()
	case client.DaemonBack:
		return m.sync(ctx)
	case client.SessionNew:
		return m.fetch(ctx, e.ID)
	case client.SessionRemoved:
		return m.removed(e.ID)
	case client.SessionChanged:
		s, known := m.known[e.ID]
		if !known {
			return m.fetch(ctx, e.ID)
		}
		if older(e.Properties, s) {
			return nil
		}
		if err := e.Properties.Decode(&s); err != nil {
			return err
		}
		return m.set(s)
	}
	return nil // what else is told is among the properties
}

// older tells whether properties were announced before the session was read. The time of day does
// not tell: it is set, and what comes back is as it was before.
func older(properties client.Properties, s client.Session) bool {
	at, ok := properties["StateChangeTimestampMonotonic"].Value().(uint64)
	return ok && at < s.StateChangeTimestampMonotonic
}

// fetch reads a session of which nothing is known yet.
func (m *monitor) fetch(ctx context.Context, id string) error {
	if _, known := m.known[id]; known {
		return nil
	}
	s, err := m.c.client.Session(ctx, id)
	if err != nil {
		return nil //nolint:nilerr // it was removed again, or the daemon has gone: an event of its own tells
	}
	return m.set(s)
}

func (m *monitor) set(s client.Session) error {
	before, known := m.known[s.Id]
	m.known[s.Id] = s
	return m.tell(before, known, s)
}

// tell tells what is different in a session that is known, or that there is a new one.
func (m *monitor) tell(before client.Session, known bool, s client.Session) error {
	before, s = announced(before), announced(s)
	switch {
	case !known:
		return m.teller.changed(nil, &s, m.known)
	case len(differences(before, s)) == 0:
		return nil
	}
	return m.teller.changed(&before, &s, m.known)
}

func (m *monitor) removed(id string) error {
	before, known := m.known[id]
	if !known {
		return nil
	}
	delete(m.known, id)
	return m.teller.changed(&before, nil, m.known)
}

// awaitHangup returns once nobody reads what is written to f any more.
func awaitHangup(f *os.File) {
	for {
		fds := []unix.PollFd{{Fd: int32(f.Fd())}}
		if _, err := unix.Poll(fds, -1); err != nil && !errors.Is(err, unix.EINTR) || fds[0].Revents != 0 {
			return
		}
	}
}

// sortedSessions are the sessions in the order of their ids.
func sortedSessions(all map[string]client.Session) []client.Session {
	sessions := make([]client.Session, 0, len(all))
	for _, s := range all {
		sessions = append(sessions, s)
	}
	slices.SortFunc(sessions, func(a, b client.Session) int { return strings.Compare(a.Id, b.Id) })
	return sessions
}
