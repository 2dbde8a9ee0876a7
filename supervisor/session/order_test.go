package session_test

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/corrald/corral/dbusapi/word"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/supervisor/session"
)

// history has the facts that can be reported about one run: each once, by its one source.
type history struct {
	// unordered are facts that systemd, the shim and the kernel report concurrently. They are received
	// in any order.
	unordered []session.Event
	// ordered are facts that the daemon itself records, according to what it knows then: it records a
	// request only for a run that is not known to have ended, and what contains the time at which the
	// daemon noticed it cannot have been noticed earlier. An exit that came after the request is
	// received after it. An exit that came before the request can be received at any time, because its
	// record contains when it happened.
	ordered []session.Event
}

func randomHistory(r *rand.Rand) history {
	var h history
	maybe := func(to *[]session.Event, e session.Event) {
		if r.IntN(2) == 0 {
			*to = append(*to, e)
		}
	}
	pick := func(events ...session.Event) session.Event { return events[r.IntN(len(events))] }
	exited := pick(exit(exitstatus.Exited, 0), exit(exitstatus.Exited, 3), exit(exitstatus.Killed, 15),
		exit(exitstatus.Dumped, 11), notStarted("not found"), outOfMemory(1<<20)).(session.AgentExited)
	maybe(&h.unordered, scope)
	maybe(&h.unordered, tmux)
	maybe(&h.unordered, tmuxDied)
	maybe(&h.unordered, newTmux)
	if exited.Status.Code != exitstatus.NotStarted {
		maybe(&h.unordered, agent)
	}
	maybe(&h.unordered, pick(gone, back))
	for seq, source := range []session.Source{
		session.FromOutput, session.FromOutput, session.FromBell, session.FromBell,
		session.FromNotify, session.FromReport, session.FromReport,
	} {
		maybe(&h.unordered, session.StatusReported{Run: run, Source: source, Report: randomReport(r, uint64(seq+1))})
	}
	maybe(&h.unordered, session.AgentReady{Run: run, At: at(6)})
	maybe(&h.unordered, session.Prompted{Run: run})
	maybe(&h.unordered, session.Answered{Run: run, Reports: session.Seqs{Report: uint64(r.IntN(8))}})
	maybe(&h.unordered, archive)
	result := []string{"", "success", "resources", "oom-kill", "timeout"}[r.IntN(5)]
	if result == "timeout" { // systemd keeps the first failure: a Result of the active scope stays until its end
		maybe(&h.unordered, timeIsUp)
	}

	requested := r.IntN(2) == 0
	if requested {
		h.ordered = append(h.ordered, pick(stop, suspend))
	}
	switch kind := r.IntN(3); {
	case kind == 0 && requested: // it exited after the request
		h.ordered = append(h.ordered, late(exited))
	case kind == 0:
		h.unordered = append(h.unordered, late(exited))
	case kind == 1:
		h.unordered = append(h.unordered, exited)
	}
	maybe(&h.ordered, leftRunning)
	maybe(&h.ordered, session.Acknowledged{
		Run: run, State: []session.State{"", session.Failed, session.Completed, session.Stale}[r.IntN(4)],
		Reports: session.Seqs{Bell: uint64(r.IntN(5)), Notify: uint64(r.IntN(6))},
	})
	maybe(&h.ordered, pick(shimDied, allDied))
	maybe(&h.ordered, startFailed)
	// Either the scope ended on a boot that the daemon observed, or the boot is over. After one of
	// these the other is not reported.
	if r.IntN(2) == 0 {
		h.ordered = append(h.ordered, pick(session.ScopeEnded{Run: run, Result: result, At: at(60)}, wentDown))
	}
	return h
}

func randomReport(r *rand.Rand, seq uint64) session.Report {
	return session.Report{
		Activity: []string{"", word.Working, word.Idle, word.Waiting}[r.IntN(4)],
		Reason:   []string{"", word.Permission, word.Bell}[r.IntN(3)],
		Message:  []string{"", "continue?"}[r.IntN(2)], At: at(int(seq)), Seq: seq,
	}
}

