package supervisor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/shimwire"
	"github.com/corrald/corral/supervisor/session"
)

// world is a World that writes down what it is asked to do.
type world struct {
	World // what is not below is not asked for here
	*bed
	start     func(p Plan, tell func(session.Event)) error // nil: everything gets there at once
	result    string                                       // of StopCause
	reopens   bool                                         // its shim lives, and has made its socket anew
	began     time.Duration                                // of the user manager, by the bed's clock
	causeErr  error
	populated bool
	answers   bool
	dead      bool // what Alive says
	scopes    []Scope
	scopesErr error
	tooLate   []string // what Abandon says
	pulledIn  []string // what PulledIn says
	pulledErr error
	clearing  time.Duration                                               // that Clear takes
	group     string                                                      // what ControlGroup says
	stops     bool                                                        // what Stopping says
	asked     chan struct{}                                               // before it says so it waits for this to be closed
	attached  bool                                                        // what Attached says
	sent      func()                                                      // called by Send
	pressed   func(keys []string, asked *session.PermissionRequest) error // called by Keys
	follow    func(string)                                                // called by Follow
	keySet    func()                                                      // called by SetDetachKey

	foreign bool // another process listens in the place of the shim
	parent  int  // what Parent says
	running bool // what Running says

	freezer    sync.Mutex
	frozen     map[string]bool // by control group
	freezeErr  error
	make       func(p Plan) (string, error)                            // MakeConversation
	open       string                                                  // what OpenConversation finds
	preferred  string                                                  // what OpenConversation was told to be known
	hint       string                                                  // what Hint finds
	properties func(scope string, properties []session.Property) error // SetProperties
}

func runs(p Plan, tell func(session.Event)) error {
	scopeRuns(p, tell)
	agentRuns(p, tell)
	return nil
}

func agentRuns(p Plan, tell func(session.Event)) {
	tell(session.AgentStarted{Run: p.Spec.RunID, Agent: session.Process{PID: 12, Start: 120}, At: time.Now()})
}

func scopeRuns(p Plan, tell func(session.Event)) {
	tell(session.ScopeStarted{Run: p.Spec.RunID, InvocationID: "inv", ControlGroup: "/" + p.Unit})
	tell(session.TmuxStarted{Run: p.Spec.RunID})
}

func (w *world) Start(_ context.Context, p Plan, tell func(session.Event)) error {
	w.tell("start %s", p.ID)
	if w.start != nil {
		return w.start(p, tell)
	}
	return runs(p, tell)
}

func (w *world) MakeConversation(_ context.Context, p Plan, command []string) (string, error) {
	w.tell("make a conversation for %s by %s", p.ID, strings.Join(command, " "))
	return w.make(p)
}

func (w *world) OpenConversation(t Target, file OpenFile) string {
	w.tell("look at the files of %s", t.ID)
	w.preferred = file.Known
	return w.open
}

func (w *world) Hint(_ context.Context, p Plan, _ Conversation, _ *regexp.Regexp) string {
	w.tell("look at the last words of %s", p.ID)
	return w.hint
}

func (w *world) Rejoin(_ context.Context, t Target, p Plan, tell func(session.Event)) error {
	w.tell("rejoin %s", t.ID)
	tell(session.TmuxStarted{Run: p.Spec.RunID, Process: session.Process{PID: t.Tmux.PID + 1, Start: t.Tmux.Start + 1}})
	return nil
}

func (w *world) End(_ context.Context, t Target) error    { w.tell("ask agent %s", t.ID); return nil }
func (w *world) HangUp(_ context.Context, t Target) error { w.tell("hang up %s", t.ID); return nil }
func (w *world) Kill(_ context.Context, t Target) error   { w.tell("kill %s", t.ID); return nil }

func (w *world) Continue(_ context.Context, t Target) error {
	w.tell("continue %s", t.ID)
	return nil
}

func (w *world) Signal(_ context.Context, t Target, whom string, signal unix.Signal) error {
	w.tell("signal %s %s %s", whom, t.ID, unix.SignalName(signal))
	return nil
}

func (w *world) StopCause(context.Context, string) (StopCause, error) {
	return StopCause{Result: w.result}, w.causeErr
}

func (w *world) Shown(int) ([]string, string, error) {
	return []string{"claude", "--verbose"}, w.bed.home, nil
}

func (w *world) Follow(path string) (string, error) {
	if w.follow != nil {
		w.follow(path)
	}
	return filepath.EvalSymlinks(path)
}

func (w *world) ExpectStart() {}

