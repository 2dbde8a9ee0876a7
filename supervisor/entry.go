package supervisor

import (
	"slices"
	"time"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/deadline"
	"github.com/corrald/corral/internal/unitname"
	"github.com/corrald/corral/supervisor/session"
)

// entry is a session with everything that the event loop, which alone uses it, needs to supervise
// it.
type entry struct {
	loop         *loop
	rec          *session.Session
	adoptedState session.State // in the record of an earlier daemon, "" if no earlier daemon saved the session
	published    *Snapshot     // the snapshot that clients have, nil if none was published
	dirty        bool          // it has changed in this iteration
	removed      bool
	saving       saving

	pending *session.Pending // the operation that is not finished; noPending if there is none
	timer   timer            // of its deadline
	claim   *claim           // of a run that waits to begin; noClaim if there is none
	removal removal          // of a pending OpRemove
	waiting []waiter
	effects effectQueue
	run     runtime

	stopQueries int // number of unanswered queries to systemd why it stops the session's scope

	client client

	notification Notification // as the notifier has last set it

	continuation continuation // after a usage limit
	queueing     queueing     // of a run that waits until MaxRunning= permits it
	setup        worktreeSetup

	detectingPrinted bool // the conversation that the session's last agent has printed is being detected

	nextLog map[string]time.Duration // when each cause may be logged again, by CLOCK_MONOTONIC: see takeLogSlot

	removeNotBefore time.Time // after a failed removal of an expired session: the next attempt is not before this time
}

// Most sessions have no pending operation: they share these values, which never change.
var (
	noPending session.Pending
	noClaim   claim
)

// saving records which changes of a session are not yet durable.
type saving struct {
	unsaved bool // the session has changed since it was saved
	// onlyExit is set if all that is unsaved follows from exit_status, which is a record too. Once
	// that is durable, later is set until the session is saved.
	onlyExit, later bool
	// exitInRuntimeDir is set if the exit was recorded in the runtime directory only, and has to be
	// copied to the state directory.
	exitInRuntimeDir bool
	err              error // why the last attempt to save the session failed, nil if it succeeded
}

// timer is the timer of a deadline.
type timer struct {
	stopper deadline.Stopper
	at      time.Duration // the deadline, by CLOCK_MONOTONIC, 0 if the timer does not run
}

// client is what clients know of the session's runs: it decides whether the end of a run was by
// request.
type client struct {
	// run is the id of a run whose end is known to a client: it has signalled the agent, or its call
	// has returned that the agent could not be started.
	run        string
	signal     int  // the signal that the client has sent to that agent
	unattended bool // the session is being started because of a login, not for a client
}

// runtime is what the event loop needs for a run in addition to its facts. It is not saved: a new
// daemon builds it again when it adopts the session.
type runtime struct {
	start             runStart
	scope             scopeWatch
	files             runFiles
	tmux              tmuxWatch
	agent             agentWatch
	shim              shimConn
	exit              exitRecord
	reports           statusReports
	openFileDetection openFileDetection
}

// newEntry returns an entry for a session. The caller adds it to the loop.
func newEntry(l *loop, rec *session.Session) *entry {
	e := &entry{loop: l, rec: rec, pending: &noPending, claim: &noClaim}
	e.effects.e, e.continuation.e, e.setup.e = e, e, e
	e.resetRun()
	return e
}

// resetRun replaces the runtime of the last run by an empty one; the facts remain.
func (e *entry) resetRun() {
	e.run = runtime{
		start: runStart{e: e}, scope: scopeWatch{e: e}, files: runFiles{e: e}, tmux: tmuxWatch{e: e},
		agent: agentWatch{e: e}, shim: shimConn{e: e}, exit: exitRecord{e: e}, reports: statusReports{e: e},
		openFileDetection: openFileDetection{e: e},
	}
}

// definition returns the definition of the session's agent, the zero value if the definition was
// removed.
func (e *entry) definition() config.Agent { return e.loop.settings.definition(e.rec) }

// isCurrent reports whether the session exists, and this is the id of its last run.
func (e *entry) isCurrent(run string) bool { return !e.removed && e.rec.Run.ID == run }

// scopeName returns the name of the session's scope.
func scopeName(rec *session.Session) string {
	name := unitname.Scope(rec.Agent, rec.ID)
	if r := rec.Run; r != nil && r.Unit == name {
		return r.Unit // the same string, not a copy in each snapshot
	}
	return name
}

// postEvent has ev applied on the event loop, unless the session was removed. Effects call it. Any
// goroutine but the event loop may call it.
func (e *entry) postEvent(ev session.Event) {
	e.loop.post(func() {
		if !e.removed {
			e.apply(ev)
		}
	})
}

// postFor has f called on the event loop, unless isCurrent returns false for the run by then. Any
// goroutine but the event loop may call it.
func (e *entry) postFor(run string, f func()) {
	e.loop.post(func() {
		if e.isCurrent(run) {
			f()
		}
	})
}

// markDirty marks a session as changed: finishIteration processes it.
func (e *entry) markDirty() {
	if !e.dirty {
		e.dirty = true
		e.loop.iteration.dirty = append(e.loop.iteration.dirty, e)
	}
}

