package server

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/proc"
	"github.com/corrald/corral/supervisor"
)

// operation acts on the session with this id. args are the remaining arguments of the method; the
// result is the body of the reply.
type operation = func(ctx context.Context, s *Server, id string, args []any) ([]any, error)

// onManager returns the handler for a method of the Manager that changes one session: its first
// argument is the session's id. onSession returns the handler for the corresponding method of the
// Session object, whose path contains the id, and readsSession that for one which changes nothing,
// and is therefore open to every agent.
func onManager(f operation) handler {
	return func(ctx context.Context, o *object, msg *dbus.Message) ([]any, error) {
		if err := o.checkControl(ctx, msg, msg.Body[0].(string)); err != nil {
			return nil, err
		}
		return f(ctx, o.server, msg.Body[0].(string), msg.Body[1:])
	}
}

func onSession(f operation) handler {
	read := readsSession(f)
	return func(ctx context.Context, o *object, msg *dbus.Message) ([]any, error) {
		if err := o.checkControl(ctx, msg, o.session); err != nil {
			return nil, err
		}
		return read(ctx, o, msg)
	}
}

func readsSession(f operation) handler {
	return func(ctx context.Context, o *object, msg *dbus.Message) ([]any, error) {
		reply, err := f(ctx, o.server, o.session, msg.Body)
		return reply, o.asUnknownObject(err)
	}
}

// withoutArguments adapts an operation of the supervisor that takes no arguments except the
// session's id and returns only an error.
func withoutArguments(f func(*supervisor.Supervisor, context.Context, string) error) operation {
	return func(ctx context.Context, s *Server, id string, _ []any) ([]any, error) {
		return nil, f(s.sup, ctx, id)
	}
}

// withArgument is like withoutArguments for an operation that takes one more argument.
func withArgument[T any](f func(*supervisor.Supervisor, context.Context, string, T) error) operation {
	return func(ctx context.Context, s *Server, id string, args []any) ([]any, error) {
		return nil, f(s.sup, ctx, id, args[0].(T))
	}
}

var (
	start   = withoutArguments((*supervisor.Supervisor).Start)
	restart = withoutArguments((*supervisor.Supervisor).Restart)
	resume  = withoutArguments((*supervisor.Supervisor).Resume)
	suspend = withoutArguments((*supervisor.Supervisor).Suspend)
	archive = withoutArguments((*supervisor.Supervisor).Archive)
	freeze  = withoutArguments((*supervisor.Supervisor).Freeze)
	thaw    = withoutArguments((*supervisor.Supervisor).Thaw)
)

// begin implements BeginSession: it starts, resumes or restarts the session with further options.
func begin(ctx context.Context, s *Server, id string, args []any) ([]any, error) {
	var options supervisor.BeginOptions
	if err := parseOptions(args[1].(map[string]dbus.Variant), map[string]func(dbus.Variant) error{
		"CallerEnvironment": func(v dbus.Variant) error { return store(v, &options.CallerEnvironment) },
		"Now":               func(v dbus.Variant) error { return store(v, &options.Now) },
	}); err != nil {
		return nil, err
	}
	return nil, s.sup.Begin(ctx, id, args[0].(string), options)
}

// parseOptions calls for each option of a call the function of that name.
func parseOptions(options map[string]dbus.Variant, known map[string]func(dbus.Variant) error) error {
	for name, v := range options {
		switch set := known[name]; {
		case set != nil:
			if err := set(v); err != nil {
				return newError(dbusapi.InvalidArgs, fmt.Sprintf("%s in the options %v", name, err))
			}
		case !strings.HasPrefix(name, "x-"):
			return newError(dbusapi.InvalidArgs, fmt.Sprintf("unknown option %.64q", name))
		}
	}
	return nil
}

func stop(ctx context.Context, s *Server, id string, args []any) ([]any, error) {
	const maxUSec = uint64(24 * time.Hour / time.Microsecond)
	usec := args[0].(uint64)
	if usec > maxUSec {
		return nil, newError(dbusapi.InvalidArgs, "timeout_usec is longer than a day")
	}
	return nil, s.sup.Stop(ctx, id, time.Duration(usec)*time.Microsecond)
}

func kill(ctx context.Context, s *Server, id string, args []any) ([]any, error) {
	return nil, s.sup.Kill(ctx, id, args[0].(string), int(args[1].(int32)))
}

func remove(ctx context.Context, s *Server, id string, args []any) ([]any, error) {
	flags := args[0].(uint64)
	force := flags&dbusapi.RemoveForce != 0
	worktree := flags&dbusapi.RemoveWorktree != 0
	discard := flags&dbusapi.RemoveDiscard != 0
	switch {
	case flags&^(dbusapi.RemoveForce|dbusapi.RemoveWorktree|dbusapi.RemoveDiscard) != 0:
		return nil, newError(dbusapi.InvalidArgs, "invalid flags: unknown bits are set")
	case discard && !worktree:
		return nil, newError(dbusapi.InvalidArgs, "invalid flags: 4 requires 2")
	case worktree:
		return nil, s.sup.RemoveWorktree(ctx, id, force, discard)
	}
	return nil, s.sup.Remove(ctx, id, force)
}

