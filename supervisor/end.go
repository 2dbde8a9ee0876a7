package supervisor

import (
	"errors"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/deadline"
	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/internal/failpoint"
	"github.com/corrald/corral/internal/unitproperty"
	"github.com/corrald/corral/supervisor/session"
)

// runtime is what the loop holds of a run beside its facts: it is gone with the daemon, and made anew by adoption.
type runtime struct {
	timer   deadline.Stopper // of the start, then of the end
	emptied deadline.Stopper // runs while the scope is empty and systemd has not told of its end
	empty   bool             // it was empty when that timer was over
	stage   stage            // how far the ending has come
	grace   time.Duration
	asked   time.Time // when the ending began
	polite  bool      // the agent has had its signal

	systemdStops bool // systemd stops the scope, and waits for its end

	outside *session.ScopeEnded // the end of a scope that its agent has left, to be applied once the agent has ended; nil while there is none

	caller []string // the environment of whoever asked for the run: all of it until that has begun, then what its conversation is looked for with

	attached    bool          // somebody looks at its terminal
	detached    time.Duration // by CLOCK_MONOTONIC: when nobody did any more, 0 if nobody ever has
	answered    time.Duration // by CLOCK_MONOTONIC: when it was given input while it asked for some
	misreported session.Told  // the last report that was dropped because it came from elsewhere
	misreportAt time.Duration // by CLOCK_MONOTONIC: from when on the next one is told to the journal
	nextReport  time.Time     // when its reports would be taken if each had to wait for the one before it

	making    func() // calls off the making of its conversation, nil while there is none
	seeking   bool   // its conversation is being looked for
	seekAgain bool   // and is to be found out once more after that
	reported  string // the conversation that its agent has reported last

	joining  bool       // a new tmux server is being put around the agent
	starting bool       // the scope is being started: what has come of that is told before its end is
	ended    []scopeEnd // what came first of ends, which may be those of earlier runs

	tmux   descriptor      // pidfd of the tmux server
	server session.Process // that it is of
	lost   session.Process // the tmux server that was found dead when it was to be watched
	shim   descriptor      // socket
	peer   session.Process // that listens at its other end

	hearSince time.Duration // by CLOCK_MONOTONIC: when the span began in which heard messages of the shim were taken
	heard     int

	agent      descriptor       // pidfd of the agent, none once that has ended
	awaited    session.Process  // the agent that it is of, or was
	agentEnded bool             // as that pidfd has reported
	reaped     bool             // its tmux server is made to notice that
	unrecorded deadline.Stopper // runs while the agent has ended and its end is not recorded

	redialing bool          // it is about to be connected to again
	redialled time.Duration // how long that was waited for the last time, 0 if it was not
	redialAt  time.Duration // by CLOCK_MONOTONIC: when that was over

	forged   exitstatus.Status // the last record of an exit that was found while the agent ran
	unproven bool              // a record was found before the shim has introduced itself
	nextLook time.Duration     // by CLOCK_MONOTONIC: when events of its directories would be acted on if each had to wait for the one before it
	resting  bool              // its directories are not watched for a moment, since too much happens there

	stateDir   int32 // inotify watch on the session's state directory
	runtimeDir int32 // inotify watch on its runtime directory
	group      int32 // inotify watch on cgroup.events of its control group
}

// stage is how far the ending of a scope has come. It only ever goes forward.
type stage int

const (
	notEnding   stage = iota
	agentAsked        // the agent alone has been asked
	agentHungUp       // it was asked again, if it turned out to ignore SIGTERM
	allAsked          // everything in the scope has been asked
	allKilled         // everything in the scope was killed
)

// end sees to it that the session's scope is emptied: the agent is asked, then everything, then everything is killed. It may be called again,
// with another grace, while it goes on.
func (s *Supervisor) end(e *entry, grace time.Duration) {
	if grace <= 0 {
		grace = s.stopTimeout(e.rec)
	}
	if e.run.stage == notEnding {
		e.run.stage, e.run.asked = agentAsked, time.Now()
	}
	if e.run.making != nil {
		e.run.making()
	}
	e.run.grace = grace
	s.armEnd(e)
	s.touch(e)
}

// stopTimeout is the time between the polite end of a session and SIGKILL: its own, or that of its agent's definition, or what is configured.
func (s *Supervisor) stopTimeout(rec *session.Session) time.Duration {
	const most = 24 * time.Hour
	timeout := s.Config.StopTimeout
	def := s.Agents[rec.Agent]
	if of := def.StopTimeout(); of > 0 {
		timeout = of
	}
	for _, p := range rec.UnitProperties {
		if p.Name != "TimeoutStopUSec" {
			continue
		}
		v, err := unitproperty.Decode(p.Signature, p.Value)
		if usec, is := v.Value().(uint64); err == nil && is && usec > 0 {
			timeout = time.Duration(min(usec, uint64(most/time.Microsecond))) * time.Microsecond
		}
	}
	return min(timeout, most)
}

