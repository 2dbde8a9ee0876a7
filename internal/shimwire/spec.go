package shimwire

import (
	"errors"
	"time"
)

// Names of files of a session that both the daemon and the shim use.
const (
	// SpecName is the file in the runtime directory that contains the Spec. The shim removes it as
	// soon as it has read it.
	SpecName = "run"
	// LogName is the file in the state directory with the output of the agent.
	LogName = "output.log"
	// OlderLogName is the name that the shim gives to a full log.
	OlderLogName = LogName + ".1"
	// ReportName is the file in the runtime directory in which a hook of the agent leaves its report
	// for the daemon: see package hookreport.
	ReportName = "report"
)

// ReportVariable is the name with which a hook in a sandbox sends that report in a notification
// (sd_notify(3)).
const ReportVariable = "X_CORRAL_REPORT"

// Spec describes a run to its shim. The daemon passes it in a file of mode 0600 below
// XDG_RUNTIME_DIR, which the shim unlinks as soon as it has read it. A command line would be
// visible to every user, and a file in the state directory would survive the login.
type Spec struct {
	RunID string
	Dir   string   // the workspace: the agent's working directory
	Args  []string // the agent's arguments; Args[0] is looked up in Env's PATH if it has no slash
	Env   []string // the agent's complete environment, NAME=value

	Sandbox string // name of the agent's sandbox profile, "" for none

	// How many of Args are the command that sets up the agent's sandbox; the agent's arguments follow.
	// That command ends with the shim itself, which runs the agent in the sandbox ("confined"). A shim
	// that does not know this field cannot run the agent: it passes no socket to that process.
	SandboxArgs int

	// Path of a file that the agent must not create in its sandbox, although it can: if it does, the
	// shim removes it and kills all processes in the sandbox. "" for none.
	Forbidden string

	StateDir  string        // the directory of exit_status and output.log
	Socket    string        // path of the socket on which the shim listens
	LogMax    int64         // size limit of output.log and output.log.1 together, in bytes
	IdleAfter time.Duration // how long a working agent must print nothing to be idle
	Prompt    string        // typed, with Enter, once the agent accepts input; "" for none

	// Delay every text like Prompt, because the agent discards what is typed before it accepts input.
	HoldInput bool

	// Path of the shim's socket for sd_notify(3), which the agent gets as NOTIFY_SOCKET; "" for none.
	Notify string
	// Notify is for the reports of hooks alone: the agent does not report when it is ready.
	OnlyHooks bool

	IgnoreOSC7501 bool // ignore the agent's OSC 7501 sequences, and do not answer its query

	// Regular expressions of the terminal's title while the agent is ready for a task, works, or waits
	// for the user; "" for none.
	TitleReady   string
	TitleWorking string
	TitleBlocked string

	// Regular expression of a screen line with which the agent asks something before it starts; "" for
	// none.
	SetupPattern string

	// Regular expressions of a dialog on the screen about a usage limit, and of the last line of the
	// screen while the agent has nothing to do, and while it works; "" for none.
	LimitPattern   string
	IdlePattern    string
	WorkingPattern string

	// Regular expressions of a screen line with which the agent shows that it tries again after a
	// failure, and of the message with which an agent that reports that it works has finished its
	// turn; "" for none.
	RetryPattern      string
	BackgroundPattern string

	// Keys, by tmux's names and separated by blanks, that delete one row of the agent's input line and
	// the line break before it; "" for none.
	ClearKeys string

	// How long after output to search the screen.
	ReadyTimeout time.Duration

	// ID of the session and name of the agent's program, for the line that is shown in the pane after
	// the agent has exited. Without a Session no line is shown.
	Session string
	Program string
}

const (
	specRunID         = 'r'
	specDir           = 'd'
	specArg           = 'a'
	specEnv           = 'e'
	specStateDir      = 's'
	specSocket        = 'k'
	specLogMax        = 'l'
	specIdleAfter     = 'i'
	specPrompt        = 'p'
	specHoldInput     = 'H'
	specNotify        = 'n'
	specIgnoreOSC7501 = 'D'
	specReady         = 'R'
	specWorking       = 'W'
	specBlocked       = 'B'
	specSetup         = 'S'
	specClear         = 'C'
	specLimit         = 'U'
	specIdle          = 'O'
	specBusy          = 'J'
	specRetry         = 'Y'
	specBackground    = 'G'
	specTimeout       = 'T'
	specSession       = 'I'
	specSandboxArgs   = 'X'
	specSandbox       = 'c'
	specForbidden     = 'F'
	specOnlyHooks     = 'h'
	specProgram       = 'P'
	specEnd           = '.'
)

