package server

import (
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/dbusapi/word"
	"github.com/corrald/corral/supervisor"
)

var sessionHandlers = map[string]handler{
	"Start":               onSession(start),
	"Restart":             onSession(restart),
	"Resume":              onSession(resume),
	"Suspend":             onSession(suspend),
	"Stop":                onSession(stop),
	"Kill":                onSession(kill),
	"Freeze":              onSession(freeze),
	"Thaw":                onSession(thaw),
	"Archive":             onSession(archive),
	"Remove":              onSession(remove),
	"SendInput":           onSession(sendInput),
	"SendKeys":            onSession(withArgument((*supervisor.Supervisor).Keys)),
	"ContinueAfterLimit":  onSession(continueAfterLimit),
	"Approve":             denyAgents(answerPermission(false)),
	"Deny":                denyAgents(answerPermission(true)),
	"Capture":             readsSession(capture),
	"OpenLog":             readsSession(openLog),
	"GetAttachCommand":    onSession(attachCommand), // who attaches can type
	"Acknowledge":         onSession(withoutArguments((*supervisor.Supervisor).Acknowledge)),
	"ConfirmNotification": onSession(confirmNotification),
	"Explain":             readsSession(explain),
	"GetEnvironment":      readsSession(getEnvironment),
	"SetDescription":      onSession(withArgument((*supervisor.Supervisor).Describe)),
	"SetLabels":           onSession(withArgument((*supervisor.Supervisor).Label)),
	"SetOnLogin":          onSession(setOnLogin),

	"SetUnitProperties": onSession(setUnitProperties),
}

func capture(ctx context.Context, s *Server, id string, args []any) ([]any, error) {
	lines, flags := args[0].(uint32), args[1].(uint64)
	if flags&^dbusapi.CaptureEscapes != 0 {
		return nil, newError(dbusapi.InvalidArgs, "invalid flags: unknown bits are set")
	}
	return single(s.sup.Capture(ctx, id, int(min(lines, 1<<20)), flags&dbusapi.CaptureEscapes != 0))
}

// answerPermission returns the function of Approve or of Deny.
func answerPermission(deny bool) operation {
	return func(ctx context.Context, s *Server, id string, _ []any) ([]any, error) {
		return nil, s.sup.AnswerPermission(ctx, id, supervisor.Answer{Deny: deny})
	}
}

func confirmNotification(_ context.Context, s *Server, id string, args []any) ([]any, error) {
	return nil, s.info.ConfirmNotification(id, time.UnixMicro(int64(min(args[0].(uint64), math.MaxInt64))))
}

func continueAfterLimit(ctx context.Context, s *Server, id string, args []any) ([]any, error) {
	flags := args[0].(uint64)
	if flags&^dbusapi.ContinueIfDue != 0 {
		return nil, newError(dbusapi.InvalidArgs, "invalid flags: unknown bits are set")
	}
	return nil, s.sup.ContinueAfterLimit(ctx, id, flags&dbusapi.ContinueIfDue != 0)
}

func openLog(_ context.Context, s *Server, id string, _ []any) ([]any, error) {
	f, err := s.sup.OpenLog(id)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	// The reply is sent after this function has returned, so it needs a descriptor of its own. reply
	// closes it.
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	return single(dbus.UnixFD(fd), err)
}

func attachCommand(ctx context.Context, s *Server, id string, _ []any) ([]any, error) {
	argv, err := s.sup.AttachCommand(ctx, id)
	if err != nil {
		return nil, err
	}
	return []any{argv, []string{}}, nil
}

func explain(_ context.Context, s *Server, id string, _ []any) ([]any, error) {
	explanations, err := s.sup.Explain(id)
	rows := make([]dbusapi.Explanation, len(explanations))
	for i, e := range explanations {
		value := strings.ToValidUTF8(e.Value, "\uFFFD")
		rows[i] = dbusapi.Explanation{Subject: e.Subject, Source: e.Source, Time: usec(e.At), Value: value}
	}
	return single(rows, err)
}

// getEnvironment returns the names and sources of the last run's environment variables. The only
// value that it returns is that of PATH.
func getEnvironment(_ context.Context, s *Server, id string, _ []any) ([]any, error) {
	o, err := s.sup.Origins(id)
	if err != nil {
		return nil, err
	}
	return []any{variables(o.Variables), variables(o.Missing), strings.ToValidUTF8(o.Path, "\uFFFD")}, nil
}

func variables(bySource map[string][]string) []dbusapi.Variable {
	rows := []dbusapi.Variable{}
	for source, names := range bySource {
		for _, name := range names {
			rows = append(rows, dbusapi.Variable{Name: strings.ToValidUTF8(name, "\uFFFD"), Source: source})
		}
	}
	slices.SortFunc(rows, func(a, b dbusapi.Variable) int { return strings.Compare(a.Name, b.Name) })
	return rows
}

func setOnLogin(ctx context.Context, s *Server, id string, args []any) ([]any, error) {
	onLogin := args[0].(string)
	err := s.sup.SetOnLogin(ctx, id, onLogin)
	if err == nil && onLogin != word.Ignore && onLogin != "" {
		s.startAtLogin(true)
	}
	return nil, err
}

func setUnitProperties(ctx context.Context, s *Server, id string, args []any) ([]any, error) {
	var list []dbusapi.UnitProperty
	if err := dbus.Store([]any{args[0]}, &list); err != nil {
		return nil, newError(dbusapi.InvalidArgs, "the properties cannot be read: "+err.Error())
	}
	properties, err := readProperties(list)
	if err != nil {
		return nil, newError(dbusapi.InvalidArgs, "the list "+err.Error())
	}
	return nil, s.sup.SetUnitProperties(ctx, id, properties)
}