// hangUpAfter is how long an agent has until it is looked at whether it ignores SIGTERM: a shell that is still reading its start-up files has
// caught and forgotten it.
const hangUpAfter = time.Second

// allTime is what the rest of the scope has to end politely where the agent takes all the time there is. Until then the agent is left to its saving,
// with all that helps it: a second SIGTERM makes many a program give up at once.
const allTime = 2 * time.Second

// armEnd sets the timer for the next stage of the ending.
func (s *Supervisor) armEnd(e *entry) {
	after := e.run.grace
	switch e.run.stage {
	case agentAsked:
		after = min(hangUpAfter, after/4)
	case agentHungUp:
		after -= min(after/2, allTime)
	}
	if e.run.timer != nil {
		e.run.timer.Stop()
	}
	run := e.rec.Run.ID
	e.run.timer = s.AfterFunc(time.Until(e.run.asked.Add(after)), func() {
		s.post(func() {
			if !e.removed && e.rec.Run.ID == run {
				s.endFurther(e)
			}
		})
	})
}

// endFurther goes to the next stage.
func (s *Supervisor) endFurther(e *entry) {
	r := e.rec.Run
	if !r.Live() {
		return
	}
	switch e.run.stage {
	case agentAsked:
		e.run.stage = agentHungUp
		s.armEnd(e)
		if r.AgentAlive() {
			s.effect(e, s.directly(e, "end", func(t Target) error { return s.World.HangUp(s.ctx, t) }))
		}
	case agentHungUp:
		s.askAll(e)
	case allAsked, allKilled:
		e.run.stage = allKilled
		s.direct(e, "kill", s.thawed(func(t Target) error { return s.World.Kill(s.ctx, t) }))
		// What survives SIGKILL is in the kernel's hands: it is killed again, less and less often, as long as it is there.
		e.run.grace *= 2
		s.armEnd(e)
	}
}

// askAll asks everything that is left in the scope to end.
func (s *Supervisor) askAll(e *entry) {
	e.run.stage = allAsked
	s.armEnd(e)
	s.effect(e, s.directly(e, "end", s.thawed(func(t Target) error {
		err := s.World.Signal(s.ctx, t, WhomAll, unix.SIGTERM)
		failpoint.Hit("stop.all-asked")
		return err
	})))
}

// direct does something with the run's processes at once: the session's other effects may be what hangs.
func (s *Supervisor) direct(e *entry, verb string, f func(Target) error) {
	go s.directly(e, verb, f)()
}

func (s *Supervisor) directly(e *entry, verb string, f func(Target) error) func() {
	t := s.target(e)
	return func() {
		if err := f(t); err != nil && s.ctx.Err() == nil {
			s.post(func() {
				s.Log.Warn("an operation on the processes of a session failed", "action", verb, "session", t.ID, "unit", t.Unit, "err", err)
			})
		}
	}
}

// react decides what has to be done now that facts have changed.
func (s *Supervisor) react(e *entry) {
	r := e.rec.Run
	if r == nil {
		return
	}
	if !r.Live() {
		s.gone(e)
		return
	}
	if !s.watchTmux(e) && e.run.lost != r.TmuxProc {
		// Its shim may have told that it has lost its pane before anybody knew of this server: then nobody else tells.
		e.run.lost = r.TmuxProc
		go s.tmuxLost(e, r.ID, s.target(e))
	}
	s.watchAgent(e)
	s.reapTmux(e)
	if r.Scope != session.ScopeActive {
		return
	}
	s.watchScope(e)
	if e.run.stage == notEnding && r.Begun() && e.run.timer != nil { // the start is over
		e.run.timer.Stop()
		e.run.timer = nil
	}
	switch {
	case r.Exit != nil && r.Exit.Code == exitstatus.NotStarted && e.run.stage == notEnding:
		// Nothing ran: there is no agent to be asked, and no last screen that anybody would miss.
		s.end(e, time.Second)
		s.askAll(e)
	case e.run.stage > notEnding && e.run.stage < allAsked && r.AgentAlive() && !e.run.polite:
		e.run.polite = true
		find := s.finder(e)
		s.effect(e, s.directly(e, "end", s.thawed(func(t Target) error {
			failpoint.Hit("stop.asked")
			if find != nil {
				find(t)
			}
			err := s.World.End(s.ctx, t)
			failpoint.Hit("stop.agent-asked")
			return err
		})))
	case e.run.stage > notEnding && e.run.stage < allAsked && r.Ended():
		s.askAll(e)
	}
}