// ExitLinePrefix begins the line that a shim prints into its pane once it has recorded the agent's
// exit. The line is not part of the agent's output.
const ExitLinePrefix = "[corral] "

// Append appends the encoded spec to b and returns the result.
func (s *Spec) Append(b []byte) []byte {
	b = appendString(b, specRunID, s.RunID)
	b = appendString(b, specDir, s.Dir)
	for _, a := range s.Args {
		b = appendString(b, specArg, a)
	}
	for _, e := range s.Env {
		b = appendString(b, specEnv, e)
	}
	b = appendString(b, specStateDir, s.StateDir)
	b = appendString(b, specSocket, s.Socket)
	b = appendNumber(b, specLogMax, s.LogMax)
	b = appendNumber(b, specIdleAfter, int64(s.IdleAfter))
	texts := s.texts()
	for _, tag := range []byte{
		specPrompt, specNotify, specReady, specWorking, specBlocked, specSetup, specLimit, specIdle, specBusy,
		specRetry, specBackground, specClear, specSession, specProgram, specSandbox,
		specForbidden,
	} {
		if text := *texts[tag]; text != "" {
			b = appendString(b, tag, text)
		}
	}
	if s.SandboxArgs != 0 {
		b = appendNumber(b, specSandboxArgs, int64(s.SandboxArgs))
	}
	for _, tag := range []byte{specOnlyHooks, specHoldInput, specIgnoreOSC7501} {
		if *s.flag(tag) {
			b = appendNumber(b, tag, 1)
		}
	}
	if s.ReadyTimeout != 0 {
		b = appendNumber(b, specTimeout, int64(s.ReadyTimeout))
	}
	return appendString(b, specEnd, "")
}

// ParseSpec decodes a spec. It rejects one without its end mark, an argument vector, a run ID, a
// state directory or a socket.
func ParseSpec(b []byte) (Spec, error) {
	var s Spec
	texts, ended := s.texts(), false
	err := parseFields(b, func(tag byte, v []byte) error {
		var err error
		switch tag {
		case specArg:
			s.Args = append(s.Args, string(v))
		case specEnv:
			s.Env = append(s.Env, string(v))
		case specSandboxArgs:
			var n int64
			n, err = parseNumber(v)
			s.SandboxArgs = int(n)
		case specLogMax:
			s.LogMax, err = parseNumber(v)
		case specIdleAfter:
			s.IdleAfter, err = parseDuration(v)
		case specTimeout:
			s.ReadyTimeout, err = parseDuration(v)
		case specOnlyHooks, specHoldInput, specIgnoreOSC7501:
			*s.flag(tag), err = parseFlag(v)
		case specEnd:
			ended = true
		default:
			if text := texts[tag]; text != nil {
				*text = string(v)
			}
		}
		return err
	})
	switch {
	case err != nil:
		return Spec{}, err
	case !ended:
		return Spec{}, errors.New("the spec is not complete")
	case s.RunID == "" || len(s.Args) == 0 || s.StateDir == "" || s.Socket == "":
		return Spec{}, errors.New("the spec lacks a run, a command, a state directory or a socket")
	case s.SandboxArgs < 0 || s.SandboxArgs >= len(s.Args):
		return Spec{}, errors.New("the spec has a sandbox without a command")
	}
	return s, nil
}

// flag returns the field that is a flag with this tag.
func (s *Spec) flag(tag byte) *bool {
	switch tag {
	case specOnlyHooks:
		return &s.OnlyHooks
	case specHoldInput:
		return &s.HoldInput
	}
	return &s.IgnoreOSC7501
}

// texts returns the fields that are strings, by their tags.
func (s *Spec) texts() map[byte]*string {
	return map[byte]*string{
		specRunID:      &s.RunID,
		specDir:        &s.Dir,
		specStateDir:   &s.StateDir,
		specSocket:     &s.Socket,
		specPrompt:     &s.Prompt,
		specNotify:     &s.Notify,
		specReady:      &s.TitleReady,
		specWorking:    &s.TitleWorking,
		specBlocked:    &s.TitleBlocked,
		specSetup:      &s.SetupPattern,
		specLimit:      &s.LimitPattern,
		specIdle:       &s.IdlePattern,
		specBusy:       &s.WorkingPattern,
		specRetry:      &s.RetryPattern,
		specBackground: &s.BackgroundPattern,
		specClear:      &s.ClearKeys,
		specSession:    &s.Session,
		specProgram:    &s.Program,
		specSandbox:    &s.Sandbox,
		specForbidden:  &s.Forbidden,
	}
}
