package supervisor

import (
	"cmp"
	"slices"
	"strings"
	"time"
	"unique"

	"github.com/corrald/corral/dbusapi/word"
	"github.com/corrald/corral/supervisor/session"
)

// startQueue has the sessions with a run that waits until MaxRunning= permits it, and counts the
// sessions that hold a place. Both follow from the facts of the sessions: update is called for each
// session that may have changed.
type startQueue struct {
	loop     *loop
	waiting  []*entry       // those that wait, the first one first
	places   int            // the number of sessions that hold a place
	placesOf map[string]int // the same by agent
	// holds is the number of reasons why no session may leave the queue now: other sessions get their
	// places first.
	holds int
	// unsaved is the last session whose run could not be saved, and was not started. Until that
	// session is saved, no start would succeed.
	unsaved *entry
}

// queueing is what the queue knows of one session.
type queueing struct {
	holdsPlace bool
	at         time.Time // by which it is in waiting, zero if it is not there
	// callerEnvironment is that of the client that has requested the run, nil if it is unknown. It is
	// not saved. What is equal for many sessions is in memory once.
	callerEnvironment []unique.Handle[string]
}

// update records whether the session holds a place, and whether it is queued.
func (q *startQueue) update(e *entry) {
	if holds := !e.removed && e.pending.HoldsPlace(e.rec); holds != e.queueing.holdsPlace {
		change := -1
		if holds {
			change = 1
		}
		e.queueing.holdsPlace = holds
		q.places += change
		q.placesOf[e.rec.Agent] += change
	}
	var at time.Time
	if !e.removed && e.rec.IsQueued() {
		at = e.rec.Queued.At
	} else {
		e.queueing.callerEnvironment = nil
	}
	if at.Equal(e.queueing.at) {
		return
	}
	if i, found := q.find(e); found {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
	e.queueing.at = at
	if !at.IsZero() {
		i, _ := q.find(e)
		q.waiting = slices.Insert(q.waiting, i, e)
	}
}

// find returns where the session is in the queue, or would be.
func (q *startQueue) find(e *entry) (at int, found bool) {
	return slices.BinarySearchFunc(q.waiting, e, func(a, b *entry) int {
		return cmp.Or(a.queueing.at.Compare(b.queueing.at), strings.Compare(a.rec.ID, b.rec.ID))
	})
}

// nextTime returns the time of a session that is queued now: it comes after all others.
func (q *startQueue) nextTime() time.Time {
	now := time.Now().Truncate(time.Microsecond)
	if n := len(q.waiting); n > 0 {
		if next := q.waiting[n-1].queueing.at.Add(time.Microsecond); next.After(now) {
			return next
		}
	}
	return now
}

// isFull reports whether MaxRunning= in corral.conf permits no run of any session.
func (q *startQueue) isFull() bool {
	limit := q.loop.settings.config.MaxRunning
	return limit > 0 && q.places >= limit
}

// permits reports whether both limits permit a run of the session.
func (q *startQueue) permits(e *entry) bool {
	limit := e.definition().MaxRunning
	return !q.isFull() && (limit == 0 || q.placesOf[e.rec.Agent] < limit)
}

// beginNext begins the run of the first session in the queue that may begin, and returns that
// session; nil if there is none. A session that cannot begin now, because its agent's limit is
// reached or another session uses its workspace, does not hold up those after it.
func (q *startQueue) beginNext() *entry {
	isUnsaved := q.unsaved != nil && q.unsaved.saving.err != nil && !q.unsaved.removed
	if len(q.waiting) == 0 || q.holds > 0 || isUnsaved || q.loop.shutdown.check() != nil {
		return nil
	}
	for _, e := range q.waiting {
		if q.isFull() {
			return nil
		}
		if q.permits(e) && q.begin(e) {
			return e
		}
	}
	return nil
}

// beginAll begins the runs of all sessions in the queue that may begin: those that wait come before
// a run that is requested now.
func (q *startQueue) beginAll() {
	for next := q.beginNext(); next != nil; {
		next = q.beginNext()
	}
}

// hold prevents sessions from leaving the queue until release is called.
func (q *startQueue) hold() { q.holds++ }

func (q *startQueue) release() {
	q.holds--
	q.recheck()
}

// recheck has this iteration call beginNext.
func (q *startQueue) recheck() {
	if len(q.waiting) > 0 {
		q.waiting[0].markDirty()
	}
}

// begin begins the queued run of a session, and reports whether that is possible now.
func (q *startQueue) begin(e *entry) bool {
	op := e.rec.Queued.Operation()
	if e.detectingPrinted || e.rec.WorkspaceGone || e.checkCanStart(checkStartable, op == session.OpResume, nil) != nil {
		return false
	}
	var c claim
	for _, variable := range e.queueing.callerEnvironment {
		c.callerEnvironment = append(c.callerEnvironment, variable.Value())
	}
	begin := e.claimRun(op, false, c)
	e.apply(session.BeginRequested{Op: op, Begin: begin})
	return true
}

// beginOrAdd begins a run, or queues it if MaxRunning= permits none now. It returns the channel on
// which the call is answered: once the agent runs, or the run is queued. A session whose run has
// not ended keeps its place. The caller has called beginAll before it has checked whether the run
// can begin.
func (q *startQueue) beginOrAdd(e *entry, op session.Op, c claim, now bool) <-chan error {
	if now || !e.rec.Run.Ended() || q.permits(e) {
		return e.beginRun(op, false, c)
	}
	how := word.Start
	if op == session.OpResume {
		how = word.Resume
	}
	e.setResolvedPath(c.resolution)
	if e.rec.Run == nil { // no run has begun that would watch it
		e.watchWorkspace()
	}
	e.apply(session.RunQueued{Op: how, At: q.nextTime()})
	e.queueing.callerEnvironment = nil
	for _, variable := range c.callerEnvironment {
		e.queueing.callerEnvironment = append(e.queueing.callerEnvironment, unique.Make(variable))
	}
	return e.whenPublished()
}

// remove takes a session out of the queue.
func (q *startQueue) remove(e *entry) {
	q.loop.expiry.changeWanted(e, func() { e.apply(session.RunUnqueued{}) })
}

// BeginQueued has queued sessions begin, now and from now on. It is called once the sessions of the
// last login have got their places.
func (s *Supervisor) BeginQueued() error { return s.loop.do(s.loop.sessions.queue.release) }
