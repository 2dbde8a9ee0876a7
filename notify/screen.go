package notify

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/internal/bus"
)

// Names of the Desktop Notifications Specification and of the bus.
const (
	busName    = "org.freedesktop.DBus"
	serverName = "org.freedesktop.Notifications"
	serverPath = dbus.ObjectPath("/org/freedesktop/Notifications")
)

const (
	// A notice replaces another one after gap at the earliest: KDE's server refuses a repeated text
	// within a second.
	gap = time.Second
	// A notice that the server refuses is sent again, after retryAfter and then twice that, and so on,
	// maxTries times in all.
	retryAfter = 1500 * time.Millisecond
	maxTries   = 4
	// How many closed notices are remembered: an action may be reported after its notice is closed.
	maxPast = 64
	// How many signals about a notice are kept while its id is not known yet.
	maxEarly = 16
	// Notices of an earlier daemon stay for this long after the start: an agent's request is known
	// only once its shim has reported it again.
	holdTime = 10 * time.Second
)

// application is the name of Corral's icon and of its desktop file, by which a server finds its
// user's settings for Corral.
const application = "io.github.corrald.Corral"

// dismissed is the reason of a notice that a person has closed.
const dismissed = uint32(2)

// entry is a notice that the server has accepted.
type entry struct {
	Token    string   `json:"token"`
	ID       uint32   `json:"id"`       // the server's
	Live     bool     `json:"live"`     // it is on the screen
	Sessions []string `json:"sessions"` // that its actions apply to

	inherited bool // from an earlier daemon
}

// refusal is a notice that the server has refused.
type refusal struct {
	token string
	tries int
	after time.Time // when it may be sent again
}

// screen is what the server shows, as far as is known. There is one call to it at a time, without a
// time limit: a late answer is still valid, and a server that hangs delays only its own notices.
// Once it leaves the bus the call fails, and another server can be called.
type screen struct {
	conn     *dbus.Conn // nil until we are connected
	server   *bus.Owner // distinguishes its signals from those of others
	known    bool       // the owner is known
	owner    string     // unique name of the server on the bus, "" if there is none
	turn     int        // counts the servers: answers of earlier ones are dropped
	ready    bool       // its capabilities are known
	name     string     // of GetServerInformation
	can      []string   // its capabilities
	calling  bool
	sending  string            // key of the notice that is being sent to it
	entries  map[string]*entry // by key
	sent     map[string]time.Time
	refusals map[string]refusal
	past     []entry
	early    []*dbus.Signal
	restored bool              // entries are of an earlier daemon
	hold     time.Time         // until then inherited notices stay
	asked    map[string]string // by session: the token for which Watched is being called
	failure  *Notice           // about an action that failed
}

func newScreen(kept saved) screen {
	s := screen{entries: kept.Entries, owner: kept.Owner, restored: true, sent: map[string]time.Time{}, refusals: map[string]refusal{}, asked: map[string]string{}}
	if s.entries == nil {
		s.entries = map[string]*entry{}
	}
	maps.DeleteFunc(s.entries, func(_ string, e *entry) bool { return e == nil })
	for _, e := range s.entries {
		e.inherited = true
	}
	return s
}

// shown reports whether the server has accepted this notice.
func (s *screen) shown(key, token string) bool {
	e := s.entries[key]
	return e != nil && e.Token == token
}

// forget drops what was on the screen of a server that has left. The next one gets it again.
func (s *screen) forget() {
	maps.DeleteFunc(s.entries, func(_ string, e *entry) bool { return e.Live })
}

// owned handles a change of the server.
func (n *Notifier) owned(owner string) {
	s := &n.screen
	if s.known && s.owner == owner {
		return
	}
	same := s.owner == owner // as saved by an earlier daemon
	s.known, s.owner, s.ready, s.calling, s.sending, s.early, s.can = true, owner, false, false, "", nil, nil
	s.turn++
	clear(s.refusals)
	clear(s.sent)
	n.dirty = true
	if !same {
		s.past = nil
		s.forget()
	}
	if owner == "" {
		return
	}
	n.call("GetCapabilities", nil, func(body []any, err error) {
		if err != nil || dbus.Store(body, &s.can) != nil {
			s.can = []string{"body"}
		}
		n.call("GetServerInformation", nil, func(body []any, _ error) {
			s.name, _ = first[string](body)
			if s.restored && quirks[s.name].dropsClients {
				s.forget()
			}
			s.restored, s.ready = false, true
			n.desk.Regroup(s.shown)
		})
	})
}

