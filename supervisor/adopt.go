package supervisor

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/failpoint"
	"github.com/corrald/corral/supervisor/session"
)

// Adopt takes the saved sessions over, before Run: it lists what there is and applies what it finds as events, as anybody would tell them.
// A session whose record was lost is made anew where its agent lives; any other scope that belongs to no session is told in the journal and left alone.
func (s *Supervisor) Adopt(ctx context.Context, saved []*session.Session) error {
	for _, rec := range saved {
		s.add(&entry{rec: rec, adopted: rec.State})
	}
	if err := s.compare(ctx); err != nil {
		return err
	}
	s.sweep()
	for _, e := range s.sessions {
		if e.rec.ConversationID == "" {
			s.takeHint(e)
		}
	}
	if ids, err := s.World.PulledIn(ctx); err == nil {
		s.pulledIn(ids)
	}
	s.unsure = true
	s.undoStrays()
	s.awaitLooks(ctx)
	failpoint.Hit("adopt.applied")
	s.settle()
	failpoint.Hit("adopt.saved")
	s.tellProblems()
	s.tellStatus()
	s.tellLive()
	s.armExpiry()
	return nil
}

// firstLook is how long the workspaces of what was taken over may take to be looked at before anybody is told of them.
const firstLook = time.Second

// awaitLooks takes what is seen of workspaces before the loop runs. One that does not answer is waited for with all the others.
func (s *Supervisor) awaitLooks(ctx context.Context) {
	ctx, cancel := s.AfterFunc.Context(ctx, firstLook)
	defer cancel()
	for s.looks > 0 {
		select {
		case f := <-s.door:
			f()
		case <-ctx.Done():
			return
		}
	}
}

// Resync compares what systemd has with what the sessions say: events may have been missed. Where systemd does not answer it is asked again, less and less
// often.
func (s *Supervisor) Resync() {
	var runs map[*entry]string
	if s.do(func() { runs = s.quiet() }) != nil {
		return
	}
	ctx, cancel := s.AfterFunc.Context(s.ctx, startTimeout)
	defer cancel()
	scopes, err := s.World.Scopes(ctx)
	s.post(func() {
		if err != nil {
			s.listLater(err)
			return
		}
		s.listAfter = 0
		s.compareWith(scopes, runs)
	})
	_ = s.lookAtUnits(ctx) // before a session is removed it is asked again
}

// listLater lists again when some time has gone by.
func (s *Supervisor) listLater(err error) {
	if s.listing {
		return
	}
	s.listing, s.listAfter = true, min(max(2*s.listAfter, firstRetry), lastRetry)
	s.Log.Error("cannot list the scopes; retrying", "err", err, "after", s.listAfter)
	s.AfterFunc(s.listAfter, func() {
		s.post(func() {
			s.listing = false
			go s.Resync()
		})
	})
}

// quiet returns the runs that live and that nothing is being done with: a list made from now on tells the truth of them.
func (s *Supervisor) quiet() map[*entry]string {
	runs := map[*entry]string{}
	for _, e := range s.sessions {
		if e.rec.Run.Live() && !e.busy {
			runs[e] = e.rec.Run.ID
		}
	}
	return runs
}

func (s *Supervisor) compare(ctx context.Context) error {
	// Watched first, then listed: what ends in between is told.
	var units []string
	for _, e := range s.sessions {
		if r := e.rec.Run; r.Live() && r.BootID == s.BootID {
			units = append(units, r.Unit)
		}
	}
	if err := s.World.Watch(ctx, units); err != nil {
		return err
	}
	failpoint.Hit("adopt.watched")
	scopes, err := s.World.Scopes(ctx)
	if err != nil {
		return err
	}
	failpoint.Hit("adopt.listed")
	if scopes, err = s.rebuild(ctx, scopes); err != nil {
		return err
	}
	lived := s.lived()
	s.compareWith(scopes, s.quiet())
	return s.stoppedMeanwhile(ctx, lived)
}

