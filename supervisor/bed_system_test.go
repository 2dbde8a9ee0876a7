package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/corrald/corral/dbusapi/word"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/environment"
	"github.com/corrald/corral/internal/proc"
	"github.com/corrald/corral/internal/sandbox"
	"github.com/corrald/corral/internal/shimwire"
	"github.com/corrald/corral/supervisor/conversations"
	"github.com/corrald/corral/supervisor/environments"
	"github.com/corrald/corral/supervisor/session"
)

// fakeSystem is a System that traces what it is requested to do. Its fields determine the results.
type fakeSystem struct {
	*bed
	start     func(p Plan, report func(session.Event)) error // called by StartScope; nil selects runs
	result    string                                         // of StopCause
	since     time.Duration                                  // of StopCause, by the bed's clock
	reopens   bool                                           // ReopenSockets succeeds: the shim is alive
	began     time.Duration                                  // of the user manager, by the bed's clock
	causeErr  error                                          // of StopCause
	populated bool                                           // returned by IsPopulated and StaysPopulated
	answers   bool                                           // returned by IsTmuxResponding
	dead      bool                                           // OpenPidfd reports that the process has exited
	scopes    []Scope
	scopesErr error
	list      func() []Scope // called by Scopes; nil selects scopes
	tooLate   []string       // returned by Abandon
	pulledIn  []string       // returned by PulledIn
	pulledErr error
	clearing  time.Duration                                                 // how long CleanUp takes
	group     string                                                        // returned by ControlGroup
	stops     bool                                                          // returned by IsStopping
	explain   chan struct{}                                                 // StopCause waits for its closing, if set
	asked     chan struct{}                                                 // IsStopping waits for its closing, if set
	attached  bool                                                          // returned by IsAttached
	typed     func()                                                        // called by TypeText
	pressed   func(keys []string, request *session.PermissionRequest) error // called by PressKeys
	resolve   func(string)                                                  // called by ResolvePath
	keySet    func()                                                        // called by SetDetachKey

	foreign bool // another process listens in place of the shim
	parent  int  // returned by Parent
	running bool // returned by IsRunning

	unwatched [][]string // the arguments of each Unwatch

	freezer    sync.Mutex
	frozen     map[string]bool // by control group
	freezeErr  error
	texts      atomic.Value                                            // the last text that was typed: a string
	timerFails atomic.Bool                                             // SetContinueTimer returns an error
	create     func(p Plan) (string, error)                            // called by CreateConversationID
	limit      *conversations.UsageLimit                               // returned by DetectOpen if OpenFile.Limit is set
	open       string                                                  // returned by DetectOpen
	preferred  atomic.Value                                            // OpenFile.Known of the last DetectOpen: a string
	printed    string                                                  // returned by DetectPrinted
	properties func(scope string, properties []session.Property) error // called by SetProperties
}

// runs reports everything that the successful start of a run does.
func runs(p Plan, report func(session.Event)) error {
	scopeRuns(p, report)
	agentRuns(p, report)
	return nil
}

// agentRuns reports the start of the agent.
func agentRuns(p Plan, report func(session.Event)) {
	report(session.AgentStarted{Run: p.Spec.RunID, Agent: session.Process{PID: 12, Start: 120}, At: time.Now()})
}

// scopeRuns reports the start of the scope and of its tmux server.
func scopeRuns(p Plan, report func(session.Event)) {
	report(session.ScopeStarted{Run: p.Spec.RunID, InvocationID: "inv", ControlGroup: "/" + p.Unit})
	report(session.TmuxStarted{Run: p.Spec.RunID})
}

func (f *fakeSystem) system() System {
	return System{
		Executor: f, Systemd: f, Processes: f, ControlGroups: f, Terminals: f, Environments: f, Conversations: f,
		ResolvePath: f.ResolvePath,
		Confine: func(
			_ *Confinement, _ sandbox.Request, variables []environment.Variable,
		) (command sandbox.Command, _ []environment.Variable, err error) {
			return command, variables, nil
		},
	}
}

