package server

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/proc"
	"github.com/corrald/corral/supervisor"
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
func (o *object) checkCallerConnected(ctx context.Context, msg *dbus.Message) error {
	sender, _ := msg.Headers[dbus.FieldSender].Value().(string)
	if !requiresCaller[member(msg)] || msg.Flags&dbus.FlagNoReplyExpected != 0 || sender == "" {
		return nil
	}
	_, err := o.callerPID(ctx, msg)
	var left dbus.Error
	if errors.As(err, &left) && left.Name == "org.freedesktop.DBus.Error.NameHasNoOwner" {
		return newError(dbusapi.Timeout, "the caller has left the bus before its call was carried out")
	}
	return nil // also without an answer of the bus
}

// denyAgents returns a handler for a method of a session that refuses the calls of agents: those
// from a process of any session and from its descendants. It also refuses a caller whose process
// cannot be determined. This keeps an agent from answering its own questions. It is not a security
// boundary: a process of the same user can leave its control group and its parents, and has other
// means to type into a terminal.
func denyAgents(f operation) handler {
	return func(ctx context.Context, o *object, msg *dbus.Message) ([]any, error) {
		const refusal = "an agent cannot approve or deny anything"
		pid, err := o.callerPID(ctx, msg)
		if err != nil {
			return nil, newError(dbusapi.AccessDenied, "cannot determine whether an agent is calling, and "+refusal)
		}
		id, err := o.server.agentOf(pid)
		switch {
		case err != nil:
			return nil, newError(dbusapi.AccessDenied, refusal+": the calling process has exited")
		case id != "":
			text := fmt.Sprintf("%s: process %d belongs to session %q", refusal, pid, id)
			return nil, newError(dbusapi.AccessDenied, text)
		}
		return readsSession(f)(ctx, o, msg)
	}
}

// agentOf returns the id of the session that contains a process or, if none does, the nearest of
// its ancestors; "" if it is outside of all sessions. An error means that the process has exited.
func (s *Server) agentOf(pid uint32) (id string, err error) {
	for ancestor := int(pid); ancestor > 1; {
		if id, err := s.sessionOf(uint32(ancestor)); err == nil {
			return id, nil
		}
		st, err := proc.Stat(ancestor)
		if ancestor == int(pid) && err != nil {
			return "", err
		}
		ancestor = st.Parent // 0 if it has exited
	}
	return "", nil
}

// callingAgent returns the id of the session from which a call comes, "" if it comes from outside
// of all sessions, or if its caller has left the bus. It is determined once for each connection.
func (o *object) callingAgent(ctx context.Context, msg *dbus.Message) string {
	if known := o.client.agent.Load(); known != nil {
		return *known
	}
	pid, err := o.callerPID(ctx, msg)
	if err != nil {
		return ""
	}
	id, err := o.server.agentOf(pid)
	if err == nil {
		o.client.agent.Store(&id)
	}
	return id
}

// checkControl returns an error if an agent is calling, and AgentsMayControl= does not permit it to
// change the session with this id, or any session if the id is "".
func (o *object) checkControl(ctx context.Context, msg *dbus.Message, id string) error {
	agent := o.callingAgent(ctx, msg)
	if agent == "" {
		return nil
	}
	types := strings.HasPrefix(member(msg), "Send")
	return o.server.sup.CheckControl(supervisor.Control{Caller: agent, Target: id, Types: types})
}

// callerPID returns the id of the process that calls a method.
func (o *object) callerPID(ctx context.Context, msg *dbus.Message) (pid uint32, err error) {
	if o.caller == 0 {
		sender, _ := msg.Headers[dbus.FieldSender].Value().(string)
		const method = "org.freedesktop.DBus.GetConnectionUnixProcessID"
		err = o.server.conn.BusObject().CallWithContext(ctx, method, 0, sender).Store(&o.caller)
	}
	return o.caller, err
}
