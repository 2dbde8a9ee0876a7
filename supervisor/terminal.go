package supervisor

import (
	"context"
	"errors"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/corrald/corral/dbusapi/word"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/keys"
	"github.com/corrald/corral/supervisor/session"
)

// Limits of a client's request to a session's terminal.
const (
	maxInput   = 1 << 20 // bytes
	maxKeys    = 1000
	maxCapture = 64 << 10 // bytes
	maxLines   = 10000    // of history, as many as history-limit in tmux.conf
)

// Input is how a text is sent.
type Input struct {
	Enter     bool // press Enter after the text
	IfWaiting bool // send only to an agent that waits for a person
	// Resume resumes a session first that is suspended, or whose last run could not be started, or
	// waits until another caller has resumed it.
	Resume bool
	// CallerEnvironment is the environment of the caller, for a run that Send begins; nil if it is
	// unknown.
	CallerEnvironment []string
}

// Send sends the whole text to the agent as if it was typed. A session that was suspended for being
// idle is always resumed first. Send returns once the agent's terminal has accepted the text; a
// request that the agent had made before is then answered. If the session is queued instead of
// resumed, the text is stored, and typed once it runs. Errors: NoSuchSession, InvalidState,
// NotWaiting, OverLimit, and those of Resume.
func (s *Supervisor) Send(ctx context.Context, id, text string, how Input) error {
	if len(text) > maxInput {
		return refuse(OverLimit, "the text is too long: at most %d bytes are allowed", maxInput)
	}
	if err := checkTexts(&Spec{CallerEnvironment: how.CallerEnvironment}); err != nil {
		return err
	}
	o := &s.loop.operations
	if err := o.discardKept(notYetAccepted(ctx), id, text); err != nil {
		return err
	}
	kept := false
	woken, err := o.wake(notYetAccepted(ctx), id, how.Resume, how.CallerEnvironment, func(e *entry) error {
		kept = true
		return e.keepUntilBegun(text, how)
	})
	if kept {
		return err
	}
	if kindOf(err) == StartFailed && how.Enter && o.keepText(ctx, id, text) {
		return refuse(StartFailed, "%v (the text is kept, and typed once the session is resumed)", err)
	}
	if err == nil && woken {
		err = o.waitForQuiet(notYetAccepted(ctx), id)
	}
	if err != nil {
		return err
	}
	return o.giveInput(ctx, id, "send to", func(e *entry) (session.Effect, time.Duration, error) {
		if how.IfWaiting && !woken {
			if err := e.run.reports.checkWaiting(); err != nil {
				return nil, 0, err
			}
		}
		return session.TypeText{Text: text, Enter: how.Enter}, sendTimeoutOf(e), nil
	})
}

// Keys presses keys, by tmux's names, in the order of calls of Keys and Send. This also works for a
// session whose tmux server has died. Errors: NoSuchSession, InvalidState, Invalid, OverLimit.
func (s *Supervisor) Keys(ctx context.Context, id string, names []string) error {
	if len(names) > maxKeys {
		return refuse(OverLimit, "too many keys: at most %d can be sent at once", maxKeys)
	}
	all, err := keys.ParseAll(names)
	if err != nil {
		return refuse(Invalid, "%v", err)
	}
	o, press, timeout := &s.loop.operations, session.PressKeys{Keys: names}, keysTimeout(len(names))
	isAnswer := slices.ContainsFunc(all, func(k keys.Key) bool { return !k.IsNavigation() })
	if !isAnswer { // the keys only select another choice
		t, err := o.terminal(id, (*session.Run).AgentAlive, "send to", noError)
		if err != nil || len(names) == 0 {
			return err
		}
		return o.executeInput(ctx, t, "send to", press, timeout)
	}
	return o.giveInput(ctx, id, "send to", func(*entry) (session.Effect, time.Duration, error) {
		return press, timeout, nil
	})
}

