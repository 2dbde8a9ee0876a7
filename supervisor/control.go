package supervisor

import (
	"context"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/supervisor/session"
)

// Whom a signal is for.
const (
	WhomAgent     = "agent"
	WhomAll       = "all"
	WhomLeftovers = "leftovers"
)

// with runs f with the session on the loop and then waits for what f returns to answer; nil means that there is nothing to wait for.
func (s *Supervisor) with(ctx context.Context, id string, f func(*entry) (<-chan error, error)) error {
	var reply <-chan error
	var err error
	if e := s.do(func() {
		var e *entry
		if e, err = s.find(id); err == nil {
			reply, err = f(e)
		}
	}); e != nil {
		return e
	}
	if err != nil || reply == nil {
		return err
	}
	accepted(ctx)
	return s.await(ctx, reply)
}

// wait returns where the answer will come once ready says so, at the end of this turn at the earliest.
func (s *Supervisor) wait(e *entry, ready func(*entry) bool, result func(*entry) error) <-chan error {
	reply := make(chan error, 1)
	e.waiting = append(e.waiting, waiter{ready, reply, result})
	s.touch(e)
	return reply
}

func (s *Supervisor) await(ctx context.Context, reply <-chan error) error {
	select {
	case err := <-reply:
		return err
	case <-ctx.Done():
		return refuse(TimedOut, "timed out; the operation may still complete")
	case <-s.done:
		return ErrClosed
	}
}

// started tells whether a start has come to its end, one way or the other.
func started(e *entry) bool {
	return e.then == nil && (e.removed || !e.rec.Awaited())
}

// startError tells what kept a run from starting. The end of the daemon comes before the agent of every start that still waits then.
func (s *Supervisor) startError(e *entry) error {
	v, r := e.rec.View(), e.rec.Run
	switch {
	case e.removed || e.leaving:
		return refuse(InvalidState, "session %q was removed meanwhile", e.rec.ID)
	case v.Result == session.CannotStart || v.State == session.Failed && !r.Begun():
		return refuse(StartFailed, "cannot start %q: %s", e.rec.ID, v.Reason)
	case s.stopping || !r.AgentAlive():
		if err := s.mayBegin(); err != nil {
			return err
		}
	}
	if r != nil && !r.Begun() && r.Intent != session.NoIntent {
		return refuse(InvalidState, "session %q was %s meanwhile", e.rec.ID, map[session.Intent]string{session.Stop: "stopped", session.Suspend: "suspended"}[r.Intent])
	}
	return nil
}

func scopeGone(e *entry) bool { return e.removed || !e.rec.Run.Live() && e.then == nil }

// runGone tells whether nothing is left of the run that the session has at this moment: another one may have begun since.
func runGone(e *entry) func(*entry) bool {
	run := e.rec.Run.ID
	return func(e *entry) bool { return scopeGone(e) || e.rec.Run.ID != run }
}

func noError(*entry) error { return nil }

// Start begins a fresh run, with a conversation of its own, and waits until its agent runs. What an earlier run has left in its scope is ended first.
// Errors: NoSuchSession, InvalidState, WorkspaceMissing, WorkspaceBusy, ConversationBusy, StartFailed, ShuttingDown.
func (s *Supervisor) Start(ctx context.Context, id string) error { return s.startBy(ctx, id, nil) }

// startBy is Start by a caller whose environment came along.
func (s *Supervisor) startBy(ctx context.Context, id string, caller []string) error {
	w, err := s.wayIn(ctx, id, startable)
	if err != nil {
		return err
	}
	return s.with(ctx, id, func(e *entry) (<-chan error, error) {
		if err := s.mayStart(e, false, w); err != nil {
			return nil, err
		}
		return s.replace(e, false, caller, w), nil
	})
}

// startable refuses to start what runs or is archived.
func startable(e *entry) error {
	if st := e.rec.View().State; st == session.Archived || !e.rec.Run.Ended() || e.then != nil {
		return notIn(e.rec.ID, st)
	}
	if e.leaving {
		return refuse(InvalidState, "session %q is being removed", e.rec.ID)
	}
	return nil
}

