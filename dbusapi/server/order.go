package server

import (
	"maps"
	"strings"

	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/config"
)

// ticket is the place of a call in the order of the calls with the same order key, together with
// the slot that the call occupies.
type ticket struct {
	previous <-chan struct{} // closed when the previous call no longer delays this one; nil if there is none
	done     chan struct{}   // closed when this call no longer delays the next one; nil without an order key
	closed   bool            // done is closed
	slot     *slot           // nil if the call was refused
	refused  bool            // the call was refused, and answered, by order
}

// order assigns a ticket to each incoming call. It runs on the goroutine that reads from the
// connection, so for one message after the other. A call that exceeds a limit is refused here. As
// long as the bus does not accept this reply, no further messages are read.
func (s *Server) order(msg *dbus.Message, length int) {
	iface, _ := msg.Headers[dbus.FieldInterface].Value().(string)
	if msg.Type != dbus.TypeMethodCall || iface == peerInterface { // godbus itself answers calls of Peer
		return
	}
	taken, err := s.admit(msg, length)
	if err != nil {
		s.replyError(msg, err)
		msg.Flags |= dbus.FlagNoReplyExpected
		s.tickets.Store(msg, &ticket{refused: true})
		return
	}
	t := &ticket{slot: taken}
	s.tickets.Store(msg, t)
	key := orderKey(msg)
	if key == "" {
		return
	}
	t.previous, t.done = s.tails[key], make(chan struct{})
	if len(s.tails) > maxTails {
		maps.DeleteFunc(s.tails, func(_ string, tail <-chan struct{}) bool { return isClosed(tail) })
	}
	s.tails[key] = t.done
}

// maxTails is the number of order keys above which those without pending calls are forgotten.
const maxTails = 4096

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// orderKey returns the order key of a call: calls with the same key start one after the other. The
// key "" stands for no order. These calls have a key in common:
//   - calls of one client that change the same session
//   - all calls that type into the same session, since typing may take some time
//   - all calls that read the same session's terminal, since the terminal may not respond
//   - status reports of one client
//   - reading calls of one client: however much it reads, other clients get their turn after each
//     reply
//
// Therefore a call that hangs never prevents another client from stopping or killing the session.
func orderKey(msg *dbus.Message) string {
	iface, _ := msg.Headers[dbus.FieldInterface].Value().(string)
	sender, _ := msg.Headers[dbus.FieldSender].Value().(string)
	switch {
	case isRead(iface, member(msg)):
		return "reads of " + sender
	case iface != dbusapi.ManagerInterface && iface != dbusapi.SessionInterface, member(msg) == "CreateSession":
		return ""
	case member(msg) == "ReportActivity":
		return "reports of " + sender
	}
	path, _ := msg.Headers[dbus.FieldPath].Value().(dbus.ObjectPath)
	id, ok := dbusapi.SessionID(path)
	if !ok && len(msg.Body) > 0 {
		id, ok = msg.Body[0].(string)
	}
	switch {
	case !ok || !config.ValidName(id):
		return ""
	case strings.HasPrefix(member(msg), "Send"), member(msg) == "Approve", member(msg) == "Deny":
		return "input " + id
	case member(msg) == "Capture":
		return "screen of " + id
	}
	return "changes of " + id + " by " + sender
}

// isRead reports whether a method only reads.
func isRead(iface, member string) bool {
	switch iface {
	case propertiesInterface, objectManagerInterface, introspectableInterface:
		return true
	case dbusapi.ManagerInterface:
		return strings.HasPrefix(member, "Get") || strings.HasPrefix(member, "List") || member == "OpenLog"
	case dbusapi.SessionInterface:
		return member == "OpenLog"
	}
	return false
}

func (s *Server) takeTicket(msg *dbus.Message) *ticket {
	t, ok := s.tickets.LoadAndDelete(msg)
	if !ok {
		return &ticket{}
	}
	return t.(*ticket)
}

// client returns the client that sent the call.
func (t *ticket) client() *client {
	if t.slot == nil {
		return &client{}
	}
	return t.slot.client
}

// end releases the ticket and its slot after the call was answered.
func (t *ticket) end() {
	t.release()
	if t.slot != nil {
		t.slot.free()
	}
}

// release lets the next call with the same order key start.
func (t *ticket) release() {
	if t.done != nil && !t.closed {
		t.closed = true
		close(t.done)
	}
}