func first[T any](body []any) (value T, ok bool) {
	if len(body) > 0 {
		value, ok = body[0].(T)
	}
	return value, ok
}

// call calls a method of the server, by its unique name, which cannot start one. Done is called by
// the goroutine, unless the server is another by then.
func (n *Notifier) call(method string, args []any, done func(body []any, err error)) {
	s := &n.screen
	s.calling = true
	turn, server := s.turn, s.conn.Object(s.owner, serverPath)
	go func() {
		answer := server.CallWithContext(n.ctx, serverName+"."+method, dbus.FlagNoAutoStart, args...)
		n.post(func() {
			if turn == n.screen.turn {
				n.screen.calling = false
				done(answer.Body, answer.Err)
			}
		})
	}()
}

// step makes the next call that brings the screen nearer to the wanted notices. It returns when to
// run again if nothing else happens, the zero time for never.
func (n *Notifier) step(now time.Time) (next time.Time) {
	s := &n.screen
	if !s.ready || s.calling {
		return next
	}
	notices := n.desk.Look(now, s.shown)
	if s.failure != nil && n.on() {
		notices = append(notices, *s.failure)
	}
	for _, notice := range notices {
		if e := s.entries[notice.Key]; e != nil {
			e.inherited = false
			n.narrow(e, notice)
		}
	}
	closing, next := n.closeOne(notices, now)
	if closing {
		return time.Time{}
	}
	for _, notice := range notices {
		at, wanted := s.due(notice)
		switch {
		case !wanted:
		case !at.After(now):
			n.send(notice)
			return time.Time{}
		case next.IsZero() || at.Before(next):
			next = at
		}
	}
	return next
}

// narrow limits the actions of a notice on the screen to the sessions that it still applies to; its
// text stays as it was sent.
func (n *Notifier) narrow(e *entry, notice Notice) {
	if e.Token == notice.Token && !slices.Equal(e.Sessions, notice.Sessions) {
		e.Sessions, n.dirty = notice.Sessions, true
	}
}

// paced records that a notice was sent just now: the next one with its key has to wait for gap.
// Records that are older are dropped, or their number would grow with each session.
func (s *screen) paced(key string, now time.Time) {
	maps.DeleteFunc(s.sent, func(_ string, last time.Time) bool { return now.Sub(last) >= gap })
	s.sent[key] = now
}

// due reports whether a notice is to be sent, and when.
func (s *screen) due(notice Notice) (at time.Time, wanted bool) {
	if s.shown(notice.Key, notice.Token) {
		return at, false
	}
	if last, ok := s.sent[notice.Key]; ok {
		at = last.Add(gap)
	}
	if t := s.refusals[notice.Key]; t.token == notice.Token {
		if t.tries >= maxTries {
			return at, false
		}
		at = t.after
	}
	return at, true
}

// closeOne closes one notice that is not wanted any more, and reports whether there was one, or
// when there may be one.
func (n *Notifier) closeOne(notices []Notice, now time.Time) (closing bool, next time.Time) {
	s := &n.screen
	for _, key := range slices.Sorted(maps.Keys(s.entries)) {
		if slices.ContainsFunc(notices, func(wanted Notice) bool { return wanted.Key == key }) {
			continue
		}
		e := s.entries[key]
		if e.inherited && now.Before(s.hold) {
			next = s.hold
			continue
		}
		delete(s.entries, key)
		n.dirty = true
		if e.Live {
			s.remember(*e)
			n.call("CloseNotification", []any{e.ID}, func([]any, error) {}) // an error means that it is closed already
			return true, next
		}
	}
	return false, next
}

// remember keeps a closed notice, whose actions may still be reported.
func (s *screen) remember(e entry) {
	if s.past = append(s.past, e); len(s.past) > maxPast {
		s.past = slices.Delete(s.past, 0, len(s.past)-maxPast)
	}
}

