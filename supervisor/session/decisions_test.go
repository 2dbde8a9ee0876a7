package session_test

import (
	"cmp"
	"errors"
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

// decisionsFile contains all decisions as the documentation shows them.
const decisionsFile = "testdata/decisions.txt"

var opNames = map[session.Op]string{
	session.NoOp: "no operation", session.OpStart: "start", session.OpResume: "resume", session.OpRestart: "restart",
	session.OpRejoin: "rejoin", session.OpStop: "stop", session.OpSuspend: "suspend", session.OpArchive: "archive",
	session.OpRemove: "remove",
}

var phaseNames = map[session.Phase]string{
	session.NoPhase: "", session.Prepare: "Prepare", session.CreateConversation: "CreateConversation",
	session.Launch: "Launch", session.Continued: "Continued", session.Rejoin: "Rejoin",
	session.TermAgent: "TermAgent", session.HangUpAgent: "HangUpAgent", session.TermAll: "TermAll",
	session.KillAll: "KillAll", session.Surviving: "Surviving", session.Cleanup: "Cleanup", session.SetUp: "SetUp",
}

var outcomeNames = map[session.Outcome]string{
	session.Done: "Done", session.NotPossible: "NotPossible", session.Replaced: "Replaced",
	session.StoppedMeanwhile: "StoppedMeanwhile", session.SuspendedMeanwhile: "SuspendedMeanwhile",
	session.RemovedMeanwhile: "RemovedMeanwhile", session.CouldNotStart: "CouldNotStart", session.Closing: "Closing",
	session.SurvivedKill: "SurvivedKill", session.EffectFailed: "EffectFailed",
}

// situation is a session with its pending operation, as the exploration reaches it.
type situation struct {
	s       *session.Session
	p       session.Pending
	closing bool

	from *situation // the situation before, nil for the first one
	by   string     // what happened in it
}

// String returns how the situation was reached.
func (n *situation) String() string {
	if n.from == nil {
		return "a new session"
	}
	return fmt.Sprint(n.from, ", ", n.by)
}

// place is the part of a situation by which decisions.txt is ordered.
type place struct {
	state session.State
	op    session.Op
	phase session.Phase
}

func (n *situation) place() place { return place{n.s.View().State, n.p.Op, n.p.Phase} }

func (p place) String() string {
	if p.phase == session.NoPhase {
		return opNames[p.op]
	}
	if p.op == session.NoOp {
		return phaseNames[p.phase]
	}
	return opNames[p.op] + ": " + phaseNames[p.phase]
}

// situationKey has everything on which decisions depend.
type situationKey struct {
	place
	scope                                  session.ScopePhase
	intent                                 session.Intent
	appeared, ended, alive, executed, left bool
	startError, tmuxDead, cannotStart      bool
	awaits, stale, workspaceGone           bool
	shared, closing                        bool // the scope is that of an earlier run
	signalled, starting, inside, sameRun   bool
	kills                                  int
	reply                                  session.Op
	setup                                  session.SetupPhase
}

func (n *situation) key() situationKey {
	v := n.s.View()
	k := situationKey{
		place: n.place(), awaits: n.s.AwaitsAgent(), stale: n.s.Stale(), closing: n.closing,
		cannotStart: v.Result == word.StartFailed, signalled: n.p.Signalled && n.p.Phase <= session.HangUpAgent,
		starting: n.p.Starting, inside: n.p.Inside, kills: n.p.Kills,
	}
	if n.s.Run == nil {
		k.setup = n.s.Setup.Phase
	}
	if r := n.s.Run; r != nil {
		k.scope, k.intent, k.appeared, k.ended, k.alive = r.Scope, r.Intent, r.AgentAppeared(), r.Ended(), r.AgentAlive()
		k.executed = r.Exit == nil || r.Exit.Code != exitstatus.NotStarted
		k.left, k.startError = !r.LeftRunning.IsZero(), r.StartError != ""
		k.shared = len(n.s.Past) > 0 && n.s.Past[0].InvocationID != "earlier"
	}
	if !n.p.Ending() { // else these facts do not matter any more
		k.workspaceGone, k.tmuxDead = n.s.WorkspaceGone, n.s.Run != nil && n.s.Run.Tmux == session.Dead
	}
	if len(n.p.Replies) > 0 {
		k.reply, k.sameRun = n.p.Replies[0].Op, n.s.Run != nil && n.s.Run.ID == n.p.Replies[0].Run
	}
	return k
}

func (n *situation) clone() *situation {
	s := *n.s
	if s.Run != nil {
		r := *s.Run
		s.Run = &r
	}
	s.Past = slices.Clone(s.Past)
	return &situation{s: &s, p: n.p, closing: n.closing, from: n}
}

// input is an event with its description in decisions.txt. A nil event stands for the beginning of
// a shutdown.
type input struct {
	description string
	event       session.Event
}

const reply = session.ReplyID(1)

// inputs has every event that Next can get, in the order of a session's life.
func inputs() []input {
	begin := func(op session.Op, inside bool) session.Event {
		return session.BeginRequested{Op: op, Begin: session.Begin{Run: nextRun, Inside: inside}, Reply: reply}
	}
	systemd := func(op session.Op) session.Event {
		now := session.Moment{At: at(30), Monotonic: time.Hour}
		return session.EndRequested{Op: op, Systemd: true, Signalled: true, At: now}
	}
	return []input{
		{"start", begin(session.OpStart, false)},
		{"resume", begin(session.OpResume, false)},
		{"resume inside the scope", begin(session.OpResume, true)},
		{"restart", begin(session.OpRestart, false)},
		{"rejoin", session.RejoinRequested{Reply: reply}},
		{"stop", session.EndRequested{Op: session.OpStop, Reply: reply}},
		{"suspend", session.EndRequested{Op: session.OpSuspend, Reply: reply}},
		{"archive", session.ArchiveRequested{Reply: reply}},
		{"remove", session.RemoveRequested{Reply: reply}},
		{"remove by force", session.RemoveRequested{Force: true, Reply: reply}},
		{"wait for the start", session.WaitRequested{Op: session.OpStart, Reply: reply}},
		{"wait for the end", session.WaitRequested{Op: session.OpStop, Reply: reply}},
		{"the daemon shuts down", nil},
		{"systemd stops the scope", systemd(session.OpStop)},
		{"systemd stops the user manager", systemd(session.OpSuspend)},
		{"systemd ends the scope for its time or memory", session.ScopeStopped{Signalled: true}},
		{"the start is prepared", session.StartPrepared{}},
		{"the start is prepared, with IdCommand=", session.StartPrepared{CreateConversation: true}},
		{"the conversation is created", session.ConversationCreated{Run: run}},
		{"the start returns", session.StartReturned{Run: run}},
		{"the start returns an error", session.StartReturned{Run: run, Err: "no"}},
		{"the worktree is set up", session.SetupReturned{}},
		{"the setup returns an error", session.SetupReturned{Err: "no"}},
		{"the rejoin returns", session.Rejoined{Run: run}},
		{"the rejoin returns an error", session.Rejoined{Run: run, Err: errors.New("no")}},
		{"the cleanup returns", session.Cleaned{}},
		{"the cleanup returns an error", session.Cleaned{Err: errors.New("no")}},
		{"the deadline expires", session.Tick{}},
		{"the scope has started", scope},
		{"tmux has started", tmux},
		{"the agent has started", agent},
		{"the command cannot be executed", late(notStarted("not found"))},
		{"the agent exits", late(exit(exitstatus.Exited, 0))},
		{"tmux exits", session.TmuxDied{Run: run}},
		{"the shim exits, tmux does not", shimDied},
		{"the scope is gone", empty},
		{"the daemon leaves it running", leftRunning},
		{"another daemon finds it", foundAlive},
		{"the workspace disappears", gone},
		{"the workspace is back", back},
	}
}

// nextRun begins another run.
var nextRun = func() session.RunBegun {
	next := runBegun
	next.Run = "next"
	return next
}()

// isPossibleIn reports whether an event can happen in a situation: facts as in states.txt, and the
// results of effects once these have been decided.
func isPossibleIn(n *situation, e session.Event) bool {
	r := n.s.Run
	if n.p.Phase == session.Prepare { // the event loop prepares a start at once
		_, prepared := e.(session.StartPrepared)
		return prepared
	}
	if r != nil && !r.LeftRunning.IsZero() && r.Live() { // what the next daemon finds
		switch e.(type) {
		case session.FoundAlive, session.AgentExited, session.ScopeEnded:
			return isPossible(n.s, e)
		}
		return false
	}
	switch e := e.(type) {
	case nil:
		return !n.closing
	case session.BeginRequested, session.RejoinRequested, session.EndRequested,
		session.ArchiveRequested, session.RemoveRequested:
		return true
	case session.WaitRequested:
		if e.Op == session.OpStart {
			return n.p.WaitsToBegin() || n.s.AwaitsAgent()
		}
		return n.p.Ending()
	case session.Tick:
		return n.p.Deadline != 0
	case session.StartPrepared:
		return false
	case session.ConversationCreated:
		return n.p.Starting && n.p.Phase == session.CreateConversation
	case session.StartReturned:
		return n.p.Starting && (e.Err != "" || n.p.Phase != session.CreateConversation)
	case session.SetupReturned:
		return n.p.Phase == session.SetUp
	case session.Rejoined:
		return n.p.Phase == session.Rejoin
	case session.Cleaned:
		return n.p.Phase == session.Cleanup
	case session.ScopeStopped:
		return r.Live()
	case session.ScopeEnded: // while a start is being carried out, the event loop holds it back
		return !n.p.Starting && r.Live() && isPossible(n.s, e)
	case session.LeftRunning: // at the end of a shutdown
		return n.closing && len(n.p.Replies) == 0 && isPossible(n.s, e)
	case session.TmuxDied, session.WorkspaceObserved: // while a run is being ended, they change nothing
		return !n.p.Ending() && (r == nil || r.Live()) && isPossible(n.s, e)
	case session.ScopeStarted, session.TmuxStarted:
		return n.p.Starting && isPossible(n.s, e)
	case session.AgentExited:
		return isPossible(n.s, e)
	default:
		return isPossible(n.s, e) && (r == nil || r.Live())
	}
}

// decide returns the situation after an event, and what was decided.
func decide(n *situation, e session.Event) (*situation, session.Step) {
	next := n.clone()
	switch e.(type) {
	case nil:
		next.closing = true
		return next, session.Step{Pending: n.p}
	case session.FoundAlive: // by another daemon
		next.p, next.closing = session.Pending{}, false
	}
	env := session.Env{
		Moment: session.Moment{At: at(30), Monotonic: time.Hour},
		Grace:  func() time.Duration { return 8 * time.Second },
	}
	if _, is := e.(session.Tick); is {
		env.Monotonic = n.p.Deadline
	}
	env.Closing = next.closing
	step := session.Next(next.s, next.p, inTime(next.s, e), env)
	next.p = step.Pending
	if begins(step) {
		next.renameRun()
	}
	return next, step
}

// begins reports whether a run begins in the step.
func begins(step session.Step) bool {
	return slices.ContainsFunc(step.Facts, func(f session.Event) bool { return kindOf(f) == "RunBegun" })
}

// renameRun gives a run that has just begun the id that all events have, and earlier runs and their
// scopes other ones.
func (n *situation) renameRun() {
	n.s.Past = n.s.Past[max(0, len(n.s.Past)-1):]
	for i := range n.s.Past {
		if n.s.Past[i].ID = "earlier"; !n.p.Inside {
			n.s.Past[i].InvocationID = "earlier"
		}
	}
	n.s.Run.ID = run
	n.p.Replies = slices.Clone(n.p.Replies)
	for i, r := range n.p.Replies {
		n.p.Replies[i].Run = map[string]string{run: "earlier", "earlier": "earlier", "next": run}[r.Run]
	}
}

// exploreDecisions visits, breadth first, everything that can be pending for a session in all of
// its states, and calls visit for each event that can happen there.
func exploreDecisions(visit func(n, next *situation, in input, step session.Step)) (situations int) {
	first, unprepared := &situation{s: newSession()}, &situation{s: newSession()}
	unprepared.s.Worktree, unprepared.s.Setup.Phase = &session.Worktree{}, session.SetupPending
	queue := []*situation{first, unprepared}
	seen := map[situationKey]bool{first.key(): true, unprepared.key(): true}
	all := inputs()
	for ; len(queue) > 0; queue = queue[1:] {
		n := queue[0]
		for _, in := range all {
			if !isPossibleIn(n, in.event) {
				continue
			}
			next, step := decide(n, in.event)
			next.by = in.description
			visit(n, next, in, step)
			if len(next.p.Replies) > 1 || !n.s.Archived.IsZero() {
				continue // one call that waits is enough, and an archived session stays archived
			}
			if k := next.key(); !seen[k] {
				seen[k] = true
				queue = append(queue, next)
			}
		}
	}
	return len(seen)
}

// cell is one entry of decisions.txt.
type cell struct {
	from place
	in   string
}

// TestDecisions compares the decisions with the documented ones, and checks each of them.
func TestDecisions(t *testing.T) {
	cells := map[cell]map[string]bool{}
	situations := exploreDecisions(func(n, next *situation, in input, step session.Step) {
		if c := (cell{n.place(), in.description}); !n.closing {
			if cells[c] == nil {
				cells[c] = map[string]bool{}
			}
			cells[c][describe(n, next, step)] = true
		}
		for _, wrong := range []string{
			unanswered(n, step, in.event), signalsEarlierRun(next, step), revives(n, next, step, in.event),
		} {
			if wrong != "" {
				t.Fatalf("%s: %s, then %s: %v", wrong, n, in.description, step.Effects)
			}
		}
		require.NotNil(t, opNames[next.p.Op])
	})
	t.Logf("%d situations", situations)
	got := printDecisions(cells)
	if *update {
		require.NoError(t, os.WriteFile(decisionsFile, []byte(got), 0o644))
	}
	want, err := os.ReadFile(decisionsFile)
	require.NoError(t, err)
	assert.Equal(t, string(want), got, "the decisions have changed: if that is intended, run this test with -update")
}

// unanswered returns what is wrong with the answers to calls: each call that waits, and the one
// that was just made, is answered once, or waits for an operation that is pending.
func unanswered(n *situation, step session.Step, e session.Event) string {
	open := map[session.ReplyID]int{}
	for _, r := range n.p.Replies {
		open[r.ID]++
	}
	if isRequest(e) {
		open[reply]++
	}
	for _, r := range step.Pending.Replies {
		open[r.ID]--
	}
	for _, effect := range step.Effects {
		if a, is := effect.(session.Answer); is {
			open[a.ID]--
		}
	}
	for _, left := range open {
		if left != 0 {
			return fmt.Sprintf("%d calls are not answered", left)
		}
	}
	if p := step.Pending; p.Phase == session.NoPhase && !p.Starting && len(p.Replies) > 0 {
		return "a call waits for nothing"
	}
	return ""
}

func isRequest(e session.Event) bool {
	field := reflect.ValueOf(e)
	if !field.IsValid() {
		return false
	}
	field = field.FieldByName("Reply")
	return field.IsValid() && field.Interface() == reply
}

// signalsEarlierRun returns what is wrong with the effects on processes: they concern the session's
// run as it is after the step, and so must not have been decided for a run before it, or for one
// whose scope is gone.
func signalsEarlierRun(next *situation, step session.Step) string {
	for _, effect := range step.Effects {
		switch effect.(type) {
		case session.SignalAgent, session.HangUp, session.SignalAll, session.KillScope, session.ContinueShim,
			session.RejoinTmux:
			if begins(step) || !next.s.Run.Live() {
				return fmt.Sprintf("%T for an earlier run", effect)
			}
		}
	}
	return ""
}

// revives returns what is wrong if a run that has ended runs again, or if another one has begun
// without a request.
func revives(n, next *situation, step session.Step, e session.Event) string {
	_, requested := e.(session.BeginRequested)
	switch {
	case begins(step) && !requested && !n.p.WaitsToBegin():
		return "a run begins that nobody has requested"
	case !begins(step) && n.s.Run != nil && n.s.Run.Ended() && !next.s.Run.Ended():
		return "a run that has ended runs again"
	}
	return ""
}

// maxSteps bounds the events until a pending operation is over if nothing is reported of it.
const maxSteps = 12

// TestDecisions_EndWhateverIsLost checks that every pending operation ends, and every call is
// answered, within a bounded time, even if nothing more is reported than errors of effects and the
// deadline. Only a scope that survives SIGKILL remains.
func TestDecisions_EndWhateverIsLost(t *testing.T) {
	longest, checked := time.Duration(0), map[situationKey]bool{}
	exploreDecisions(func(_, n *situation, _ input, _ session.Step) {
		if k := n.key(); checked[k] {
			return
		}
		checked[n.key()] = true
		begin, end := time.Hour, time.Hour
		for range maxSteps {
			e := failureOf(n)
			if e == nil {
				break
			}
			end = max(end, n.p.Deadline)
			from := n
			n, _ = decide(n, e)
			n.from, n.by = from, kindOf(e)
		}
		longest = max(longest, end-begin)
		if over := n.p.Phase == session.NoPhase || n.p.Phase == session.Surviving; !over || len(n.p.Replies) > 0 {
			t.Fatalf("still pending (%s): %s", n.place(), n)
		}
	})
	t.Logf("the longest operation takes %v with a grace of 8 s", longest)
}

// failureOf returns what is reported at the latest about the pending operation, nil if it is over.
func failureOf(n *situation) session.Event {
	switch {
	case n.p.Phase == session.Prepare: // by the event loop, at once
		return session.StartPrepared{}
	case n.p.Phase == session.Rejoin:
		return session.Rejoined{Run: run, Err: errors.New("lost")}
	case n.p.Phase == session.Cleanup:
		return session.Cleaned{Err: errors.New("lost")}
	case n.p.Phase == session.SetUp:
		return session.SetupReturned{Err: "lost"}
	case n.p.Starting:
		return session.StartReturned{Run: run, Err: "lost"}
	case n.p.Deadline != 0:
		return session.Tick{}
	}
	return nil
}

// describe returns what was decided, as decisions.txt prints it, "" if nothing was.
func describe(n, next *situation, step session.Step) string {
	var parts []string
	if from, to := n.place(), next.place(); from != to || begins(step) {
		text := to.String()
		if from.op == to.op {
			text = phaseNames[to.phase]
		}
		if from.state != to.state {
			text = strings.TrimSuffix(string(to.state)+", "+text, ", ")
		}
		parts = append(parts, text)
	}
	for _, effect := range step.Effects {
		if a, is := effect.(session.Answer); is {
			parts = append(parts, "answer "+outcomeNames[a.Outcome])
		} else {
			parts = append(parts, reflect.TypeOf(effect).Name())
		}
	}
	return strings.Join(parts, "; ")
}

const decisionsHead = `What corrald does about a session, unless it is shutting down: for each state and pending operation with its
phase, the requests and events that can happen there, and what they lead to. After the arrow are the new state,
operation and phase, if they change, then the effects in order. If there are several lines, further facts decide
between them, such as what remains in the scope. An event that is not listed changes none of this. The file is
printed from the rules, by trying every event in every situation:
go test ./supervisor/session -run TestDecisions -update
`

func printDecisions(cells map[cell]map[string]bool) string {
	var places []place
	for c := range cells {
		if !slices.Contains(places, c.from) {
			places = append(places, c.from)
		}
	}
	slices.SortFunc(places, func(a, b place) int {
		return cmp.Or(
			cmp.Compare(slices.Index(states, a.state), slices.Index(states, b.state)),
			cmp.Compare(a.op, b.op), cmp.Compare(a.phase, b.phase))
	})
	var texts []string
	heads := map[string][]string{} // by text: the places whose decisions it describes
	for _, at := range places {
		text := printPlace(at, cells)
		if heads[text] == nil {
			texts = append(texts, text)
		}
		heads[text] = append(heads[text], fmt.Sprintf("%s, %s\n", strings.ToUpper(string(at.state)), at))
	}
	var b strings.Builder
	b.WriteString(decisionsHead)
	for _, text := range texts {
		fmt.Fprintf(&b, "\n%s%s", strings.Join(heads[text], ""), text)
	}
	return b.String()
}

// printPlace prints the decisions for one state and pending operation. Requests with the same
// results share a line.
func printPlace(at place, cells map[cell]map[string]bool) string {
	var names []string
	results := map[string]string{}
	for _, in := range inputs() {
		var lines []string
		for _, result := range slices.Sorted(maps.Keys(cells[cell{at, in.description}])) {
			lines = append(lines, cmp.Or(result, "nothing"))
		}
		text := strings.Join(lines, fmt.Sprintf("\n%50s -> ", ""))
		same := slices.IndexFunc(names, func(name string) bool { return results[name] == text })
		switch {
		case text == "" || text == "nothing":
			continue
		case isRequest(in.event) && same >= 0:
			delete(results, names[same])
			names[same] += ", " + in.description
			results[names[same]] = text
			continue
		case isRequest(in.event):
			in.description = "request: " + in.description
		}
		names = append(names, in.description)
		results[in.description] = text
	}
	var b strings.Builder
	for _, name := range names {
		fmt.Fprintf(&b, "    %-46s -> %s\n", name, results[name])
	}
	return b.String()
}

// TestDecisions_CoverEveryRequestAndResult checks that inputs has every request for an operation
// and every result of an effect, and that the names above are complete.
func TestDecisions_CoverEveryRequestAndResult(t *testing.T) {
	tried := map[string]bool{}
	for _, in := range inputs() {
		if in.event != nil {
			tried[kindOf(in.event)] = true
		}
	}
	file, err := parser.ParseFile(token.NewFileSet(), "requests.go", nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	for _, d := range file.Decls {
		if f, is := d.(*ast.FuncDecl); is && f.Recv != nil && f.Name.Name == "apply" {
			name := f.Recv.List[0].Type.(*ast.Ident).Name
			assert.True(t, tried[name], "%s does not occur in inputs", name)
		}
	}
	assert.Len(t, opNames, int(session.OpRemove)+1)
	assert.Len(t, phaseNames, int(session.SetUp)+1)
	assert.Len(t, outcomeNames, int(session.EffectFailed)+1)
}