// shuffled returns the history in a random order in which it can be received, with random events
// repeated later.
func (h history) shuffled(r *rand.Rand) []session.Event {
	events := slices.Clone(h.ordered)
	for _, i := range r.Perm(len(h.unordered)) {
		events = slices.Insert(events, r.IntN(len(events)+1), h.unordered[i])
	}
	for range r.IntN(len(events) + 1) {
		first := r.IntN(len(events))
		events = slices.Insert(events, first+1+r.IntN(len(events)-first), events[first])
	}
	return events
}

// outcome has everything that follows from the facts and is published.
type outcome struct {
	view        session.View
	activity    string
	source      session.Source
	since       time.Time
	attention   session.Attention
	status      string
	alive, live bool
	ended       bool
	exit        exitstatus.Status
}

func outcomeOf(s *session.Session) outcome {
	o := outcome{view: s.View(), alive: s.Run.AgentAlive(), live: s.Run.Live(), ended: s.Run.Ended()}
	o.activity, o.source, o.since = s.Activity()
	o.attention, o.status = s.Attention(), s.StatusText()
	if s.Run.Exit != nil {
		o.exit = *s.Run.Exit
	}
	return o
}

// TestApply_IgnoresOrderAndRepetition: signals of systemd, messages of the shim, files and pidfds
// are received in any order, and after a loss of signals everything is reported again.
func TestApply_IgnoresOrderAndRepetition(t *testing.T) {
	const histories, orders = 1000, 10
	for seed := range uint64(histories) {
		r := rand.New(rand.NewPCG(seed, 0))
		h := randomHistory(r)
		build := func(events []session.Event) outcome {
			s := newSession()
			if seed%2 == 0 {
				s.ResumeCommand = []string{"claude", "--resume"}
			}
			return outcomeOf(after(s, list(runBegun, events)))
		}
		first := slices.Concat(h.unordered, h.ordered)
		want := build(first)
		for range orders {
			other := h.shuffled(r)
			require.Equal(t, want, build(other), "seed %d\n first %#v\n other %#v", seed, first, other)
		}
	}
}

// TestApply_IsIdempotent checks that the repetition of an event changes nothing, not even fields
// that are not published.
func TestApply_IsIdempotent(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 1))
		h := randomHistory(r)
		s := after(newSession(), list(runBegun))
		for _, e := range h.shuffled(r) {
			before := saved(s)
			changed := s.Apply(e)
			require.Equal(t, before != saved(s), changed, "seed %d: %#v", seed, e)
			once := s.Clone()
			require.False(t, s.Apply(e), "seed %d: %#v", seed, e)
			require.Equal(t, once, s, "seed %d: %#v", seed, e)
		}
	}
}

// saved returns the session's record.
func saved(s *session.Session) string {
	text, _ := json.Marshal(s) // never fails: a record contains only types that JSON can represent
	return string(text)
}

