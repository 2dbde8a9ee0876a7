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

// Of the Desktop Notifications Specification, and the bus.
const (
	busName    = "org.freedesktop.DBus"
	serverName = "org.freedesktop.Notifications"
	serverPath = dbus.ObjectPath("/org/freedesktop/Notifications")
)

const (
	// A notice takes the place of another one after gap at the earliest: KDE's server refuses what comes again within a second.
	gap = time.Second
	// A notice that the server refuses is tried again, after retryAfter and then twice that, and so on, and given up after maxTries.
	retryAfter = 1500 * time.Millisecond
	maxTries   = 4
	// How many notices that are closed are remembered: what a person has asked for may come after that.
	maxPast = 64
	// How many signals about a notice that we do not know the number of yet are kept.
	maxEarly = 16
	// What an earlier daemon has told stays for this long after the start: what an agent asks for is known only once its shim has said it again.
	holdTime = 10 * time.Second
)

// application is the name of our desktop file, by which a server finds the settings that its user has for us, and of our icon.
const application = "io.github.corrald.Corral"

// dismissed is the reason of a notice that a person has closed.
const dismissed = uint32(2)

// entry is a notice that the server has taken.
type entry struct {
	Token    string   `json:"token"`
	ID       uint32   `json:"id"`       // the server's
	Live     bool     `json:"live"`     // it is on the screen
	Sessions []string `json:"sessions"` // that its actions are for

	inherited bool // from an earlier daemon
}

// trouble is a notice that the server has refused.
type trouble struct {
	token string
	tries int
	after time.Time // not before this time again
}

// screen is what the server shows, as far as we know. There is one call to it at a time, without a limit: what comes late is still good, and a server
// that hangs hinders nothing but its own notices. Once it is gone from the bus the call has failed, and another server is asked.
type screen struct {
	conn     *dbus.Conn // nil until we are connected
	server   *bus.Owner // by which its signals are told from those of others
	known    bool       // who the server is, was told
	owner    string     // unique name of the server on the bus, "" if there is none
	turn     int        // counts the servers: an answer to a question to an earlier one is none
	ready    bool       // what it can is known
	name     string     // what it calls itself
	can      []string   // its capabilities
	calling  bool
	sending  string            // key of the notice that it is being sent
	entries  map[string]*entry // by key
	sent     map[string]time.Time
	troubles map[string]trouble
	past     []entry
	early    []*dbus.Signal
	restored bool              // entries are of an earlier daemon
	hold     time.Time         // until then what is inherited stays
	asked    map[string]string // by session: the token for which it is being found out who looks
	failure  *Notice           // of what a person has asked for and could not be done
}

func newScreen(kept saved) screen {
	s := screen{entries: kept.Entries, owner: kept.Owner, restored: true, sent: map[string]time.Time{}, troubles: map[string]trouble{}, asked: map[string]string{}}
	if s.entries == nil {
		s.entries = map[string]*entry{}
	}
	maps.DeleteFunc(s.entries, func(_ string, e *entry) bool { return e == nil })
	for _, e := range s.entries {
		e.inherited = true
	}
	return s
}

// told tells whether the server was given this notice.
func (s *screen) told(key, token string) bool {
	e := s.entries[key]
	return e != nil && e.Token == token
}

// forget drops what is on the screen of a server that is gone. It is told again by the next one.
func (s *screen) forget() {
	maps.DeleteFunc(s.entries, func(_ string, e *entry) bool { return e.Live })
}

// owned takes note of who the server is.
func (n *Notifier) owned(owner string) {
	s := &n.screen
	if s.known && s.owner == owner {
		return
	}
	same := s.owner == owner // as an earlier daemon had found it
	s.known, s.owner, s.ready, s.calling, s.sending, s.early, s.can = true, owner, false, false, "", nil, nil
	s.turn++
	clear(s.troubles)
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
			n.desk.Regroup(s.told)
		})
	})
}

func first[T any](body []any) (value T, ok bool) {
	if len(body) > 0 {
		value, ok = body[0].(T)
	}
	return value, ok
}

// call calls a method of the server, by its unique name, which cannot start one. Done is called by the goroutine, unless the server is another by then.
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

