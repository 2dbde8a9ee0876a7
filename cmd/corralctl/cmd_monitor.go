package main

import (
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/dbusapi/client"
)

var monitorVerb = verb{
	name: "monitor", summary: "Print a line for each change of a session", useless: ": it shows every session",
	options: func(f *pflag.FlagSet) action {
		format := f.String("format", "plain", "`FORMAT`: plain, json; for a bar: waybar, i3bar, polybar")
		return func(ctx context.Context, c *ctl, _ []string) error {
			if c.wantsJSON() && *format == "plain" {
				*format = "json"
			}
			output := newMonitorFormat(c, *format)
			if output == nil {
				return usagef("monitor", "invalid value %q for --format: expected one of %s",
					*format, strings.Join(monitorFormats, ", "))
			}
			return c.monitor(ctx, output)
		}
	},
}

var monitorFormats = []string{"plain", "json", "waybar", "i3bar", "polybar"}

// monitorFormat prints the events of monitor in one format. It does not keep the sessions that it
// gets.
type monitorFormat interface {
	// start is called first, with the sessions that exist; nil if there is no daemon.
	start(sessions map[string]client.Session) error
	// sessionChanged reports that a session is new (before is nil), has changed, or was removed (after
	// is nil). all has the sessions as they are now.
	sessionChanged(before, after *client.Session, all map[string]client.Session) error
	// daemonGone reports that there is no daemon, or that a host cannot be reached: why is a text.
	// all still has the sessions of that host. daemonBack reports that there is one again, with all
	// sessions; the differences follow as calls of sessionChanged.
	daemonGone(host, why string, all map[string]client.Session) error
	daemonBack(host string, all map[string]client.Session) error
}

func newMonitorFormat(c *ctl, format string) monitorFormat {
	switch format {
	case "plain":
		return &linePrinter{c}
	case "json":
		return &jsonPrinter{c}
	case "waybar":
		return &barPrinter{c: c, line: waybarLine, gone: map[string]string{}}
	case "i3bar":
		return &barPrinter{c: c, firstPrefix: "{\"version\":1}\n[\n", prefix: ",", line: i3barLine, gone: map[string]string{}}
	case "polybar":
		return &barPrinter{c: c, line: polybarLine, gone: map[string]string{}}
	}
	return nil
}

// monitor holds the known sessions, and where changes of them are printed.
type monitor struct {
	c       *ctl
	format  monitorFormat
	known   map[string]client.Session
	started bool
	gone    map[string]bool // by host: reportGone was called, and the daemon is not back yet
}

// monitor prints events until nobody reads them any more. If the daemon, the bus or the connection
// to another machine is lost, it waits until that is back.
func (c *ctl) monitor(ctx context.Context, format monitorFormat) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	signal.Ignore(unix.SIGPIPE) // it exits normally, and not by the signal, when the reader is gone
	go func() {
		awaitHangup(os.Stdout)
		cancel()
	}()
	m := &monitor{c: c, format: format, known: map[string]client.Session{}, gone: map[string]bool{}}
	err := m.run(ctx)
	if ctx.Err() != nil || errors.Is(err, unix.EPIPE) {
		c.out.Reset(io.Discard)
		return nil
	}
	return err
}

// run prints events until ctx is done or waiting does not help.
func (m *monitor) run(ctx context.Context) error {
	// If writing fails, the next call of Flush returns the error.
	watch := &reconnectingWatch{c: m.c, onOutage: func(why string) {
		if m.c.client == nil || len(m.c.client.HostNames()) == 1 {
			_ = m.reportGone("", why)
		}
	}}
	err := watch.connect(ctx)
	var connect *client.ConnectError
	if client.IsUnavailable(err) && !errors.As(err, &connect) {
		err = watch.reconnect(ctx)
	}
	if err != nil {
		return err
	}
	if err := m.sync(ctx, m.c.client.HostNames()); err != nil {
		return err
	}
	for {
		event, err := watch.next(ctx)
		if err == nil {
			err = m.apply(ctx, event)
		}
		if err == nil {
			err = m.c.out.Flush()
		}
		if err != nil {
			return err
		}
	}
}

