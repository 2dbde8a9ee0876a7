package session_test

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/supervisor/session"
)

// history is what can be told of one run: every fact once, each by the one source that it has.
type history struct {
	// floating are facts that come from several sources at once: systemd, the shim, the kernel. They are heard of in any order.
	floating []session.Event
	// fixed are in order, because what the daemon itself says, it says in view of what it knows: a wish is only noted for a run that is not known
	// to have ended, and what carries the time at which the daemon noticed it cannot have been noticed before. An exit that came after the wish
	// is told after it; one that came before may be heard of whenever it likes, since its record says when it happened.
	fixed []session.Event
}

func randomHistory(r *rand.Rand) history {
	var h history
	maybe := func(to *[]session.Event, e session.Event) {
		if r.IntN(2) == 0 {
			*to = append(*to, e)
		}
	}
	pick := func(events ...session.Event) session.Event { return events[r.IntN(len(events))] }
	exited := pick(exit(exitstatus.Exited, 0), exit(exitstatus.Exited, 3), exit(exitstatus.Killed, 15), exit(exitstatus.Dumped, 11),
		notStarted("not found"), outOfMemory(1<<20)).(session.AgentExited)
	maybe(&h.floating, scope)
	maybe(&h.floating, tmux)
	maybe(&h.floating, tmuxDied)
	maybe(&h.floating, newTmux)
	if exited.Status.Code != exitstatus.NotStarted {
		maybe(&h.floating, agent)
	}
	maybe(&h.floating, pick(gone, back))
	for seq, source := range []session.Source{session.FromOutput, session.FromOutput, session.FromBell, session.FromBell, session.FromNotify, session.FromReport, session.FromReport} {
		maybe(&h.floating, session.Said{Run: run, Source: source, Word: randomWord(r, uint64(seq+1))})
	}
	maybe(&h.floating, session.AgentReady{Run: run, At: at(6)})
	maybe(&h.floating, session.Prompted{Run: run})
	maybe(&h.floating, session.Answered{Run: run, Words: session.Seqs{Report: uint64(r.IntN(8))}})
	maybe(&h.floating, archive)
	result := []string{"", "success", "resources", "oom-kill", "timeout"}[r.IntN(5)]
	if result == "timeout" { // systemd keeps the first failure: what it said while the scope lived, it says at its end
		maybe(&h.floating, timeIsUp)
	}

	wished := r.IntN(2) == 0
	if wished {
		h.fixed = append(h.fixed, pick(stop, suspend))
	}
	switch told := r.IntN(3); {
	case told == 0 && wished: // it ended after the wish
		h.fixed = append(h.fixed, late(exited))
	case told == 0:
		h.floating = append(h.floating, late(exited))
	case told == 1:
		h.floating = append(h.floating, exited)
	}
	maybe(&h.fixed, left)
	maybe(&h.fixed, session.Acknowledged{
		Run: run, State: []session.State{"", session.Failed, session.Completed, session.Stale}[r.IntN(4)],
		Words: session.Seqs{Bell: uint64(r.IntN(5)), Notify: uint64(r.IntN(6))},
	})
	maybe(&h.fixed, pick(shimDied, allDied))
	maybe(&h.fixed, notThere)
	if r.IntN(2) == 0 { // either the scope ended on a boot that we saw, or the boot is over: after the one nobody tells the other
		h.fixed = append(h.fixed, pick(session.ScopeEnded{Run: run, Result: result, At: at(60)}, wentDown))
	}
	return h
}

func randomWord(r *rand.Rand, seq uint64) session.Word {
	return session.Word{
		Activity: []string{"", session.Working, session.Idle, session.Waiting}[r.IntN(4)],
		Reason:   []string{"", session.Permission, session.BellRang}[r.IntN(3)],
		Message:  []string{"", "may I?"}[r.IntN(2)], At: at(int(seq)), Seq: seq,
	}
}

// shuffled returns the history in a random order that it may be heard of in, with random events told again later on.
func (h history) shuffled(r *rand.Rand) []session.Event {
	events := slices.Clone(h.fixed)
	for _, i := range r.Perm(len(h.floating)) {
		events = slices.Insert(events, r.IntN(len(events)+1), h.floating[i])
	}
	for range r.IntN(len(events) + 1) {
		first := r.IntN(len(events))
		events = slices.Insert(events, first+1+r.IntN(len(events)-first), events[first])
	}
	return events
}

// outcome is everything that anybody is shown of the facts.
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
	o.activity, o.source, o.since = s.Active()
	o.attention, o.status = s.Attention(), s.StatusText()
	if s.Run.Exit != nil {
		o.exit = *s.Run.Exit
	}
	return o
}