func sendInput(ctx context.Context, s *Server, id string, args []any) ([]any, error) {
	return nil, s.sendText(ctx, id, args[0].(string), args[1].(uint64), nil)
}

// sendInputEx implements SendInputEx: sendInput with further options.
func sendInputEx(ctx context.Context, s *Server, id string, args []any) ([]any, error) {
	var caller []string
	if err := parseOptions(args[2].(map[string]dbus.Variant), map[string]func(dbus.Variant) error{
		"CallerEnvironment": func(v dbus.Variant) error { return store(v, &caller) },
	}); err != nil {
		return nil, err
	}
	return nil, s.sendText(ctx, id, args[0].(string), args[1].(uint64), caller)
}

func (s *Server) sendText(ctx context.Context, id, text string, flags uint64, caller []string) error {
	if flags&^(dbusapi.InputEnter|dbusapi.InputIfWaiting|dbusapi.InputResume) != 0 {
		return newError(dbusapi.InvalidArgs, "invalid flags: unknown bits are set")
	}
	return s.sup.Send(ctx, id, text, supervisor.Input{
		Enter:             flags&dbusapi.InputEnter != 0,
		IfWaiting:         flags&dbusapi.InputIfWaiting != 0,
		Resume:            flags&dbusapi.InputResume != 0,
		CallerEnvironment: caller,
	})
}

var managerHandlers = map[string]handler{
	"CreateSession":    createSession,
	"ListSessions":     listSessions,
	"ListSessionsEx":   listSessionsEx,
	"ListAgents":       listAgents,
	"ListStrays":       listStrays,
	"GetSession":       getSession,
	"GetSessionByUnit": getSessionByUnit,
	"GetSessionByPID":  getSessionByPID,
	"StartSession":     onManager(start),
	"RestartSession":   onManager(restart),
	"ResumeSession":    onManager(resume),
	"BeginSession":     onManager(begin),
	"SuspendSession":   onManager(suspend),
	"ResumeAll":        onAll((*supervisor.Supervisor).ResumeAll),
	"SuspendAll":       onAll((*supervisor.Supervisor).SuspendAll),
	"StopSession":      onManager(stop),
	"KillSession":      onManager(kill),
	"FreezeSession":    onManager(freeze),
	"ThawSession":      onManager(thaw),
	"ArchiveSession":   onManager(archive),
	"RemoveSession":    onManager(remove),
	"SendInput":        onManager(sendInput),
	"SendInputEx":      onManager(sendInputEx),
	"ReportActivity":   reportActivity,
	"Clean":            clean,
	"Reload":           reload,
}

// onAll returns the handler for a method that acts on many sessions. Its reply contains the paths
// of these sessions.
func onAll(f func(*supervisor.Supervisor, context.Context) ([]string, error)) handler {
	return func(ctx context.Context, o *object, msg *dbus.Message) ([]any, error) {
		if err := o.checkControl(ctx, msg, ""); err != nil {
			return nil, err
		}
		ids, err := f(o.server.sup, ctx)
		paths := make([]dbus.ObjectPath, len(ids))
		for i, id := range ids {
			paths[i] = dbusapi.SessionPath(id)
		}
		return single(paths, err)
	}
}

// single returns the body of a reply that contains one value, or the error if there is one.
func single(value any, err error) ([]any, error) {
	if err != nil {
		return nil, err
	}
	return []any{value}, nil
}

func createSession(ctx context.Context, o *object, msg *dbus.Message) ([]any, error) {
	spec, err := parseSpec(msg.Body[1].(map[string]dbus.Variant))
	if err != nil {
		return nil, err
	}
	if spec.Parent = o.callingAgent(ctx, msg); spec.Parent != "" {
		create := supervisor.Control{Caller: spec.Parent, Creates: true}
		if err := o.server.sup.CheckControl(create); err != nil {
			return nil, err
		}
	}
	id, err := o.server.sup.Create(ctx, msg.Body[0].(string), spec)
	if err != nil {
		return nil, err
	}
	o.server.startAtLogin(false)
	return []any{id, dbusapi.SessionPath(id)}, nil
}

func listSessions(_ context.Context, o *object, msg *dbus.Message) ([]any, error) {
	return o.server.replyInOrder(msg, func(v *view) ([]any, error) {
		return []any{marshalRows(v.sessions)}, nil
	})
}

func listAgents(ctx context.Context, o *object, _ *dbus.Message) ([]any, error) {
	agents, err := o.server.sup.ListAgents()
	if err != nil {
		return nil, err
	}
	rows := make([]dbusapi.AgentRow, 0, len(agents))
	for _, a := range agents {
		rows = append(rows, dbusapi.AgentRow{Name: a.Name, Description: a.Description, Details: map[string]dbus.Variant{
			"Available":     dbus.MakeVariant(o.server.sup.IsInstalled(ctx, a)),
			"Accounts":      dbus.MakeVariant(a.HasTemplate),
			"Resumable":     dbus.MakeVariant(len(a.ResumeCommand) > 0),
			"Command":       dbus.MakeVariant(append([]string{}, a.Command...)),
			"ResumeCommand": dbus.MakeVariant(append([]string{}, a.ResumeCommand...)),
			"Source":        dbus.MakeVariant(a.Source),
		}})
	}
	return []any{rows}, nil
}

