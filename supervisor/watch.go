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
	"github.com/corrald/corral/internal/fdpoll"
	"github.com/corrald/corral/internal/inotify"
	"github.com/corrald/corral/internal/shimwire"
	"github.com/corrald/corral/supervisor/session"
	"github.com/corrald/corral/supervisor/store"
)

// shimSocket is the name of the shim's socket in the session's runtime directory.
const shimSocket = "shim.sock"

// notifySocket is the name of the shim's socket for sd_notify(3), there.
const notifySocket = "notify"

var errNotExist = fs.ErrNotExist

// descriptor is a file descriptor that the loop waits for. The zero value is none.
type descriptor struct {
	fd  int // valid if key is not 0
	key fdpoll.Key
}

// waitFor has f called on the loop each time fd is ready. The loop owns fd from now on.
func (s *Supervisor) waitFor(fd int, f func()) (descriptor, error) {
	s.next++
	d := descriptor{fd, s.next}
	if err := s.Descriptors.Add(fd, d.key); err != nil {
		_ = unix.Close(fd)
		return descriptor{}, err
	}
	s.keys[d.key] = f
	return d, nil
}

// drop closes a descriptor.
func (s *Supervisor) drop(d *descriptor) {
	if d.key == 0 {
		return
	}
	_ = s.Descriptors.Remove(d.fd)
	_ = unix.Close(d.fd)
	delete(s.keys, d.key)
	*d = descriptor{}
}

func (s *Supervisor) fdReady(k fdpoll.Key) {
	if f := s.keys[k]; f != nil {
		f()
	}
}

// lookAgain looks at everything that inotify would have told of.
func (s *Supervisor) lookAgain() {
	for _, e := range s.sessions {
		s.lookAt(e)
	}
}

// lookAt looks at everything that inotify would have told of a session.
func (s *Supervisor) lookAt(e *entry) {
	s.checkWorkspace(e)
	if e.rec.Run.Live() {
		s.attachedOrNot(e) // first: what has ended under somebody's eyes is known to them
		s.readExit(e)
		s.connectShim(e)
		s.lookAtGroup(e)
	}
}

// watchRecord begins to wait for the run's exit_status, in either place, and for its shim's socket. Where it cannot, these are looked at again and again
// until it can: see retry.
func (s *Supervisor) watchRecord(e *entry) {
	err := s.watchDirs(e)
	s.noteWatched(e.rec.ID, &e.watchErr, err)
}

func (s *Supervisor) watchDirs(e *entry) (err error) {
	e.run.stateDir, err = s.watchPath(s.Records.SessionDir(e.rec.ID), unix.IN_MOVED_TO|unix.IN_DELETE|unix.IN_ONLYDIR, func(ev inotify.Event) {
		switch {
		case !s.mayLook(e): // it is looked at later
		case ev.Mask&unix.IN_DELETE == 0 && ev.Name == exitstatus.FileName:
			s.readExit(e)
		case ev.Mask&unix.IN_DELETE != 0 && ev.Name == store.RecordName:
			s.saveAnew(e)
		}
	}, func() { s.watchAnew(e) })
	if err != nil {
		return err
	}
	dir := s.runtimeDir(e.rec.ID)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	e.run.runtimeDir, err = s.watchPath(dir, unix.IN_MOVED_TO|unix.IN_CREATE|unix.IN_ATTRIB|unix.IN_ONLYDIR, func(ev inotify.Event) {
		switch {
		case !s.mayLook(e): // it is looked at later
		case ev.Mask&unix.IN_ATTRIB != 0:
			s.attachedOrNot(e) // tmux tells so by the mode of its socket
		case ev.Name == shimSocket:
			s.socketMended(e)
			s.connectShim(e)
		case ev.Name == exitstatus.FileName:
			s.readExit(e)
		}
	}, func() { s.watchAnew(e) })
	if err != nil {
		return err
	}
	return s.watchGroup(e)
}

// watchAnew watches the files of the session's run again, and looks at what may have become of them meanwhile.
func (s *Supervisor) watchAnew(e *entry) {
	s.unwatchRecord(e)
	s.watchRecord(e)
	s.lookAt(e)
}

// saveAnew saves a session again whose record somebody has removed, as a rule with the directory that it was in: that is then made again, and watched. The
// kernel does not tell of the end of a directory that a shim has open.
func (s *Supervisor) saveAnew(e *entry) {
	if e.removed || e.leaving || !e.rec.Run.Live() {
		return
	}
	if s.mayLog(e, "removed record") {
		s.Log.Warn("the record of a running session was removed; writing it again", "session", e.rec.ID)
	}
	e.unsaved, e.exited = true, false
	run := e.rec.Run.ID
	s.effect(e, func() {
		s.post(func() {
			if e.removed || e.rec.Run.ID != run || !e.rec.Run.Live() {
				return
			}
			s.watchAnew(e)
			if s.mayLook(e) {
				s.checkRecord(e) // somebody may still be at it
			}
		})
	})
}