// TestOrderAndRepetitionDoNotMatter: signals of systemd, lines of the shim, files and pidfds race with each other, and after a loss of signals
// everything is told again.
func TestOrderAndRepetitionDoNotMatter(t *testing.T) {
	const histories, orders = 1000, 10
	for seed := range uint64(histories) {
		r := rand.New(rand.NewPCG(seed, 0))
		h := randomHistory(r)
		build := func(events []session.Event) outcome {
			s := newSession()
			if seed%2 == 0 {
				s.ResumeCommand = []string{"claude", "--resume"}
			}
			return outcomeOf(after(s, list(asked, events)))
		}
		first := slices.Concat(h.floating, h.fixed)
		want := build(first)
		for range orders {
			other := h.shuffled(r)
			require.Equal(t, want, build(other), "seed %d\n first %#v\n other %#v", seed, first, other)
		}
	}
}

// TestRepeatingTheLastEventChangesNothing: not even of what nobody is shown.
func TestRepeatingTheLastEventChangesNothing(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 1))
		h := randomHistory(r)
		s := after(newSession(), list(asked))
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

// saved is what is saved of the session.
func saved(s *session.Session) string {
	text, _ := json.Marshal(s) // never fails: it is read back by every daemon
	return string(text)
}

// eventFrom makes an event of three bytes: of any kind, with values that may be senseless, of this run or of another one.
func eventFrom(kind, value, when byte) session.Event {
	id := []string{run, "run-2", ""}[value>>6%3]
	t := at(int(when))
	text := []string{"", "success", "timeout", "oom-kill", "resources", "stop", "suspend", "nonsense"}[value&7]
	p := session.Process{PID: int(value), Start: uint64(when)}
	switch kind % 24 {
	case 0:
		return session.RunAsked{Run: id, BootID: text, Resumed: value&8 != 0, At: t}
	case 1:
		return session.ScopeStarted{Run: id, InvocationID: text}
	case 2:
		return session.ScopeResult{Run: id, Result: text, At: t}
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
			RunID: id, Code: exitstatus.Code(int(value&7) - 1), Value: int(when) - 1, OOMKills: uint64(value & 8), MemoryMax: uint64(when) << (value % 64), Exited: t,
		}}
	case 9:
		return session.ShimDied{Run: id, Outlived: value&8 != 0, At: t}
	case 10:
		return session.StartFailed{Run: id, Reason: text, At: t}
	case 11:
		return session.EndAsked{Run: id, Intent: session.Intent(text), Why: text, At: t}
	case 12:
		return session.MachineWentDown{Run: id, At: t}
	case 13:
		return session.WorkspaceSeen{Gone: value&8 != 0}
	case 14:
		word := session.Word{Activity: []string{"", session.Working, session.Idle, session.Waiting}[value&3], Reason: text, At: t, Seq: uint64(when)}
		return session.Said{Run: id, Source: session.Sources[int(value)%len(session.Sources)], Word: word}
	case 15:
		return session.LeftBehind{Run: id, At: t}
	case 16:
		return session.FoundAlive{Run: id}
	case 17:
		return session.FrozenSeen{Run: id, Frozen: value&8 != 0}
	case 19:
		return session.AgentReady{Run: id, At: t}
	case 20:
		return session.Acknowledged{Run: id, State: session.State(text), Words: session.Seqs{Bell: uint64(when)}}
	case 21:
		return session.Answered{Run: id, Words: session.Seqs{Report: uint64(when)}}
	case 22:
		teller := []session.Teller{session.Given, session.Hint, session.OpenFile, session.Reported, "nobody"}[int(value)%5]
		return session.Conversed{Run: id, ID: text, From: teller, Resume: []string{"resume", text}, At: t}
	case 23:
		return session.NothingSaved{Run: id, ID: text}
	}
	return session.ArchiveAsked{At: t}
}

// FuzzApply: no events, in whatever order and however senseless, crash the rules or lead to what is no state.
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
			require.Contains(t, session.States, v.State)
			require.NotEmpty(t, v.State.Lifecycle())
			require.True(t, !archived || v.State == session.Archived, "archived is final")
			require.Equal(t, v, s.Clone().View())
			require.LessOrEqual(t, len(s.Past), session.MaxPast)
			require.LessOrEqual(t, len(s.Earlier), session.MaxConversations)
			require.NotContains(t, s.Earlier, s.ConversationID)
			if activity, _, _ := s.Active(); activity != "unknown" {
				require.True(t, s.Run.AgentAlive())
			}
			s.Apply(s.Acknowledgement())
			require.Empty(t, s.Attention().Reason, "what somebody has taken note of wants nobody")
			s.Explain()
		}
	})
}

func TestTheFuzzerKnowsEveryEvent(t *testing.T) {
	kinds := map[string]bool{}
	for kind := range byte(24) {
		kinds[kindOf(eventFrom(kind, 0, 0))] = true
	}
	for _, name := range eventNames(t) {
		assert.True(t, kinds[name], "%s", name)
	}
}