// mayStart refuses to start what runs, is archived, or has to wait for its workspace or its conversation, and anything once the end is near.
func (s *Supervisor) mayStart(e *entry, resumed bool, w *way) error {
	if err := s.mayBegin(); err != nil {
		return err
	}
	if err := startable(e); err != nil {
		return err
	}
	return s.unoccupied(e.rec, resumed, w)
}

// unoccupied refuses to begin a run where, or with what, another session has one.
func (s *Supervisor) unoccupied(rec *session.Session, resumed bool, w *way) error {
	if err := s.free(rec, goalOf(rec, w)); err != nil {
		return err
	}
	return s.unheld(rec, goesOn(rec, resumed))
}

// replace begins a run once the scope of the one before it is gone, unless the end is near by then. It returns where it will be told how that went.
func (s *Supervisor) replace(e *entry, resumed bool, caller []string, w *way) <-chan error {
	var overruled error
	waits := e.rec.Run.Live()
	e.wants, e.goal = s.given(e.rec, goesOn(e.rec, resumed)), goalOf(e.rec, w)
	s.whenGone(e, func() {
		e.starts = false
		if s.mayBegin() == nil {
			s.lead(e, w)
			s.start(e, resumed, caller)
		}
	}, func(err error) { overruled = err })
	e.starts = waits
	return s.wait(e, func(e *entry) bool { return overruled != nil || started(e) }, func(e *entry) error {
		if overruled != nil {
			return overruled
		}
		return s.startError(e)
	})
}

// whenGone has f done on the loop once nothing of the session's last run is left, and sees to that. If something else is to be done by then, whoever has
// asked for f is told so by overruled.
func (s *Supervisor) whenGone(e *entry, f func(), overruled func(error)) {
	if !e.rec.Run.Live() {
		f()
		return
	}
	s.overrule(e, refuse(InvalidState, "session %q: another operation has replaced this one", e.rec.ID))
	e.then, e.overrule = f, overruled
	s.end(e, 0)
}

// overrule calls off what was to be done once nothing of the session's last run is left.
func (s *Supervisor) overrule(e *entry, why error) {
	if e.then != nil {
		e.overrule(why)
		s.touch(e)
	}
	e.then, e.overrule, e.starts = nil, nil, false
}

// Restart stops the session, if it runs, and then starts it. Errors: those of Start.
func (s *Supervisor) Restart(ctx context.Context, id string) error { return s.restartBy(ctx, id, nil) }

// restartBy is Restart by a caller whose environment came along.
func (s *Supervisor) restartBy(ctx context.Context, id string, caller []string) error {
	w, err := s.wayIn(ctx, id, restartable)
	if err != nil {
		return err
	}
	return s.with(ctx, id, func(e *entry) (<-chan error, error) {
		if err := restartable(e); err != nil {
			return nil, err
		}
		if err := s.mayBegin(); err != nil {
			return nil, err
		}
		if err := s.unoccupied(e.rec, false, w); err != nil {
			return nil, err
		}
		s.ask(e, session.Stop, "")
		return s.replace(e, false, caller, w), nil
	})
}

// restartable refuses to restart what is archived, or about to run again or to be removed.
func restartable(e *entry) error {
	if st := e.rec.View().State; st == session.Archived || e.then != nil || e.leaving {
		return notIn(e.rec.ID, st)
	}
	return nil
}

// Stop asks the agent to end, by the user's wish: SIGTERM to the agent alone (SIGHUP where it ignores that), SIGTERM to all of the scope once
// the agent is gone or grace is nearly over, SIGKILL to all after grace (0 means StopTimeoutSec=). It returns when the scope is empty.
// Stopping a session that does not run does nothing; one that has ended keeps what it says. A start that waits for the end of what is there is called off.
// Errors: NoSuchSession.
func (s *Supervisor) Stop(ctx context.Context, id string, grace time.Duration) error {
	return s.with(ctx, id, func(e *entry) (<-chan error, error) {
		if !e.rec.Run.Live() {
			return nil, nil
		}
		if e.starts {
			s.overrule(e, refuse(InvalidState, "session %q was stopped meanwhile", id))
		}
		s.ask(e, session.Stop, "")
		s.end(e, grace)
		return s.wait(e, runGone(e), noError), nil
	})
}

