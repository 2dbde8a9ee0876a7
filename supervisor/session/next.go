package session

import (
	"slices"
	"time"
)

// Env is what a decision depends on beside the session: the time, and what the daemon knows.
type Env struct {
	Moment
	Grace   func() time.Duration // from the first signal of an escalation to SIGKILL
	Closing bool                 // the daemon or the machine is shutting down: nothing begins
}

// Times of a start and of an escalation.
const (
	// AppearTime is how long a shim may take to report its agent before it is continued: it does so
	// within milliseconds, and one that takes longer may be stopped (SIGSTOP).
	AppearTime = 2 * time.Second
	// StartTimeout bounds the time from StartScope until the agent has appeared. ReadyTimeout does the
	// same for an agent that reports when it is ready (Type=notify); it is systemd's default for
	// services.
	StartTimeout = 30 * time.Second
	ReadyTimeout = 90 * time.Second
	// HangUpTime is how long after the first signal it is checked again whether the agent ignores
	// SIGTERM, and is to get SIGHUP: a shell that still read its start-up files then has caught and
	// forgotten SIGTERM.
	HangUpTime = time.Second
	// AllTime is how much of the grace remains for all processes of the scope if the agent does not
	// exit. Neither the agent nor its helper processes are signalled before: a second SIGTERM makes
	// many programs exit without saving.
	AllTime = 2 * time.Second
	// FailedGrace is the grace of a run whose start has failed.
	FailedGrace = time.Second
	// maxKills is how often a scope is killed before only its end is awaited.
	maxKills = 4
	// killTime is how long a scope has at least to end after SIGKILL: systemd and the kernel take some
	// time, for example to free much memory.
	killTime = 2 * time.Second
)

// Step is what one event leads to.
type Step struct {
	Pending Pending  // from now on
	Facts   []Event  // the facts that have changed in the session, in order
	Effects []Effect // to be carried out, in this order
}

// Next applies the event to the session and decides what to do about it: it returns the operation
// that is pending from now on, and the effects.
func Next(s *Session, p Pending, ev Event, env Env) Step {
	n := &next{s: s, env: env, live: s.Run.Live(), Step: Step{Pending: p}}
	n.record(ev)
	if d, ok := ev.(decision); ok {
		d.decide(n)
	}
	for n.advance() {
	}
	n.answerWhere(n.outcome, nil)
	return n.Step
}

// decision is an event that is more than a fact: a request, or the result of an effect.
type decision interface{ decide(n *next) }

// next is the state of one call of Next.
type next struct {
	Step
	s    *Session
	env  Env
	live bool // the session's run is not known to be over

	removed bool // the session is
}

// record applies an event to the facts.
func (n *next) record(e Event) {
	if n.s.Apply(e) {
		n.Facts = append(n.Facts, e)
	}
}

func (n *next) do(e Effect) { n.Effects = append(n.Effects, e) }

func (n *next) enter(phase Phase, deadline time.Duration) {
	n.Pending.Phase, n.Pending.Deadline = phase, deadline
}

func (n *next) after(d time.Duration) time.Duration { return n.env.Monotonic + d }

func (s *Session) runID() string {
	if s.Run == nil {
		return ""
	}
	return s.Run.ID
}

func (q BeginRequested) decide(n *next) {
	p := &n.Pending
	switch possible := q.Begin.Inside && n.s.CanBeginInside(*p) || !q.Begin.Inside && n.s.Can(*p, q.Op, false); {
	case n.env.Closing:
		n.answer(q.Reply, Closing)
		return
	case !possible:
		n.answer(q.Reply, NotPossible)
		return
	}
	if q.Op == OpRestart {
		n.recordIntent(IntentSet{Intent: Stop})
	}
	p.Op, p.Begin = q.Op, q.Begin
	n.wait(q.Reply, q.Op)
	switch {
	case n.s.Setup.IsRequired(n.s.Worktree, n.s.Run):
		n.setUp()
	case q.Begin.Inside || !n.s.Run.Live():
		n.begin()
	default:
		n.end(0)
	}
}

