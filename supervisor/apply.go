package supervisor

import (
	"time"

	"github.com/corrald/corral/supervisor/session"
)

// apply applies an event to a session: it updates the facts and carries out what session.Next
// decides.
func (s *Supervisor) apply(e *entry, ev session.Event) {
	step := session.Next(e.rec, e.pending, ev, s.env(e))
	e.pending = step.Pending
	for _, fact := range step.Facts {
		switch fact.(type) {
		case session.AgentExited:
			e.onlyExitUnsaved = !e.unsaved
		case session.Acknowledged: // saved with the next change
		case session.SessionArchived:
			s.unwatchWorkspace(e)
			e.onlyExitUnsaved = false
		default:
			e.onlyExitUnsaved = false
		}
		e.unsaved = true
		s.problemsStale = s.problemsStale || s.conversationShared
	}
	if _, tick := ev.(session.Tick); !tick || len(step.Facts) > 0 {
		s.markDirty(e)
	}
	s.setTimer(e)
	for _, effect := range step.Effects {
		s.execute(e, effect)
	}
}

// env returns what decisions depend on besides the facts of the session.
func (s *Supervisor) env(e *entry) session.Env {
	return session.Env{
		Now:     s.now(),
		Grace:   func() time.Duration { return s.stopTimeout(e.rec) },
		Closing: s.stopping || s.machineStops,
	}
}

func (s *Supervisor) now() session.Now {
	return session.Now{Wall: time.Now(), Monotonic: s.Monotonic()}
}

// execute carries out an effect: in the event loop immediately, or outside of it: see queueEffect.
func (s *Supervisor) execute(e *entry, effect session.Effect) {
	switch effect := effect.(type) {
	case session.PrepareStart:
		s.prepareStart(e)
	case session.ReleaseRun:
		s.releaseRun(e, &effect.Run)
	case session.Answer:
		s.answerCall(e, effect)
	case session.CleanUp:
		s.cleanUp(e)
	case session.CreateConversationID:
		s.createConversation(e)
	case session.CancelConversationID:
		if e.run.cancelConversation != nil {
			e.run.cancelConversation()
		}
	case session.StartScope:
		s.startScope(e)
	case session.RejoinTmux:
		s.rejoinTmux(e)
	case session.SignalAgent:
		if detect := s.conversationDetector(e); detect != nil { // the agent has its conversation open as long as it runs
			t := s.target(e)
			s.queueAfterSave(e, func() { detect(t) })
		}
		s.queueEffect(e, effect)
	default:
		s.queueEffect(e, effect)
	}
}

// setTimer sets the session's timer to the deadline of its pending operation.
func (s *Supervisor) setTimer(e *entry) {
	deadline := e.pending.Deadline
	if e.removed {
		deadline = 0
	}
	if deadline == e.timerFor {
		return
	}
	if e.timer != nil {
		e.timer.Stop()
		e.timer = nil
	}
	if e.timerFor = deadline; deadline == 0 {
		return
	}
	e.timer = s.AfterFunc(deadline-s.Monotonic(), func() {
		s.post(func() {
			if !e.removed && e.timerFor == deadline {
				e.timerFor = 0
				s.apply(e, session.Tick{})
			}
		})
	})
}

// request applies the event that the function returns for a call, and returns the channel on which
// the call is answered.
func (s *Supervisor) request(e *entry, event func(session.ReplyID) session.Event) <-chan error {
	s.lastCall++
	reply := make(chan error, 1)
	s.calls[s.lastCall] = reply
	s.apply(e, event(s.lastCall))
	return reply
}

// answerCall answers a call once everything that was decided in this iteration is published.
func (s *Supervisor) answerCall(e *entry, a session.Answer) {
	reply, err := s.calls[a.ID], s.outcomeError(e, a)
	delete(s.calls, a.ID)
	s.afterPublish = append(s.afterPublish, func() { reply <- err })
}

// outcomeError returns the error for the outcome of a call, nil if it has succeeded.
func (s *Supervisor) outcomeError(e *entry, a session.Answer) error {
	id, state := e.rec.ID, e.rec.View().State
	switch a.Outcome {
	case session.NotPossible:
		return s.notPossible(e)
	case session.Replaced:
		return refuse(InvalidState, "session %q: another operation has replaced this one", id)
	case session.StoppedMeanwhile:
		return refuse(InvalidState, "session %q was stopped meanwhile", id)
	case session.SuspendedMeanwhile:
		return refuse(InvalidState, "session %q was suspended meanwhile", id)
	case session.RemovedMeanwhile:
		return refuse(InvalidState, "session %q was removed meanwhile", id)
	case session.CouldNotStart:
		if !e.unattended {
			e.knownRun = e.rec.Run.ID
		}
		return refuse(StartFailed, "cannot start %q: %s", id, e.rec.View().Reason)
	case session.Closing:
		return s.checkNotShuttingDown()
	case session.SurvivedKill:
		return refuse(TimedOut, "session %q is still %s: some of its processes have survived SIGKILL", id, state)
	case session.EffectFailed:
		return a.Err
	}
	return nil
}

// notPossible returns why an operation is not possible in the session's state.
func (s *Supervisor) notPossible(e *entry) error {
	if e.removed || e.pending.Removing() {
		return refuse(InvalidState, "session %q was removed meanwhile", e.rec.ID)
	}
	return refuseIn(e.rec.ID, e.rec.View().State)
}

// waitFor returns the channel on which a call is answered that waits for the start
// (session.OpStart) or the end (session.OpStop) that another call has requested.
func (s *Supervisor) waitFor(e *entry, op session.Op) <-chan error {
	return s.request(e, func(reply session.ReplyID) session.Event { return session.WaitRequested{Op: op, Reply: reply} })
}