// ask notes that the run is to be ended, unless it has ended by itself.
func (s *Supervisor) ask(e *entry, intent session.Intent, why string) {
	if r := e.rec.Run; r != nil && !r.Ended() {
		s.apply(e, session.EndAsked{Run: r.ID, Intent: intent, Why: why, At: time.Now(), Monotonic: s.Monotonic()})
	}
}

// Kill sends a signal to the agent alone, to all of the scope, or to its leftovers. Errors: NoSuchSession, InvalidState, Invalid.
func (s *Supervisor) Kill(ctx context.Context, id, whom string, signal int) error {
	if signal < 1 || signal > 64 {
		return refuse(Invalid, "%d is not a signal", signal)
	}
	if whom != WhomAgent && whom != WhomAll && whom != WhomLeftovers {
		return refuse(Invalid, "invalid whom %s: expected agent, all or leftovers", brief(whom))
	}
	return s.with(ctx, id, func(e *entry) (<-chan error, error) {
		r := e.rec.Run
		if r == nil || r.Scope != session.ScopeActive || whom == WhomAgent && !r.AgentAlive() {
			return nil, refuse(InvalidState, "session %q has no process to signal: %s", id, stateClause(e.rec.View().State))
		}
		reply := make(chan error, 1)
		target := s.target(e)
		if whom != WhomLeftovers {
			e.known, e.signal = r.ID, signal
		}
		// A signal does not wait behind the session's effects: it may be what ends one that hangs.
		send := func(t Target) error { return s.World.Signal(s.ctx, t, whom, unix.Signal(signal)) }
		if thaws(whom, unix.Signal(signal)) {
			send = s.thawed(send)
		}
		go func() { reply <- send(target) }()
		return reply, nil
	})
}

// archivable refuses to archive what has an agent, or is about to have one.
func archivable(e *entry) error {
	if e.rec.Stale() && !e.rec.Run.AgentAlive() && e.run.stage == notEnding && e.then == nil && !e.leaving {
		return nil // only leftovers are there
	}
	return startable(e)
}

// Archive puts a session whose agent is gone out of sight, for good, and ends what its scope still has. Errors: NoSuchSession, InvalidState.
func (s *Supervisor) Archive(ctx context.Context, id string) error {
	return s.with(ctx, id, func(e *entry) (<-chan error, error) {
		if err := archivable(e); err != nil {
			return nil, err
		}
		var overruled error
		s.whenGone(e, func() {
			s.unwatchWorkspace(e)
			s.apply(e, session.ArchiveAsked{At: time.Now()})
		}, func(err error) { overruled = err })
		return s.wait(e, func(e *entry) bool { return overruled != nil || scopeGone(e) }, func(*entry) error { return overruled }), nil
	})
}

// Remove forgets a session, with its log; a scope that is left is ended. One that has not ended is refused unless force is set: then it is
// stopped first. Errors: NoSuchSession, InvalidState.
func (s *Supervisor) Remove(ctx context.Context, id string, force bool) error {
	nothing := func(*entry) error { return nil }
	return s.removeAfter(ctx, id, force, nothing, func() error { return nil })
}

// removable refuses to remove what has not ended or is about to run again, unless force is set, and what is being removed.
func removable(e *entry, force bool) error {
	switch {
	case force:
	case e.starts:
		return refuse(InvalidState, "session %q is being started", e.rec.ID)
	case !e.rec.Run.Ended():
		return notIn(e.rec.ID, e.rec.View().State)
	}
	if e.leaving {
		return refuse(InvalidState, "session %q is being removed", e.rec.ID)
	}
	return nil
}

// removeAfter is Remove, with something that is done before the session is forgotten, once nothing of it runs: may on the loop, then before off it. If one
// of them fails the session stays.
func (s *Supervisor) removeAfter(ctx context.Context, id string, force bool, may func(*entry) error, before func() error) error {
	return s.with(ctx, id, func(e *entry) (<-chan error, error) {
		if err := removable(e, force); err != nil {
			return nil, err
		}
		s.ask(e, session.Stop, "")
		var failed error
		s.whenGone(e, func() {
			if failed = may(e); failed != nil {
				s.touch(e)
				return
			}
			s.leave(e, before, func(err error) {
				e.leaving, e.taking = false, ""
				s.touch(e)
				if failed = err; err == nil {
					failed = s.remove(e)
				}
			})
		}, func(err error) { failed = err })
		return s.wait(e, func(e *entry) bool { return e.removed || failed != nil }, func(*entry) error { return failed }), nil
	})
}

