package session

import (
	"slices"

	"github.com/corrald/corral/dbusapi/word"
)

// wait makes a call wait for the end of the operation.
func (n *next) wait(id ReplyID, op Op) {
	if id != 0 {
		n.Pending.Replies = append(slices.Clone(n.Pending.Replies), Reply{id, op, n.s.runID()})
	}
}

// answer answers a call; an id of 0 stands for no call.
func (n *next) answer(id ReplyID, o Outcome) {
	if id != 0 {
		n.do(Answer{ID: id, Outcome: o})
	}
}

// answerFor answers the calls for an operation whose effect has returned.
func (n *next) answerFor(op Op, failure error) {
	outcome := Done
	if failure != nil {
		outcome = EffectFailed
	}
	n.answerWhere(func(r Reply) (Outcome, bool) { return outcome, r.Op == op }, failure)
}

// answerWhere answers the calls for which outcomeOf returns true, with the outcome that it returns.
func (n *next) answerWhere(outcomeOf func(Reply) (o Outcome, ok bool), err error) {
	var rest []Reply
	for _, r := range n.Pending.Replies {
		if outcome, ok := outcomeOf(r); ok {
			n.do(Answer{r.ID, outcome, err})
		} else {
			rest = append(rest, r)
		}
	}
	n.Pending.Replies = rest
}

// outcome is how a call is answered whose operation has ended, or cannot be carried out any more.
// ok is false while it waits.
func (n *next) outcome(r Reply) (o Outcome, ok bool) {
	s, p := n.s, n.Pending
	switch {
	case n.removed:
		return RemovedMeanwhile, true
	case p.Phase == Surviving:
		return SurvivedKill, true
	case r.Op.begins():
		return n.outcomeOfBegin(r)
	case r.Op == OpRejoin:
		return Replaced, p.Op != OpRejoin
	case r.Op == OpArchive && !s.Archived.IsZero():
		return Done, true
	case r.Op == OpArchive || r.Op == OpRemove:
		return Replaced, p.Op != r.Op
	case s.runID() == r.Run && (s.Run.Live() || p.Phase == SetUp):
		return Done, false
	case r.Op == OpSuspend && (p.Phase == Cleanup || s.View().State != Suspended):
		return NotPossible, true
	}
	return Done, true
}

func (n *next) outcomeOfBegin(r Reply) (o Outcome, ok bool) {
	s, p := n.s, n.Pending
	switch v := s.View(); {
	case p.WaitsToBegin() && (p.Op == r.Op || s.runID() != r.Run):
		return Done, false // a restart may replace a run before its agent has appeared
	case s.runID() == r.Run: // the run that it has requested did not begin
		switch {
		case s.Setup.Phase == SetupFailed:
			return CouldNotStart, true
		case p.Op == OpStop:
			return StoppedMeanwhile, true
		case n.env.Closing && p.Op < OpArchive:
			return Closing, true
		}
		return Replaced, true
	case s.AwaitsAgent(), p.Op == OpRemove:
		return Done, false
	case v.Result == word.StartFailed || v.State == Failed && !s.Run.AgentAppeared():
		return CouldNotStart, true
	case n.env.Closing && !s.Run.AgentAlive():
		return Closing, true
	case !s.Run.AgentAppeared() && s.Run.Intent == Stop:
		return StoppedMeanwhile, true
	case !s.Run.AgentAppeared() && s.Run.Intent == Suspend:
		return SuspendedMeanwhile, true
	}
	return Done, true
}