func (q RejoinRequested) decide(n *next) {
	if !n.s.Can(n.Pending, OpRejoin, false) {
		n.answer(q.Reply, NotPossible)
		return
	}
	n.Pending.Op = OpRejoin
	n.wait(q.Reply, OpRejoin)
	n.enter(Rejoin, 0)
	n.do(RejoinTmux{})
}

func (q EndRequested) decide(n *next) {
	p := &n.Pending
	switch {
	case q.Systemd:
	case q.Op == OpSuspend && !n.s.Can(*p, OpSuspend, false):
		n.answer(q.Reply, NotPossible)
		return
	case p.Phase == SetUp:
		if p.Op < OpArchive {
			p.Op = OpStop
		}
		n.wait(q.Reply, OpStop)
		n.do(CancelSetup{})
		return
	case !n.s.Run.Live():
		n.answer(q.Reply, Done)
		return
	}
	intent := Stop
	if q.Op == OpSuspend {
		intent = Suspend
	}
	n.recordIntent(IntentSet{
		Intent: intent, Why: q.Why, Idle: q.Idle, SignalledBySystemd: q.Systemd && q.Signalled,
		Moment: q.At,
	})
	if !n.s.Run.Live() {
		return
	}
	// Only a call, or the end of the daemon and its user manager, cancels a run that waits to begin.
	cancels := q.Op == OpStop && q.Reply != 0 || q.Systemd && n.env.Closing
	if p.Op < OpArchive && (cancels || !p.WaitsToBegin()) {
		p.Op = q.Op
	}
	n.wait(q.Reply, q.Op)
	p.Signalled = p.Signalled || q.Signalled
	n.end(q.Grace)
}

func (q ScopeStopped) decide(n *next) {
	if !n.s.Run.Live() {
		return
	}
	if p := &n.Pending; p.Phase.starts() || p.Op == NoOp || p.Op == OpRejoin {
		p.Op = OpStop
	}
	n.Pending.Signalled = n.Pending.Signalled || q.Signalled
	n.end(0)
}

func (q ArchiveRequested) decide(n *next) {
	if !n.s.Can(n.Pending, OpArchive, false) {
		n.answer(q.Reply, NotPossible)
		return
	}
	n.Pending.Op = OpArchive
	n.wait(q.Reply, OpArchive)
	n.endOrContinue()
}

func (q RemoveRequested) decide(n *next) {
	if !n.s.Can(n.Pending, OpRemove, q.Force) {
		n.answer(q.Reply, NotPossible)
		return
	}
	n.recordIntent(IntentSet{Intent: Stop})
	// Another removal may remove more or less, such as a worktree.
	n.answerWhere(func(r Reply) (Outcome, bool) { return Replaced, r.Op == OpRemove }, nil)
	n.Pending.Op = OpRemove
	n.wait(q.Reply, OpRemove)
	n.endOrContinue()
}

// endOrContinue ends the scope or the setup if there is one, and continues with what comes after it
// otherwise.
func (n *next) endOrContinue() {
	switch {
	case n.s.Run.Live():
		n.end(0)
	case n.Pending.Phase == SetUp:
		n.do(CancelSetup{})
	default:
		n.gone()
	}
}

// decide shifts the rest of an escalation by as much as the deadline was noticed late, for example
// because the disk is slow: the signal before it was then sent late, too.
func (Tick) decide(n *next) {
	if p := &n.Pending; p.Phase.ends() && p.Deadline != 0 {
		p.Began += max(0, n.env.Monotonic-p.Deadline)
	}
}

func (q StartPrepared) decide(n *next) {
	switch p := &n.Pending; {
	case p.Phase != Prepare:
	case q.CreateConversation:
		n.enter(CreateConversation, 0)
		n.do(CreateConversationID{})
	default:
		n.launch()
	}
}

