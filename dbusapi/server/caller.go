package server

import (
	"context"
	"fmt"

	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/proc"
)

// revocable are the methods that begin a run, or may do so, and those that type something. A call
// may have waited long before its turn comes: behind another one of the same session, or because
// the daemon stood still. Its caller may have given up meanwhile, have reported that nothing was
// done, and have called again.
var revocable = map[string]bool{
	"CreateSession": true, "StartSession": true, "ResumeSession": true, "RestartSession": true, "BeginSession": true,
	"ResumeAll": true, "SendInput": true, "SendKeys": true, "Approve": true, "Deny": true,
	"Start": true, "Resume": true, "Restart": true,
}

// revoked returns the error of a call that is not carried out because its caller has left the bus,
// nil for any other. Who wants no answer may leave at once.
func (s *Server) revoked(ctx context.Context, msg *dbus.Message) error {
	sender, _ := msg.Headers[dbus.FieldSender].Value().(string)
	if !revocable[member(msg)] || msg.Flags&dbus.FlagNoReplyExpected != 0 || sender == "" {
		return nil
	}
	there := true
	err := s.conn.BusObject().CallWithContext(ctx, "org.freedesktop.DBus.NameHasOwner", 0, sender).Store(&there)
	if err != nil || there { // a bus that cannot be asked revokes nothing
		return nil //nolint:nilerr // see above
	}
	return answer(dbusapi.Timeout, "the caller has left the bus before its call was carried out")
}

// forPeople makes a method of a session one that no agent can call: a process of any session, or a
// descendant of one, is refused, and so is a caller of which it cannot be found out. This keeps an
// agent from answering its own questions. It is no boundary: a process of the same user can leave
// its control group and its parents, and has other ways to type into a terminal.
func forPeople(f func(context.Context, *Server, string, []any) ([]any, error)) handler {
	return func(ctx context.Context, o *object, msg *dbus.Message) ([]any, error) {
		pid, err := o.server.callerPID(ctx, msg)
		if err != nil {
			return nil, answer(dbusapi.AccessDenied, "cannot find out whether an agent is calling, and an agent cannot approve or deny anything")
		}
		for ancestor := int(pid); ancestor > 1; {
			if id, err := o.server.sessionOf(uint32(ancestor)); err == nil {
				return nil, answer(dbusapi.AccessDenied, fmt.Sprintf("an agent cannot approve or deny anything: process %d is of session %q", pid, id))
			}
			st, err := proc.Stat(ancestor)
			if err != nil && ancestor == int(pid) {
				return nil, answer(dbusapi.AccessDenied, "an agent cannot approve or deny anything: the process that called has ended")
			}
			if err != nil {
				break
			}
			ancestor = st.Parent
		}
		return onSession(f)(ctx, o, msg)
	}
}

// callerPID returns the id of the process that calls a method.
func (s *Server) callerPID(ctx context.Context, msg *dbus.Message) (pid uint32, err error) {
	sender, _ := msg.Headers[dbus.FieldSender].Value().(string)
	err = s.conn.BusObject().CallWithContext(ctx, "org.freedesktop.DBus.GetConnectionUnixProcessID", 0, sender).Store(&pid)
	return pid, err
}