// step does the next thing that brings the screen nearer to what it should be. It returns when there is something more to do if nothing happens until
// then, the zero time if never.
func (n *Notifier) step(now time.Time) (next time.Time) {
	s := &n.screen
	if !s.ready || s.calling {
		return next
	}
	notices := n.desk.Look(now, s.told)
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

// narrow has the actions of a notice that is there be for the sessions that it is about still: what it says stays as it was sent.
func (n *Notifier) narrow(e *entry, notice Notice) {
	if e.Token == notice.Token && !slices.Equal(e.Sessions, notice.Sessions) {
		e.Sessions, n.dirty = notice.Sessions, true
	}
}

// paced takes note that a notice was given to the server just now: another with its key has to wait for a while. What does not have to wait any more is
// forgotten, or there would be one of each session that ever was.
func (s *screen) paced(key string, now time.Time) {
	maps.DeleteFunc(s.sent, func(_ string, last time.Time) bool { return now.Sub(last) >= gap })
	s.sent[key] = now
}

// due tells whether a notice is to be sent, and when.
func (s *screen) due(notice Notice) (at time.Time, wanted bool) {
	if s.told(notice.Key, notice.Token) {
		return at, false
	}
	if last, ok := s.sent[notice.Key]; ok {
		at = last.Add(gap)
	}
	if t := s.troubles[notice.Key]; t.token == notice.Token {
		if t.tries >= maxTries {
			return at, false
		}
		at = t.after
	}
	return at, true
}

// closeOne closes one notice that should not be there any more, and tells whether there was one, or when there may be one.
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
			n.call("CloseNotification", []any{e.ID}, func([]any, error) {}) // an error is that it is gone already
			return true, next
		}
	}
	return false, next
}

// remember keeps a notice that is closed for what may still be asked for by it.
func (s *screen) remember(e entry) {
	if s.past = append(s.past, e); len(s.past) > maxPast {
		s.past = slices.Delete(s.past, 0, len(s.past)-maxPast)
	}
}

// send has the server show a notice, in the place of the one that it has for the same key.
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
				err = errors.New("it does not answer with a number")
			}
			if err != nil {
				n.refused(notice, err)
				return
			}
			if replaces != 0 && replaces != id { // it did not take the place: two would be there
				s.remember(*s.entries[notice.Key])
			}
			s.entries[notice.Key] = &entry{Token: notice.Token, ID: id, Live: true, Sessions: notice.Sessions}
			delete(s.troubles, notice.Key)
			n.dirty = true
			for _, signal := range early {
				n.heard(signal)
			}
		})
}

// refused takes note that a notice was not taken. One that goes away while it is asked, or is overrun, is not the notice's fault.
func (n *Notifier) refused(notice Notice, err error) {
	t := n.screen.troubles[notice.Key]
	if t.token != notice.Token {
		t = trouble{token: notice.Token}
	}
	var e dbus.Error
	gone := errors.As(err, &e) && slices.Contains([]string{busName + ".Error.NoReply", busName + ".Error.ServiceUnknown", busName + ".Error.NameHasNoOwner"}, e.Name)
	t.after = time.Now().Add(retryAfter << t.tries)
	if !gone {
		t.tries++
	}
	if t.tries == maxTries {
		n.Report(fmt.Errorf("the notification server does not take a notification: %w", err))
	}
	n.screen.troubles[notice.Key] = t
}

// received takes a signal. Anybody can send one: it counts if the bus or the server sent it.
func (n *Notifier) received(signal *dbus.Signal) {
	server := n.screen.server
	switch {
	case server.Update(signal):
		n.owned(server.Unique())
	case server.Sent(signal):
		n.heard(signal)
	}
}

// heard takes a signal of the server's. One that does not have the form it should is passed over.
func (n *Notifier) heard(signal *dbus.Signal) {
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
			n.asked(about.Sessions, signal.Name == serverName+".NotificationReplied", text)
		}
		if about != nil {
			return
		}
	}
	if s.sending != "" && len(s.early) < maxEarly {
		s.early = append(s.early, signal) // about the notice whose number we are about to be told
	}
}

// live returns the notice on the screen that has this number of the server's.
func (s *screen) live(id uint32) (string, *entry) {
	for key, e := range s.entries {
		if e.Live && e.ID == id {
			return key, e
		}
	}
	return "", nil
}

// closed returns the last notice that had this number and is closed, nil if there is none.
func (s *screen) closed(id uint32) *entry {
	for i := len(s.past) - 1; i >= 0; i-- {
		if s.past[i].ID == id {
			return &s.past[i]
		}
	}
	return nil
}
