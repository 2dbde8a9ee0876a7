package server

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/bus"
	"github.com/corrald/corral/internal/deadline"
	"github.com/corrald/corral/supervisor"
)

// invocation is one call of a method. It implements dbus.Method.
type invocation struct {
	object  *object
	method  *method
	refusal error // why there is no such method, nil if there is one
}

// DecodeArguments implements dbus.ArgumentDecoder: it passes the message to Call.
func (v *invocation) DecodeArguments(_ *dbus.Conn, _ string, msg *dbus.Message, _ []any) ([]any, error) {
	return []any{msg}, nil
}

// Call implements dbus.Method. Calls about one session start in the order of their arrival, and a
// call that is refused gets its error in this order, too. Call sends the reply itself, because
// some replies have to be sent between two signals, so godbus sends none.
func (v *invocation) Call(args ...any) ([]any, error) {
	s := v.object.server
	msg := args[0].(*dbus.Message)
	t := s.takeTicket(msg)
	if t.refused {
		return nil, nil
	}
	defer t.end()
	v.object.client = t.client()
	if body, err := v.run(msg, t); err != nil {
		s.replyError(msg, err)
	} else {
		s.reply(msg, body...)
	}
	return nil, nil
}

// run waits for the call's turn and runs the method. A panic is logged, and returned as an error.
func (v *invocation) run(msg *dbus.Message, t *ticket) (body []any, err error) {
	s := v.object.server
	defer func() {
		if p := recover(); p != nil {
			s.report(fmt.Errorf("panic in %s: %v\n%s", member(msg), p, debug.Stack()))
			body, err = nil, newError(dbusapi.Internal, "an internal error; see the journal of corrald.service")
		}
	}()
	if t.previous != nil {
		<-t.previous
	}
	if err := v.check(msg); err != nil {
		return nil, err
	}
	ctx, cancel := deadline.Context(context.Background(), callLimit)
	defer cancel()
	if err := v.object.checkCallerConnected(ctx, msg); err != nil {
		return nil, err
	}
	return v.method.call(supervisor.WhenAccepted(ctx, t.release), v.object, msg)
}

// check returns an error if the method does not exist or the arguments have the wrong types. If the
// object does not exist either, it returns that error instead.
func (v *invocation) check(msg *dbus.Message) error {
	refusal := v.refusal
	sig, _ := msg.Headers[dbus.FieldSignature].Value().(dbus.Signature)
	if refusal == nil && sig != v.method.in {
		text := fmt.Sprintf("invalid arguments of type %q: expected %q", sig.String(), v.method.in.String())
		refusal = newError(dbusapi.InvalidArgs, text)
	}
	if refusal != nil && v.object.session != "" {
		if _, err := v.object.snapshot(); err != nil {
			return err
		}
	}
	return refusal
}

// reply sends the reply to a call, unless the call expects none or already has one. It closes the
// file descriptors in body after sending them.
func (s *Server) reply(msg *dbus.Message, body ...any) {
	headers := map[dbus.HeaderField]dbus.Variant{}
	if len(body) > 0 {
		signature := dbus.SignatureOf(body...)
		if m, ok := body[0].(bus.Marshalled); ok {
			signature = m.Signature
		}
		headers[dbus.FieldSignature] = dbus.MakeVariant(signature)
	}
	s.send(msg, &dbus.Message{
		Type: dbus.TypeMethodReply, Flags: dbus.FlagNoReplyExpected, Body: body, Headers: headers,
	})
	for _, value := range body {
		if fd, ok := value.(dbus.UnixFD); ok {
			_ = unix.Close(int(fd))
		}
	}
}

// replyError sends an error as the reply to a call.
func (s *Server) replyError(msg *dbus.Message, err error) {
	e := toDBusError(err)
	headers := map[dbus.HeaderField]dbus.Variant{
		dbus.FieldErrorName: dbus.MakeVariant(e.Name),
		dbus.FieldSignature: dbus.MakeVariant(dbus.SignatureOf(e.Body...)),
	}
	s.send(msg, &dbus.Message{
		Type: dbus.TypeError, Flags: dbus.FlagNoReplyExpected, Body: e.Body, Headers: headers,
	})
}

// send sends the reply to msg and then marks msg as a call that expects no reply. If the reply
// cannot be encoded, it sends an error instead, so that the caller does not wait until its
// time-out.
func (s *Server) send(msg, reply *dbus.Message) {
	if msg.Flags&dbus.FlagNoReplyExpected != 0 {
		return
	}
	msg.Flags |= dbus.FlagNoReplyExpected
	reply.Headers[dbus.FieldReplySerial] = dbus.MakeVariant(msg.Serial())
	if sender, ok := msg.Headers[dbus.FieldSender]; ok {
		reply.Headers[dbus.FieldDestination] = sender
	}
	if err := s.conn.WriteMessage(reply); err != nil && s.conn.Connected() {
		s.report(fmt.Errorf("cannot reply to %s: %w", member(msg), err))
		if reply.Type == dbus.TypeMethodReply {
			msg.Flags &^= dbus.FlagNoReplyExpected
			s.replyError(msg, errors.New("the reply cannot be encoded; see the journal of corrald.service"))
		}
	}
}

// NumArguments implements dbus.Method. godbus does not call it, nor the three methods below, for a
// method that implements dbus.ArgumentDecoder.
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
