package supervisor

import (
	"time"

	"github.com/corrald/corral/internal/deadline"
	"github.com/corrald/corral/supervisor/session"
	"github.com/corrald/corral/supervisor/sources"
)

// tmuxWatch watches the tmux server of a run.
type tmuxWatch struct {
	e        *entry
	pidfd    sources.Descriptor
	process  session.Process // of pidfd
	notified bool            // ReapTmux was queued

	// confirmed is the server for which confirmTmuxDeath was called because it had exited before it
	// could be watched.
	confirmed session.Process
}

// update watches the run's tmux server, unless that is done already, and makes it notice, once for
// each run, that the agent has exited.
func (w *tmuxWatch) update() {
	e, r := w.e, w.e.rec.Run
	if !w.watch() && w.confirmed != r.TmuxProc {
		// The shim may have reported that its pane is lost before the loop knew of this server: then
		// nothing else reports its exit.
		w.confirmed = r.TmuxProc
		go e.confirmTmuxDeath(r.ID, e.target())
	}
	if r.Ended() && r.Tmux == session.Alive && !w.notified {
		w.notified = true
		_ = e.loop.executeImmediate(e.loop.ctx, e.target(), session.ReapTmux{})
	}
}

// watch watches for the end of the run's tmux server. It returns false if the server has exited.
func (w *tmuxWatch) watch() bool {
	e, r := w.e, w.e.rec.Run
	if r.Tmux != session.Alive || w.pidfd.IsOpen() && w.process == r.TmuxProc {
		return true
	}
	run, process := r.ID, r.TmuxProc
	pidfd, alive := e.loop.system.Processes.OpenPidfd(process)
	if !alive {
		return false
	}
	var d sources.Descriptor
	d, err := e.loop.descriptors.Watch(pidfd, func() {
		if w.pidfd == d {
			w.pidfd = sources.Descriptor{}
			e.markDirty() // another tmux server may run by now, which has to be watched
		}
		e.loop.descriptors.Close(&d)
		e.loop.system.Processes.Reap(process.PID)
		if e.isCurrent(run) && e.rec.Run.TmuxProc == process {
			w.exited()
		}
	})
	if err != nil {
		if e.takeLogSlot("tmux") {
			e.loop.log.Warn("cannot watch a tmux server", "session", e.rec.ID, "err", err)
		}
		return true
	}
	// The pidfd of an earlier server is not closed: that server has to be reaped once it exits.
	w.pidfd, w.process = d, process
	return true
}

// exited is called when the run's tmux server has exited. A running shim reports that it has lost
// its pane (PaneLost), and the connection of a killed one is closed (disconnected). Both lead to
// confirmTmuxDeath too.
func (w *tmuxWatch) exited() {
	e, r := w.e, w.e.rec.Run
	if !e.run.shim.socket.IsOpen() || r.Ended() || r.Intent != session.NoIntent {
		go e.confirmTmuxDeath(r.ID, e.target())
	}
}

// confirmTmuxDeath applies the end of the tmux server if other processes of the scope outlive it.
// If everything was killed together, systemd is about to report the end of the scope, and no untrue
// state must be published before that. It waits for processes: any goroutine but the event loop may
// call it.
func (e *entry) confirmTmuxDeath(run string, t Target) {
	if e.loop.system.ControlGroups.StaysPopulated(t.ControlGroup) {
		e.postEvent(session.TmuxDied{Run: run, Process: t.Tmux})
	}
}

// agentWatch watches the agent of a run by a pidfd, in order to notice an exit that the shim does
// not record because it is stopped. Only the shim's record reports the exit itself.
type agentWatch struct {
	e       *entry
	pidfd   sources.Descriptor // none once the agent has exited
	process session.Process    // of pidfd, also after it has exited
	ended   bool               // pidfd has reported the exit
	timer   deadline.Stopper   // runs while the agent has exited and its exit is not recorded
}

// update watches the run's agent from its start until its exit is recorded.
func (w *agentWatch) update() {
	e, r := w.e, w.e.rec.Run
	if r.Exit != nil {
		w.unwatch()
		return
	}
	if r.Started.IsZero() || r.Agent.PID == 0 || w.process == r.Agent {
		return
	}
	w.process, w.ended = r.Agent, false
	pidfd, alive := e.loop.system.Processes.OpenPidfd(r.Agent)
	if !alive {
		w.awaitExitRecord()
		return
	}
	var d sources.Descriptor
	d, err := e.loop.descriptors.Watch(pidfd, func() {
		if w.pidfd == d {
			e.loop.descriptors.Close(&w.pidfd)
			w.awaitExitRecord()
		}
	})
	if err != nil {
		e.loop.log.Warn("cannot watch an agent", "session", e.rec.ID, "err", err)
		return
	}
	e.loop.descriptors.Close(&w.pidfd)
	w.pidfd = d
}

// recordTimeout is how long a shim may take to record the exit of its agent. A shim needs
// milliseconds; one that takes longer may be stopped (SIGSTOP).
const recordTimeout = time.Second

// awaitExitRecord sends SIGCONT to the run's shim and to its tmux server if the exit of the agent,
// which has exited, is not recorded within recordTimeout. If the scope has ended before the agent,
// the run ends if there is still no record after another recordTimeout.
func (w *agentWatch) awaitExitRecord() {
	e := w.e
	w.ended = true
	w.callIfUnrecorded(func() {
		e.queueEffect(session.ContinueShim{})
		w.callIfUnrecorded(func() {
			if e.run.scope.deferredEnd != nil && !e.run.exit.read() {
				e.apply(*e.run.scope.deferredEnd)
			}
		})
	})
}

// callIfUnrecorded calls f on the loop after recordTimeout, unless the exit of the run's agent is
// recorded by then.
func (w *agentWatch) callIfUnrecorded(f func()) {
	e, run := w.e, w.e.rec.Run.ID
	if e.rec.Run.Exit != nil {
		return
	}
	w.timer = e.loop.clocks.AfterFunc(recordTimeout, func() {
		e.postFor(run, func() {
			if r := e.rec.Run; r.Live() && r.Exit == nil {
				f()
			}
		})
	})
}

// hasExited reports whether this process is the agent that is watched, and has exited.
func (w *agentWatch) hasExited(p session.Process) bool { return w.ended && w.process == p }

// unwatch ends the watch of the agent and the wait for the record of its exit.
func (w *agentWatch) unwatch() {
	w.e.loop.descriptors.Close(&w.pidfd)
	if w.timer != nil {
		w.timer.Stop()
		w.timer = nil
	}
	w.process, w.ended = session.Process{}, false
}
