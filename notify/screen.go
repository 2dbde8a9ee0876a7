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
	serverName = "org.freedesktop.Notifications"
	serverPath = dbus.ObjectPath("/org/freedesktop/Notifications")
)

const (
	// A notice replaces another one after minInterval at the earliest: KDE's server refuses a repeated
	// text within a second.
	minInterval = time.Second
	// A notice that the server refuses is sent again after retryAfter, then after twice that time, and
	// so on, at most maxTries times in all.
	retryAfter = 1500 * time.Millisecond
	maxTries   = 4
	// maxClosed is how many closed notices are kept: a server may report an action after it has
	// reported that the notice was closed.
	maxClosed = 64
	// maxEarlySignals is how many signals are kept while the id of the notice being sent is unknown.
	maxEarlySignals = 16
	// Notices of an earlier daemon stay on the screen for at least holdTime after the start: the
	// request of an agent is known only once its shim has reported it again.
	holdTime = 10 * time.Second
)

// application is the name of Corral's icon and of its desktop file. Servers use the latter to look
// up the user's settings for Corral.
const application = "io.github.corrald.Corral"

// dismissed is the reason in NotificationClosed if a person has closed the notice.
const dismissed = uint32(2)

// entry is a notice that the server has accepted.
type entry struct {
	Token    string   `json:"token"`
	ID       uint32   `json:"id"`       // assigned by the server
	Live     bool     `json:"live"`     // it is on the screen
	Sessions []string `json:"sessions"` // ids of the sessions that its actions apply to

	inherited bool // from an earlier daemon
}

// refusal is a notice that the server has refused.
type refusal struct {
	token   string
	tries   int
	retryAt time.Time // when it may be sent again
}

// screen is the state of the notification server, as far as it is known. At most one call to the
// server is pending. Calls have no time limit: a late reply is still valid, and a server that hangs
// delays only its own notices. Once it leaves the bus, the call fails and another server can be
// called.
type screen struct {
	conn         *dbus.Conn // nil until the bus is connected
	server       *bus.Owner // distinguishes signals of the server from those of other clients
	ownerKnown   bool       // owner was read from the bus
	owner        string     // unique name of the server on the bus, "" if there is none
	generation   int        // number of the server: replies of earlier servers are dropped
	ready        bool       // name and capabilities are known
	name         string     // of GetServerInformation
	capabilities []string
	isCalling    bool              // a call is pending
	sending      string            // key of the notice that is being sent
	entries      map[string]*entry // by key
	lastSent     map[string]time.Time
	refusals     map[string]refusal

	closedNotices []entry
	earlySignals  []*dbus.Signal    // signals that arrived while a notice was being sent
	restored      bool              // entries are those of an earlier daemon
	holdUntil     time.Time         // until then inherited notices are not closed
	checking      map[string]string // by session: the token for which IsWatched is being called
	failure       *Notice           // about an action that failed
}

func newScreen(state savedState) screen {
	s := screen{
		entries: state.Entries, owner: state.Owner, restored: true,
		lastSent: map[string]time.Time{}, refusals: map[string]refusal{}, checking: map[string]string{},
	}
	if s.entries == nil {
		s.entries = map[string]*entry{}
	}
	maps.DeleteFunc(s.entries, func(_ string, e *entry) bool { return e == nil })
	for _, e := range s.entries {
		e.inherited = true
	}
	return s
}

// isShown reports whether the server has accepted this notice.
func (s *screen) isShown(key, token string) bool {
	e := s.entries[key]
	return e != nil && e.Token == token
}

// dropShown drops the notices on the screen of a server that has left, so that they are sent to the
// next one.
func (s *screen) dropShown() {
	maps.DeleteFunc(s.entries, func(_ string, e *entry) bool { return e.Live })
}

// serverChanged handles a change of the server. owner is the unique name of the new one, "" if
// there is none.
func (n *Notifier) serverChanged(owner string) {
	s := &n.screen
	if s.ownerKnown && s.owner == owner {
		return
	}
	same := s.owner == owner // as saved by an earlier daemon
	s.ownerKnown, s.owner, s.ready, s.capabilities = true, owner, false, nil
	s.isCalling, s.sending, s.earlySignals = false, "", nil
	s.generation++
	clear(s.refusals)
	clear(s.lastSent)
	n.dirty = true
	if !same {
		s.closedNotices = nil
		s.dropShown()
	}
	if owner == "" {
		return
	}
	n.call("GetCapabilities", nil, func(body []any, err error) {
		if err != nil || dbus.Store(body, &s.capabilities) != nil {
			s.capabilities = []string{"body"}
		}
		n.call("GetServerInformation", nil, func(body []any, _ error) {
			s.name, _ = bus.FirstArg[string](body)
			if s.restored && quirks[s.name].dropsClients {
				s.dropShown()
			}
			s.restored, s.ready = false, true
			n.policy.Regroup(s.isShown)
		})
	})
}