func getSession(_ context.Context, o *object, msg *dbus.Message) ([]any, error) {
	id := msg.Body[0].(string)
	return o.server.replyInOrder(msg, func(v *view) ([]any, error) {
		if v.byID[id] == nil {
			return nil, supervisor.NoSession(id)
		}
		return []any{dbusapi.SessionPath(id)}, nil
	})
}

func getSessionByUnit(_ context.Context, o *object, msg *dbus.Message) ([]any, error) {
	id, err := o.server.sup.ByUnit(msg.Body[0].(string))
	return single(dbusapi.SessionPath(id), err)
}

func getSessionByPID(ctx context.Context, o *object, msg *dbus.Message) (body []any, err error) {
	var id string
	if pid := msg.Body[0].(uint32); pid == 0 {
		id, err = o.callerSession(ctx, msg)
	} else {
		id, err = o.server.sessionOf(pid)
	}
	return single(dbusapi.SessionPath(id), err)
}

// callerSession returns the id of the session that contains the calling process.
func (o *object) callerSession(ctx context.Context, msg *dbus.Message) (string, error) {
	pid, err := o.callerPID(ctx, msg)
	if err != nil {
		return "", newError(dbusapi.NoSessionForPID, "cannot determine the calling process")
	}
	return o.server.sessionOf(pid)
}

// sessionOf returns the id of the session that contains a process. It uses the control group of the
// process, which does not depend on environment variables. A process of the same user can move
// itself to the group of another session, so this attributes what programs do but does not
// authenticate them.
func (s *Server) sessionOf(pid uint32) (string, error) {
	group, err := proc.Cgroup(int(pid))
	if err == nil {
		for part := range strings.SplitSeq(group, "/") {
			if !strings.HasSuffix(part, ".scope") {
				continue
			}
			if id, err := s.sup.ByUnit(part); err == nil {
				return id, nil
			}
		}
	}
	return "", newError(dbusapi.NoSessionForPID, fmt.Sprintf("process %d is in no session", pid))
}

// reportActivity implements ReportActivity, which hooks of agents call. The report applies to the
// session that contains the calling process.
func reportActivity(ctx context.Context, o *object, msg *dbus.Message) ([]any, error) {
	r, err := parseReport(msg.Body[0].(string), msg.Body[1].(map[string]dbus.Variant))
	if err != nil {
		return nil, err
	}
	id, err := o.callerSession(ctx, msg)
	if r.Expected != "" && r.Expected != id {
		return nil, o.server.sup.Misreported(r.Expected, id)
	}
	if err != nil {
		return nil, err
	}
	return nil, o.server.sup.Report(ctx, id, r)
}

// parseReport converts a status report that a client has sent.
func parseReport(activity string, details map[string]dbus.Variant) (supervisor.Report, error) {
	r := supervisor.Report{Activity: activity}
	var until uint64
	known := map[string]any{
		"Reason":          &r.Reason,
		"Message":         &r.Message,
		"Until":           &until,
		"ConversationId":  &r.ConversationID,
		"ExpectedSession": &r.Expected,
	}
	for name, value := range details {
		if strings.HasPrefix(name, "x-") {
			continue
		}
		field := known[name]
		if field == nil {
			return r, newError(dbusapi.InvalidArgs, fmt.Sprintf("unknown detail %.64q", name))
		}
		if want := dbus.SignatureOf(field); value.Signature() != want {
			text := fmt.Sprintf("%s in details has type %q, expected %q", name, value.Signature(), want)
			return r, newError(dbusapi.InvalidArgs, text)
		}
		if err := dbus.Store([]any{value.Value()}, field); err != nil {
			return r, newError(dbusapi.InvalidArgs, fmt.Sprintf("%s in details cannot be read: %v", name, err))
		}
	}
	if until != 0 {
		r.Until = time.UnixMicro(int64(min(until, math.MaxInt64)))
	}
	return r, nil
}

func getManagedObjects(_ context.Context, o *object, msg *dbus.Message) ([]any, error) {
	return o.server.replyInOrder(msg, func(v *view) ([]any, error) { return []any{marshalObjects(v.sessions)}, nil })
}

func clean(ctx context.Context, o *object, msg *dbus.Message) ([]any, error) {
	if err := o.checkControl(ctx, msg, ""); err != nil {
		return nil, err
	}
	return single(o.server.sup.Clean(ctx))
}

func reload(_ context.Context, o *object, _ *dbus.Message) ([]any, error) {
	if err := o.server.info.Reload(); err != nil {
		return nil, newError(dbusapi.ConfigError, err.Error())
	}
	return nil, nil
}