// leave has what the session's runs have left behind taken away, unless before fails, and then f done on the loop. Only then may another session have its name.
func (s *Supervisor) leave(e *entry, before func() error, f func(error)) {
	e.leaving = true
	unit, dir := UnitName(e.rec.Agent, e.rec.ID), s.runtimeDir(e.rec.ID)
	s.effect(e, func() {
		err := before()
		if err == nil {
			s.World.Clear(s.ctx, unit, dir)
		}
		s.post(func() { f(err) })
	})
}

// remove forgets the session, on the loop. Nothing of it is left but its record and its log.
func (s *Supervisor) remove(e *entry) error {
	s.touch(e)
	if err := s.Records.Remove(e.rec.ID); err != nil {
		return err
	}
	s.unwatch(e)
	s.unwatchWorkspace(e)
	s.forgetSession(e.rec.ID)
	e.removed = true
	delete(s.sessions, e.rec.ID)
	delete(s.units, UnitName(e.rec.Agent, e.rec.ID))
	return nil
}

// Describe, Label and SetOnLogin change what the user says of a session. Errors: NoSuchSession, Invalid, OverLimit.
func (s *Supervisor) Describe(ctx context.Context, id, description string) error {
	if len(description) > maxDescription {
		return refuse(OverLimit, "Description is longer than %d bytes", maxDescription)
	}
	return s.change(ctx, id, func(rec *session.Session) { rec.Description = description })
}

// Label replaces the session's labels. See Describe.
func (s *Supervisor) Label(ctx context.Context, id string, labels map[string]string) error {
	if err := CheckLabels(labels); err != nil {
		return err
	}
	return s.change(ctx, id, func(rec *session.Session) { rec.Labels = labels })
}

// SetOnLogin says what becomes of the session at the next login. See Describe.
func (s *Supervisor) SetOnLogin(ctx context.Context, id, onLogin string) error {
	spec := Spec{OnLogin: onLogin}
	if err := checkChoices(&spec); err != nil {
		return err
	}
	return s.change(ctx, id, func(rec *session.Session) { rec.OnLogin = spec.OnLogin })
}

func (s *Supervisor) change(ctx context.Context, id string, f func(*session.Session)) error {
	return s.with(ctx, id, func(e *entry) (<-chan error, error) {
		s.want(e, func() { f(e.rec) })
		e.exited = false
		return s.wait(e, func(*entry) bool { return true }, noError), nil
	})
}

// ListAgents returns the agent definitions by name.
func (s *Supervisor) ListAgents() (agents map[string]config.Agent, err error) {
	err = s.do(func() { agents = s.Agents })
	return agents, err
}

// Reload takes a configuration into use, for everything that begins from now on, and for how long sessions are kept and may be idle. The caller does not
// change it afterwards.
func (s *Supervisor) Reload(c config.Config, agents map[string]config.Agent) error {
	reply := make(chan error, 1)
	if err := s.do(func() {
		s.Config, s.Agents = c, agents
		var all []func()
		for _, e := range s.sessions {
			s.touch(e) // when it expires, or is suspended, may be another time
			if e.rec.Run != nil && paneThere(e.rec.Run) && !e.rec.Frozen {
				all = append(all, s.directly(e, "set the detach key", s.setDetachKey))
			}
		}
		go fewAtATime(all)
		s.rearm = true
		s.after = append(s.after, func() { reply <- nil })
	}); err != nil {
		return err
	}
	return s.await(context.Background(), reply)
}

// setDetachKey sets the key that is configured by now: the configuration may have been read again since this was asked for.
func (s *Supervisor) setDetachKey(t Target) error {
	var key string
	if err := s.do(func() { key = s.Config.DetachKey }); err != nil {
		return err
	}
	return s.World.SetDetachKey(s.ctx, t, key)
}

// fewAtATime calls functions that run a program each, as many at a time as leave the machine to its user.
func fewAtATime(all []func()) {
	slots := make(chan struct{}, 4)
	for _, f := range all {
		slots <- struct{}{}
		go func() {
			defer func() { <-slots }()
			f()
		}()
	}
}
