package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"strings"
	"sync/atomic"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/bus"
	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/deadline"
	"github.com/corrald/corral/supervisor"
)

// invocation is one call of a method: it implements dbus.Method.
type invocation struct {
	object  *object
	method  *method
	refusal error // why there is no such method, nil if there is
}

// DecodeArguments implements dbus.ArgumentDecoder: the method is given the message as it is.
func (v *invocation) DecodeArguments(_ *dbus.Conn, _ string, msg *dbus.Message, _ []any) ([]any, error) {
	return []any{msg}, nil
}

// Call implements dbus.Method. Calls about one session begin in the order in which they came, and
// one that is refused keeps its place, too. It has answered when it returns, and so godbus does
// not: an answer that belongs between two signals is sent there.
func (v *invocation) Call(args ...any) ([]any, error) {
	s := v.object.server
	msg := args[0].(*dbus.Message)
	t := s.takeTicket(msg)
	if t.refused {
		return nil, nil
	}
	defer t.end()
	if body, err := v.run(msg, t); err != nil {
		s.refuse(msg, err)
	} else {
		s.reply(msg, body...)
	}
	return nil, nil
}

// run runs the method. A panic is answered and takes nothing down.
func (v *invocation) run(msg *dbus.Message, t *ticket) (body []any, err error) {
	s := v.object.server
	defer func() {
		if p := recover(); p != nil {
			s.report(fmt.Errorf("panic in %s: %v\n%s", member(msg), p, debug.Stack()))
			body, err = nil, answer(dbusapi.Internal, "an internal error; see the journal of corrald.service")
		}
	}()
	t.wait()
	if err := v.refuses(msg); err != nil {
		return nil, err
	}
	ctx, cancel := deadline.Context(context.Background(), callLimit)
	defer cancel()
	if err := s.revoked(ctx, msg); err != nil {
		return nil, err
	}
	return v.method.call(supervisor.WhenAccepted(ctx, t.release), v.object, msg)
}

// refuses tells why the method cannot be called so, nil if it can. What is wrong with an object
// that is not there is that it is not there.
func (v *invocation) refuses(msg *dbus.Message) error {
	refusal := v.refusal
	sig, _ := msg.Headers[dbus.FieldSignature].Value().(dbus.Signature)
	if refusal == nil && sig != v.method.in {
		refusal = answer(dbusapi.InvalidArgs, fmt.Sprintf("invalid arguments of type %q: expected %q", sig.String(), v.method.in.String()))
	}
	if refusal != nil && v.object.session != "" {
		if err := v.object.known(); err != nil {
			return err
		}
	}
	return refusal
}

// reply answers a call, unless it wants no answer or has one. A descriptor is closed once it is
// sent.
func (s *Server) reply(msg *dbus.Message, body ...any) {
	answer := &dbus.Message{Type: dbus.TypeMethodReply, Flags: dbus.FlagNoReplyExpected, Body: body, Headers: map[dbus.HeaderField]dbus.Variant{}}
	if len(body) > 0 {
		signature := dbus.SignatureOf(body...)
		if m, is := body[0].(bus.Marshalled); is {
			signature = m.Signature
		}
		answer.Headers[dbus.FieldSignature] = dbus.MakeVariant(signature)
	}
	s.send(msg, answer)
	for _, value := range body {
		if fd, ok := value.(dbus.UnixFD); ok {
			_ = unix.Close(int(fd))
		}
	}
}

// refuse answers a call with an error.
func (s *Server) refuse(msg *dbus.Message, err error) {
	e := toBus(err)
	s.send(msg, &dbus.Message{Type: dbus.TypeError, Flags: dbus.FlagNoReplyExpected, Body: e.Body, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldErrorName: dbus.MakeVariant(e.Name),
		dbus.FieldSignature: dbus.MakeVariant(dbus.SignatureOf(e.Body...)),
	}})
}