// send has the server show a notice, which replaces the one with the same key.
func (n *Notifier) send(notice Notice) {
	s := &n.screen
	var replaces uint32
	if e := s.entries[notice.Key]; e != nil && e.Live {
		replaces = e.ID
	}
	hints := map[string]dbus.Variant{"urgency": dbus.MakeVariant(byte(notice.Urgency)), "desktop-entry": dbus.MakeVariant(application)}
	s.sending = notice.Key
	body, actions := bodyFor(notice.Body, s.name, s.can), actionsFor(notice.Actions, s.name, s.can)
	n.call("Notify", []any{"Corral", replaces, application, notice.Title, body, actions, hints, int32(-1)},
		func(answer []any, err error) {
			early := s.early
			s.sending, s.early = "", nil
			s.paced(notice.Key, time.Now())
			id, ok := first[uint32](answer)
			if err == nil && !ok {
				err = errors.New("its answer has no notification id")
			}
			if err != nil {
				n.refused(notice, err)
				return
			}
			if replaces != 0 && replaces != id { // it was not replaced, and is remembered as if closed
				s.remember(*s.entries[notice.Key])
			}
			s.entries[notice.Key] = &entry{Token: notice.Token, ID: id, Live: true, Sessions: notice.Sessions}
			delete(s.refusals, notice.Key)
			n.dirty = true
			for _, signal := range early {
				n.handle(signal)
			}
		})
}

// refused handles a notice that was not accepted. A server that leaves during the call has not
// refused it.
func (n *Notifier) refused(notice Notice, err error) {
	t := n.screen.refusals[notice.Key]
	if t.token != notice.Token {
		t = refusal{token: notice.Token}
	}
	var e dbus.Error
	gone := errors.As(err, &e) && slices.Contains([]string{busName + ".Error.NoReply", busName + ".Error.ServiceUnknown", busName + ".Error.NameHasNoOwner"}, e.Name)
	t.after = time.Now().Add(retryAfter << t.tries)
	if !gone {
		t.tries++
	}
	if t.tries == maxTries {
		n.LogError(fmt.Errorf("the notification server refuses a notification: %w", err))
	}
	n.screen.refusals[notice.Key] = t
}

// received handles a signal. Any client can send one: only those of the bus and of the server are
// used.
func (n *Notifier) received(signal *dbus.Signal) {
	server := n.screen.server
	switch {
	case server.Update(signal):
		n.owned(server.UniqueName())
	case server.Sent(signal):
		n.handle(signal)
	}
}

// handle handles a signal of the server. An invalid one is ignored.
func (n *Notifier) handle(signal *dbus.Signal) {
	s := &n.screen
	id, ok := first[uint32](signal.Body)
	if !ok {
		return
	}
	key, live := s.live(id)
	switch signal.Name {
	case serverName + ".NotificationClosed":
		if live != nil {
			if len(signal.Body) > 1 && signal.Body[1] == dismissed {
				n.seen(live.Sessions)
			}
			s.remember(*live)
			live.Live = false
			n.dirty = true
			if key == failureKey {
				s.failure = nil
			}
			return
		}
	case serverName + ".ActionInvoked", serverName + ".NotificationReplied":
		about := live
		if about == nil {
			about = s.closed(id)
		}
		var text string
		if about != nil && dbus.Store(signal.Body, &id, &text) == nil {
			n.invoked(about.Sessions, signal.Name == serverName+".NotificationReplied", text)
		}
		if about != nil {
			return
		}
	}
	if s.sending != "" && len(s.early) < maxEarly {
		s.early = append(s.early, signal) // about the notice whose id is not known yet
	}
}

// live returns the notice on the screen with this id.
func (s *screen) live(id uint32) (string, *entry) {
	for key, e := range s.entries {
		if e.Live && e.ID == id {
			return key, e
		}
	}
	return "", nil
}

// closed returns the last closed notice with this id, nil if there is none.
func (s *screen) closed(id uint32) *entry {
	for i := len(s.past) - 1; i >= 0; i-- {
		if s.past[i].ID == id {
			return &s.past[i]
		}
	}
	return nil
}
