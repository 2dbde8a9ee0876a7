package supervisor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/internal/failpoint"
	"github.com/corrald/corral/internal/inotify"
	"github.com/corrald/corral/internal/shimwire"
	"github.com/corrald/corral/supervisor/session"
	"github.com/corrald/corral/supervisor/sources"
	"github.com/corrald/corral/supervisor/store"
)

// shimSocket is the name of the shim's socket in the session's runtime directory.
const shimSocket = "shim.sock"

// notifySocket is the name of the shim's socket for sd_notify(3) in the same directory.
const notifySocket = "notify"

var errNotExist = fs.ErrNotExist

// checkAll examines everything that inotify would have reported about any session.
func (s *Supervisor) checkAll() {
	for _, e := range s.sessions {
		s.checkSession(e)
	}
}

// checkSession examines everything that inotify would have reported about a session.
func (s *Supervisor) checkSession(e *entry) {
	s.workspaces.Probe(workspaceKeyOf(e), e.rec.ID)
	if e.rec.Run.Live() {
		// First, because readExit needs it: a session that completes while a client is attached to its
		// terminal is acknowledged.
		s.updateAttached(e)
		s.readExit(e)
		s.connectShim(e)
		s.checkControlGroup(e)
	}
}

// watchRunFiles watches for the run's exit_status, in both directories where it may appear, and for
// the socket of its shim. While they cannot be watched, they are examined periodically: see retry.
func (s *Supervisor) watchRunFiles(e *entry) {
	err := s.addRunWatches(e)
	s.recordWatchError(e.rec.ID, &e.watchErr, err)
}

func (s *Supervisor) addRunWatches(e *entry) (err error) {
	const stateMask = unix.IN_MOVED_TO | unix.IN_DELETE | unix.IN_ONLYDIR
	const runtimeMask = unix.IN_MOVED_TO | unix.IN_CREATE | unix.IN_ATTRIB | unix.IN_ONLYDIR
	rewatch := func() { s.rewatchRunFiles(e) }
	e.run.stateDirWatch, err = s.files.Watch(s.Records.SessionDir(e.rec.ID), stateMask, func(ev inotify.Event) {
		switch {
		case !s.canHandleEvent(e): // the directory is examined later
		case ev.Mask&unix.IN_DELETE == 0 && ev.Name == exitstatus.FileName:
			s.readExit(e)
		case ev.Mask&unix.IN_DELETE != 0 && ev.Name == store.RecordName:
			s.resaveRecord(e)
		}
	}, rewatch)
	if err != nil {
		return err
	}
	dir := s.runtimeDir(e.rec.ID)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	e.run.runtimeDirWatch, err = s.files.Watch(dir, runtimeMask, func(ev inotify.Event) {
		switch {
		case !s.canHandleEvent(e): // the directory is examined later
		case ev.Mask&unix.IN_ATTRIB != 0:
			s.updateAttached(e) // the mode of tmux's socket shows whether a client is attached
		case ev.Name == shimSocket:
			s.checkSocketRestored(e)
			s.connectShim(e)
		case ev.Name == exitstatus.FileName:
			s.readExit(e)
		}
	}, rewatch)
	if err != nil {
		return err
	}
	return s.watchControlGroup(e)
}

// rewatchRunFiles watches the files of the session's run again, and examines them, as they may have
// changed in the meantime.
func (s *Supervisor) rewatchRunFiles(e *entry) {
	s.unwatchRunFiles(e)
	s.watchRunFiles(e)
	s.checkSession(e)
}