// Execute implements Executor.
func (f *fakeSystem) Execute(_ context.Context, task Task, report func(session.Event)) error {
	t := task.Target
	if session.RequiresThaw(task.Effect) {
		f.thaw(t)
	}
	switch e := task.Effect.(type) {
	case session.CreateConversationID:
		return f.createConversation(task.Plan, report)
	case session.StartScope:
		return f.startScope(task.Plan, report)
	case session.RejoinTmux:
		f.trace("rejoin %s", t.ID)
		report(session.TmuxStarted{
			Run: task.Plan.Spec.RunID, Process: session.Process{PID: t.Tmux.PID + 1, Start: t.Tmux.Start + 1},
		})
	case session.ContinueShim:
		f.trace("continue %s", t.ID)
	case session.SignalAgent:
		f.trace("terminate %s", t.ID)
	case session.HangUp:
		f.trace("SIGHUP %s", t.ID)
	case session.SignalAll:
		f.trace("signal %s %s %s", word.All, t.ID, unix.SignalName(unix.SIGTERM))
	case session.KillScope:
		f.trace("kill %s", t.ID)
	case session.CleanUp:
		f.trace("clear %s", t.Unit)
		<-time.After(f.clearing)
	case session.ReleaseScope:
		f.trace("release %s", t.ID)
	case session.ReopenSockets:
		f.trace("reopen %s", t.ID)
		if !f.reopens {
			return ErrNoShim
		}
	case session.Freeze:
		f.trace("freeze %s", t.ID)
		f.freeze(t.ControlGroup, true)
		if f.freezeErr != nil {
			f.thaw(t)
		}
		return f.freezeErr
	case session.Thaw:
		f.thaw(t)
	case session.SendSignal:
		f.trace("signal %s %s %s", e.Recipient, t.ID, unix.SignalName(unix.Signal(e.Signal)))
	case session.KillProcess:
		f.trace("kill process %d of %s", e.Process.PID, t.ID)
	case session.SetDetachKey:
		f.trace("set the detach key of %s: %s", t.ID, e.Key)
		if f.keySet != nil {
			f.keySet()
		}
	case session.TypeText:
		f.texts.Store(e.Text)
		if f.typed != nil {
			f.typed()
		}
	case session.PressKeys:
		f.trace("press %s %v", t.ID, e.Keys)
		if f.pressed != nil {
			return f.pressed(e.Keys, e.Asked)
		}
	case session.SetProperties:
		f.trace("set %d properties of scope %q", len(e.Properties), e.InvocationID)
		if f.properties != nil {
			return f.properties(e.InvocationID, e.Properties)
		}
	case session.AnticipateStart, session.ReapTmux:
	default:
		panic(fmt.Sprintf("effect %T is carried out by the event loop", task.Effect))
	}
	return nil
}

func (f *fakeSystem) startScope(p Plan, report func(session.Event)) error {
	f.trace("start %s", p.ID)
	if f.start != nil {
		return f.start(p, report)
	}
	return runs(p, report)
}

func (f *fakeSystem) createConversation(p Plan, report func(session.Event)) error {
	f.trace("make a conversation for %s by %s", p.ID, strings.Join(p.IDCommand, " "))
	id, err := f.create(p)
	if err == nil {
		report(session.ConversationCreated{Run: p.Spec.RunID, ID: id})
	}
	return err
}

func (f *fakeSystem) DetectOpen(group string, _ int, file conversations.OpenFile) conversations.Opened {
	f.trace("list the open files of %s", group)
	f.preferred.Store(file.Known)
	found := conversations.Opened{ID: f.open}
	if file.Limit != nil {
		found.Limit = f.limit
	}
	return found
}

func (f *fakeSystem) DetectPrinted(dir string, _ conversations.Printed, _ conversations.Variables) string {
	f.trace("read the output of %s", filepath.Base(dir))
	return f.printed
}

func (f *fakeSystem) Compose(context.Context, environments.Sources, string, string) ([]environment.Variable, error) {
	return nil, nil
}

func (f *fakeSystem) StopCause(context.Context, string) (StopCause, error) {
	if f.explain != nil {
		<-f.explain
	}
	return StopCause{Result: f.result, Since: f.since}, f.causeErr
}

func (f *fakeSystem) CommandLine(int) ([]string, string, error) {
	return []string{"claude", "--verbose"}, f.bed.home, nil
}