// isHeld reports whether the changes of the session have to wait until systemd has answered why it
// stops the scope: an exit would otherwise be published as one that nobody has requested, and be
// corrected at once. The answer marks the session as changed.
func (e *entry) isHeld() bool {
	return e.stopQueries > 0 && e.published != nil && !e.removed && !e.loop.shutdown.stopping
}

// recordChanged marks the record of the session as changed, by something else than its exit.
func (e *entry) recordChanged() {
	e.saving.unsaved, e.saving.onlyExit = true, false
	e.markDirty()
}

// recordState records the session's state, and since when it has it. The state follows from the
// facts: its change alone need not be saved before it is published.
func (e *entry) recordState() {
	v := e.rec.View()
	if e.rec.State == v.State && !e.rec.StateChanged.IsZero() {
		return
	}
	returned := slices.Contains([]session.State{session.Running, session.Starting, session.Created}, v.State) &&
		(e.rec.State == session.Stale || e.rec.State == session.Orphaned)
	e.rec.State, e.rec.StateChanged = v.State, v.Since
	if v.State == session.Running || returned {
		e.rec.ClearSeen() // the condition that a person has seen is over
	}
	if v.Since.IsZero() || returned {
		e.rec.StateChanged, e.saving.onlyExit = time.Now(), false
	}
	e.rec.ChangedOn, e.rec.ChangedMonotonic = e.loop.expiry.checkClock(), e.loop.clocks.Monotonic()
	e.saving.unsaved = true
}

// apply applies an event to a session: it updates the facts and carries out what session.Next
// decides.
func (e *entry) apply(ev session.Event) {
	step := session.Next(e.rec, *e.pending, ev, e.env())
	if e.pending = &noPending; !step.Pending.IsNone() {
		pending := step.Pending
		e.pending = &pending
	}
	e.loop.sessions.queue.update(e)
	for _, fact := range step.Facts {
		switch fact.(type) {
		case session.AgentExited:
			e.saving.onlyExit = !e.saving.unsaved
		case session.Acknowledged: // saved with the next change
		case session.SessionArchived:
			e.unwatchWorkspace()
			e.saving.onlyExit = false
		default:
			e.saving.onlyExit = false
		}
		e.saving.unsaved = true
		e.loop.problems.stale = e.loop.problems.stale || e.loop.problems.conversationShared
	}
	if _, tick := ev.(session.Tick); !tick || len(step.Facts) > 0 {
		e.markDirty()
	}
	e.setTimer()
	for _, effect := range step.Effects {
		e.execute(effect)
	}
}

// env returns what decisions depend on besides the facts of the session.
func (e *entry) env() session.Env {
	return session.Env{
		Moment:  e.loop.now(),
		Grace:   func() time.Duration { return e.loop.settings.stopTimeout(e.rec) },
		Closing: e.loop.shutdown.stopping || e.loop.shutdown.machineStops,
	}
}

// execute carries out an effect: immediately in the event loop, or on another goroutine, by
// queueEffect or the session's effectQueue.
func (e *entry) execute(effect session.Effect) {
	switch effect := effect.(type) {
	case session.PrepareStart:
		e.prepareStart()
	case session.ReleaseRun:
		e.releaseRun(&effect.Run)
	case session.Answer:
		e.answer(effect)
	case session.CleanUp:
		e.cleanUp()
	case session.CreateConversationID:
		e.run.start.createConversation()
	case session.CancelConversationID:
		e.run.start.cancelCreation()
	case session.SetUpWorktree:
		e.setup.begin()
	case session.CancelSetup:
		e.setup.stop()
	case session.StartScope:
		e.run.start.startScope()
	case session.RejoinTmux:
		e.run.start.rejoinTmux()
	case session.SignalAgent:
		e.run.openFileDetection.enqueue() // the agent has its conversation open as long as it runs
		e.run.shim.announceEnd()
		e.queueEffect(effect)
	default:
		e.queueEffect(effect)
	}
}

// setTimer sets the session's timer to the deadline of its pending operation.
func (e *entry) setTimer() {
	deadline := e.pending.Deadline
	if e.removed {
		deadline = 0
	}
	if deadline == e.timer.at {
		return
	}
	if e.timer.stopper != nil {
		e.timer.stopper.Stop()
		e.timer.stopper = nil
	}
	if e.timer.at = deadline; deadline == 0 {
		return
	}
	e.timer.stopper = e.loop.clocks.AfterFunc(deadline-e.loop.clocks.Monotonic(), func() {
		e.loop.post(func() {
			if !e.removed && e.timer.at == deadline {
				e.timer.at = 0
				e.apply(session.Tick{})
			}
		})
	})
}

// takeLogSlot reports whether a record with this cause may be logged for the session, because none
// was in the last logEvery. The caller then logs it.
func (e *entry) takeLogSlot(cause string) bool {
	now := e.loop.clocks.Monotonic()
	if next, logged := e.nextLog[cause]; logged && now < next {
		return false
	}
	if e.nextLog == nil {
		e.nextLog = map[string]time.Duration{}
	}
	e.nextLog[cause] = now + logEvery
	return true
}

// logEvery is the minimum time between two log records with the same cause for the same session. An
// agent can cause such records at any rate, and they must not drown those of other programs.
const logEvery = 10 * time.Second