// compareWith applies what was listed to the runs that were quiet before. The others are looked at again when they are.
func (s *Supervisor) compareWith(scopes []Scope, runs map[*entry]string) {
	byName := make(map[string]Scope, len(scopes))
	for _, sc := range scopes {
		byName[sc.Name] = sc
	}
	for _, e := range s.sessions {
		r := e.rec.Run
		switch {
		case !r.Live():
		case e.busy || runs[e] != r.ID:
			s.miss(e)
		default:
			s.takeOver(e, byName[r.Unit])
		}
	}
	// By now those that were connected to first have said who they are: clients are told of all at once.
	for _, e := range s.sessions {
		if e.run.shim.key != 0 {
			s.hearShim(e, e.rec.Run.ID)
		}
	}
}

// miss notes that a session could not be compared, because something is being done with it.
func (s *Supervisor) miss(e *entry) {
	if !e.missed {
		e.missed = true
		s.missed++
	}
	s.caughtUp(e)
}

// caughtUp lists again once nothing is being done any more with the sessions that were missed: once for all of them.
func (s *Supervisor) caughtUp(e *entry) {
	if !e.missed || e.busy || len(e.queue) > 0 {
		return
	}
	e.missed = false
	if s.missed--; s.missed == 0 {
		go s.Resync()
	}
}

// takeOver applies what is found of a run that was alive when it was last saved. A zero scope is one that systemd does not know.
func (s *Supervisor) takeOver(e *entry, sc Scope) {
	r := e.rec.Run
	s.touch(e)
	if !s.takeScope(e, sc, s.readExit(e)) {
		s.discardRecord(e)
		return
	}
	if e.run.stateDir == 0 {
		_ = os.MkdirAll(s.runtimeDir(e.rec.ID), 0o700) // somebody may have removed it; what cannot be watched is told of
		s.watchRecord(e)
	}
	// In this order: what has come and gone since the first look was recorded before the last.
	shown := s.findTmux(e)
	s.connectShim(e)
	e.run.attached = s.World.Attached(s.target(e))
	switch {
	case s.readExit(e):
	case r.Started.IsZero() && (shown || e.run.shim.key != 0):
		s.armStart(e) // its shim tells of the agent soon
	case r.Started.IsZero():
		s.startInterrupted(e, sc)
	case e.run.shim.key == 0:
		s.shimHungUp(e, r.ID)
	case !r.Begun():
		s.armStart(e) // until it is ready
	}
	switch {
	case e.run.stage != notEnding:
	case r.Intent != session.NoIntent:
		s.end(e, 0)
	case sc.Stopping: // by systemd, which the tmux server does not live to see, or it was left to a daemon that did not live to do it
		s.askWhyStopped(e, !shown)
	}
}

// takeScope applies what has become of the run's scope, and returns whether it is there. Exited tells whether its agent's exit is recorded.
func (s *Supervisor) takeScope(e *entry, sc Scope, exited bool) bool {
	r := e.rec.Run
	now := time.Now()
	if sc.TimedOut != 0 && r.BootID == s.BootID && sc.InvocationID == r.InvocationID {
		at := now.Add(sc.TimedOut - s.Monotonic())
		s.apply(e, session.ScopeResult{Run: r.ID, Result: session.Timeout, At: at, Monotonic: sc.TimedOut})
	}
	switch {
	case r.BootID != s.BootID:
		s.apply(e, session.MachineWentDown{Run: r.ID, At: now})
	case sc.Active && (r.InvocationID == "" || sc.InvocationID == r.InvocationID):
		if s.unnoticed(e) {
			s.readExit(e)
			s.release(e)
			s.applyEnd(e, session.ScopeEnded{Run: r.ID, Result: sc.Result, At: now})
			return false
		}
		s.apply(e, session.ScopeStarted{Run: r.ID, InvocationID: sc.InvocationID, ControlGroup: sc.ControlGroup})
		if !r.Left.IsZero() {
			s.apply(e, session.FoundAlive{Run: r.ID})
		}
		return true
	case !sc.Active && s.World.Occupied(r.ControlGroup):
		// systemd does not know what the kernel has: it lists again once it has been reloaded.
		s.Log.Warn("a scope that systemd does not know has processes", "session", e.rec.ID, "unit", r.Unit)
	default:
		if r.Scope == session.ScopeNone && !exited {
			s.endUnplaced(e)
			s.apply(e, session.StartFailed{Run: r.ID, Reason: interrupted, Interrupted: true, At: now, Monotonic: s.Monotonic()})
		}
		s.applyEnd(e, session.ScopeEnded{Run: r.ID, Result: sc.Result, At: now})
		if e.run.outside == nil {
			return false
		}
		if !r.Left.IsZero() { // it lives outside of its scope
			s.apply(e, session.FoundAlive{Run: r.ID})
		}
		return true
	}
	return false
}