// send sends the answer to msg, which then is as good as a call that wants none. One that cannot be
// put into a message is told so: whoever calls would wait for it in vain.
func (s *Server) send(msg, answer *dbus.Message) {
	if msg.Flags&dbus.FlagNoReplyExpected != 0 {
		return
	}
	msg.Flags |= dbus.FlagNoReplyExpected
	answer.Headers[dbus.FieldReplySerial] = dbus.MakeVariant(msg.Serial())
	if sender, ok := msg.Headers[dbus.FieldSender]; ok {
		answer.Headers[dbus.FieldDestination] = sender
	}
	if err := s.conn.WriteMessage(answer); err != nil && s.conn.Connected() {
		s.report(fmt.Errorf("cannot answer %s: %w", member(msg), err))
		if answer.Type == dbus.TypeMethodReply {
			msg.Flags &^= dbus.FlagNoReplyExpected
			s.refuse(msg, errors.New("the answer cannot be put into a message; see the journal of corrald.service"))
		}
	}
}

// NumArguments implements dbus.Method; like the three below it is not used by godbus where a method
// decodes for itself.
func (v *invocation) NumArguments() int { return 1 }

// NumReturns implements dbus.Method.
func (v *invocation) NumReturns() int { return 0 }

// ArgumentValue implements dbus.Method.
func (v *invocation) ArgumentValue(int) any { return nil }

// ReturnValue implements dbus.Method.
func (v *invocation) ReturnValue(int) any { return nil }

func member(msg *dbus.Message) string {
	name, _ := msg.Headers[dbus.FieldMember].Value().(string)
	return name
}

// ticket is a call's place among the calls with the same order key, and one of those that its
// client may have under way.
type ticket struct {
	before  <-chan struct{} // closed when the call before has begun its work; nil if there is none
	done    chan struct{}   // nil if nobody waits
	closed  bool
	place   *place // among the calls under way, nil if it was answered before it got here
	refused bool   // that is so
}

// client is one connection that calls us: how many of its calls are under way, how many bytes they
// have, and how many of them ask for all sessions.
type client struct {
	calls, big atomic.Int32
	bytes      atomic.Int64
}

// maxCalls is how many calls one client may have under way: each takes about 8 KiB until it is
// answered. One that asks something of every session there may be stays below it. maxBig is how
// many of them may be answered with something of all sessions: nobody needs that more than once at
// a time.
const maxCalls, maxBig = 2048, 16

// maxBytes is how many bytes the calls have that one client may have under way. Each is kept until
// it is answered, also while it waits for another one.
const maxBytes = 2 * bus.MaxMessage

// place is what a call takes while it is under way.
type place struct {
	gate   *gate
	client *client
	big    bool
	bytes  int64
}

// admit finds the call a place, or tells why there is none. It is run by the connection's reader.
func (s *Server) admit(msg *dbus.Message, length int) (*place, error) {
	p := &place{s.gate, s.client(msg), isBig(member(msg)), int64(length)}
	switch {
	case p.client.calls.Load() >= maxCalls:
		return nil, answer(dbusapi.LimitsExceeded, fmt.Sprintf("too many calls of this client are pending: at most %d are allowed", maxCalls))
	case p.big && p.client.big.Load() >= maxBig:
		return nil, answer(dbusapi.LimitsExceeded, fmt.Sprintf("too many requests of this client for all sessions are pending: at most %d are allowed", maxBig))
	case p.client.bytes.Load()+p.bytes > maxBytes:
		return nil, answer(dbusapi.LimitsExceeded, fmt.Sprintf("the pending calls of this client are too large: at most %d bytes are allowed", maxBytes))
	case !s.gate.enter():
		return nil, supervisor.ErrClosed
	}
	p.client.calls.Add(1)
	p.client.bytes.Add(p.bytes)
	if p.big {
		p.client.big.Add(1)
	}
	return p, nil
}

// leave gives the place back.
func (p *place) leave() {
	p.client.calls.Add(-1)
	p.client.bytes.Add(-p.bytes)
	if p.big {
		p.client.big.Add(-1)
	}
	p.gate.leave()
}

// isBig tells whether what a method answers grows with the number of sessions.
func isBig(member string) bool {
	return member == "GetManagedObjects" || member == "ListSessions" || member == "ListSessionsEx" || member == "ListStrays"
}