// call calls a method of the server by its unique name, so that the call cannot start a server. The
// Notifier's goroutine calls handle with the reply, unless the server has changed by then.
func (n *Notifier) call(method string, args []any, handle func(body []any, err error)) {
	s := &n.screen
	s.isCalling = true
	generation, server := s.generation, s.conn.Object(s.owner, serverPath)
	go func() {
		reply := server.CallWithContext(n.ctx, serverName+"."+method, dbus.FlagNoAutoStart, args...)
		n.post(func() {
			if generation == n.screen.generation {
				n.screen.isCalling = false
				handle(reply.Body, reply.Err)
			}
		})
	}()
}

// syncScreen makes the next call that is needed for the screen to show the notices of the policy.
// It returns when to run again if nothing else happens, the zero time for never.
func (n *Notifier) syncScreen(now time.Time) (next time.Time) {
	s := &n.screen
	if !s.ready || s.isCalling {
		return next
	}
	var notices []Notice
	if n.ready {
		notices = n.policy.Notices(now, s.isShown)
	}
	if s.failure != nil && n.isEnabled() {
		notices = append(notices, *s.failure)
	}
	for _, notice := range notices {
		if e := s.entries[notice.Key]; e != nil {
			e.inherited = false
			// The text on the screen stays, but its actions apply only to what it is still about.
			if e.Token == notice.Token && !slices.Equal(e.Sessions, notice.Sessions) {
				e.Sessions, n.dirty = notice.Sessions, true
			}
		}
	}
	if n.ready {
		var closing bool
		if closing, next = n.closeOne(notices, now); closing {
			return time.Time{}
		}
	}
	for _, notice := range notices {
		at, needed := s.sendTime(notice)
		switch {
		case !needed:
		case !at.After(now):
			n.send(notice)
			return time.Time{}
		case next.IsZero() || at.Before(next):
			next = at
		}
	}
	return next
}

// recordSent records that a notice was sent just now: the next one with its key has to wait for
// minInterval. Older records are dropped; otherwise their number would grow with each session.
func (s *screen) recordSent(key string, now time.Time) {
	maps.DeleteFunc(s.lastSent, func(_ string, last time.Time) bool { return now.Sub(last) >= minInterval })
	s.lastSent[key] = now
}

// sendTime reports whether a notice is to be sent, and when.
func (s *screen) sendTime(notice Notice) (at time.Time, needed bool) {
	if s.isShown(notice.Key, notice.Token) {
		return at, false
	}
	if last, ok := s.lastSent[notice.Key]; ok {
		at = last.Add(minInterval)
	}
	if r := s.refusals[notice.Key]; r.token == notice.Token {
		if r.tries >= maxTries {
			return at, false
		}
		at = r.retryAt
	}
	return at, true
}

// closeOne closes one notice that is not among notices, and reports whether there was one, or when
// there may be one.
func (n *Notifier) closeOne(notices []Notice, now time.Time) (closing bool, next time.Time) {
	s := &n.screen
	for _, key := range slices.Sorted(maps.Keys(s.entries)) {
		if slices.ContainsFunc(notices, func(n Notice) bool { return n.Key == key }) {
			continue
		}
		e := s.entries[key]
		if e.inherited && now.Before(s.holdUntil) {
			next = s.holdUntil
			continue
		}
		delete(s.entries, key)
		n.dirty = true
		if e.Live {
			s.keepClosed(*e)
			// An error means that the notice is closed already.
			n.call("CloseNotification", []any{e.ID}, func([]any, error) {})
			return true, next
		}
	}
	return false, next
}

// keepClosed keeps a closed notice, because the server may still report an action for it.
func (s *screen) keepClosed(e entry) {
	if s.closedNotices = append(s.closedNotices, e); len(s.closedNotices) > maxClosed {
		s.closedNotices = slices.Delete(s.closedNotices, 0, len(s.closedNotices)-maxClosed)
	}
}

