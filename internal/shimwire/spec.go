package shimwire

import (
	"errors"
	"time"
)

// Spec is everything that a shim needs to know of the run it is for. It travels in a file of mode
// 0600 below XDG_RUNTIME_DIR, which the shim unlinks as soon as it has read it: a command line can
// be seen by everybody, a state directory outlives the login.
type Spec struct {
	RunID     string
	Dir       string        // the workspace: the agent's working directory
	Args      []string      // the agent's argument vector; Args[0] is looked up in the PATH of Env if it has no slash
	Env       []string      // the agent's whole environment, NAME=value
	StateDir  string        // where exit_status and output.log are written
	Socket    string        // where the shim listens
	LogMax    int64         // bytes that output.log and its predecessor may take together
	IdleAfter time.Duration // silence that makes a working agent idle
	Prompt    string        // typed into the agent's terminal, with Enter, once it takes input; "" for nothing
	HoldInput bool          // texts wait as Prompt does: what is typed before the agent takes input is lost
	Notify    string        // where the shim listens for sd_notify(3) from the agent, which gets the path as NOTIFY_SOCKET; "" for nowhere

	IgnoreOSC7501 bool          // what the agent tells by OSC 7501 is of no use, and its query is not answered
	TitleReady    string        // regular expressions of the terminal's title while the agent has nothing to do,
	TitleWorking  string        // works,
	TitleBlocked  string        // or waits for a person; "" for none
	SetupPattern  string        // regular expression of a line of the screen that asks for something before the agent can begin; "" for none
	ReadyTimeout  time.Duration // how long after its start an agent that says nothing has its screen looked at for that

	Session string // id of the session and name of the agent's program, for the line that is shown in the pane when the
	Program string // agent has exited; without a Session there is none
}

const (
	specRunID     = 'r'
	specDir       = 'd'
	specArg       = 'a'
	specEnv       = 'e'
	specStateDir  = 's'
	specSocket    = 'k'
	specLogMax    = 'l'
	specIdleAfter = 'i'
	specPrompt    = 'p'
	specHolds     = 'H'
	specNotify    = 'n'
	specDeaf      = 'D'
	specReady     = 'R'
	specWorking   = 'W'
	specBlocked   = 'B'
	specSetup     = 'S'
	specTimeout   = 'T'
	specSession   = 'I'
	specProgram   = 'P'
	specEnd       = '.'
)

// ExitLinePrefix begins the line that a shim prints into its pane once it has recorded the exit of
// the agent. The line is not output of the agent.
const ExitLinePrefix = "[corral] "

// Append appends the encoded spec to b.
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
	for _, f := range []struct {
		tag   byte
		value string
	}{
		{specPrompt, s.Prompt}, {specNotify, s.Notify},
		{specReady, s.TitleReady}, {specWorking, s.TitleWorking}, {specBlocked, s.TitleBlocked}, {specSetup, s.SetupPattern},
		{specSession, s.Session}, {specProgram, s.Program},
	} {
		if f.value != "" {
			b = appendString(b, f.tag, f.value)
		}
	}
	for _, f := range []struct {
		tag byte
		on  bool
	}{{specHolds, s.HoldInput}, {specDeaf, s.IgnoreOSC7501}} {
		if f.on {
			b = appendNumber(b, f.tag, 1)
		}
	}
	if s.ReadyTimeout != 0 {
		b = appendNumber(b, specTimeout, int64(s.ReadyTimeout))
	}
	return appendString(b, specEnd, "")
}

// ParseSpec decodes a spec. One that lacks its end, an argument vector or a run is an error.
func ParseSpec(b []byte) (Spec, error) {
	var s Spec
	ended := false
	err := fields(b, func(tag byte, v []byte) error {
		var err error
		switch tag {
		case specArg:
			s.Args = append(s.Args, string(v))
		case specEnv:
			s.Env = append(s.Env, string(v))
		case specLogMax:
			s.LogMax, err = number(v)
		case specIdleAfter:
			s.IdleAfter, err = duration(v)
		case specTimeout:
			s.ReadyTimeout, err = duration(v)
		case specHolds:
			s.HoldInput, err = flag(v)
		case specDeaf:
			s.IgnoreOSC7501, err = flag(v)
		case specEnd:
			ended = true
		default:
			if text := s.textOf(tag); text != nil {
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
	}
	return s, nil
}

// textOf returns the field that is a text with this tag, nil if it is none.
func (s *Spec) textOf(tag byte) *string {
	switch tag {
	case specRunID:
		return &s.RunID
	case specDir:
		return &s.Dir
	case specStateDir:
		return &s.StateDir
	case specSocket:
		return &s.Socket
	case specPrompt:
		return &s.Prompt
	case specNotify:
		return &s.Notify
	case specReady:
		return &s.TitleReady
	case specWorking:
		return &s.TitleWorking
	case specBlocked:
		return &s.TitleBlocked
	case specSetup:
		return &s.SetupPattern
	case specSession:
		return &s.Session
	case specProgram:
		return &s.Program
	}
	return nil
}