// order gives each incoming call its place. It is run by the connection's reader, and so for one
// message after the other. What is too much is refused here: while the bus does not take that
// answer, it gets no further with what it has for us.
func (s *Server) order(msg *dbus.Message, length int) {
	iface, _ := msg.Headers[dbus.FieldInterface].Value().(string)
	if msg.Type != dbus.TypeMethodCall || iface == peerInterface { // godbus answers the latter itself
		return
	}
	p, err := s.admit(msg, length)
	if err != nil {
		s.refuse(msg, err)
		msg.Flags |= dbus.FlagNoReplyExpected
		s.tickets.Store(msg, &ticket{refused: true})
		return
	}
	t := &ticket{place: p}
	s.tickets.Store(msg, t)
	key := orderKey(msg)
	if key == "" {
		return
	}
	t.before, t.done = s.tails[key], make(chan struct{})
	if len(s.tails) > maxTails {
		maps.DeleteFunc(s.tails, func(_ string, tail <-chan struct{}) bool { return isClosed(tail) })
	}
	s.tails[key] = t.done
}

// maxTails and maxClients are how many of them are remembered before it is looked which ones are of
// no use any more.
const maxTails, maxClients = 4096, 1024

// client returns who is calling.
func (s *Server) client(msg *dbus.Message) *client {
	sender, _ := msg.Headers[dbus.FieldSender].Value().(string)
	c := s.clients[sender]
	if c == nil {
		if len(s.clients) > maxClients {
			maps.DeleteFunc(s.clients, func(_ string, c *client) bool { return c.calls.Load() == 0 })
		}
		c = &client{}
		s.clients[sender] = c
	}
	return c
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// orderKey returns what a call has to be in order with: the same client's others that change the
// same session; input, which may take its time, by itself, and so for what is read from a terminal,
// which may not answer; what one client reports of its session; and of what only reads, the same
// client's, one at a time: however much one asks for, another's turn comes after one answer. A call
// that hangs therefore delays nobody else who stops or kills its session.
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

func (t *ticket) wait() {
	if t.before != nil {
		<-t.before
	}
}

// end is called once the call is answered.
func (t *ticket) end() {
	t.release()
	if t.place != nil {
		t.place.leave()
	}
}

func (t *ticket) release() {
	if t.done != nil && !t.closed {
		t.closed = true
		close(t.done)
	}
}

// errorNames are the bus names of the supervisor's errors.
var errorNames = map[supervisor.Kind]string{
	supervisor.NoSuchSession:     dbusapi.NoSuchSession,
	supervisor.SessionExists:     dbusapi.SessionExists,
	supervisor.NoSessionForPID:   dbusapi.NoSessionForPID,
	supervisor.NoSessionForUnit:  dbusapi.NoSessionForUnit,
	supervisor.NoSuchAgent:       dbusapi.NoSuchAgent,
	supervisor.AgentNotInstalled: dbusapi.AgentNotInstalled,
	supervisor.InvalidState:      dbusapi.InvalidState,
	supervisor.NotResumable:      dbusapi.NotResumable,
	supervisor.NotWaiting:        dbusapi.NotWaiting,
	supervisor.Unsupported:       dbusapi.NotSupported,
	supervisor.WorkspaceMissing:  dbusapi.WorkspaceMissing,
	supervisor.WorkspaceBusy:     dbusapi.WorkspaceBusy,
	supervisor.ConversationBusy:  dbusapi.ConversationBusy,
	supervisor.StartFailed:       dbusapi.StartFailed,
	supervisor.TmuxFailed:        dbusapi.TmuxFailed,
	supervisor.TooManySessions:   dbusapi.TooManySessions,
	supervisor.ShuttingDown:      dbusapi.ShuttingDown,
	supervisor.ConfigError:       dbusapi.ConfigError,
	supervisor.Invalid:           dbusapi.InvalidArgs,
	supervisor.OverLimit:         dbusapi.LimitsExceeded,
	supervisor.TimedOut:          dbusapi.Timeout,
}

// toBus puts an error into the words of the bus.
func toBus(err error) *dbus.Error {
	var e *supervisor.Error
	var onBus *dbus.Error
	switch {
	case errors.As(err, &onBus):
		return onBus
	case errors.As(err, &e):
		return answer(errorNames[e.Kind], e.Text)
	case errors.Is(err, supervisor.ErrClosed):
		return answer(dbusapi.ShuttingDown, "corrald is shutting down")
	}
	return answer(dbusapi.Internal, err.Error())
}

// answer makes the error that a call is answered with.
func answer(name, text string) *dbus.Error {
	return dbus.NewError(dbusapi.ErrorName(name), []any{strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", `\0`), "�")})
}