func (w *world) FindProgram(_ context.Context, program, _ string, _ Environment) error {
	if program == "missing" {
		return errors.New(`command "missing" not found`)
	}
	return nil
}

func (w *world) Freeze(_ context.Context, t Target) error {
	w.tell("freeze %s", t.ID)
	w.freeze(t.ControlGroup, true)
	return w.freezeErr
}

// Thaw is told of only where there is something to thaw.
func (w *world) Thaw(_ context.Context, t Target) error {
	if w.Frozen(t.ControlGroup) {
		w.tell("thaw %s", t.ID)
		w.freeze(t.ControlGroup, false)
	}
	return nil
}

func (w *world) freeze(group string, frozen bool) {
	w.freezer.Lock()
	defer w.freezer.Unlock()
	if w.frozen == nil {
		w.frozen = map[string]bool{}
	}
	w.frozen[group] = frozen
}

func (w *world) Frozen(group string) bool {
	w.freezer.Lock()
	defer w.freezer.Unlock()
	return w.frozen[group]
}

func (w *world) FreezerFile(string) string { return filepath.Join(w.home, "freezer") }

func (w *world) SetProperties(_ context.Context, scope string, properties []session.Property) error {
	w.tell("set %d properties of scope %q", len(properties), scope)
	if w.properties != nil {
		return w.properties(scope, properties)
	}
	return nil
}

func (w *world) Began(context.Context) (time.Duration, error) { return w.began, nil }

func (w *world) Stopping(context.Context) bool {
	if w.asked != nil {
		<-w.asked
	}
	return w.stops
}

func (w *world) Reopen(t Target) bool                     { w.tell("reopen %s", t.ID); return w.reopens }
func (w *world) TmuxAnswers(context.Context, Target) bool { return w.answers }

func (w *world) Release(_ context.Context, t Target) error { w.tell("release %s", t.ID); return nil }

func (w *world) Clear(_ context.Context, unit, _ string) {
	w.tell("clear %s", unit)
	<-time.After(w.clearing)
}

func (w *world) Alive(session.Process) (int, bool) {
	if w.dead {
		return -1, false
	}
	fd, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	return fd, err == nil
}

func (w *world) TmuxServer(Target) (session.Process, bool) { return session.Process{}, false }
func (w *world) Scopes(context.Context) ([]Scope, error)   { return w.scopes, w.scopesErr }

func (w *world) Abandon(_ context.Context, units []string) ([]string, error) {
	if len(units) > 0 {
		w.tell("abandon %s", strings.Join(units, ", "))
	}
	return w.tooLate, nil
}

func (w *world) PulledIn(context.Context) ([]string, error) { return w.pulledIn, w.pulledErr }
func (w *world) Watch(context.Context, []string) error      { return nil }
func (w *world) Forget(context.Context, string) error       { return nil }
func (w *world) ControlGroup(int) string                    { return w.group }
func (w *world) Occupied(string) bool                       { return w.populated }
func (w *world) Populated(string) bool                      { return w.populated }
func (w *world) Keys(_ context.Context, t Target, keys []string, asked *session.PermissionRequest) error {
	w.tell("press %s %v", t.ID, keys)
	if w.pressed != nil {
		return w.pressed(keys, asked)
	}
	return nil
}
func (w *world) Reap(context.Context, Target) error { return nil }
func (w *world) SetDetachKey(_ context.Context, t Target, key string) error {
	w.tell("set the detach key of %s: %s", t.ID, key)
	if w.keySet != nil {
		w.keySet()
	}
	return nil
}
func (w *world) AttachCommand(context.Context, Target) ([]string, error) {
	return []string{"tmux"}, nil
}
func (w *world) Attached(Target) bool                                       { return w.attached }
func (w *world) Usage(string) map[string]uint64                             { return nil }
func (w *world) Capture(context.Context, Target, int, bool) (string, error) { return "", nil }

func (w *world) DialShim(t Target) (int, session.Process, error) {
	if w.foreign {
		return -1, session.Process{}, &ForeignSocketError{Path: t.ShimSocket(), PID: 99, ControlGroup: "/other.scope"}
	}
	fd, err := shimwire.Dial(t.ShimSocket())
	return fd, session.Process{PID: 11, Start: 110}, err
}

func (w *world) Parent(int) int               { return w.parent }
func (w *world) Running(session.Process) bool { return w.running }

func (w *world) Send(context.Context, Target, string, bool) error {
	if w.sent != nil {
		w.sent()
	}
	return nil
}
