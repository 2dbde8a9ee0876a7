package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/config"
)

// Host is a machine that a Client of ConnectHosts connects to.
type Host struct {
	// Name is the first part of the ids of the host's sessions, as in NAME:ID. The ids of a host
	// without a name have no such part.
	Name string
	// Dial connects to the host's bus. Nobody can be asked for a password. The connection lasts until
	// Close is called or ctx is done.
	Dial func(ctx context.Context) (*Client, error)
	// Connected is a connection that exists already, nil if there is none.
	Connected *Client
}

// ConnectHosts returns a Client for the sessions of several hosts, to which it connects at the same
// time, in the background. Each host remains the authority on its sessions: nothing is cached. A
// call about a session is made on the session's host, and a call that is about no session requires
// that there is only one host. Calls that read all sessions return those of the hosts that answer,
// and HostErrors for the others. The connections last until Close is called or ctx is done.
func ConnectHosts(ctx context.Context, hosts ...Host) *Client {
	ctx, cancel := context.WithCancel(ctx)
	c := &Client{hosts: &hostList{ctx: ctx, cancel: cancel, several: len(hosts) > 1}}
	for _, h := range hosts {
		one := &host{Host: h}
		c.hosts.all = append(c.hosts.all, one)
		if h.Connected != nil {
			one.last.Store(&attempt{client: h.Connected, ended: closedChannel()})
		} else {
			one.dial(ctx, nil)
		}
	}
	return c
}

// hostTimeout is how long a host may be silent before others are not kept waiting for it.
const hostTimeout = 2 * time.Second

// HostError is why a host could not be asked.
type HostError struct {
	Host string // its name
	Err  error
}

func (e HostError) Error() string {
	if e.Host == "" {
		return e.Err.Error()
	}
	return e.Host + ": " + e.Err.Error()
}

// Unwrap returns the error.
func (e HostError) Unwrap() error { return e.Err }

// HostErrors are the errors of the hosts that could not be asked; what was returned with them is
// from the other hosts.
type HostErrors []HostError

