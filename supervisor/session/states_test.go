package session_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/corrald/corral/dbusapi/word"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/supervisor/session"
)

var update = flag.Bool("update", false, "overwrite states.txt and decisions.txt in testdata")

// statesFile contains the state machine as the documentation shows it.
const statesFile = "testdata/states.txt"

// states has every state, in the order of a session's life.
var states = func() (all []session.State) {
	for _, state := range word.States {
		all = append(all, session.State(state))
	}
	return all
}()

// happening is an event with its description in that file.
type happening struct {
	description string
	event       session.Event
}

// happenings has everything that can happen to a session, in the order of a session's life. A
// request is made at second 30. An exit at second 20 happened before the request and is received
// after it.
var happenings = []happening{
	{"a run begins", runBegun},
	{"the scope has started", scope},
	{"tmux has started", tmux},
	{"the agent has started", agent},
	{"the start fails", startFailed},
	{"the command cannot be executed", late(notStarted("not found"))},
	{"the agent exits with 0", late(exit(exitstatus.Exited, 0))},
	{"the agent exits with another code", late(exit(exitstatus.Exited, 3))},
	{"the agent is killed by a signal", late(exit(exitstatus.Killed, 9))},
	{"the agent is killed for its memory", late(outOfMemory(1 << 20))},
	{"RuntimeMaxSec= expires", session.ScopeResult{Run: run, Result: word.Timeout, Moment: moment(29)}},
	{"a stop is requested", stop},
	{"a suspend is requested", suspend},
	{"an exit with 0 from before the request", exit(exitstatus.Exited, 0)},
	{"tmux exits", session.TmuxDied{Run: run}},
	{"a new tmux has started", newTmux},
	{"the shim exits, tmux does not", shimDied},
	{"the shim exits", allDied},
	{"the scope is gone", empty},
	{"the scope is gone, killed for its memory", oomEnd},
	{"corrald exits and leaves it running", leftRunning},
	{"corrald finds it running", foundAlive},
	{"the machine goes down", wentDown},
	{"the workspace disappears", gone},
	{"the workspace is back", back},
	{"it is frozen or thawed", session.FreezeObserved{Run: run, Frozen: true}},
	{"the agent prints or is silent", prints},
	{"it is archived", archive},
}

// isPossible reports whether the event can happen. The supervisor begins a run, and archives a
// session, only when no process of the run before it remains. Systemd reports nothing about a scope
// that is gone. Once the machine went down, only what its processes have left on disk is reported;
// while corrald is not running, only what it can find when it starts again. An exit from before a
// request is possible only after a request.
func isPossible(s *session.Session, e session.Event) bool {
	r := s.Run
	left := r != nil && !r.LeftRunning.IsZero()
	down := r != nil && !r.MachineDown.IsZero()
	switch e.(type) {
	case session.RunBegun:
		return !r.Live() && s.Archived.IsZero()
	case session.SessionArchived:
		return !r.Live()
	case session.WorkspaceObserved:
		return true
	}
	if r == nil {
		return false
	}
	switch e := e.(type) {
	case session.AgentExited:
		return e.Status.Exited.After(at(30)) || r.Intent != session.NoIntent
	case session.FoundAlive:
		return left && r.Live()
	case session.ScopeStarted, session.ScopeEnded, session.MachineWentDown:
		return !down
	case session.ScopeResult:
		return !down && !left && r.Live()
	case session.StartFailed:
		return !down && (!left || r.Live())
	}
	return !down && !left
}

// inTime sets the time of an event that contains the time at which it was noticed, so that it is
// consistent with what is known by then: a request at second 30, an exit at second 35.
func inTime(s *session.Session, e session.Event) session.Event {
	if s.Run == nil {
		return e
	}
	switch e := e.(type) {
	case session.ScopeResult:
		if s.Run.Intent != session.NoIntent || s.Run.Exit != nil {
			e.At = at(40)
		}
		return e
	case session.StartFailed:
		if s.Run.Exit != nil {
			e.At = at(40)
		}
		return e
	}
	return e
}

// facts has the facts by which View can distinguish the sessions of the search. All others are the
// same in each of these sessions.
type facts struct {
	resumable, archived, gone, run bool
	started, startError, outlived  bool
	machineDown, left              bool
	empty, noTmux, noShim          bool
	server                         int
	exit                           [4]int // code, value, second, OOM kills; all 0 if there is none
	timedOut                       int    // second, 0 if it did not
	result                         string
	intent                         session.Intent
}

func factsOf(s *session.Session) facts {
	f := facts{resumable: s.Resumable(), archived: !s.Archived.IsZero(), gone: s.WorkspaceGone}
	r := s.Run
	if r == nil {
		return f
	}
	second := func(t time.Time) int { return int(t.Sub(t0).Seconds()) }
	f.run, f.outlived, f.server = true, r.TmuxSurvived, r.TmuxProc.PID
	f.empty, f.noTmux, f.noShim = r.Scope == session.ScopeGone, r.Tmux == session.Dead, r.Shim == session.Dead
	f.started, f.startError = !r.Started.IsZero(), r.StartError != ""
	f.machineDown, f.left = !r.MachineDown.IsZero(), !r.LeftRunning.IsZero()
	f.result, f.intent = r.ScopeResult, r.Intent
	if !r.TimedOut.IsZero() {
		f.timedOut = second(r.TimedOut)
	}
	if x := r.Exit; x != nil {
		f.exit = [4]int{int(x.Code), x.Value, second(x.Exited), int(x.OOMKills)}
	}
	return f
}