// Capture returns the last lines of the session's screen and history, at most 64 KiB; 0 lines means
// the screen. Errors: NoSuchSession, InvalidState, TmuxFailed.
func (s *Supervisor) Capture(ctx context.Context, id string, lines int, escapes bool) (string, error) {
	t, err := s.loop.operations.terminal(id, hasPane, "read the screen of", noError)
	if err != nil {
		return "", err
	}
	text, err := s.loop.system.Terminals.Capture(ctx, t, min(lines, maxLines), escapes)
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

// AttachCommand returns the argument vector that attaches a terminal to the session. A session that
// was suspended for being idle is resumed first. Errors: NoSuchSession, InvalidState, TmuxFailed,
// and those of Resume.
func (s *Supervisor) AttachCommand(ctx context.Context, id string) ([]string, error) {
	o := &s.loop.operations
	if _, err := o.wake(ctx, id, false, nil, func(e *entry) error { return queuedError("attach to", e) }); err != nil {
		return nil, err
	}
	var key string
	t, err := o.terminal(id, hasPane, "attach to", func(*entry) error {
		key = s.loop.settings.config.DetachKey
		return nil
	})
	if err != nil {
		return nil, err
	}
	// The key is set for a session that an older version has started without one. Attaching works
	// without it.
	if err := s.loop.executeImmediate(ctx, t, session.SetDetachKey{Key: key}); err != nil {
		s.loop.post(func() { s.loop.log.Debug("cannot set the detach key", "session", id, "err", err) })
	}
	argv, err := s.loop.system.Terminals.AttachCommand(ctx, t)
	if err != nil {
		return nil, refuse(TmuxFailed, "session %q: %v", id, err)
	}
	return argv, nil
}

// wake resumes a session that was suspended, or is being suspended, for being idle. If another
// caller is resuming the session, wake waits for that. With anyReason, it resumes a session that
// was suspended for any reason, or whose last run could not be started, and also waits for a start.
// It returns once the session runs, and reports whether it did not run before. If the session is
// queued instead, it calls whenQueued on the event loop, and returns its error. Caller is the
// environment of the caller, nil if it is unknown.
func (o *operations) wake(
	ctx context.Context, id string, anyReason bool, caller []string, whenQueued func(*entry) error,
) (woken bool, err error) {
	for {
		var state session.State
		var at wakeStage
		if err := o.loop.withSession(ctx, id, func(e *entry) (<-chan error, error) {
			state, at = e.rec.View().State, wakeStageOf(e, anyReason)
			switch at {
			case beginning:
				return e.waitFor(session.OpStart), nil
			case suspending: // input to the stopping agent is lost
				return e.waitFor(session.OpStop), nil
			case queued:
				return e.whenPublished(), whenQueued(e)
			}
			return nil, nil
		}); err != nil {
			return false, err
		}
		switch {
		case at == suspending:
		case at == queued:
			return false, nil
		case woken, at == beginning, err != nil && state == session.Running:
			return true, nil
		case at == awake || err != nil:
			return false, err
		default:
			err = o.resume(ctx, id, BeginOptions{CallerEnvironment: caller})
			if err != nil && kindOf(err) != InvalidState {
				return false, err
			}
			woken = err == nil // or it is queued
		} // after an error, another caller has resumed the session, or its state has changed: repeat
	}
}

// wakeStage is how far a session is from running, for wake.
type wakeStage int

const (
	awake      wakeStage = iota // it runs, or wake does not resume it
	asleep                      // it has to be resumed
	queued                      // its resume is queued
	suspending                  // it is being suspended
	beginning                   // its run begins
)

func wakeStageOf(e *entry, anyReason bool) wakeStage {
	view := e.rec.View()
	switch {
	case !anyReason && !isIdleSuspended(e):
	case e.pending.WaitsToBegin() || e.rec.AwaitsAgent():
		return beginning
	case view.State == session.Stopping && e.rec.Run.Intent == session.Suspend:
		return suspending
	case e.rec.IsQueued() && e.rec.Queued.Operation() == session.OpResume:
		return queued
	case view.State == session.Suspended || view.Result == word.StartFailed:
		return asleep
	}
	return awake
}

// keepText stores a text for the agent of a session that could not be started, and reports whether
// it did: not if the session has been started meanwhile.
func (o *operations) keepText(ctx context.Context, id, text string) (kept bool) {
	err := o.loop.withSession(ctx, id, func(e *entry) (<-chan error, error) {
		if e.rec.View().Result != word.StartFailed || e.rec.AwaitsAgent() || e.pending.WaitsToBegin() {
			return nil, nil
		}
		kept = true
		e.apply(session.TextKept{Text: text})
		return e.whenPublished(), nil
	})
	return kept && err == nil
}

// keepUntilBegun stores a text for the agent of a session that is queued, for which no other text
// is stored yet. Errors: InvalidState.
func (e *entry) keepUntilBegun(text string, how Input) error {
	switch {
	case !how.Enter || !e.rec.Run.CanKeepText() || !e.beginOf(session.OpResume).Run.Resumed:
		return queuedError("send to", e)
	case e.rec.Unsent != "" && e.rec.Unsent != text:
		return refuse(InvalidState, "cannot send to session %q: it is queued, and another text is typed once it runs",
			e.rec.ID)
	}
	e.apply(session.TextKept{Text: text})
	return nil
}

// queuedError returns the error for what needs a session that is queued instead. The verb is for
// the message: "send to".
func queuedError(verb string, e *entry) error {
	return refuse(InvalidState, "cannot %s session %q: it is queued", verb, e.rec.ID)
}

// discardKept discards the text that was kept for the session if it is sent once more now. Errors:
// NoSuchSession.
func (o *operations) discardKept(ctx context.Context, id, text string) error {
	return o.loop.withSession(ctx, id, func(e *entry) (<-chan error, error) {
		if e.rec.Unsent != "" && e.rec.Unsent == text && !e.rec.Run.Live() {
			e.apply(session.TextKept{})
		}
		return nil, nil
	})
}

// isIdleSuspended reports whether the session's run was ended, or is being ended, for being idle,
// or is about to begin after such a run.
func isIdleSuspended(e *entry) bool {
	past := e.rec.Past
	return e.rec.Run != nil && e.rec.Run.IdledOut ||
		e.rec.AwaitsAgent() && len(past) > 0 && past[len(past)-1].IdledOut
}

// quietTimeout limits how long input waits for an agent that was just started to fall silent: a
// text that arrives while the agent still draws its first screen can be lost.
const quietTimeout = 15 * time.Second

// waitForQuiet waits until the session's agent is idle, or waits for a person, for at most
// quietTimeout. It does not wait for an agent whose shim holds input back until the agent can read
// it (TypeAhead=no).
func (o *operations) waitForQuiet(ctx context.Context, id string) error {
	short, cancel := o.loop.clocks.AfterFunc.Context(ctx, quietTimeout)
	defer cancel()
	err := o.loop.withSession(short, id, func(e *entry) (<-chan error, error) {
		return e.waitUntil(func(e *entry) bool {
			activity, _, _ := e.rec.Activity()
			return e.removed || !e.rec.Run.AgentAlive() || e.definition().NoTypeAhead ||
				activity == word.Idle || activity == word.Waiting
		}), nil
	})
	if kindOf(err) == TimedOut && ctx.Err() == nil {
		return nil
	}
	return err
}

// How long the agent may take to read a text: a program that does not read its terminal never
// accepts it. An agent whose shim holds input back until the agent can read it (TypeAhead=no) has
// longer for a while after its start (startupTime), but less than the 25 s that most D-Bus clients
// wait for an answer. So has an agent that is given a prompt first.
const (
	sendTimeout        = 10 * time.Second
	startupSendTimeout = 20 * time.Second
	startupTime        = time.Minute
)

// sendTimeoutOf returns how long the agent of the session may take to read a text.
func sendTimeoutOf(e *entry) time.Duration {
	isLate := e.definition().NoTypeAhead || e.rec.Unsent != "" || e.rec.Prompt != "" && !e.rec.Prompted
	if isLate && time.Since(e.rec.Run.Started) < startupTime {
		return startupSendTimeout
	}
	return sendTimeout
}

// keysTimeout returns how long an agent may take to read n keys: for some programs, the shim pauses
// between two keys.
func keysTimeout(n int) time.Duration {
	return min(sendTimeout+time.Duration(n)*200*time.Millisecond, startupSendTimeout)
}

// giveInput carries out the effect that input returns with a time limit, and then records that the
// requests that the agent had made before are answered. Requests that it makes meanwhile remain.
// Input is called on the event loop, if the session's agent is alive. The verb is for error
// messages: "send to".
func (o *operations) giveInput(
	ctx context.Context, id, verb string, input func(*entry) (session.Effect, time.Duration, error),
) error {
	var run string
	var requests session.Seqs
	var effect session.Effect
	var timeout time.Duration
	t, err := o.terminal(id, (*session.Run).AgentAlive, verb, func(e *entry) (err error) {
		run, requests = e.rec.Run.ID, e.rec.OpenRequests()
		effect, timeout, err = input(e)
		return err
	})
	if err == nil {
		err = o.executeInput(ctx, t, verb, effect, timeout)
	}
	if err != nil || requests == (session.Seqs{}) {
		return err
	}
	// The session may have been removed meanwhile. This is not an error: the input was sent.
	_ = o.loop.withSession(ctx, id, func(e *entry) (<-chan error, error) {
		if e.rec.Run != nil && e.rec.Run.ID == run {
			e.run.reports.answeredAt = e.loop.clocks.Monotonic()
			e.apply(session.Answered{Run: run, Reports: requests})
		}
		return e.whenPublished(), nil
	})
	return nil
}

// terminal returns the session's run for an effect that needs an answer of its terminal. It returns
// an error if isUsable returns false for the run, if check returns one, or for a frozen session,
// whose terminal does not answer. Check is called on the event loop, and may also copy facts of the
// session. The verb is for error messages: "send to". Errors: NoSuchSession, InvalidState, those of
// check.
func (o *operations) terminal(
	id string, isUsable func(*session.Run) bool, verb string, check func(*entry) error,
) (t Target, err error) {
	err = o.loop.doWith(id, func(e *entry) error {
		if r := e.rec.Run; r == nil || !isUsable(r) {
			if e.rec.IsQueued() {
				return queuedError(verb, e)
			}
			return refuse(InvalidState, "cannot %s session %q: %s", verb, id, stateClause(e.rec.View().State))
		}
		if err := check(e); err != nil {
			return err
		}
		if t = e.target(); t.Frozen {
			return refuse(InvalidState, "cannot %s session %q: it is frozen; thaw it first", verb, id)
		}
		return nil
	})
	return t, err
}

func hasPane(r *session.Run) bool { return r.Tmux == session.Alive && r.Live() }

// executeInput carries out an effect that sends input to the agent, which has to read it in time.
// Errors: InvalidState; NotWaiting for an answer to a request that is over.
func (o *operations) executeInput(
	ctx context.Context, t Target, verb string, effect session.Effect, timeout time.Duration,
) error {
	ctx, cancel := o.loop.clocks.AfterFunc.Context(ctx, timeout)
	defer cancel()
	err := o.loop.executeImmediate(ctx, t, effect)
	var notAsked *NotAskedError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &notAsked):
		return notWaiting(t.ID, notAsked.Why)
	case errors.Is(err, ErrOldShim):
		return refuse(InvalidState, "cannot %s session %q: %v and cannot check whether the agent still asks; "+
			"answer in its terminal", verb, t.ID, err)
	}
	o.recoverSocket(t, err)
	return refuse(InvalidState, "cannot %s session %q: %v", verb, t.ID, err)
}

// recoverSocket makes the shim recreate its socket after input could not be sent because the socket
// was removed or replaced. It ignores other errors.
func (o *operations) recoverSocket(t Target, err error) {
	var foreign *ForeignSocketError
	if !errors.As(err, &foreign) && !errors.Is(err, unix.ENOENT) {
		return
	}
	o.loop.post(func() {
		e := o.loop.sessions.byID[t.ID]
		if e == nil || !e.rec.Run.AgentAlive() || e.rec.Run.Agent != t.Agent {
			return
		}
		e.run.shim.reportForeignSocket(err)
		go func() { _ = o.loop.executeImmediate(o.loop.ctx, t, session.ReopenSockets{}) }()
	})
}
