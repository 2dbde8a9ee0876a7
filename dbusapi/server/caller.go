package server

import (
	"context"
	"fmt"

	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/proc"
)

// requiresCaller contains the methods that are not carried out if the caller has left the bus:
// those that start a run, or may do so, those that type something, and reports. Such a call may
// have waited for a long time, behind another call of the same session or because the daemon was
// stopped. Meanwhile its caller may have given up, reported a failure, and called again; corralctl
// report has left its report in a file, which is in order with later ones.
var requiresCaller = map[string]bool{
	"CreateSession": true, "StartSession": true, "ResumeSession": true, "RestartSession": true, "BeginSession": true,
	"ResumeAll": true, "SendInput": true, "SendInputEx": true, "SendKeys": true, "Approve": true, "Deny": true,
	"ContinueAfterLimit": true, "Start": true, "Resume": true, "Restart": true, "ReportActivity": true,
}

// checkCallerConnected returns an error if the call must not be carried out because its caller has
// left the bus. A caller that expects no reply may leave immediately.
func (s *Server) checkCallerConnected(ctx context.Context, msg *dbus.Message) error {
	sender, _ := msg.Headers[dbus.FieldSender].Value().(string)
	if !requiresCaller[member(msg)] || msg.Flags&dbus.FlagNoReplyExpected != 0 || sender == "" {
		return nil
	}
	connected := true
	err := s.conn.BusObject().CallWithContext(ctx, "org.freedesktop.DBus.NameHasOwner", 0, sender).Store(&connected)
	if err != nil || connected { // without an answer of the bus, the call is carried out
		return nil //nolint:nilerr // as explained above
	}
	return newError(dbusapi.Timeout, "the caller has left the bus before its call was carried out")
}

// denyAgents returns a handler for a method of a session that refuses the calls of agents: those
// from a process of any session and from its descendants. It also refuses a caller whose process
// cannot be determined. This keeps an agent from answering its own questions. It is not a security
// boundary: a process of the same user can leave its control group and its parents, and has other
// means to type into a terminal.
func denyAgents(f operation) handler {
	return func(ctx context.Context, o *object, msg *dbus.Message) ([]any, error) {
		const refusal = "an agent cannot approve or deny anything"
		pid, err := o.server.callerPID(ctx, msg)
		if err != nil {
			return nil, newError(dbusapi.AccessDenied, "cannot determine whether an agent is calling, and "+refusal)
		}
		for ancestor := int(pid); ancestor > 1; {
			if id, err := o.server.sessionOf(uint32(ancestor)); err == nil {
				text := fmt.Sprintf("%s: process %d belongs to session %q", refusal, pid, id)
				return nil, newError(dbusapi.AccessDenied, text)
			}
			st, err := proc.Stat(ancestor)
			if err != nil && ancestor == int(pid) {
				return nil, newError(dbusapi.AccessDenied, refusal+": the calling process has exited")
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
	const method = "org.freedesktop.DBus.GetConnectionUnixProcessID"
	err = s.conn.BusObject().CallWithContext(ctx, method, 0, sender).Store(&pid)
	return pid, err
}