func (f *fakeSystem) ResolvePath(path string) (string, error) {
	if f.resolve != nil {
		f.resolve(path)
	}
	return filepath.EvalSymlinks(path)
}

func (f *fakeSystem) FindProgram(_ context.Context, program, _ string, _ environments.Sources) error {
	if program == "missing" {
		return errors.New(`command "missing" not found`)
	}
	return nil
}

// thaw is recorded only if there is something to thaw.
func (f *fakeSystem) thaw(t Target) {
	if f.IsFrozen(t.ControlGroup) {
		f.trace("thaw %s", t.ID)
		f.freeze(t.ControlGroup, false)
	}
}

func (f *fakeSystem) freeze(group string, frozen bool) {
	f.freezer.Lock()
	defer f.freezer.Unlock()
	if f.frozen == nil {
		f.frozen = map[string]bool{}
	}
	f.frozen[group] = frozen
}

func (f *fakeSystem) IsFrozen(group string) bool {
	f.freezer.Lock()
	defer f.freezer.Unlock()
	return f.frozen[group]
}

func (f *fakeSystem) EventsFile(string) string { return filepath.Join(f.home, "freezer") }

func (f *fakeSystem) SetContinueTimer(_ context.Context, id string, at time.Time) error {
	if at.IsZero() {
		f.trace("no timer for %s", id)
	} else {
		f.trace("timer for %s at %s", id, at.UTC().Format(time.TimeOnly))
	}
	if f.timerFails.Load() {
		return errors.New("systemd does not answer")
	}
	return nil
}

func (f *fakeSystem) StartTime(context.Context) (time.Duration, error) { return f.began, nil }

func (f *fakeSystem) IsStopping(context.Context) bool {
	if f.asked != nil {
		<-f.asked
	}
	return f.stops
}

func (f *fakeSystem) IsTmuxResponding(context.Context, Target) bool { return f.answers }

func (f *fakeSystem) Reap(int) {}

func (f *fakeSystem) OpenPidfd(session.Process) (int, bool) {
	if f.dead {
		return -1, false
	}
	fd, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	return fd, err == nil
}

func (f *fakeSystem) FindTmux(Target) (session.Process, bool) { return session.Process{}, false }

func (f *fakeSystem) Scopes(context.Context) ([]Scope, error) {
	if f.list != nil {
		return f.list(), nil
	}
	return f.scopes, f.scopesErr
}

func (f *fakeSystem) Abandon(_ context.Context, units []string) ([]string, error) {
	if len(units) > 0 {
		f.trace("abandon %s", strings.Join(units, ", "))
	}
	return f.tooLate, nil
}

func (f *fakeSystem) PulledIn(context.Context) ([]string, error) { return f.pulledIn, f.pulledErr }
func (f *fakeSystem) Watch(context.Context, ...string) error     { return nil }
func (f *fakeSystem) Unwatch(_ context.Context, units ...string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unwatched = append(f.unwatched, units)
	return nil
}
func (f *fakeSystem) ControlGroup(int) string    { return f.group }
func (f *fakeSystem) IsPopulated(string) bool    { return f.populated }
func (f *fakeSystem) StaysPopulated(string) bool { return f.populated }
func (f *fakeSystem) AttachCommand(context.Context, Target) ([]string, error) {
	return []string{"tmux"}, nil
}
func (f *fakeSystem) IsAttached(Target) bool                                     { return f.attached }
func (f *fakeSystem) Usage(string) (proc.Usage, bool)                            { return proc.Usage{}, false }
func (f *fakeSystem) Capture(context.Context, Target, int, bool) (string, error) { return "", nil }

func (f *fakeSystem) DialShim(t Target) (int, session.Process, error) {
	if f.foreign {
		return -1, session.Process{}, &ForeignSocketError{Path: t.ShimSocket(), PID: 99, ControlGroup: "/other.scope"}
	}
	fd, err := shimwire.Dial(t.ShimSocket())
	return fd, session.Process{PID: 11, Start: 110}, err
}

func (f *fakeSystem) Parent(int) int                 { return f.parent }
func (f *fakeSystem) IsRunning(session.Process) bool { return f.running }
