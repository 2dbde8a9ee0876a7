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

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/supervisor/session"
)

var update = flag.Bool("update", false, "write testdata/states.txt anew")

// statesFile is the state machine as the manual shows it.
const statesFile = "testdata/states.txt"

// happening is an event with the words that the file has for it.
type happening struct {
	words string
	event session.Event
}

// happenings are all that can happen to a session, in the order of a session's life. A wish comes at second 30, an exit at second 20 is one that
// happened before it and is heard of afterwards.
var happenings = []happening{
	{"a run is asked for", asked},
	{"the scope is there", scope},
	{"tmux is there", tmux},
	{"the agent runs", agent},
	{"the start fails", notThere},
	{"the command cannot be executed", late(notStarted("not found"))},
	{"the agent ends with 0", late(exit(exitstatus.Exited, 0))},
	{"the agent ends with another code", late(exit(exitstatus.Exited, 3))},
	{"the agent is killed by a signal", late(exit(exitstatus.Killed, 9))},
	{"the agent is killed for its memory", late(outOfMemory(1 << 20))},
	{"its time is up", session.ScopeResult{Run: run, Result: session.Timeout, At: at(29)}},
	{"a stop is asked for", stop},
	{"a suspend is asked for", suspend},
	{"it turns out that it had ended before, with 0", exit(exitstatus.Exited, 0)},
	{"tmux dies", session.TmuxDied{Run: run}},
	{"a new tmux is there", newTmux},
	{"the shim dies, tmux lives on", shimDied},
	{"the shim dies", allDied},
	{"the scope is empty", empty},
	{"the scope is empty, for lack of memory", oomEnd},
	{"corrald is shut down", left},
	{"corrald finds it alive", found},
	{"the machine goes down", wentDown},
	{"the workspace vanishes", gone},
	{"the workspace comes back", back},
	{"it is frozen or thawed", session.FrozenSeen{Run: run, Frozen: true}},
	{"the agent is busy or idle", prints},
	{"it is archived", archive},
}

// may tells whether the event can be. The supervisor begins a run, and archives a session, only when nothing of the run before is left. Systemd has
// nothing to say of a scope that is gone. Once the machine went down nothing is told of what ran on it, but for what it left on the disk; as long as
// corrald is not there, nothing but what can be found on its return. An exit from before a wish is one where there was a wish.
func may(s *session.Session, e session.Event) bool {
	r := s.Run
	left := r != nil && !r.Left.IsZero()
	down := r != nil && !r.MachineDown.IsZero()
	switch e.(type) {
	case session.RunAsked:
		return !r.Live() && s.Archived.IsZero()
	case session.ArchiveAsked:
		return !r.Live()
	case session.WorkspaceSeen:
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

// inTime gives an event that carries the time at which it is noticed one that fits to what is known by then: a wish comes at second 30, an exit at 35.
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

// facts is what of a session View can tell apart here: what is left of it is the same in every session of the search.
type facts struct {
	resumable, archived, gone, run bool
	started, startError, outlived  bool
	machineDown, left              bool
	empty, noTmux, noShim          bool
	server                         int
	exit                           [4]int // code, value, second, OOM kills; all 0 if there is none
	timedOut                       int    // second, 0 if it is not
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
	f.run, f.outlived, f.server = true, r.Outlived, r.TmuxProc.PID
	f.empty, f.noTmux, f.noShim = r.Scope == session.ScopeGone, r.Tmux == session.Dead, r.Shim == session.Dead
	f.started, f.startError, f.machineDown, f.left = !r.Started.IsZero(), r.StartError != "", !r.MachineDown.IsZero(), !r.Left.IsZero()
	f.result, f.intent = r.ScopeResult, r.Intent
	if !r.TimedOut.IsZero() {
		f.timedOut = second(r.TimedOut)
	}
	if x := r.Exit; x != nil {
		f.exit = [4]int{int(x.Code), x.Value, second(x.Exited), int(x.OOMKills)}
	}
	return f
}

// transition is a step that the search has found.
type transition struct {
	from, to session.State
	words    string
	event    session.Event
	before   *session.Session
}

// search goes, breadth first, through everything that can become of a session, and calls found for each step.
func search(found func(transition)) {
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
			if !may(s, h.event) {
				continue
			}
			copied := *s
			next := &copied
			if s.Run != nil {
				r := *s.Run
				next.Run = &r
			}
			if _, begins := h.event.(session.RunAsked); begins {
				next.Run = nil             // the run before it counts no more, and a new one of the same name is as good as another
				next.WorkspaceGone = false // it is looked at anew
			}
			next.Apply(inTime(s, h.event))
			found(transition{from, next.View().State, h.words, h.event, s})
			if f := factsOf(next); !seen[f] && s.Archived.IsZero() { // what becomes of the facts of an archived session is not of interest
				seen[f] = true
				queue = append(queue, next)
			}
		}
	}
}

