package supervisor

import (
	"github.com/corrald/corral/supervisor/sources"
)

// MountsChanged is called after a file system was mounted or unmounted. It probes all workspaces:
// inotify does not report an unmount while a process uses the file system.
func (s *Supervisor) MountsChanged() { s.loop.post(s.loop.workspaces.ProbeAll) }

// AlarmRang is called when the alarm has gone off, when the clock was set, and when the machine was
// resumed from sleep.
func (s *Supervisor) AlarmRang() { s.loop.post(s.loop.expiry.alarmRang) }

// watchFiles has the events of watched files handled on the event loop. If some were lost,
// everything is examined.
func (l *loop) watchFiles() {
	go l.files.Run(l.post, func() {
		for _, e := range l.sessions.byID {
			e.check()
		}
	})
}

// check examines everything that the events of watched files would have reported about a session.
func (e *entry) check() {
	e.loop.workspaces.Probe(workspaceKeyOf(e), e.rec.ID)
	if e.rec.Run.Live() {
		// First, because exit.read needs it: a session that completes while a client is attached to its
		// terminal is acknowledged.
		e.run.reports.updateAttached()
		e.run.exit.read()
		e.run.reports.readLeft()
		e.run.shim.connect()
		e.run.scope.check()
	}
}

// updateWatches watches the processes and the control group of the session's run that have to be
// watched now that facts have changed.
func (e *entry) updateWatches() {
	if e.rec.Run.Live() {
		e.run.tmux.update()
		e.run.agent.update()
		if err := e.run.files.watchControlGroup(); err != nil {
			e.run.files.recordError(err)
		}
	}
}

// unwatchRun ends all watches of a run, except for the pidfd of its tmux server: the server is a
// child of the daemon, which has to reap it whenever it exits.
func (e *entry) unwatchRun() {
	e.run.tmux.pidfd = sources.Descriptor{}
	e.loop.descriptors.Close(&e.run.shim.socket)
	e.run.agent.unwatch()
	e.run.files.unwatch()
	e.run.files.recordError(nil)
	// The problems of the run have ended.
	if e.run.scope.deferredEnd != nil || e.loop.workspaces.Err(workspaceKeyOf(e)) != nil {
		e.loop.problems.stale = true
	}
}