// resaveRecord saves a session again after somebody has removed its record, usually together with
// its directory. The directory is then created again and watched: the kernel does not report the
// removal of a directory that a shim has open.
func (s *Supervisor) resaveRecord(e *entry) {
	if e.removed || e.pending.Removing() || !e.rec.Run.Live() {
		return
	}
	if s.canLog(e, "removed record") {
		s.Log.Warn("the record of a running session was removed; writing it again", "session", e.rec.ID)
	}
	e.unsaved, e.onlyExitUnsaved = true, false
	run := e.rec.Run.ID
	s.queueAfterSave(e, func() {
		s.post(func() {
			if e.removed || e.rec.Run.ID != run || !e.rec.Run.Live() {
				return
			}
			s.rewatchRunFiles(e)
			if s.canHandleEvent(e) {
				s.checkRecord(e) // the removal may still be in progress
			}
		})
	})
}

// checkRecord saves a session again if its record does not exist.
func (s *Supervisor) checkRecord(e *entry) {
	if !e.unsaved && !exists(filepath.Join(s.Records.SessionDir(e.rec.ID), store.RecordName)) {
		s.resaveRecord(e)
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

func (s *Supervisor) unwatchRunFiles(e *entry) {
	s.files.Unwatch(&e.run.stateDirWatch)
	s.files.Unwatch(&e.run.runtimeDirWatch)
	s.files.Unwatch(&e.run.controlGroupWatch)
}

// watchTmux watches for the end of the run's tmux server. It returns false if the server has
// exited.
func (s *Supervisor) watchTmux(e *entry) bool {
	r := e.rec.Run
	if r.Tmux != session.Alive || e.run.tmux.IsOpen() && e.run.tmuxProcess == r.TmuxProc {
		return true
	}
	run, process := r.ID, r.TmuxProc
	pidfd, alive := s.Processes.OpenPidfd(process)
	if !alive {
		return false
	}
	var d sources.Descriptor
	d, err := s.descriptors.Watch(pidfd, func() {
		if e.run.tmux == d {
			e.run.tmux = sources.Descriptor{}
			s.markDirty(e) // another tmux server may run by now, which has to be watched
		}
		s.descriptors.Close(&d)
		reap(process.PID)
		s.tmuxDied(e, run, process)
	})
	if err != nil {
		if s.canLog(e, "tmux") {
			s.Log.Warn("cannot watch a tmux server", "session", e.rec.ID, "err", err)
		}
		return true
	}
	// The pidfd of an earlier server is not closed: that server has to be reaped once it exits.
	e.run.tmux, e.run.tmuxProcess = d, process
	return true
}

func (s *Supervisor) tmuxDied(e *entry, run string, process session.Process) {
	if e.removed || e.rec.Run.ID != run || e.rec.Run.TmuxProc != process {
		return
	}
	// A running shim reports that it has lost its pane (PaneLost), and the connection of a killed one
	// is closed (shimDisconnected). Both lead to confirmTmuxDeath too.
	if r := e.rec.Run; !e.run.shim.IsOpen() || r.Ended() || r.Intent != session.NoIntent {
		go s.confirmTmuxDeath(e, run, s.target(e))
	}
}

// confirmTmuxDeath applies the end of the tmux server if other processes of the scope outlive it.
// If everything was killed together, systemd is about to report the end of the scope, and no untrue
// state must be published before that. It waits for the processes, and so the loop does not call
// it.
func (s *Supervisor) confirmTmuxDeath(e *entry, run string, t Target) {
	if s.ControlGroups.StaysPopulated(t.ControlGroup) {
		s.postEvent(e, session.TmuxDied{Run: run, Process: t.Tmux})
	}
}

// reap collects the exit status of a tmux server that this daemon has started. A server that an
// earlier daemon has started is a child of systemd by now.
func reap(pid int) {
	if pid > 0 {
		_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
	}
}

// connectShim connects to the run's shim, if its socket exists.
func (s *Supervisor) connectShim(e *entry) {
	r := e.rec.Run
	if e.run.shim.IsOpen() || !r.Live() || r.Exit != nil {
		return
	}
	run := r.ID
	fd, peer, err := s.Terminals.DialShim(s.target(e))
	if errors.Is(err, unix.EAGAIN) {
		s.redial(e, run)
		return
	}
	if err != nil {
		s.reportForeignSocket(e, err)
		// Either inotify will report the socket, or the shim has exited: then the recorded exit or the
		// end of the scope is reported.
		return
	}
	s.clearFileProblem(e, s.target(e).ShimSocket())
	d, err := s.descriptors.Watch(fd, func() { s.readShim(e, run) })
	if err != nil {
		if s.canLog(e, "shim") {
			s.Log.Warn("cannot listen to a shim", "session", e.rec.ID, "err", err)
		}
		return
	}
	e.run.shim, e.run.shimPeer = d, peer
	s.readShim(e, run)
}

// The delays before the loop connects again to a running shim that does not keep a connection. The
// first attempt is immediate; then the delay doubles from minRedialDelay to maxRedialDelay.
const (
	minRedialDelay = 100 * time.Millisecond
	maxRedialDelay = 10 * time.Second
)

// redial connects again to a running shim. The shim has closed the connection because other
// processes have as many as it accepts, or cannot accept one because it is frozen and its queue of
// connections is full.
func (s *Supervisor) redial(e *entry, run string) {
	if e.removed || e.rec.Run.ID != run || e.run.redialScheduled {
		return
	}
	connect := func() {
		if !e.removed && e.rec.Run.ID == run {
			e.run.redialScheduled, e.run.redialedAt = false, s.Monotonic()
			if s.connectShim(e); !e.run.shim.IsOpen() && !e.run.redialScheduled {
				s.shimDisconnected(e, run)
			}
		}
	}
	if s.Monotonic()-e.run.redialedAt > maxRedialDelay {
		e.run.redialDelay = 0
	}
	wait := e.run.redialDelay
	e.run.redialScheduled, e.run.redialDelay = true, min(max(2*wait, minRedialDelay), maxRedialDelay)
	if wait == 0 {
		connect()
		return
	}
	s.AfterFunc(wait, func() { s.post(connect) })
}

// readShim reads and handles the messages that the shim has sent. It never waits.
func (s *Supervisor) readShim(e *entry, run string) {
	if e.removed || e.rec.Run.ID != run || !e.run.shim.IsOpen() {
		return
	}
	shim := e.run.shim
	for e.run.shim == shim && s.canReceive(e, run) { // a message may end the connection
		n, _, err := unix.Recvfrom(shim.FD(), s.shimMessage[:], unix.MSG_DONTWAIT)
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			if err := s.descriptors.Rearm(shim); err != nil && s.canLog(e, "shim") {
				s.Log.Warn("cannot listen to a shim", "session", e.rec.ID, "err", err)
			}
			return
		case err != nil || n == 0:
			s.shimDisconnected(e, run)
			return
		default:
			e.run.messagesInSpan++
			if m, err := shimwire.ParseMessage(s.shimMessage[:n]); err == nil {
				s.handleShimMessage(e, m)
			}
		}
	}
}

func (s *Supervisor) handleShimMessage(e *entry, m shimwire.Message) {
	run := e.rec.Run.ID
	switch m.Kind {
	case shimwire.Hello:
		if m.RunID != run {
			return
		}
		if !s.isHelloCredible(m, e.run.shimPeer) {
			s.logFalseHello(e, m)
			return
		}
		if !s.checkInScope(e, m) {
			return
		}
		failpoint.Hit("start.agent-heard")
		s.apply(e, session.AgentStarted{
			Run:   run,
			Shim:  e.run.shimPeer,
			Agent: session.Process{PID: m.AgentPID, Start: m.AgentStart},
			At:    m.Started,
		})
		s.outputReported(e, m.Idle, m)
		if e.run.exitUnproven {
			s.readExit(e)
		}
	case shimwire.Idle, shimwire.Working:
		s.outputReported(e, m.Kind == shimwire.Idle, m)
	case shimwire.StatusReport:
		s.statusReported(e, m)
	case shimwire.Ready:
		s.apply(e, session.AgentReady{Run: run, At: m.Since})
	case shimwire.Prompted:
		s.apply(e, session.Prompted{Run: run})
	case shimwire.PaneLost:
		go s.confirmTmuxDeath(e, run, s.target(e))
	case shimwire.PaneClosed:
		// The shim has sent SIGHUP to the agent's processes already: only the later steps remain.
		s.apply(e, session.EndRequested{Op: session.OpStop, Why: session.TerminalClosed, Signalled: true})
	}
}

// checkInScope returns whether the agent is in its scope, where its limits apply and a stop reaches
// it. An agent that starts outside is killed: no session is better than one that only seems to be
// supervised.
func (s *Supervisor) checkInScope(e *entry, m shimwire.Message) bool {
	r := e.rec.Run
	if s.isInScope(r, m.AgentPID) || !r.Started.IsZero() { // an agent that leaves its scope later is not killed
		return true
	}
	group := s.Processes.ControlGroup(m.AgentPID)
	// First the agent: its shim then records that it was killed, before everything in the scope gets
	// SIGTERM.
	s.queueEffect(e, session.KillProcess{Process: session.Process{PID: m.AgentPID, Start: m.AgentStart}})
	s.apply(e, session.StartFailed{
		Run: r.ID, Reason: fmt.Sprintf("its agent was moved out of its scope, into %q", group),
		At: time.Now(), Monotonic: s.Monotonic(),
	})
	if !e.pending.Ending() { // the run began in the scope of an earlier one
		s.apply(e, session.EndRequested{Op: session.OpStop, Grace: session.FailedGrace})
	}
	return false
}

// shimDisconnected determines why the connection to the shim was closed: the agent's exit is
// recorded, the shim is still running, or it was killed.
func (s *Supervisor) shimDisconnected(e *entry, run string) {
	s.descriptors.Close(&e.run.shim)
	if s.readExit(e) {
		return
	}
	t := s.target(e)
	// A frozen tmux server cannot respond, and is assumed to run.
	frozen := e.rec.Frozen && e.rec.Run.Tmux == session.Alive
	go func() {
		fd, _, err := s.Terminals.DialShim(t)
		if err == nil {
			_ = unix.Close(fd)
		}
		// Two kinds of shims still run: one that has closed the connection because the daemon did not
		// read from it, and one whose socket was removed.
		if err == nil || errors.Is(err, unix.EAGAIN) || s.executeOn(s.ctx, t, session.ReopenSockets{}) == nil {
			s.post(func() { s.redial(e, run) })
			return
		}
		responding := frozen || s.Terminals.IsTmuxResponding(s.ctx, t)
		s.post(func() {
			if !e.removed && e.rec.Run.ID == run && !s.readExit(e) {
				s.apply(e, session.ShimDied{Run: run, TmuxSurvived: responding, At: time.Now()})
			}
		})
		if !responding {
			s.confirmTmuxDeath(e, run, t)
		}
	}()
}

// unwatchRun ends all watches of a run, except for the pidfd of its tmux server: the server is a
// child of the daemon, which has to reap it whenever it exits.
func (s *Supervisor) unwatchRun(e *entry) {
	e.run.tmux = sources.Descriptor{}
	s.descriptors.Close(&e.run.shim)
	s.unwatchAgent(e)
	s.problemsStale = s.problemsStale || e.run.deferredEnd != nil
	s.unwatchRunFiles(e)
	s.recordWatchError(e.rec.ID, &e.watchErr, nil)
	if s.workspaces.Err(workspaceKeyOf(e)) != nil { // that is no longer a problem of this session
		s.problemsStale = true
	}
}

// reapTmux makes the tmux server of a run that has ended notice that, once for each run.
func (s *Supervisor) reapTmux(e *entry) {
	if r := e.rec.Run; r.Ended() && r.Tmux == session.Alive && !e.run.tmuxReaped {
		e.run.tmuxReaped = true
		s.queueEffect(e, session.ReapTmux{})
	}
}
