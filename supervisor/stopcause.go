package supervisor

import (
	"time"

	"github.com/corrald/corral/dbusapi/word"

	"github.com/corrald/corral/supervisor/session"
)

// ScopeStopRequested is called when systemd requests that the daemon stops the scope.
func (s *Supervisor) ScopeStopRequested(unit, invocation string) {
	s.loop.scopeIsStopping(unit, invocation, func(w *scopeWatch) { w.queryStopCause(false) })
}

// ScopeStopping is called when systemd has begun to stop the scope itself, as it does if another
// daemon has started the scope. Its processes have received SIGTERM, and some may have exited. They
// must not receive a second one: it makes many programs give up saving their state.
func (s *Supervisor) ScopeStopping(unit, invocation string, cause StopCause) {
	s.loop.scopeIsStopping(unit, invocation, func(w *scopeWatch) { w.applyStopCause(true, cause) })
}

// scopeIsStopping records that systemd stops the scope, and calls end on the event loop unless the
// daemon ends the run already. Any goroutine but the event loop may call it.
func (l *loop) scopeIsStopping(unit, invocation string, end func(*scopeWatch)) {
	l.post(func() {
		e := l.sessions.findByUnit(unit)
		if e == nil || !isInvocationOf(e.rec.Run, invocation) {
			return
		}
		e.run.scope.systemdStops = true
		if !e.pending.Ending() {
			end(&e.run.scope)
		}
	})
}

// queryStopCause queries why systemd stops the scope, and then ends the run for that reason.
// Signalled reports whether the processes have received SIGTERM.
func (w *scopeWatch) queryStopCause(signalled bool) {
	e, unit := w.e, w.e.rec.Run.Unit
	w.query(func() func() {
		cause, err := e.loop.system.Systemd.StopCause(e.loop.ctx, unit)
		return func() {
			if err != nil {
				e.loop.log.Warn("cannot ask why a scope is stopped", "session", e.rec.ID, "unit", unit, "err", err)
			}
			w.applyStopCause(signalled, cause)
		}
	})
}

// tmuxExitTimeout is how long a tmux server may take to exit after systemd has sent SIGTERM to all
// processes of a scope.
const tmuxExitTimeout = 250 * time.Millisecond

// queryFoundStop is queryStopCause for a scope that systemd stops without having reported it. The
// tmux server, which exits immediately at SIGTERM, shows whether systemd has sent SIGTERM, or has
// left that to a daemon.
func (w *scopeWatch) queryFoundStop() {
	e, unit := w.e, w.e.rec.Run.Unit
	w.query(func() func() {
		cause, _ := e.loop.system.Systemd.StopCause(e.loop.ctx, unit) // immediately: systemd forgets it with the scope
		exited, cancel := e.loop.clocks.AfterFunc.Context(e.loop.ctx, tmuxExitTimeout)
		defer cancel()
		<-exited.Done()
		return func() { w.applyStopCause(!e.run.tmux.pidfd.IsOpen(), cause) }
	})
}

// applyStopCause ends the run because systemd stops its scope. systemd does not report whether a
// user has stopped the scope or the login session ends. applyStopCause therefore queries whether
// the whole user manager is stopping.
func (w *scopeWatch) applyStopCause(signalled bool, cause StopCause) {
	e := w.e
	if !signalled || cause.Since == 0 {
		cause.Since = e.loop.clocks.Monotonic()
	}
	switch cause.Result {
	case word.Timeout:
		since := e.loop.momentOf(cause.Since)
		e.apply(session.ScopeResult{Run: e.rec.Run.ID, Result: cause.Result, Moment: since})
		e.apply(session.ScopeStopped{Signalled: signalled})
		return
	case word.OOMKill: // not requested by anybody
		e.apply(session.ScopeStopped{Signalled: signalled})
		return
	}
	w.query(func() func() {
		stopping := e.loop.system.Systemd.IsStopping(e.loop.ctx)
		return func() {
			request := session.EndRequested{
				Op: session.OpStop, Systemd: true, Signalled: signalled,
				At: e.loop.momentOf(cause.Since),
			}
			switch {
			case stopping:
				request.Op, request.Why = session.OpSuspend, reasonLoginSessionEnded
			case cause.Result != "": // otherwise systemd does not know the cause
				request.Why = session.ByScopeStop
			}
			e.apply(request)
		}
	})
}

// queryUnreportedStop queries whether systemd stops the scope. It is called before an exit is
// applied that the stop of the scope may have caused: systemd signals the processes of a scope that
// an earlier daemon has started before it reports the stop, and an agent may exit in between.
func (w *scopeWatch) queryUnreportedStop() {
	e, unit := w.e, w.e.rec.Run.Unit
	w.query(func() func() {
		cause, err := e.loop.system.Systemd.StopCause(e.loop.ctx, unit)
		return func() {
			if err == nil && cause.Since != 0 {
				w.systemdStops = true
				w.applyStopCause(true, cause)
			}
		}
	})
}

// query calls ask, which waits for systemd, on another goroutine, and then the function that it has
// returned on the event loop, unless the daemon ends the run by then. Until then, no change of the
// session is published (see isHeld), and a shutdown waits.
func (w *scopeWatch) query(ask func() (apply func())) {
	e, run := w.e, w.e.rec.Run.ID
	e.stopQueries++
	go func() {
		apply := ask()
		e.loop.post(func() {
			e.stopQueries--
			if e.isCurrent(run) && !e.pending.Ending() {
				apply()
			}
			e.markDirty()
		})
	}()
}
