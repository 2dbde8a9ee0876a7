package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/dbusapi/client"
	"github.com/corrald/corral/dbusapi/word"
	"github.com/corrald/corral/internal/version"
)

// The exit codes.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitNotActive   = 3
	exitNoSession   = 4
	exitUnreachable = 5
	exitTimeout     = 124
)

// failure is an error with an exit code. If the message is "", nothing is printed.
type failure struct {
	code    int
	message string
	hint    string // a command that helps, or ""
}

func (f *failure) Error() string { return f.message }

// exit returns an error that only sets the exit code, nil for 0.
func exit(code int) error {
	if code == 0 {
		return nil
	}
	return &failure{code: code}
}

func usageError(verb string, err error) error {
	return &failure{code: exitUsage, message: err.Error(), hint: "corralctl help " + verb}
}

func usagef(verb, format string, args ...any) error {
	return usageError(verb, fmt.Errorf(format, args...))
}

// report prints err, if it has a message, and returns its exit code.
func (c *ctl) report(err error) int {
	if err == nil {
		return 0
	}
	var f *failure
	if !errors.As(err, &f) {
		f = c.cannot(c.doing(), "", err)
	}
	if f.message != "" {
		_ = c.out.Flush() // earlier output is printed before the error
		fmt.Fprintf(c.err, "corralctl: %s\n", wording.Printable(f.message))
		if f.hint != "" {
			fmt.Fprintf(c.err, "hint: %s\n", wording.Printable(c.withHost(f.hint)))
		}
	}
	return f.code
}

// warn prints a warning with a command that helps.
func (c *ctl) warn(message, hint string) {
	_ = c.out.Flush()
	fmt.Fprintf(c.err, "corralctl: %s\nhint: %s\n", wording.Printable(message), wording.Printable(c.withHost(hint)))
}

// withHost adds --host to a hint's command if this corralctl was called with --host. Help does not
// need it: it is the same on every machine.
func (c *ctl) withHost(command string) string {
	rest, ours := strings.CutPrefix(command, "corralctl ")
	if h := c.onlyHost(); h.IsLocal() || h.Name != "" || !ours || strings.HasPrefix(rest, "help") {
		return command
	}
	return "corralctl " + c.hostOption() + " " + rest
}

// cannot turns an error while doing something with an object (a session's id, or "") into the
// failure that is printed.
func (c *ctl) cannot(doing, object string, err error) *failure {
	return c.cannotFor(doing, object, object, err)
}

// cannotFor is cannot for an object that is not necessarily a session. Id is that of the session
// that the call was about, "" if there is none.
func (c *ctl) cannotFor(doing, object, id string, err error) *failure {
	var f *failure
	if errors.As(err, &f) {
		return f
	}
	prefix := "cannot " + doing
	if object != "" {
		prefix += fmt.Sprintf(" %q", object)
	}
	if client.IsUnreachable(err) && c.hasTimedOut() {
		return &failure{code: exitFailed, message: fmt.Sprintf("%s: it took longer than %s", prefix, c.timeout.Duration)}
	}
	if client.IsUnreachable(err) {
		return &failure{exitUnreachable, prefix + ": " + c.unreachableReason(err), c.startHint(err)}
	}
	short := dbusapi.ShortErrorName(err)
	switch short {
	case dbusapi.NoSuchSession, dbusapi.UnknownObject:
		return &failure{code: exitNoSession, message: prefix + ": no such session"}
	case dbusapi.NoSuchAgent:
		return &failure{exitFailed, prefix + ": no such agent", "corralctl agents"}
	case dbusapi.ConversationBusy:
		return &failure{exitFailed, prefix + ": " + err.Error(), c.holderHint(c.inspect(id))}
	}
	if short == dbusapi.UnknownMethod || short == dbusapi.UnknownInterface {
		return &failure{code: exitFailed, message: prefix + ": " + c.missingMethodText(id)}
	}
	f = &failure{exitFailed, failureMessage(prefix, object, err), hintFor(short, id)}
	switch {
	case short == dbusapi.InvalidState && mustBeThawed(doing, c.inspect(id)):
		f.hint = "corralctl thaw " + id
	case short == dbusapi.NotTrusted:
		f.hint = "corralctl trust " + wording.ShellWord(c.inspect(id).WorkingDirectory)
	case short == dbusapi.StartFailed && c.inspect(id).State == word.Created:
		f.hint = "corralctl logs " + id // of the setup of its worktree
	case short == dbusapi.StartFailed:
		c.addSearchPath(f, id)
	}
	return f
}

// missingMethodText describes that the corrald of a session is too old for a call.
func (c *ctl) missingMethodText(id string) string {
	ctx, cancel := context.WithTimeout(context.Background(), queryTimeout)
	defer cancel()
	manager, err := c.client.OfSession(id).Manager(ctx)
	if err != nil || manager.Version == "" {
		manager.Version = "of an unknown version"
	}
	return fmt.Sprintf("corrald %s there cannot do this, and corralctl is %s", manager.Version, version.Version)
}

// mustBeThawed returns whether a call is refused because the session is frozen. A run cannot begin
// and a session cannot be archived while the agent is running, whether it is frozen or not. Resume
// is refused for the same reason, unless it would continue a stale session.
func mustBeThawed(doing string, s client.Session) bool {
	switch doing {
	case "start", "archive":
		return false
	case "resume":
		return s.Frozen && s.State == word.Stale
	}
	return s.Frozen
}