func (e HostErrors) Error() string {
	texts := make([]string, len(e))
	for i, one := range e {
		texts[i] = one.Error()
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns the errors of the hosts.
func (e HostErrors) Unwrap() []error {
	all := make([]error, len(e))
	for i, one := range e {
		all[i] = one
	}
	return all
}

// hostList are the hosts of a Client.
type hostList struct {
	ctx    context.Context // of the connections
	cancel context.CancelFunc
	all    []*host

	several bool // there are others, which are not kept waiting for a silent host
}

type host struct {
	Host
	last        atomic.Pointer[attempt]
	noAutoStart atomic.Bool
}

// attempt is an attempt to connect to a host. The client and the error are set when it has ended.
type attempt struct {
	ended  chan struct{} // closed then
	client *Client
	err    error
}

func closedChannel() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// dial begins an attempt to connect, unless another one than before is already made.
func (h *host) dial(ctx context.Context, before *attempt) {
	now := &attempt{ended: make(chan struct{})}
	if !h.last.CompareAndSwap(before, now) {
		return
	}
	go func() {
		defer close(now.ended)
		now.client, now.err = h.Dial(ctx)
	}()
}

// connected returns the connection to the host. It waits for an attempt that is being made.
func (h *host) connected(ctx context.Context) (*Client, error) {
	a := h.last.Load()
	select {
	case <-a.ended:
		return a.client, a.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// SplitID splits an id of a Client of ConnectHosts into the name of the host and the id on that
// host. An id of a host without a name has no colon.
func SplitID(id string) (host, rest string) {
	i := strings.LastIndexByte(id, ':')
	if i < 0 {
		return "", id
	}
	return id[:i], id[i+1:]
}

// idOn returns the id of a host's session among those of several hosts.
func (h *host) idOn(id string) string {
	if h.Name == "" || id == "" {
		return id
	}
	return h.Name + ":" + id
}

// errSeveralHosts is returned for a call that is not about a session of one host.
var errSeveralHosts = errors.New("this needs one host")

// route returns the connection for a call about a session, and the id of the session there.
func (c *Client) route(ctx context.Context, id string) (*Client, string, error) {
	if c.hosts == nil {
		return c, id, nil
	}
	name, rest := SplitID(id)
	for _, h := range c.hosts.all {
		if h.Name == name {
			bus, err := c.connectedTo(ctx, h)
			return bus, rest, err
		}
	}
	return nil, "", fmt.Errorf("unknown host %q", name)
}

// only returns the connection for a call that is not about a session.
func (c *Client) only(ctx context.Context) (*Client, error) {
	switch {
	case c.hosts == nil:
		return c, nil
	case len(c.hosts.all) != 1:
		return nil, errSeveralHosts
	}
	return c.connectedTo(ctx, c.hosts.all[0])
}

// connectedTo returns the connection to a host, on which DisableAutoStart applies.
func (c *Client) connectedTo(ctx context.Context, h *host) (*Client, error) {
	bus, err := h.connected(ctx)
	if err != nil {
		return nil, err
	}
	if h.noAutoStart.Load() {
		bus.DisableAutoStart()
	}
	return bus, nil
}

// HostNames returns the names of the hosts, and one empty name for a Client of Connect.
func (c *Client) HostNames() []string {
	if c.hosts == nil {
		return []string{""}
	}
	names := make([]string, len(c.hosts.all))
	for i, h := range c.hosts.all {
		names[i] = h.Name
	}
	return names
}

// Of returns a Client for the sessions of one of the hosts, with the same ids and connection.
func (c *Client) Of(name string) *Client {
	if c.hosts == nil {
		return c
	}
	one := &Client{Environment: c.Environment, Now: c.Now, hosts: &hostList{
		ctx: c.hosts.ctx, cancel: func() {}, several: c.hosts.several,
	}}
	for _, h := range c.hosts.all {
		if h.Name == name {
			one.hosts.all = append(one.hosts.all, h)
		}
	}
	return one
}

// OfSession returns a Client for the sessions of the host of a session.
func (c *Client) OfSession(id string) *Client {
	name, _ := SplitID(id)
	return c.Of(name)
}

// close closes the connections.
func (l *hostList) close() error {
	l.cancel()
	var errs []error
	for _, h := range l.all {
		a := h.last.Load()
		<-a.ended // soon, because ctx is done
		if a.client != nil {
			errs = append(errs, a.client.Close())
		}
	}
	return errors.Join(errs...)
}

// gather reads from all hosts at the same time. If there are several hosts, one that is silent for
// hostTimeout is given up.
func gather[T any](
	ctx context.Context, c *Client, read func(context.Context, *Client, *host) ([]T, error),
) ([]T, error) {
	type reply struct {
		items []T
		err   error
	}
	replies := make([]chan reply, len(c.hosts.all))
	for i, h := range c.hosts.all {
		replies[i] = make(chan reply, 1)
		go func() {
			ctx, cancel := context.WithCancelCause(ctx)
			defer cancel(nil)
			if c.hosts.several {
				defer h.cancelIfSilent(cancel)()
			}
			bus, err := c.connectedTo(ctx, h)
			var items []T
			if err == nil {
				items, err = read(ctx, bus, h)
			}
			if err != nil && ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			replies[i] <- reply{items, err}
		}()
	}
	var items []T
	var failed HostErrors
	for i, h := range c.hosts.all {
		r := <-replies[i]
		items = append(items, r.items...)
		if r.err != nil {
			failed = append(failed, HostError{h.Name, r.err})
		}
	}
	if len(failed) == 0 {
		return items, nil
	}
	return items, failed
}

// cancelIfSilent calls cancel once the host has sent nothing for hostTimeout. The returned function
// ends that.
func (h *host) cancelIfSilent(cancel context.CancelCauseFunc) (stop func()) {
	done := make(chan struct{})
	go func() {
		last := time.Now()
		for {
			select {
			case <-done:
				return
			case <-time.After(time.Until(last.Add(hostTimeout))):
			}
			if a := h.last.Load(); isDone(a.ended) && a.client != nil && a.client.lastRead != nil {
				if at := time.Unix(0, a.client.lastRead.Load()); at.After(last) {
					last = at
					continue
				}
			}
			cancel(&ConnectError{fmt.Errorf("no answer within %s", hostTimeout)})
			return
		}
	}()
	return func() { close(done) }
}

func isDone(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// withHost sets the ids of what a host has returned to those among several hosts. It drops what has
// no valid id: such a session could not be named, or not safely.
func withHost[T any](items []T, h *host, ids func(*T) []*string) []T {
	items = slices.DeleteFunc(items, func(item T) bool { return !config.ValidName(*ids(&item)[0]) })
	for i := range items {
		for _, id := range ids(&items[i]) {
			*id = h.idOn(*id)
		}
	}
	return items
}

func rowIDs(r *dbusapi.SessionRow) []*string     { return []*string{&r.ID} }
func rowExIDs(r *dbusapi.SessionRowEx) []*string { return []*string{&r.ID} }
func strayIDs(s *dbusapi.Stray) []*string        { return []*string{&s.Session} }
func sessionIDs(s *Session) []*string            { return []*string{&s.Id, &s.Parent, &s.ForkedFrom} }

// list is gather for a list that has an id in each row.
func list[T any](
	ctx context.Context, c *Client, ids func(*T) []*string, read func(*Client, context.Context) ([]T, error),
) ([]T, error) {
	return gather(ctx, c, func(ctx context.Context, bus *Client, h *host) ([]T, error) {
		rows, err := read(bus, ctx)
		return withHost(rows, h, ids), err
	})
}

// managerOfAll returns the properties of the daemons of all hosts as those of one: their problems,
// and whether lingering is enabled for all of them.
func (c *Client) managerOfAll(ctx context.Context) (Manager, error) {
	all, err := gather(ctx, c, func(ctx context.Context, bus *Client, h *host) ([]Manager, error) {
		m, err := bus.Manager(ctx)
		m.Problems = slices.Clone(m.Problems)
		for i, p := range m.Problems {
			m.Problems[i].Session = h.idOn(p.Session)
			if p.Session == "" && h.Name != "" {
				m.Problems[i].Text = h.Name + ": " + p.Text
			}
		}
		return []Manager{m}, err
	})
	if len(all) == 0 {
		return Manager{}, err
	}
	one := all[0]
	for _, m := range all[1:] {
		one.Problems = append(one.Problems, m.Problems...)
		one.Lingering = one.Lingering && m.Lingering
		if one.Version != m.Version {
			one.Version = ""
		}
	}
	return one, err
}

// qualify sets the ids in properties of a session to those among several hosts. It removes the id
// of the session itself, which is known: a host must not replace it.
func (h *host) qualify(properties Properties) {
	delete(properties, "Id")
	for _, name := range []string{"Parent", "ForkedFrom"} {
		if id, ok := properties[name].Value().(string); ok {
			properties[name] = dbus.MakeVariant(h.idOn(id))
		}
	}
}