// interrupted is why a run has failed whose start a daemon did not live to finish.
const interrupted = "corrald was interrupted while it started"

// startInterrupted gives up a run in whose scope a daemon has started nothing yet. What an earlier run has left there stays.
func (s *Supervisor) startInterrupted(e *entry, sc Scope) {
	s.apply(e, session.StartFailed{Run: e.rec.Run.ID, Reason: interrupted, Interrupted: true, At: time.Now(), Monotonic: s.Monotonic()})
	if !slices.ContainsFunc(e.rec.Past, func(r session.Run) bool { return r.InvocationID == sc.InvocationID }) {
		s.end(e, time.Second)
	}
}

// endUnplaced ends a tmux server that was started for a run and never got into its scope.
func (s *Supervisor) endUnplaced(e *entry) {
	t := s.target(e)
	t.ControlGroup = ""
	if server, _ := s.World.TmuxServer(t); server.PID != 0 {
		s.endServer(e, server)
	}
}

func (s *Supervisor) endServer(e *entry, server session.Process) {
	t := Target{ID: e.rec.ID, Agent: server}
	s.effect(e, func() {
		if err := s.World.Signal(s.ctx, t, WhomAgent, unix.SIGKILL); err != nil {
			s.Log.Warn("cannot stop a tmux server without a pane", "session", t.ID, "err", err)
		}
	})
}

// noServer stands for a tmux server that was never seen: any that is started is a later one.
var noServer = session.Process{Start: 1}

// findTmux sees to it that the run's tmux server is known and watched, also one that was started by a daemon which could not note it any more.
// It returns whether there is one that shows something. One that shows nothing is of no use to anybody, and is ended.
func (s *Supervisor) findTmux(e *entry) bool {
	r := e.rec.Run
	known := r.Tmux == session.Alive && s.watchTmux(e)
	if known && !r.Started.IsZero() {
		return true
	}
	server, shows := s.World.TmuxServer(s.target(e))
	switch {
	case shows && !known:
		s.apply(e, session.TmuxStarted{Run: r.ID, Process: server})
	case !shows:
		if server.PID != 0 {
			s.endServer(e, server)
		}
		gone := r.TmuxProc
		if gone == (session.Process{}) {
			gone = noServer
		}
		s.apply(e, session.TmuxDied{Run: r.ID, Process: gone})
	}
	return shows
}

// sweep takes away the empty directories of sessions that a daemon did not live to save. One that has something in it is somebody's.
func (s *Supervisor) sweep() {
	entries, err := os.ReadDir(s.RuntimeDir)
	if err != nil {
		return // nothing has been started yet
	}
	for _, entry := range entries {
		if entry.IsDir() && s.sessions[entry.Name()] == nil {
			_ = os.Remove(filepath.Join(s.RuntimeDir, entry.Name()))
		}
	}
}

// clearInterrupted takes away the sockets of a run that never had an agent to speak through them.
func (s *Supervisor) clearInterrupted(e *entry) {
	if e.rec.Run.StartInterrupted {
		_ = os.RemoveAll(s.runtimeDir(e.rec.ID))
	}
}
