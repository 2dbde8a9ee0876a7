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

// Limits of a client's request to a session's terminal.
const (
	maxInput   = 1 << 20 // bytes
	maxKeys    = 1000
	maxCapture = 64 << 10 // bytes
	maxLines   = 10000    // of history
)

// targetOf returns the session's run for an effect on its terminal. It returns an error if isUsable
// returns false for the run, or if one of the checks returns an error; checks run in the event loop
// and may also copy facts of the session. The verb is for error messages: "send to". Errors:
// NoSuchSession, InvalidState, those of the checks.
func (s *Supervisor) targetOf(
	id string, isUsable func(*session.Run) bool, verb string, checks ...func(*entry) error,
) (t Target, err error) {
	if e := s.do(func() {
		var e *entry
		if e, err = s.find(id); err != nil {
			return
		}
		if r := e.rec.Run; r == nil || !isUsable(r) {
			err = refuse(InvalidState, "cannot %s session %q: %s", verb, id, stateClause(e.rec.View().State))
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

// terminalOf is targetOf for an effect that needs an answer of the session's terminal: it returns
// an error for a frozen session, whose terminal does not answer.
func (s *Supervisor) terminalOf(
	id string, isUsable func(*session.Run) bool, verb string, checks ...func(*entry) error,
) (Target, error) {
	t, err := s.targetOf(id, isUsable, verb, checks...)
	if err == nil && t.Frozen {
		err = refuse(InvalidState, "cannot %s session %q: it is frozen; thaw it first", verb, id)
	}
	return t, err
}

func isAgentAlive(r *session.Run) bool { return r.AgentAlive() }

func hasPane(r *session.Run) bool { return r.Tmux == session.Alive && r.Live() }

// Input is how a text is sent.
type Input struct {
	Enter     bool // press Enter after the text
	IfWaiting bool // send only to an agent that waits for a person
	Resume    bool // resume a suspended session first, or wait until another caller has resumed it
}

// Send sends the whole text to the agent as if it was typed. A session that was suspended for being
// idle is always resumed first. Send returns once the agent's terminal has accepted the text; a
// request that the agent had made before is then answered. Errors: NoSuchSession, InvalidState,
// NotWaiting, OverLimit, and those of Resume.
func (s *Supervisor) Send(ctx context.Context, id, text string, how Input) error {
	if len(text) > maxInput {
		return refuse(OverLimit, "the text is too long: at most %d bytes are allowed", maxInput)
	}
	woken, err := s.wake(notYetAccepted(ctx), id, how.Resume)
	if err == nil && woken {
		err = s.waitForQuiet(notYetAccepted(ctx), id)
	}
	if err != nil {
		return err
	}
	timeout := s.sendTimeoutOf(id)
	check := func(e *entry) error {
		if how.IfWaiting && !woken {
			return s.checkWaiting(e)
		}
		return nil
	}
	return s.giveInput(ctx, id, "send to", check, func(t Target) error {
		ctx, cancel := s.AfterFunc.Context(ctx, timeout)
		defer cancel()
		if err := s.executeOn(ctx, t, session.TypeText{Text: text, Enter: how.Enter}); err != nil {
			s.recoverSocket(t, err)
			return refuse(InvalidState, "cannot send to session %q: %v", id, err)
		}
		return nil
	})
}

// How long the agent may take to read a text: a program that does not read its terminal never
// accepts it. An agent whose shim holds input back until the agent can read it (TypeAhead=no) has
// longer for a while after its start (startupTime), but less than the 25 s that most D-Bus clients
// wait for an answer.
const (
	sendTimeout        = 10 * time.Second
	startupSendTimeout = 20 * time.Second
	startupTime        = time.Minute
)

// sendTimeoutOf returns how long the agent of the session may take to read a text.
func (s *Supervisor) sendTimeoutOf(id string) time.Duration {
	timeout := sendTimeout
	_ = s.do(func() { // Send returns the error of a session that does not exist
		e, err := s.find(id)
		if err == nil && s.Agents[e.rec.Agent].NoTypeAhead && e.rec.Run != nil &&
			time.Since(e.rec.Run.Started) < startupTime {
			timeout = startupSendTimeout
		}
	})
	return timeout
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
	press := func(t Target) error {
		if len(names) == 0 {
			return nil
		}
		ctx, cancel := s.AfterFunc.Context(ctx, keysTimeout(len(names)))
		defer cancel()
		if err := s.executeOn(ctx, t, session.PressKeys{Keys: names}); err != nil {
			s.recoverSocket(t, err)
			return refuse(InvalidState, "cannot send to session %q: %v", id, err)
		}
		return nil
	}
	isAnswer := slices.ContainsFunc(all, func(k keys.Key) bool { return !k.IsNavigation() })
	if !isAnswer { // the keys only select another choice
		t, err := s.terminalOf(id, isAgentAlive, "send to")
		if err == nil {
			err = press(t)
		}
		return err
	}
	return s.giveInput(ctx, id, "send to", func(*entry) error { return nil }, press)
}

// answerTimeout is how long an agent that reports its own status may take to report that it was
// answered. If it has not reported that by then, it has not read the answer.
const answerTimeout = time.Second

// checkWaiting returns an error if the session's agent does not wait for input. Errors: NotWaiting.
func (s *Supervisor) checkWaiting(e *entry) error {
	activity, _, _ := e.rec.Activity()
	switch {
	case activity != session.Waiting:
		return refuse(NotWaiting, "session %q does not wait for input: its agent is %s", e.rec.ID, activity)
	case e.rec.IsAnswered() && s.Monotonic()-e.run.answeredAt < answerTimeout:
		return refuse(NotWaiting, "session %q does not wait for input: it was answered just now", e.rec.ID)
	}
	return nil
}

// giveInput calls send if check returns no error, and then records that the requests that the agent
// had made before are answered. Requests that it makes during send remain. The verb is for error
// messages.
func (s *Supervisor) giveInput(
	ctx context.Context, id, verb string, check func(*entry) error, send func(Target) error,
) error {
	var run string
	var requests session.Seqs
	t, err := s.terminalOf(id, isAgentAlive, verb, func(e *entry) error {
		run, requests = e.rec.Run.ID, e.rec.OpenRequests()
		return check(e)
	})
	if err == nil {
		err = send(t)
	}
	if err != nil || requests == (session.Seqs{}) {
		return err
	}
	// The session may have been removed meanwhile. This is not an error: the input was sent.
	_ = s.withSession(ctx, id, func(e *entry) (<-chan error, error) {
		s.markAnswered(e, run, requests)
		return s.waitUntil(e, func(*entry) bool { return true }, noError), nil
	})
	return nil
}

// Capture returns the last lines of the session's screen and history, at most 64 KiB; 0 lines means
// the screen. Errors: NoSuchSession, InvalidState, TmuxFailed.
func (s *Supervisor) Capture(ctx context.Context, id string, lines int, escapes bool) (string, error) {
	t, err := s.terminalOf(id, hasPane, "read the screen of")
	if err != nil {
		return "", err
	}
	text, err := s.Terminals.Capture(ctx, t, min(lines, maxLines), escapes)
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
	if _, err := s.wake(ctx, id, false); err != nil {
		return nil, err
	}
	t, err := s.terminalOf(id, hasPane, "attach to")
	if err != nil {
		return nil, err
	}
	var key string
	if err := s.do(func() { key = s.Config.DetachKey }); err != nil {
		return nil, err
	}
	// The key is set for a session that an older version has started without one. Attaching works
	// without it.
	if err := s.executeOn(ctx, t, session.SetDetachKey{Key: key}); err != nil {
		s.Log.Debug("cannot set the detach key", "session", id, "err", err)
	}
	argv, err := s.Terminals.AttachCommand(ctx, t)
	if err != nil {
		return nil, refuse(TmuxFailed, "session %q: %v", id, err)
	}
	return argv, nil
}

// Usage returns the resources that the session's scope uses, by the names of the D-Bus properties.
// Values that are unknown are missing. It does not use the event loop.
func (s *Supervisor) Usage(snap *Snapshot) map[string]uint64 {
	if !snap.Live {
		return nil
	}
	return s.ControlGroups.Usage(snap.ControlGroup)
}

// LogName is the name of the file with the output of the agent, in the session's directory.
const LogName = "output.log"

// olderLogName is the name that the shim gives to a full log.
const olderLogName = LogName + ".1"

// OpenLog opens the session's log for reading. The caller closes it. Errors: NoSuchSession,
// InvalidState.
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
	if errors.Is(err, fs.ErrNotExist) { // the shim may be rotating it
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

// ByUnit returns the id of the session to which a scope belongs. Errors: NoSessionForUnit.
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