// gone does what had to wait until nothing was left of a run.
func (s *Supervisor) gone(e *entry) {
	if e.run.stateDir != 0 || e.watchErr != nil || e.run.resting { // the first time: what is not watched was never, or is no more
		unit := e.rec.Run.Unit
		s.discardRecord(e)
		s.effect(e, func() { _ = s.World.Forget(s.ctx, unit) })
	}
	s.unwatch(e)
	s.problemOver(e, s.target(e).ShimSocket())
	s.unwatchWorkspace(e)
	s.clearInterrupted(e)
	for _, timer := range []deadline.Stopper{e.run.timer, e.run.emptied} {
		if timer != nil {
			timer.Stop()
		}
	}
	e.run = runtime{}
	if f := e.then; f != nil {
		e.then, e.overrule = nil, nil
		f()
	}
}

// discardRecord removes the files in which the shim of a run that has ended was to record its
// agent's exit, if it did not live to do so.
func (s *Supervisor) discardRecord(e *entry) {
	if r := e.rec.Run; r.Live() || r.Exit != nil {
		return
	}
	for _, dir := range []string{s.Records.SessionDir(e.rec.ID), s.runtimeDir(e.rec.ID)} {
		if err := exitstatus.Discard(dir); err != nil {
			s.Log.Warn("cannot remove the file in which an exit was to be recorded", "session", e.rec.ID, "err", err)
		}
	}
}

// ScopeEnded is told by systemd: the scope's last process is gone. The invocation tells it from others that have had its name: what is told of those is of
// no run that lives. It is "" where systemd did not tell.
func (s *Supervisor) ScopeEnded(unit, invocation, result string) {
	s.post(func() {
		e := s.byUnit(unit)
		if e == nil {
			return
		}
		failpoint.Hit("stop.gone")
		ended := scopeEnd{invocation, session.ScopeEnded{Run: e.rec.Run.ID, Result: result, At: time.Now()}}
		if e.run.starting {
			e.run.ended = append(e.run.ended, ended)
			return
		}
		s.scopeEnded(e, ended)
	})
}

// scopeEnd is the end of a scope, which is the run's if the invocation is.
type scopeEnd struct {
	invocation string
	event      session.ScopeEnded
}

func (s *Supervisor) scopeEnded(e *entry, ended scopeEnd) {
	if e.rec.Run.Live() && isOf(e.rec.Run, ended.invocation) {
		s.readExit(e)
		s.applyEnd(e, ended.event)
	}
}

// applyEnd applies the end of a scope. systemd reports timeout also for one that somebody stopped and that did not end within its time, as agents do that ignore
// SIGTERM: where it was RuntimeMaxSec, systemd has reported when.
func (s *Supervisor) applyEnd(e *entry, ended session.ScopeEnded) {
	r := e.rec.Run
	if ended.Result == session.Timeout && r.TimedOut.IsZero() {
		ended.Result = session.Success
		if r.Intent == session.NoIntent {
			s.ask(e, session.Stop, scopeStopped)
		}
	}
	if !s.livesOutside(e, ended) {
		s.apply(e, ended)
	}
}

// isOf tells whether what was told of a scope with this invocation may be told of the run's.
func isOf(r *session.Run, invocation string) bool {
	return invocation == "" || r.InvocationID == "" || r.InvocationID == invocation
}

// ScopeStopRequested is told by systemd: it wants the scope to be stopped and leaves it to us how.
func (s *Supervisor) ScopeStopRequested(unit, invocation string) {
	s.scopeStops(unit, invocation, func(e *entry) { s.askWhyStopped(e, false) })
}

// ScopeStopping is told by systemd: it has begun to stop the scope itself, as it does with one that another daemon has started. Its processes have had
// their SIGTERM; a second one makes many a program give up what it saves. Some may have ended of it already.
func (s *Supervisor) ScopeStopping(unit, invocation string, cause StopCause) {
	s.scopeStops(unit, invocation, func(e *entry) { s.findWhyStopped(e, true, cause) })
}

func (s *Supervisor) scopeStops(unit, invocation string, f func(*entry)) {
	s.post(func() {
		e := s.byUnit(unit)
		if e == nil || !isOf(e.rec.Run, invocation) {
			return
		}
		e.run.systemdStops = true
		if e.run.stage == notEnding {
			f(e)
		}
	})
}

// signalTime is how long a tmux server may take to end of the SIGTERM that systemd sends to all of a scope.
const signalTime = 250 * time.Millisecond