// eventFrom makes an event from three bytes: of any kind, with values that can be invalid, of this
// run or of another one.
func eventFrom(kind, value, when byte) session.Event {
	id := []string{run, "run-2", ""}[value>>6%3]
	t := at(int(when))
	text := []string{"", "success", "timeout", "oom-kill", "resources", "stop", "suspend", "nonsense"}[value&7]
	p := session.Process{PID: int(value), Start: uint64(when)}
	switch kind % 24 {
	case 0:
		return session.RunBegun{Run: id, BootID: text, Resumed: value&8 != 0, At: t}
	case 1:
		return session.ScopeStarted{Run: id, InvocationID: text}
	case 2:
		return session.ScopeResult{Run: id, Result: text, Moment: session.Moment{At: t}}
	case 3:
		return session.ScopeEnded{Run: id, Result: text, At: t}
	case 4:
		return session.TmuxStarted{Run: id, Process: p}
	case 5:
		return session.TmuxDied{Run: id, Process: p}
	case 6:
		return session.AgentStarted{Run: id, Shim: p, Agent: p, At: t}
	case 7, 8:
		return session.AgentExited{Status: exitstatus.Status{
			RunID: id, Code: exitstatus.Code(int(value&7) - 1), Value: int(when) - 1,
			OOMKills: uint64(value & 8), MemoryMax: uint64(when) << (value % 64), Exited: t,
		}}
	case 9:
		return session.ShimDied{Run: id, TmuxSurvived: value&8 != 0, At: t}
	case 10:
		return session.StartFailed{Run: id, Reason: text, Moment: session.Moment{At: t}}
	case 11:
		return session.IntentSet{Run: id, Intent: session.Intent(text), Why: text, Moment: session.Moment{At: t}}
	case 12:
		return session.MachineWentDown{Run: id, At: t}
	case 13:
		return session.WorkspaceObserved{Gone: value&8 != 0}
	case 14:
		report := session.Report{
			Activity: []string{"", word.Working, word.Idle, word.Waiting}[value&3],
			Reason:   text, At: t, Seq: uint64(when),
		}
		return session.StatusReported{Run: id, Source: session.Sources[int(value)%len(session.Sources)], Report: report}
	case 15:
		return session.LeftRunning{Run: id, At: t}
	case 16:
		return session.FoundAlive{Run: id}
	case 17:
		return session.FreezeObserved{Run: id, Frozen: value&8 != 0}
	case 19:
		return session.AgentReady{Run: id, At: t}
	case 20:
		return session.Acknowledged{Run: id, State: session.State(text), Reports: session.Seqs{Bell: uint64(when)}}
	case 21:
		return session.Answered{Run: id, Reports: session.Seqs{Report: uint64(when)}}
	case 22:
		sources := []session.ConversationSource{
			session.Given, session.Printed, session.OpenFile, session.Reported, "nobody",
		}
		return session.ConversationIdentified{
			Run: id, ID: text, From: sources[int(value)%len(sources)], Resume: []string{"resume", text},
			Moment: session.Moment{At: t},
		}
	case 23:
		return session.ConversationNotFound{Run: id, ID: text}
	}
	return session.SessionArchived{At: t}
}

// FuzzApply checks that no sequence of events, however invalid, crashes the rules or results in an
// undefined state.
func FuzzApply(f *testing.F) {
	f.Add([]byte{0, 0, 1, 1, 0, 0, 4, 0, 0, 6, 0, 2, 7, 2, 5, 3, 1, 6})
	f.Add([]byte{0, 0, 1, 11, 6, 3, 12, 0, 9, 18, 0, 0})
	f.Add([]byte{0, 0, 1, 22, 0, 2, 22, 3, 3, 23, 1, 4, 22, 1, 5, 0, 64, 6, 22, 67, 7})
	f.Fuzz(func(t *testing.T, data []byte) {
		s := newSession()
		for ; len(data) >= 3; data = data[3:] {
			archived := s.View().State == session.Archived
			s.Apply(eventFrom(data[0], data[1], data[2]))
			v := s.View()
			require.Contains(t, states, v.State)
			require.NotEmpty(t, v.State.Lifecycle())
			require.True(t, !archived || v.State == session.Archived, "archived is final")
			require.Equal(t, v, s.Clone().View())
			require.LessOrEqual(t, len(s.Past), session.MaxPast)
			require.LessOrEqual(t, len(s.EarlierConversations), session.MaxConversations)
			require.NotContains(t, s.EarlierConversations, s.ConversationID)
			if activity, _, _ := s.Activity(); activity != "unknown" {
				require.True(t, s.Run.AgentAlive())
			}
			s.Apply(s.Acknowledgement())
			require.Empty(t, s.Attention().Reason, "nothing requests attention after its acknowledgement")
			s.Explain()
		}
	})
}

func TestFuzzApply_CoversEveryEvent(t *testing.T) {
	kinds := map[string]bool{}
	for kind := range byte(24) {
		kinds[kindOf(eventFrom(kind, 0, 0))] = true
	}
	for _, name := range eventNames(t) {
		assert.True(t, kinds[name], "%s", name)
	}
}
