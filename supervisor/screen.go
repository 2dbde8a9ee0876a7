package supervisor

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/corrald/corral/internal/keys"
	"github.com/corrald/corral/internal/safefile"
	"github.com/corrald/corral/supervisor/session"
)

// Limits of what a client can ask of a session's terminal.
const (
	maxInput   = 1 << 20 // bytes
	maxKeys    = 1000
	maxCapture = 64 << 10 // bytes
	maxLines   = 10000    // of history
)

// targetOf returns the session's run for something that is done with its terminal.
// What more has to be so, and is to be known of it, the checks say.
func (s *Supervisor) targetOf(id string, usable func(*session.Run) bool, what string, checks ...func(*entry) error) (t Target, err error) {
	if e := s.do(func() {
		var e *entry
		if e, err = s.find(id); err != nil {
			return
		}
		if r := e.rec.Run; r == nil || !usable(r) {
			err = refuse(InvalidState, "cannot %s session %q: %s", what, id, stateClause(e.rec.View().State))
			return
		}
		for _, check := range checks {
			if err = check(e); err != nil {
				return
			}
		}
		t = s.target(e)
	}); e != nil {
		return t, e
	}
	return t, err
}

// terminalOf is targetOf for what needs the session's terminal to answer: a frozen one does not.
func (s *Supervisor) terminalOf(id string, usable func(*session.Run) bool, what string, checks ...func(*entry) error) (Target, error) {
	t, err := s.targetOf(id, usable, what, checks...)
	if err == nil && t.Frozen {
		err = refuse(InvalidState, "cannot %s session %q: it is frozen; thaw it first", what, id)
	}
	return t, err
}

func agentAlive(r *session.Run) bool { return r.AgentAlive() }

func paneThere(r *session.Run) bool { return r.Tmux == session.Alive && r.Live() }

// Input is how a text is sent.
type Input struct {
	Enter     bool // Enter is pressed after it
	IfWaiting bool // only to an agent that waits for a person
	Resume    bool // a suspended session is resumed first; it waits for whoever does that
}

// Send has the agent take a text as if it was typed, whole. A session that was suspended for being idle is resumed for it in any case. It returns once
// the agent's terminal has taken it, and what the agent has asked for is answered by it. Errors: NoSuchSession, InvalidState, NotWaiting, OverLimit,
// and those of Resume.
func (s *Supervisor) Send(ctx context.Context, id, text string, how Input) error {
	if len(text) > maxInput {
		return refuse(OverLimit, "the text is too long: at most %d bytes are allowed", maxInput)
	}
	woken, err := s.wake(notYetAccepted(ctx), id, how.Resume)
	if err == nil && woken {
		err = s.calm(notYetAccepted(ctx), id)
	}
	if err != nil {
		return err
	}
	patience := s.patience(id)
	check := func(e *entry) error {
		if how.IfWaiting && !woken {
			return s.waits(e)
		}
		return nil
	}
	return s.give(ctx, id, "send to", check, func(t Target) error {
		ctx, cancel := s.AfterFunc.Context(ctx, patience)
		defer cancel()
		if err := s.World.Send(ctx, t, text, how.Enter); err != nil {
			s.lostSocket(t, err)
			return refuse(InvalidState, "cannot send to session %q: %v", id, err)
		}
		return nil
	})
}

// How long a text may take to be read by the agent: a program that does not read its terminal never takes it. One whose shim holds the text back until it takes
// input (TypeAhead=no) has longer while it is young, and still less than the 25 s that most D-Bus clients wait for an answer.
const (
	sendTime      = 10 * time.Second
	firstSendTime = 20 * time.Second
	young         = time.Minute
)

func (s *Supervisor) patience(id string) time.Duration {
	wait := sendTime
	_ = s.do(func() { // what is wrong with it is told by who sends
		if e, err := s.find(id); err == nil && s.Agents[e.rec.Agent].NoTypeAhead && e.rec.Run != nil && time.Since(e.rec.Run.Started) < young {
			wait = firstSendTime
		}
	})
	return wait
}

// Keys presses keys, by tmux's names, in order with the texts that are sent. A session whose tmux server has died gets them, too. Errors: NoSuchSession,
// InvalidState, Invalid, OverLimit.
func (s *Supervisor) Keys(ctx context.Context, id string, names []string) error {
	if len(names) > maxKeys {
		return refuse(OverLimit, "too many keys: at most %d can be sent at once", maxKeys)
	}
	all, err := keys.ParseAll(names)
	if err != nil {
		return refuse(Invalid, "%v", err)
	}
	press := func(t Target) error {
		if len(names) == 0 {
			return nil
		}
		ctx, cancel := s.AfterFunc.Context(ctx, keysTime(len(names)))
		defer cancel()
		if err := s.World.Keys(ctx, t, names, nil); err != nil {
			s.lostSocket(t, err)
			return refuse(InvalidState, "cannot send to session %q: %v", id, err)
		}
		return nil
	}
	if !slices.ContainsFunc(all, func(k keys.Key) bool { return !k.IsNavigation() }) { // to another choice: that is no answer
		t, err := s.terminalOf(id, agentAlive, "send to")
		if err == nil {
			err = press(t)
		}
		return err
	}
	return s.give(ctx, id, "send to", func(*entry) error { return nil }, press)
}