// checkRecord saves a session again whose record is not there.
func (s *Supervisor) checkRecord(e *entry) {
	if !e.unsaved && !there(filepath.Join(s.Records.SessionDir(e.rec.ID), store.RecordName)) {
		s.saveAnew(e)
	}
}

func there(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

func (s *Supervisor) unwatchRecord(e *entry) {
	s.unwatchPath(&e.run.stateDir)
	s.unwatchPath(&e.run.runtimeDir)
	s.unwatchPath(&e.run.group)
}

// watchTmux begins to wait for the end of the run's tmux server. It returns false if that is dead.
func (s *Supervisor) watchTmux(e *entry) bool {
	r := e.rec.Run
	if r.Tmux != session.Alive || e.run.tmux.key != 0 && e.run.server == r.TmuxProc {
		return true
	}
	run, process := r.ID, r.TmuxProc
	pidfd, alive := s.World.Alive(process)
	if !alive {
		return false
	}
	var d descriptor
	d, err := s.waitFor(pidfd, func() {
		if e.run.tmux == d {
			e.run.tmux = descriptor{}
			s.touch(e) // there may be another one by now, which is to be watched
		}
		s.drop(&d)
		reap(process.PID)
		s.tmuxDied(e, run, process)
	})
	if err != nil {
		if s.mayLog(e, "tmux") {
			s.Log.Warn("cannot watch a tmux server", "session", e.rec.ID, "err", err)
		}
		return true
	}
	e.run.tmux, e.run.server = d, process // that of an earlier one is still waited for: it has to be collected
	return true
}

func (s *Supervisor) tmuxDied(e *entry, run string, process session.Process) {
	if e.removed || e.rec.Run.ID != run || e.rec.Run.TmuxProc != process {
		return
	}
	// A shim that lives tells itself that it has lost its pane, and one that does not hangs up: then this is found out there.
	if r := e.rec.Run; e.run.shim.key == 0 || r.Ended() || r.Intent != session.NoIntent {
		go s.tmuxLost(e, run, s.target(e))
	}
}

// tmuxLost finds out, off the loop, whether the end of the tmux server is worth telling. Where everything was killed together, the scope's end is
// about to be told, and nothing that is untrue is said before.
func (s *Supervisor) tmuxLost(e *entry, run string, t Target) {
	if s.World.Populated(t.ControlGroup) {
		s.event(e, session.TmuxDied{Run: run, Process: t.Tmux})
	}
}

// reap collects a tmux server that we have started. One that another daemon has started is systemd's child by now.
func reap(pid int) {
	if pid > 0 {
		_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
	}
}

// connectShim connects to the run's shim, if its socket is there.
func (s *Supervisor) connectShim(e *entry) {
	r := e.rec.Run
	if e.run.shim.key != 0 || !r.Live() || r.Exit != nil {
		return
	}
	run := r.ID
	fd, peer, err := s.World.DialShim(s.target(e))
	if errors.Is(err, unix.EAGAIN) {
		s.redial(e, run)
		return
	}
	if err != nil {
		s.noteForeign(e, err)
		return // it will be told of, or is gone: then the exit or the end of the scope is
	}
	s.problemOver(e, s.target(e).ShimSocket())
	d, err := s.waitFor(fd, func() { s.hearShim(e, run) })
	if err != nil {
		if s.mayLog(e, "shim") {
			s.Log.Warn("cannot listen to a shim", "session", e.rec.ID, "err", err)
		}
		return
	}
	e.run.shim, e.run.peer = d, peer
	s.hearShim(e, run)
}

// The loop connects again to a shim that lives and does not keep a connection: at once, then less and less often.
const (
	firstRedial = 100 * time.Millisecond
	lastRedial  = 10 * time.Second
)

// redial connects again to a shim that is there: it gave up a connection, since others have all that it takes, or cannot take one, since it is frozen and
// many have waited for it before.
func (s *Supervisor) redial(e *entry, run string) {
	if e.removed || e.rec.Run.ID != run || e.run.redialing {
		return
	}
	again := func() {
		if !e.removed && e.rec.Run.ID == run {
			e.run.redialing, e.run.redialAt = false, s.Monotonic()
			if s.connectShim(e); e.run.shim.key == 0 && !e.run.redialing {
				s.shimHungUp(e, run)
			}
		}
	}
	if s.Monotonic()-e.run.redialAt > lastRedial {
		e.run.redialled = 0
	}
	wait := e.run.redialled
	e.run.redialing, e.run.redialled = true, min(max(2*wait, firstRedial), lastRedial)
	if wait == 0 {
		again()
		return
	}
	s.AfterFunc(wait, func() { s.post(again) })
}

// hearShim reads what the shim has said. It never waits.
func (s *Supervisor) hearShim(e *entry, run string) {
	if e.removed || e.rec.Run.ID != run || e.run.shim.key == 0 {
		return
	}
	key := e.run.shim.key
	for e.run.shim.key == key && s.mayHear(e, run) { // what it says may end the connection
		n, _, err := unix.Recvfrom(e.run.shim.fd, s.heardShim[:], unix.MSG_DONTWAIT)
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			if err := s.Descriptors.Rearm(e.run.shim.fd, e.run.shim.key); err != nil && s.mayLog(e, "shim") {
				s.Log.Warn("cannot listen to a shim", "session", e.rec.ID, "err", err)
			}
			return
		case err != nil || n == 0:
			s.shimHungUp(e, run)
			return
		default:
			e.run.heard++
			if m, err := shimwire.ParseMessage(s.heardShim[:n]); err == nil {
				s.shimSaid(e, m)
			}
		}
	}
}