func (q ConversationCreated) decide(n *next) {
	switch {
	case q.Run != n.s.runID() || !n.Pending.Starting:
	case n.Pending.Phase == CreateConversation:
		n.launch()
	default:
		n.startReturned("it was stopped before its conversation was created")
	}
}

func (q StartReturned) decide(n *next) {
	if q.Run == n.s.runID() && n.Pending.Starting {
		n.startReturned(q.Err)
	}
}

// startReturned handles the result of a StartScope, or of a CreateConversationID after which the
// run is not started.
func (n *next) startReturned(failure string) {
	p := &n.Pending
	p.Starting = false
	if failure == "" {
		return
	}
	n.record(StartFailed{Run: n.s.runID(), Reason: failure, Moment: n.env.Moment})
	if p.Phase.starts() {
		p.Op = NoOp
		n.enter(NoPhase, 0)
	}
	if !p.Inside {
		n.record(ScopeEnded{Run: n.s.runID(), At: n.env.At})
	}
}

func (q WaitRequested) decide(n *next) {
	if q.Op.begins() && !n.Pending.WaitsToBegin() { // the run has begun: the reply names no run before it
		n.Pending.Replies = append(slices.Clone(n.Pending.Replies), Reply{ID: q.Reply, Op: q.Op})
		return
	}
	op := q.Op
	if op.begins() {
		op = n.Pending.Op
	}
	n.wait(q.Reply, op)
}

func (q Rejoined) decide(n *next) {
	if q.Run == n.s.runID() && n.Pending.Phase == Rejoin {
		n.Pending.Op = NoOp
		n.enter(NoPhase, 0)
		n.answerFor(OpRejoin, q.Err)
	}
}

func (q Cleaned) decide(n *next) {
	if n.Pending.Phase == Cleanup {
		n.Pending.Op = NoOp
		n.enter(NoPhase, 0)
		n.removed = q.Err == nil
		n.answerFor(OpRemove, q.Err)
	}
}

// recordIntent records the intent of a request to end the run, unless the run has ended by itself.
func (n *next) recordIntent(e IntentSet) {
	if r := n.s.Run; r != nil && (!r.Ended() || e.SignalledBySystemd) {
		e.Run = r.ID
		if e.At.IsZero() {
			e.Moment = n.env.Moment
		}
		n.record(e)
	}
}

// begin begins the run that was requested.
func (n *next) begin() {
	p := Pending{Op: n.Pending.Op, Begin: n.Pending.Begin, Replies: n.Pending.Replies, Phase: Prepare}
	p.Starting, p.Inside = true, p.Begin.Inside
	p.Begin.Run.At = n.env.At
	p.Begin.Prompt = n.s.GivesPrompt(p.Begin.Resume)
	n.Pending = p
	n.record(p.Begin.Run)
	n.live = true
	n.do(PrepareStart{})
}

// launch decides to start the scope of the run.
func (n *next) launch() {
	n.enter(Launch, n.after(AppearTime))
	n.do(StartScope{})
}

// end begins the escalation that ends the scope, or continues it with another grace.
func (n *next) end(grace time.Duration) {
	p := &n.Pending
	if grace <= 0 {
		grace = n.env.Grace()
	}
	if p.Phase == CreateConversation {
		n.do(CancelConversationID{})
	}
	switch {
	case !p.Phase.ends():
		p.Phase, p.Began = TermAgent, n.env.Monotonic
	case p.Phase == KillAll: // the scope is killed again after this grace
		p.Phase, p.Kills = TermAll, 0
	case p.Phase == Surviving: // the scope is killed again, at once
		p.Phase, p.Began, p.Kills = TermAll, n.env.Monotonic-grace, 0
	}
	p.Grace = grace
	p.Deadline = p.escalationDeadline()
}