// answerTime is how long an agent that tells itself what it does may take to say that it was answered. One that still asks then has not taken it.
const answerTime = time.Second

// waits returns why a session's agent does not wait for input, nil if it does.
func (s *Supervisor) waits(e *entry) error {
	activity, _, _ := e.rec.Active()
	switch {
	case activity != session.Waiting:
		return refuse(NotWaiting, "session %q does not wait for input: its agent is %s", e.rec.ID, activity)
	case e.rec.Answered() && s.Monotonic()-e.run.answered < answerTime:
		return refuse(NotWaiting, "session %q does not wait for input: it was answered just now", e.rec.ID)
	}
	return nil
}

// give gives a session's agent input if check allows it, and takes note that what it had asked for until then is answered: what it asks meanwhile is not.
// What is done is part of an error's sentence.
func (s *Supervisor) give(ctx context.Context, id, what string, check func(*entry) error, send func(Target) error) error {
	var run string
	var asked session.Seqs
	t, err := s.terminalOf(id, agentAlive, what, func(e *entry) error {
		run, asked = e.rec.Run.ID, e.rec.Asking()
		return check(e)
	})
	if err == nil {
		err = send(t)
	}
	if err != nil || asked == (session.Seqs{}) {
		return err
	}
	_ = s.with(ctx, id, func(e *entry) (<-chan error, error) { // it may be gone by now, which is nobody's trouble
		s.answered(e, run, asked)
		return s.wait(e, func(*entry) bool { return true }, noError), nil
	})
	return nil
}

// Capture returns the last lines of the session's screen and history, at most 64 KiB; 0 lines means the screen. Errors: NoSuchSession,
// InvalidState, TmuxFailed.
func (s *Supervisor) Capture(ctx context.Context, id string, lines int, escapes bool) (string, error) {
	t, err := s.terminalOf(id, paneThere, "read the screen of")
	if err != nil {
		return "", err
	}
	text, err := s.World.Capture(ctx, t, min(lines, maxLines), escapes)
	if err != nil {
		return "", refuse(TmuxFailed, "session %q: %v", id, err)
	}
	if cut := len(text) - maxCapture; cut > 0 {
		for cut < len(text) && !utf8.RuneStart(text[cut]) {
			cut++
		}
		text = text[cut:]
	}
	return text, nil
}

// AttachCommand returns the argument vector that attaches a terminal. A session that was suspended for being idle is resumed for it. Errors:
// NoSuchSession, InvalidState, and those of Resume.
func (s *Supervisor) AttachCommand(ctx context.Context, id string) ([]string, error) {
	if _, err := s.wake(ctx, id, false); err != nil {
		return nil, err
	}
	t, err := s.terminalOf(id, paneThere, "attach to")
	if err != nil {
		return nil, err
	}
	var key string
	if err := s.do(func() { key = s.Config.DetachKey }); err != nil {
		return nil, err
	}
	if err := s.World.SetDetachKey(ctx, t, key); err != nil { // an older version has started it without one; it can be attached to all the same
		s.Log.Debug("cannot set the detach key", "session", id, "err", err)
	}
	argv, err := s.World.AttachCommand(ctx, t)
	if err != nil {
		return nil, refuse(TmuxFailed, "session %q: %v", id, err)
	}
	return argv, nil
}

// Usage returns what the session's scope uses, by the names of the D-Bus properties; what cannot be told is missing. It does not ask the loop.
func (s *Supervisor) Usage(snap *Snapshot) map[string]uint64 {
	if !snap.Live {
		return nil
	}
	return s.World.Usage(snap.ControlGroup)
}

// LogName is the name of the file that has all that the agent printed, in the session's directory.
const LogName = "output.log"

// olderLogName is what it is renamed to when it is full.
const olderLogName = LogName + ".1"

// OpenLog opens the session's log for reading. The caller closes it. Errors: NoSuchSession, InvalidState.
func (s *Supervisor) OpenLog(id string) (*os.File, error) {
	var dir string
	var err error
	if e := s.do(func() {
		if _, err = s.find(id); err == nil {
			dir = s.Records.SessionDir(id)
		}
	}); e != nil {
		return nil, e
	}
	if err != nil {
		return nil, err
	}
	f, err := safefile.Open(filepath.Join(dir, LogName))
	if errors.Is(err, fs.ErrNotExist) { // it is just being rotated
		f, err = safefile.Open(filepath.Join(dir, olderLogName))
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, refuse(InvalidState, "session %q has no log yet", id)
	case err != nil:
		return nil, refuse(InvalidState, "cannot open the log of session %q: %v", id, err)
	}
	return f, nil
}

// ByUnit finds the session that a scope belongs to. Errors: NoSessionForUnit.
func (s *Supervisor) ByUnit(unit string) (id string, err error) {
	if e := s.do(func() {
		if e := s.units[unit]; e != nil {
			id = e.rec.ID
		}
	}); e != nil {
		return "", e
	}
	if id == "" {
		return "", refuse(NoSessionForUnit, "no session has unit %s", brief(unit))
	}
	return id, nil
}
