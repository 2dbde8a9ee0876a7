package server

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/supervisor"
)

// invocation is one call of a method: it implements dbus.Method.
type invocation struct {
	object  *object
	method  *method
	refusal error // why there is no such method, nil if there is
}

// DecodeArguments implements dbus.ArgumentDecoder: the method is given the message as it is, once its signature is right. A call that is refused
// keeps its place too: those that wait for it wait for the ones before it.
func (v *invocation) DecodeArguments(_ *dbus.Conn, _ string, msg *dbus.Message, body []any) ([]any, error) {
	sig, _ := msg.Headers[dbus.FieldSignature].Value().(dbus.Signature)
	refusal := v.refusal
	if refusal == nil && sig != v.method.in {
		refusal = answer(dbusapi.InvalidArgs, fmt.Sprintf("the arguments are %q and have to be %q", sig.String(), v.method.in.String()))
	}
	if refusal != nil {
		t := v.object.server.takeTicket(msg)
		t.wait()
		t.release()
		return nil, refusal
	}
	_ = body
	return []any{msg}, nil
}

// Call implements dbus.Method. Calls about one session begin in the order in which they came; a panic is answered and takes nothing down.
func (v *invocation) Call(args ...any) (reply []any, err error) {
	s := v.object.server
	msg := args[0].(*dbus.Message)
	t := s.takeTicket(msg)
	defer t.release()
	defer func() {
		if p := recover(); p != nil {
			s.report(fmt.Errorf("panic in %s: %v\n%s", member(msg), p, debug.Stack()))
			reply, err = nil, answer(dbusapi.Internal, "an internal error; see the journal of corrald.service")
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	t.wait()
	reply, err = v.method.call(supervisor.WhenAccepted(ctx, t.release), v.object, msg)
	if err != nil {
		return nil, toBus(err)
	}
	if len(reply) == 1 {
		if fd, ok := reply[0].(dbus.UnixFD); ok {
			s.replyWith(msg, fd)
		}
	}
	return reply, nil
}

// replyWith answers a call with a descriptor and closes that: godbus sends those that it is given and leaves them open, and after Call nobody is told
// when it has. What has been answered is then as good as a call that wants no answer.
func (s *Server) replyWith(msg *dbus.Message, fd dbus.UnixFD) {
	if msg.Flags&dbus.FlagNoReplyExpected == 0 {
		answer := &dbus.Message{Type: dbus.TypeMethodReply, Body: []any{fd}, Headers: map[dbus.HeaderField]dbus.Variant{
			dbus.FieldDestination: msg.Headers[dbus.FieldSender],
			dbus.FieldReplySerial: dbus.MakeVariant(msg.Serial()),
			dbus.FieldSignature:   dbus.MakeVariant(dbus.SignatureOf(fd)),
		}}
		if err := s.conn.Send(answer, nil).Err; err != nil && s.conn.Connected() {
			s.report(fmt.Errorf("cannot send a descriptor: %w", err))
		}
		msg.Flags |= dbus.FlagNoReplyExpected
	}
	_ = unix.Close(int(fd))
}

// NumArguments implements dbus.Method; like the three below it is not used by godbus where a method decodes for itself.
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

// ticket is a call's place among the calls with the same order key.
type ticket struct {
	before <-chan struct{} // closed when the call before has begun its work; nil if there is none
	done   chan struct{}   // nil if nobody waits
	closed bool
}

// order gives each incoming call its place. It is run by the connection's reader, and so for one message after the other.
func (s *Server) order(msg *dbus.Message) {
	if msg.Type != dbus.TypeMethodCall {
		return
	}
	key := orderKey(msg)
	if key == "" {
		return
	}
	t := &ticket{before: s.tails[key], done: make(chan struct{})}
	if len(s.tails) > 4096 { // forget those that are over
		for k, tail := range s.tails {
			select {
			case <-tail:
				delete(s.tails, k)
			default:
			}
		}
	}
	s.tails[key] = t.done
	s.tickets.Store(msg, t)
}

// orderKey returns what a call has to be in order with: the others that change the same session; input, which may take its time, by itself.
func orderKey(msg *dbus.Message) string {
	iface, _ := msg.Headers[dbus.FieldInterface].Value().(string)
	if iface != dbusapi.ManagerInterface && iface != dbusapi.SessionInterface {
		return ""
	}
	path, _ := msg.Headers[dbus.FieldPath].Value().(dbus.ObjectPath)
	id, ok := dbusapi.SessionID(path)
	if !ok {
		if len(msg.Body) == 0 {
			return ""
		}
		if id, ok = msg.Body[0].(string); !ok || member(msg) == "CreateSession" || strings.HasPrefix(member(msg), "Get") {
			return ""
		}
	}
	if strings.HasPrefix(member(msg), "Send") {
		return "input " + id
	}
	return id
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
	supervisor.WorkspaceMissing:  dbusapi.WorkspaceMissing,
	supervisor.WorkspaceBusy:     dbusapi.WorkspaceBusy,
	supervisor.StartFailed:       dbusapi.StartFailed,
	supervisor.TmuxFailed:        dbusapi.TmuxFailed,
	supervisor.TooManySessions:   dbusapi.TooManySessions,
	supervisor.ShuttingDown:      dbusapi.ShuttingDown,
	supervisor.ConfigError:       dbusapi.ConfigError,
	supervisor.Invalid:           dbusapi.InvalidArgs,
	supervisor.OverLimit:         dbusapi.LimitsExceeded,
	supervisor.TimedOut:          dbusapi.Timeout,
	supervisor.NotYetThere:       dbusapi.NotSupported,
}

// toBus puts an error into the words of the bus.
func toBus(err error) error {
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