// sync reads the sessions of these hosts, which are all of them or one, and reports the differences
// from what was known.
func (m *monitor) sync(ctx context.Context, hosts []string) error {
	bus := m.c.client
	if len(hosts) == 1 {
		bus = bus.Of(hosts[0])
	}
	sessions, err := bus.Sessions(ctx)
	var failed client.HostErrors
	switch {
	case err == nil || errors.As(err, &failed):
	case client.IsUnavailable(err):
		failed = client.HostErrors{{Host: "", Err: err}}
	default:
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	for _, one := range failed {
		if !client.IsUnavailable(one.Err) && len(m.c.client.HostNames()) == 1 {
			return one.Err
		}
		hosts = slices.DeleteFunc(slices.Clone(hosts), func(name string) bool { return name == one.Host })
	}
	err = m.compare(sessions, hosts)
	for _, one := range failed {
		err = errors.Join(err, m.reportGone(one.Host, m.c.outage(one)))
	}
	return errors.Join(err, m.c.out.Flush())
}

// compare reports the differences between what was known of the sessions of these hosts and what
// was read.
func (m *monitor) compare(sessions []client.Session, hosts []string) error {
	before, now := map[string]client.Session{}, maps.Clone(m.known)
	for id, s := range m.known {
		if host, _ := client.SplitID(id); slices.Contains(hosts, host) {
			before[id] = s
			delete(now, id)
		}
	}
	for _, s := range sessions {
		now[s.Id] = s
	}
	m.known = now // set first, so that each report shows all sessions as they are now
	if len(hosts) == 0 {
		return nil
	}
	if !m.started {
		m.started = true
		return m.format.start(now)
	}
	for _, host := range hosts {
		if m.gone[host] {
			delete(m.gone, host)
			if err := m.format.daemonBack(host, now); err != nil {
				return err
			}
		}
	}
	for _, s := range sortedSessions(before) {
		if _, there := now[s.Id]; !there {
			if err := m.format.sessionChanged(&s, nil, now); err != nil {
				return err
			}
		}
	}
	for _, s := range sessions {
		was, known := before[s.Id]
		if err := m.reportChange(was, known, s); err != nil {
			return err
		}
	}
	return nil
}

// reportGone reports once that there is no daemon on a host.
func (m *monitor) reportGone(host, why string) error {
	if m.gone[host] {
		return nil
	}
	var err error
	if !m.started {
		m.started = true
		err = m.format.start(nil)
	}
	m.gone[host] = true
	return errors.Join(err, m.format.daemonGone(host, why, m.known), m.c.out.Flush())
}

func (m *monitor) apply(ctx context.Context, event client.Event) error {
	switch e := event.(type) {
	case client.DaemonGone:
		return m.reportGone(e.Host, m.c.outage(client.HostError(e)))
	case client.DaemonBack:
		return m.sync(ctx, []string{e.Host})
	case client.SessionNew:
		return m.fetch(ctx, e.ID)
	case client.SessionRemoved:
		return m.removed(e.ID)
	case client.SessionChanged:
		s, known := m.known[e.ID]
		if !known {
			return m.fetch(ctx, e.ID)
		}
		if applied, err := applyChange(&s, e); err != nil || !applied {
			return err
		}
		return m.update(s)
	}
	return nil // other signals announce nothing that is not in the properties
}

// fetch reads a session that is not known yet.
func (m *monitor) fetch(ctx context.Context, id string) error {
	if _, known := m.known[id]; known {
		return nil
	}
	s, err := m.c.client.Session(ctx, id)
	if err != nil {
		return nil //nolint:nilerr // it was removed again, or the daemon is gone: another event reports that
	}
	return m.update(s)
}

func (m *monitor) update(s client.Session) error {
	before, known := m.known[s.Id]
	m.known[s.Id] = s
	return m.reportChange(before, known, s)
}

// reportChange reports what has changed in a known session, or that there is a new one.
func (m *monitor) reportChange(before client.Session, known bool, s client.Session) error {
	before, s = withoutUnannounced(before), withoutUnannounced(s)
	switch {
	case !known:
		return m.format.sessionChanged(nil, &s, m.known)
	case len(differences(before, s)) == 0:
		return nil
	}
	return m.format.sessionChanged(&before, &s, m.known)
}

func (m *monitor) removed(id string) error {
	before, known := m.known[id]
	if !known {
		return nil
	}
	delete(m.known, id)
	return m.format.sessionChanged(&before, nil, m.known)
}

// awaitHangup returns once nobody reads any more what is written to f.
func awaitHangup(f *os.File) {
	for {
		fds := []unix.PollFd{{Fd: int32(f.Fd())}}
		if _, err := unix.Poll(fds, -1); err != nil && !errors.Is(err, unix.EINTR) || fds[0].Revents != 0 {
			return
		}
	}
}

// sortedSessions returns the sessions sorted by id.
func sortedSessions(all map[string]client.Session) []client.Session {
	sessions := make([]client.Session, 0, len(all))
	for _, s := range all {
		sessions = append(sessions, s)
	}
	slices.SortFunc(sessions, func(a, b client.Session) int { return strings.Compare(a.Id, b.Id) })
	return sessions
}