// transition is one step of the search.
type transition struct {
	from, to    session.State
	description string
	event       session.Event
	before      *session.Session
}

// search visits, breadth first, everything that can become of a session, and calls visit for each
// step.
func search(visit func(transition)) {
	resumable := newSession()
	resumable.ResumeCommand = []string{"claude", "--resume"}
	queue := []*session.Session{newSession(), resumable}
	seen := map[facts]bool{}
	for _, s := range queue {
		seen[factsOf(s)] = true
	}
	for ; len(queue) > 0; queue = queue[1:] {
		s := queue[0]
		from := s.View().State
		for _, h := range happenings {
			if !isPossible(s, h.event) {
				continue
			}
			copied := *s
			next := &copied
			if s.Run != nil {
				r := *s.Run
				next.Run = &r
			}
			if _, begins := h.event.(session.RunBegun); begins {
				next.Run = nil             // the run before it does not matter, and a new one may have the same id
				next.WorkspaceGone = false // the workspace is examined again
			}
			next.Apply(inTime(s, h.event))
			visit(transition{from, next.View().State, h.description, h.event, s})
			// What happens to an archived session afterwards is not of interest.
			if f := factsOf(next); !seen[f] && s.Archived.IsZero() {
				seen[f] = true
				queue = append(queue, next)
			}
		}
	}
}

const statesHead = `The states of a session: for each state the events that change it, and the new state. If there are several states
after an arrow, the facts known by then decide between them. An event that is not listed does not change the
state. The file is printed from the rules, by trying every event after every sequence of events:
go test ./supervisor/session -run TestStates -update
`

func printStates(steps map[session.State]map[string]map[session.State]bool) string {
	var b strings.Builder
	b.WriteString(statesHead)
	for _, from := range states {
		fmt.Fprintf(&b, "\n%s  (%s)\n", strings.ToUpper(string(from)), from.Lifecycle())
		leaves := false
		for _, h := range happenings {
			to := maps.Clone(steps[from][h.description])
			if len(to) == 0 || len(to) == 1 && to[from] {
				continue
			}
			leaves = true
			var names []string
			for _, state := range states {
				if to[state] {
					names = append(names, string(state))
				}
			}
			fmt.Fprintf(&b, "    %-46s -> %s\n", h.description, strings.Join(names, ", "))
		}
		if !leaves {
			b.WriteString("    no event changes it\n")
		}
	}
	return b.String()
}

// breaks returns the rule of the product description that a step from one state to another breaks,
// "" if there is none.
func (s transition) breaks() string {
	_, begins := s.event.(session.RunBegun)
	_, archived := s.event.(session.SessionArchived)
	_, exited := s.event.(session.AgentExited)
	r := s.before.Run
	ended := slices.Contains([]session.State{session.Completed, session.Failed, session.Stopped}, s.from)
	// A run that was left running when corrald was shut down only counts as suspended until corrald
	// has found it alive again.
	ended = ended || s.from == session.Suspended && !r.Live()
	switch {
	case s.from == s.to:
		return ""
	case s.from == session.Archived:
		return "archived is final"
	case archived != (s.to == session.Archived):
		return "archived on request only"
	case s.to == session.Created && r != nil:
		return "a session that was started once is never created again"
	case begins && s.to != session.Starting, !begins && s.to == session.Starting && (ended || r == nil):
		return "a run begins when it is requested, and not otherwise"
	case ended && !begins && !archived && (!exited || r.Exit != nil):
		// The record of an exit is read before the end of its run is processed, so that this step is
		// never published. It is possible here because the shim's record always decides, whenever it
		// is received.
		return "only a request of a person ends an ended state"
	}
	return ""
}

// TestStates compares the state machine that follows from the rules with the documented one, and
// checks it against the rules of the product description.
func TestStates(t *testing.T) {
	steps := map[session.State]map[string]map[session.State]bool{}
	search(func(s transition) {
		if steps[s.from] == nil {
			steps[s.from] = map[string]map[session.State]bool{}
		}
		if steps[s.from][s.description] == nil {
			steps[s.from][s.description] = map[session.State]bool{}
		}
		steps[s.from][s.description][s.to] = true
		if broken := s.breaks(); broken != "" {
			t.Fatalf("%s: %s -> %s: %s, from %+v", broken, s.from, s.to, s.description, factsOf(s.before))
		}
	})
	for _, state := range states {
		assert.Contains(t, steps, state, "it is reachable")
	}
	got := printStates(steps)
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(statesFile, []byte(got), 0o644))
	}
	want, err := os.ReadFile(statesFile)
	require.NoError(t, err)
	assert.Equal(t, string(want), got, "the rules have changed: if that is intended, run this test with -update")
}

// TestStates_CoverEveryEvent checks that the list of happenings is complete.
func TestStates_CoverEveryEvent(t *testing.T) {
	tried := map[string]bool{}
	for _, h := range happenings {
		tried[kindOf(h.event)] = true
	}
	for _, name := range eventNames(t) {
		assert.True(t, tried[name], "%s does not occur in happenings", name)
	}
}

func kindOf(e session.Event) string { return reflect.TypeOf(e).Name() }

// eventNames returns the types that are events, those with a method apply, as read from the source.
func eventNames(t *testing.T) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "event.go", nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	var names []string
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Recv != nil && f.Name.Name == "apply" {
			names = append(names, f.Recv.List[0].Type.(*ast.Ident).Name)
		}
	}
	require.NotEmpty(t, names)
	return names
}