// askFoundStopping does the same for a scope that is found being stopped while nothing was reported of it. Whether systemd has sent SIGTERM or left that to a
// daemon is known by the tmux server, which ends of a SIGTERM at once.
func (s *Supervisor) askFoundStopping(e *entry) {
	run, unit := e.rec.Run.ID, e.rec.Run.Unit
	s.asking++
	go func() {
		cause, _ := s.World.StopCause(s.ctx, unit) // at once: systemd forgets it with the scope
		s.AfterFunc(signalTime, func() {
			s.post(func() {
				s.asking--
				if !e.removed && e.rec.Run.ID == run && e.run.stage == notEnding {
					s.findWhyStopped(e, e.run.tmux.key == 0, cause)
				}
			})
		})
	}()
}

// scopeStopped is the reason of a run whose scope somebody stopped with systemctl.
const scopeStopped = "its scope was stopped"

// askWhyStopped asks systemd why it wants the scope to end, and sees to it that it does; told says that its processes know.
func (s *Supervisor) askWhyStopped(e *entry, told bool) {
	run, unit := e.rec.Run.ID, e.rec.Run.Unit
	s.asking++
	go func() {
		cause, err := s.World.StopCause(s.ctx, unit)
		s.post(func() {
			s.asking--
			if e.removed || e.rec.Run.ID != run || e.run.stage != notEnding {
				return
			}
			if err != nil {
				s.Log.Warn("cannot ask why a scope is stopped", "session", e.rec.ID, "unit", unit, "err", err)
			}
			s.findWhyStopped(e, told, cause)
		})
	}()
}

// findWhyStopped finds out whose wish it is that the scope ends: what systemd tells of the scope alone does not say so.
func (s *Supervisor) findWhyStopped(e *entry, told bool, cause StopCause) {
	if !told || cause.Since == 0 {
		cause.Since = s.Monotonic()
	}
	run := e.rec.Run.ID
	switch cause.Result {
	case session.Timeout:
		s.apply(e, session.ScopeResult{Run: run, Result: cause.Result, At: s.timeOf(cause.Since), Monotonic: cause.Since})
		s.endStopped(e, told)
		return
	case session.OOMKill: // nobody's wish
		s.endStopped(e, told)
		return
	}
	s.asking++
	go func() {
		stopping := s.World.Stopping(s.ctx)
		s.post(func() {
			s.asking--
			if e.removed || e.rec.Run.ID != run || e.run.stage != notEnding {
				return
			}
			asked := session.EndAsked{Run: run, Intent: session.Stop, Told: told, At: s.timeOf(cause.Since), Monotonic: cause.Since}
			switch {
			case stopping:
				asked.Intent, asked.Why = session.Suspend, "the login session ended"
			case cause.Result != "": // else systemd was asked, and could not tell
				asked.Why = scopeStopped
			}
			s.apply(e, asked)
			s.endStopped(e, told)
		})
	}()
}

// endStopped ends a scope that systemd stops, if there is any of it left.
func (s *Supervisor) endStopped(e *entry, told bool) {
	if e.rec.Run.Live() {
		e.run.polite = told
		s.end(e, 0)
	}
}

// timeOf returns the time of day at a moment of CLOCK_MONOTONIC.
func (s *Supervisor) timeOf(monotonic time.Duration) time.Time {
	return time.Now().Add(monotonic - s.Monotonic())
}

// byUnit returns the session whose run has this scope, and has not lost it.
func (s *Supervisor) byUnit(unit string) *entry {
	if e := s.units[unit]; e != nil && e.rec.Run.Live() {
		return e
	}
	return nil
}

// readExit looks whether the shim has recorded the end of the current run: in the state directory, or, where that took no record any more, in the
// runtime directory.
func (s *Supervisor) readExit(e *entry) (found bool) {
	r := e.rec.Run
	if r == nil || r.Exit != nil {
		return r != nil
	}
	state := s.Records.SessionDir(e.rec.ID)
	for _, dir := range []string{state, s.runtimeDir(e.rec.ID)} {
		status, err := exitstatus.Read(dir)
		path := filepath.Join(dir, exitstatus.FileName)
		if err == nil && status.RunID == r.ID && s.mayBelieve(e, status, path) {
			s.apply(e, session.AgentExited{Status: within(status, r, time.Now(), s.Monotonic())})
			s.problemOver(e, path)
			if asked, ok := s.stopTold(e); ok && s.stopping { // systemd may report the stop too late
				s.apply(e, asked)
			}
			e.stray = dir != state
			s.takeHint(e)
			if e.run.attached && e.rec.View().State == session.Completed {
				s.acknowledge(e) // under somebody's eyes
			}
			return true
		}
		if err != nil && !errors.Is(err, errNotExist) && s.mayLog(e, "unreadable exit") {
			s.Log.Warn("cannot read an exit status", "session", e.rec.ID, "err", err)
		}
	}
	return false
}