const statesHead = `What becomes of a session, state by state: what happens to it, and what it is then. Where several states stand behind an arrow,
the facts known by then decide. What is not listed under a state changes nothing there. This file is printed from the rules themselves, by
trying everything that can happen on everything that can have happened: go test ./supervisor/session -run States -update
`

func printStates(steps map[session.State]map[string]map[session.State]bool) string {
	var b strings.Builder
	b.WriteString(statesHead)
	for _, from := range session.States {
		fmt.Fprintf(&b, "\n%s  (%s)\n", strings.ToUpper(string(from)), from.Lifecycle())
		leaves := false
		for _, h := range happenings {
			to := maps.Clone(steps[from][h.words])
			if len(to) == 0 || len(to) == 1 && to[from] {
				continue
			}
			leaves = true
			var names []string
			for _, state := range session.States {
				if to[state] {
					names = append(names, string(state))
				}
			}
			fmt.Fprintf(&b, "    %-46s -> %s\n", h.words, strings.Join(names, ", "))
		}
		if !leaves {
			b.WriteString("    nothing leads out of it\n")
		}
	}
	return b.String()
}

// breaks tells which rule of PRODUCT's a step from one state to another breaks, "" if none.
func (s transition) breaks() string {
	_, runAsked := s.event.(session.RunAsked)
	_, archived := s.event.(session.ArchiveAsked)
	_, exited := s.event.(session.AgentExited)
	r := s.before.Run
	ended := slices.Contains([]session.State{session.Completed, session.Failed, session.Stopped}, s.from)
	// What was left running when corrald was shut down is only taken to be suspended, until corrald sees it again.
	ended = ended || s.from == session.Suspended && !r.Live()
	switch {
	case s.from == s.to:
		return ""
	case s.from == session.Archived:
		return "archived is final"
	case archived != (s.to == session.Archived):
		return "archived by wish only"
	case s.to == session.Created && r != nil:
		return "what was started once is not created any more"
	case runAsked && s.to != session.Starting, !runAsked && s.to == session.Starting && (ended || r == nil):
		return "a run begins when it is asked for, and not otherwise"
	case ended && !runAsked && !archived && (!exited || r.Exit != nil):
		// The record of an exit is read before the end of its run is believed, so that nobody sees this step. It is here because what the shim has
		// recorded is the truth, whenever it is heard of.
		return "an ended state is left by a person only"
	}
	return ""
}

// TestStates compares the state machine that the rules make with the one that is shown, and holds it against what PRODUCT says of it.
func TestStates(t *testing.T) {
	steps := map[session.State]map[string]map[session.State]bool{}
	search(func(s transition) {
		if steps[s.from] == nil {
			steps[s.from] = map[string]map[session.State]bool{}
		}
		if steps[s.from][s.words] == nil {
			steps[s.from][s.words] = map[session.State]bool{}
		}
		steps[s.from][s.words][s.to] = true
		if broken := s.breaks(); broken != "" {
			t.Fatalf("%s: %s -> %s: %s, from %+v", broken, s.from, s.to, s.words, factsOf(s.before))
		}
	})
	for _, state := range session.States {
		assert.Contains(t, steps, state, "it can be reached")
	}
	got := printStates(steps)
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(statesFile, []byte(got), 0o644))
	}
	want, err := os.ReadFile(statesFile)
	require.NoError(t, err)
	assert.Equal(t, string(want), got, "the rules have changed: see that it is meant, then run this test with -update")
}

// TestEveryEventIsTried keeps the list of happenings complete.
func TestEveryEventIsTried(t *testing.T) {
	tried := map[string]bool{}
	for _, h := range happenings {
		tried[kindOf(h.event)] = true
	}
	for _, name := range eventNames(t) {
		assert.True(t, tried[name], "%s is in none of the happenings", name)
	}
}

func kindOf(e session.Event) string { return reflect.TypeOf(e).Name() }

// eventNames reads from the source which types are events: those with a method apply.
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
