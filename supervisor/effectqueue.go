package supervisor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/corrald/corral/supervisor/session"
)

// effectQueue runs functions of a session that are called outside of the event loop, one at a time
// and in order.
type effectQueue struct {
	e       *entry
	waiting []func()     // to be carried out, in this order
	busy    bool         // one of them is being carried out
	held    []queueEntry // decided in this iteration: added once that is published
}

// queueEntry is a function that is called outside of the event loop.
type queueEntry struct {
	run       func()
	startsRun bool
}

// queueEffect has an effect carried out on the current run of a session, and logs its failure. The
// effect is enqueued once everything that was decided in this iteration is published: see
// afterSave. An immediate effect (session.IsImmediate) does not wait: another goroutine carries it
// out at once.
func (e *entry) queueEffect(effect session.Effect) {
	t := e.target()
	if _, is := effect.(session.ContinueShim); is && t.Shim.PID == 0 {
		t.Shim = e.run.shim.peer // of the connection: the shim has not sent its Hello yet
	}
	l := e.loop
	if session.IsImmediate(effect) {
		go func() { l.logFailure(t, effect, l.executeImmediate(l.ctx, t, effect)) }()
	} else {
		e.effects.afterSave(func() { l.logFailure(t, effect, l.execute(t, effect)) })
	}
}

// afterSave enqueues f once the decisions of this iteration are published. They are saved by then,
// unless the save has failed (entry.saving): startAfterSave is for a function that must not be
// called then.
func (q *effectQueue) afterSave(f func()) { q.hold(queueEntry{run: f}) }

// startAfterSave is afterSave for the start of a run. It does not enqueue f if the session could
// not be saved: see startHeldEffects.
func (q *effectQueue) startAfterSave(f func()) {
	q.hold(queueEntry{f, true})
}

// afterSaveAtMost is afterSave for a function that may access a file system which does not answer:
// what is enqueued after it, such as the signals of a stop, waits for it no longer than limit.
func (q *effectQueue) afterSaveAtMost(limit time.Duration, f func()) {
	l := q.e.loop
	q.afterSave(func() {
		ctx, cancel := l.clocks.AfterFunc.Context(l.ctx, limit)
		go func() {
			defer cancel()
			f()
		}()
		<-ctx.Done()
	})
}

func (q *effectQueue) hold(next queueEntry) {
	e := q.e
	q.held = append(q.held, next)
	e.markDirty()
}

// startHeldEffects enqueues what was decided for these sessions in this iteration, except starts of
// sessions that could not be saved, which it returns: an agent that is in no record would be lost
// when the daemon exits.
func (l *loop) startHeldEffects(entries []*entry) (unsavedStarts []*entry) {
	for _, e := range entries {
		held := e.effects.held
		e.effects.held = nil
		startsRun := func(q queueEntry) bool { return q.startsRun }
		if e.saving.unsaved && !e.removed && slices.ContainsFunc(held, startsRun) {
			held = slices.DeleteFunc(held, startsRun)
			unsavedStarts = append(unsavedStarts, e)
		}
		for _, q := range held {
			e.effects.add(q.run)
		}
	}
	return unsavedStarts
}

// add has another goroutine call f, after what was enqueued before.
func (q *effectQueue) add(f func()) {
	q.waiting = append(q.waiting, f)
	q.runNext()
}

// runNext starts the next function of the session's queue, unless one is running.
func (q *effectQueue) runNext() {
	e := q.e
	e.loop.adoption.resyncMissed(e)
	if q.busy || len(q.waiting) == 0 {
		return
	}
	f := q.waiting[0]
	q.waiting[0] = nil // what f refers to, such as the environment of a run, is garbage afterwards
	q.waiting = q.waiting[1:]
	q.busy = true
	go func() {
		f()
		e.loop.post(func() {
			q.busy = false
			q.runNext()
		})
	}()
}

// execute carries out an effect on a target and returns once that is done. Only functions in the
// queue of the session may call it.
func (l *loop) execute(t Target, effect session.Effect) error {
	return l.system.Executor.Execute(l.ctx, Task{Effect: effect, Target: t}, nil)
}

// executeImmediate carries out an immediate effect on a target and returns once that is done. It
// panics if the effect is to be queued. Any goroutine may call it; the event loop does so only for
// AnticipateStart and ReapTmux, which do not wait.
func (l *loop) executeImmediate(ctx context.Context, t Target, effect session.Effect) error {
	if !session.IsImmediate(effect) {
		panic(fmt.Sprintf("%T would bypass the queue of its session", effect))
	}
	return l.system.Executor.Execute(ctx, Task{Effect: effect, Target: t}, nil)
}

// logFailure logs that an effect has failed, unless the daemon exits. Any goroutine but the event
// loop may call it.
func (l *loop) logFailure(t Target, effect session.Effect, err error) {
	if err != nil && l.ctx.Err() == nil {
		action := strings.TrimPrefix(fmt.Sprintf("%T", effect), "session.")
		l.post(func() {
			l.log.Warn("an operation on the processes of a session failed",
				"action", action, "session", t.ID, "unit", t.Unit, "err", err)
		})
	}
}