// failureMessage returns the message of a failed call about object. The definition of the interface
// specifies how corrald's messages begin: with "cannot" if they state what could not be done, as
// prefix does, and with "session" and its id if they are about the session of the call.
func failureMessage(prefix, object string, err error) string {
	text := err.Error()
	if rest, ok := strings.CutPrefix(text, fmt.Sprintf("session %q ", object)); ok {
		text = "it " + rest
	}
	text = strings.TrimPrefix(text, fmt.Sprintf("session %q: ", object))
	if strings.HasPrefix(text, "cannot ") {
		return text
	}
	return prefix + ": " + text
}

// inspect returns the session with this id, to determine why a call about it has failed. It returns
// an empty one if there is none.
func (c *ctl) inspect(id string) (s client.Session) {
	if id == "" || c.client == nil {
		return s
	}
	ctx, cancel := context.WithTimeout(context.Background(), queryTimeout)
	defer cancel()
	s, _ = c.client.Session(ctx, id)
	return s
}

// hintFor returns the command that helps after an error of the bus, given by its short name. Object
// is the session that it is about, or "". Verbs that have a better hint replace this one.
func hintFor(short, object string) string {
	switch short {
	case dbusapi.AgentNotInstalled:
		return "corralctl doctor"
	case dbusapi.WorkspaceBusy, dbusapi.TooManySessions:
		return "corralctl list --all"
	case dbusapi.Internal:
		return "journalctl --user --unit=corrald"
	}
	if object == "" {
		return ""
	}
	switch short {
	case dbusapi.NotResumable:
		return "corralctl start " + object
	case dbusapi.NotWaiting:
		return "corralctl peek " + object
	case dbusapi.InvalidState, dbusapi.StartFailed, dbusapi.TmuxFailed:
		return "corralctl status " + object
	}
	return ""
}

// holderHint returns the command that shows another session whose agent uses the conversation of a
// session.
func (c *ctl) holderHint(of client.Session) string {
	if of.ConversationId == "" {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), queryTimeout)
	defer cancel()
	sessions, _ := c.client.Sessions(ctx)
	for _, s := range sessions {
		if s.Id != of.Id && s.ConversationId == of.ConversationId && !wording.IsEnded(s.State) {
			return "corralctl attach " + s.Id
		}
	}
	return ""
}

// actions are the verbs as in an error message, where that is not their name: "cannot remove",
// "cannot send to".
var actions = map[string]string{
	"list": "list sessions", "top": "show the sessions", "attach": "attach to", "send": "send to", "send-keys": "send to",
	"peek": "peek at", "logs": "show the log of", "diff": "show the changes of", "status": "show the status of",
	"why": "explain", "wait": "wait for", "rm": "remove", "set-property": "set a property of", "ack": "acknowledge",
	"is-active": "ask for", "is-failed": "ask for", "is-waiting": "ask for",
	"agents": "list agents", "version": "ask corrald for its version",
}

// doing returns the current verb as in an error message.
func (c *ctl) doing() string { return cmp.Or(actions[c.name], c.name) }

// hasTimedOut returns whether the time of --timeout is over, which may have closed a connection.
func (c *ctl) hasTimedOut() bool { return c.timeout.set && time.Since(c.started) >= c.timeout.Duration }

// isUnanswered returns whether err, or the end of --timeout, means that corrald may be running but
// has not answered.
func (c *ctl) isUnanswered(err error) bool {
	return c.hasTimedOut() || errors.Is(err, context.DeadlineExceeded)
}

func (c *ctl) unreachableReason(err error) string {
	var connect *client.ConnectError
	var silent *client.NoAnswerError
	var excluded *client.ExcludedError
	switch {
	case c.isInSandbox():
		return fmt.Sprintf("corrald cannot be reached from sandbox %q", os.Getenv(sandboxVariable))
	case errors.As(err, &excluded):
		return excluded.Error()
	case c.hasTimedOut():
		return "corrald does not answer"
	case errors.As(err, &connect) && c.hasSeveralHosts():
		return connect.Err.Error()
	case errors.As(err, &connect) && c.isRemote():
		return fmt.Sprintf("%s cannot be reached: %v", c.onlyHost(), connect.Err)
	case errors.As(err, &connect):
		return connect.Error()
	case errors.As(err, &silent):
		return silent.Error()
	case errors.Is(err, context.DeadlineExceeded):
		return "corrald does not answer"
	}
	return "corrald is not running"
}

// isInSandbox returns whether this runs in a sandbox, where there is no bus of this machine's user.
func (c *ctl) isInSandbox() bool { return !c.isRemote() && os.Getenv(sandboxVariable) != "" }

// startHint returns the command that starts corrald after err. Without a bus, it is doctor, which
// explains how to get one.
func (c *ctl) startHint(err error) string {
	var connect *client.ConnectError
	var excluded *client.ExcludedError
	if c.isInSandbox() {
		return ""
	}
	if errors.As(err, &excluded) {
		return "systemctl --user edit corrald, with an empty ConditionUser= in [Unit]"
	}
	if errors.As(err, &connect) {
		return c.hostCommand("corralctl doctor")
	}
	command := "systemctl --user start corrald"
	if errors.Is(err, context.DeadlineExceeded) {
		command = "systemctl --user restart corrald"
	}
	return c.hostCommand(command)
}
