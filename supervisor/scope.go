package supervisor

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/deadline"
	"github.com/corrald/corral/supervisor/session"
)

// scopeWatch detects the end of a run's scope: systemd reports it, the kernel reports that the
// control group is empty, or the scope is missing in a list.
type scopeWatch struct {
	e            *entry
	emptyTimer   deadline.Stopper // runs while the scope is empty and systemd has not reported its end
	stayedEmpty  bool             // the scope was empty when that timer expired
	systemdStops bool             // systemd stops the scope, and waits for its end

	// deferredEnd is the end of a scope that its agent has left. It is applied once the agent has
	// ended. It is nil if there is none.
	deferredEnd *session.ScopeEnded
}

// hasAgentLeft reports whether the agent has moved to a control group outside of the run's scope,
// and still runs there.
func (w *scopeWatch) hasAgentLeft() bool {
	e, r := w.e, w.e.rec.Run
	if r.Exit != nil || r.Agent.Start == 0 || e.loop.isInScope(r, r.Agent.PID) {
		return false
	}
	if w.deferredEnd != nil { // awaitExitRecord notices its exit
		return true
	}
	pidfd, alive := e.loop.system.Processes.OpenPidfd(r.Agent)
	if alive {
		_ = unix.Close(pidfd)
	}
	return alive
}

// isInScope reports whether a process is in the control group of the run's scope or in one below
// it. It also returns true if the process has exited or if the control group of the scope is
// unknown.
func (l *loop) isInScope(r *session.Run, pid int) bool {
	group := l.system.Processes.ControlGroup(pid)
	return group == "" || r.ControlGroup == "" || strings.HasPrefix(group+"/", r.ControlGroup+"/")
}

// outsideScopeProblem is the text of the problem of a session whose agent runs outside of its
// scope.
const outsideScopeProblem = "its agent has moved out of its scope, where limits do not apply; " +
	"stop the session and start it again"

// deferEnd defers the end of a scope that its agent has left. The run then continues: the end of
// the scope is applied once the agent's exit is recorded, or once its process has exited and
// nothing was recorded in time (see awaitExitRecord).
func (w *scopeWatch) deferEnd(ended session.ScopeEnded) {
	if w.deferredEnd != nil {
		return
	}
	e, r := w.e, w.e.rec.Run
	e.loop.log.Warn("an agent has left its scope", "session", e.rec.ID, "unit", r.Unit,
		"control_group", e.loop.system.Processes.ControlGroup(r.Agent.PID))
	w.deferredEnd = &ended
	e.loop.problems.stale = true
}

// applyDeferredEnd applies the end of a scope that its agent had left, if the agent's exit is
// recorded.
func (w *scopeWatch) applyDeferredEnd() {
	if w.deferredEnd != nil && w.e.rec.Run.Exit != nil {
		w.e.apply(*w.deferredEnd)
	}
}

// check examines the control group of the scope, whose events file has changed.
func (w *scopeWatch) check() {
	w.checkFrozen()
	w.checkEmpty()
}

// emptyScopeTimeout is how long systemd may take to report the end of a scope that is empty.
// systemd usually needs milliseconds. It never reports the end of a scope that it has released too
// early, which may happen to a new scope (systemd#36781) or to one whose stop has timed out, nor if
// it had no inotify watch left when the scope was started.
const emptyScopeTimeout = 2 * time.Second

// checkEmpty starts a timer if the scope is empty, so that its end is noticed even if systemd does
// not report it.
func (w *scopeWatch) checkEmpty() {
	e, r := w.e, w.e.rec.Run
	if w.emptyTimer != nil || !r.Live() || r.Scope != session.ScopeActive || r.ControlGroup == "" || !w.isEmpty() {
		return
	}
	run := r.ID
	w.emptyTimer = e.loop.clocks.AfterFunc(emptyScopeTimeout, func() {
		e.postFor(run, func() {
			if !e.rec.Run.Live() {
				return
			}
			w.emptyTimer = nil
			if w.stayedEmpty = w.isEmpty(); w.stayedEmpty {
				go e.loop.adoption.resync()
			}
		})
	})
}

// isEmpty reports whether the control group of the scope has no processes.
func (w *scopeWatch) isEmpty() bool {
	return !w.e.loop.system.ControlGroups.IsPopulated(w.e.rec.Run.ControlGroup)
}

// release has systemd end the run's scope, which is empty. The session's next effects, which may
// need the scope's name, wait for that.
func (w *scopeWatch) release() {
	e := w.e
	e.loop.log.Warn("systemd has not noticed that a scope is empty; stopping it",
		"session", e.rec.ID, "unit", e.rec.Run.Unit)
	e.queueEffect(session.ReleaseScope{})
}

// isEmptied reports whether the run's agent has ended and no process of its scope is left, although
// systemd has not reported the end of the scope.
func (w *scopeWatch) isEmptied() bool {
	r := w.e.rec.Run
	return r.Live() && r.Ended() && r.ControlGroup != "" && w.isEmpty()
}

// releaseRun releases what the daemon holds for a run whose scope is gone.
func (e *entry) releaseRun(r *session.Run) {
	if e.run.files.stateDir != 0 || e.run.files.err != nil || e.run.files.paused { // else it was never watched
		e.discardRecord(r)
		e.effects.afterSave(func() { _ = e.loop.system.Systemd.Unwatch(e.loop.ctx, r.Unit) })
	}
	e.unwatchRun()
	e.loop.problems.clearFile(e, e.target().ShimSocket())
	e.unwatchWorkspace()
	if r.StartInterrupted { // there was no agent that could use its sockets
		_ = os.RemoveAll(e.loop.settings.runtimeDir(e.rec.ID))
	}
	if e.run.scope.emptyTimer != nil {
		e.run.scope.emptyTimer.Stop()
	}
	ended := e.run.start.earlyEnds
	e.resetRun()
	e.run.start.earlyEnds = ended
}