func (s *Supervisor) shimSaid(e *entry, m shimwire.Message) {
	run := e.rec.Run.ID
	switch m.Kind {
	case shimwire.Hello:
		if m.RunID != run {
			return
		}
		if !s.isTrue(m, e.run.peer) {
			s.noteUntrue(e, m)
			return
		}
		if !s.inScope(e, m) {
			return
		}
		failpoint.Hit("start.agent-heard")
		s.apply(e, session.AgentStarted{
			Run:   run,
			Shim:  e.run.peer,
			Agent: session.Process{PID: m.AgentPID, Start: m.AgentStart},
			At:    m.Started,
		})
		s.printed(e, m.Idle, m)
		if e.run.unproven {
			s.readExit(e)
		}
	case shimwire.Idle, shimwire.Working:
		s.printed(e, m.Kind == shimwire.Idle, m)
	case shimwire.StatusReport:
		s.agentSaid(e, m)
	case shimwire.Ready:
		s.apply(e, session.AgentReady{Run: run, At: m.Since})
	case shimwire.Prompted:
		s.apply(e, session.Prompted{Run: run})
	case shimwire.PaneLost:
		go s.tmuxLost(e, run, s.target(e))
	case shimwire.PaneClosed:
		// The shim has hung up on the agent already: what is left is the rest of the ending.
		s.ask(e, session.Stop, session.TerminalClosed)
		e.run.polite = true
		s.end(e, 0)
	}
}

// inScope makes sure that the agent is where its limits are, and where a stop finds it. One that is not is ended: no session is better than one
// that only seems to be supervised.
func (s *Supervisor) inScope(e *entry, m shimwire.Message) bool {
	r := e.rec.Run
	if s.isInScope(r, m.AgentPID) || !r.Started.IsZero() { // one that leaves its scope later is not killed for it
		return true
	}
	group := s.World.ControlGroup(m.AgentPID)
	s.apply(e, session.StartFailed{Run: r.ID, Reason: fmt.Sprintf("its agent was moved out of its scope, into %q", group), At: time.Now(), Monotonic: s.Monotonic()})
	t := s.target(e)
	t.Agent = session.Process{PID: m.AgentPID, Start: m.AgentStart}
	s.effect(e, func() { _ = s.World.Signal(s.ctx, t, WhomAgent, unix.SIGKILL) })
	s.end(e, time.Second)
	return false
}

// shimHungUp finds out what it means that the shim's socket was closed: the agent's exit is recorded, or the shim was killed.
func (s *Supervisor) shimHungUp(e *entry, run string) {
	s.drop(&e.run.shim)
	if s.readExit(e) {
		return
	}
	t := s.target(e)
	held := e.rec.Frozen && e.rec.Run.Tmux == session.Alive // it would answer, if it was let
	go func() {
		fd, _, err := s.World.DialShim(t)
		if err == nil {
			_ = unix.Close(fd)
		}
		if err == nil || errors.Is(err, unix.EAGAIN) || s.World.Reopen(t) { // it gave up a listener that did not listen, or has lost its socket and not its life
			s.post(func() { s.redial(e, run) })
			return
		}
		answers := held || s.World.TmuxAnswers(s.ctx, t)
		s.post(func() {
			if !e.removed && e.rec.Run.ID == run && !s.readExit(e) {
				s.apply(e, session.ShimDied{Run: run, Outlived: answers, At: time.Now()})
			}
		})
		if !answers {
			s.tmuxLost(e, run, t)
		}
	}()
}

// unwatch ends all waiting for a run, but for the end of its tmux server, which is our child: whenever that comes, it has to be collected.
func (s *Supervisor) unwatch(e *entry) {
	e.run.tmux = descriptor{}
	s.drop(&e.run.shim)
	s.unwatchAgent(e)
	s.unsure = s.unsure || e.run.outside != nil
	s.unwatchRecord(e)
	s.noteWatched(e.rec.ID, &e.watchErr, nil)
	if p := s.places[placeOf(e)]; p != nil && p.err != nil { // which is no more a problem of this session
		s.unsure = true
	}
}

// reapTmux has the tmux server of a run that has ended notice that, once.
func (s *Supervisor) reapTmux(e *entry) {
	if r := e.rec.Run; r.Ended() && r.Tmux == session.Alive && !e.run.reaped {
		e.run.reaped = true
		s.direct(e, "reap", func(t Target) error { return s.World.Reap(s.ctx, t) })
	}
}