// send has the server show a notice, which replaces the one with the same key.
func (n *Notifier) send(notice Notice) {
	s := &n.screen
	var replaces uint32
	if e := s.entries[notice.Key]; e != nil && e.Live {
		replaces = e.ID
	}
	hints := map[string]dbus.Variant{
		"urgency":       dbus.MakeVariant(byte(notice.Urgency)),
		"desktop-entry": dbus.MakeVariant(application),
	}
	s.sending = notice.Key
	body := bodyFor(notice.Body, s.name, s.capabilities)
	actions := actionsFor(notice.Actions, s.name, s.capabilities)
	n.call("Notify", []any{"Corral", replaces, application, notice.Title, body, actions, hints, int32(-1)},
		func(reply []any, err error) {
			early := s.earlySignals
			s.sending, s.earlySignals = "", nil
			s.recordSent(notice.Key, time.Now())
			id, ok := bus.FirstArg[uint32](reply)
			if err == nil && !ok {
				err = errors.New("its answer has no notification id")
			}
			if err != nil {
				n.noticeRefused(notice, err)
				return
			}
			if replaces != 0 && replaces != id { // the server did not replace the old notice
				s.keepClosed(*s.entries[notice.Key])
			}
			s.entries[notice.Key] = &entry{Token: notice.Token, ID: id, Live: true, Sessions: notice.Sessions}
			delete(s.refusals, notice.Key)
			n.dirty = true
			for _, signal := range early {
				n.handleServerSignal(signal)
			}
		})
}

// noticeRefused schedules another try for a notice that was not accepted. The try does not count if
// the server has left the bus during the call.
func (n *Notifier) noticeRefused(notice Notice, err error) {
	r := n.screen.refusals[notice.Key]
	if r.token != notice.Token {
		r = refusal{token: notice.Token}
	}
	serverLeft := bus.HasErrorName(err,
		bus.ErrorPrefix+"NoReply", bus.ErrorPrefix+"ServiceUnknown", bus.ErrorPrefix+"NameHasNoOwner")
	r.retryAt = time.Now().Add(retryAfter << r.tries)
	if !serverLeft {
		r.tries++
	}
	if r.tries == maxTries {
		n.LogError(fmt.Errorf("the notification server refuses a notification: %w", err))
	}
	n.screen.refusals[notice.Key] = r
}

// handleSignal handles a signal. Any client can send one, so only those of the bus itself and of
// the server are used.
func (n *Notifier) handleSignal(signal *dbus.Signal) {
	server := n.screen.server
	switch {
	case server.Update(signal):
		n.serverChanged(server.UniqueName())
	case server.Sent(signal):
		n.handleServerSignal(signal)
	}
}

// handleServerSignal handles a signal of the server. It ignores an invalid one.
func (n *Notifier) handleServerSignal(signal *dbus.Signal) {
	s := &n.screen
	id, ok := bus.FirstArg[uint32](signal.Body)
	if !ok {
		return
	}
	key, live := s.findShown(id)
	switch signal.Name {
	case serverName + ".NotificationClosed":
		if live != nil {
			if len(signal.Body) > 1 && signal.Body[1] == dismissed {
				n.acknowledgeState(live.Sessions)
			}
			s.keepClosed(*live)
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
			about = s.findClosed(id)
		}
		var text string
		if about != nil && dbus.Store(signal.Body, &id, &text) == nil {
			n.actionInvoked(about.Sessions, signal.Name == serverName+".NotificationReplied", text)
		}
		if about != nil {
			return
		}
	}
	if s.sending != "" && len(s.earlySignals) < maxEarlySignals {
		s.earlySignals = append(s.earlySignals, signal) // it may be about the notice being sent
	}
}

// findShown returns the notice on the screen with this id.
func (s *screen) findShown(id uint32) (string, *entry) {
	for key, e := range s.entries {
		if e.Live && e.ID == id {
			return key, e
		}
	}
	return "", nil
}

// findClosed returns the last closed notice with this id, nil if there is none.
func (s *screen) findClosed(id uint32) *entry {
	for i := len(s.closedNotices) - 1; i >= 0; i-- {
		if s.closedNotices[i].ID == id {
			return &s.closedNotices[i]
		}
	}
	return nil
}
