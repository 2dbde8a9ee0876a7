// Package config reads the configuration: corral.conf, the sandbox profiles and what is configured
// for repositories (Load), and the agent definitions (LoadAgents).
//
// All use the syntax of systemd's own files (systemd.syntax(7)), are searched for in Dirs, and can
// be extended by drop-ins. Invalid or unknown lines are ignored and reported as a Warning with file
// and line: a mistake in one line never prevents the daemon from starting.
package config

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/corrald/corral/dbusapi/word"
)

// TmuxConfigUser is the value of TmuxConfig= that selects the user's own tmux configuration files.
const TmuxConfigUser = "user"

// minLogSize is the smallest accepted LogMaxSize=, in bytes: below it, rotation would cost more
// than it saves.
const minLogSize = 64 << 10

// Config is section [Corral] of corral.conf, and what is configured for repositories.
type Config struct {
	StopTimeout time.Duration // StopTimeoutSec=: between SIGTERM and SIGKILL
	LogMaxSize  int64         // LogMaxSize=: bytes of a session's output.log
	IdleAfter   time.Duration // IdleAfterSec=: time without output after which an agent counts as idle
	// IdleSuspendSec=: time after which the session of an idle agent is suspended; Infinity for never.
	IdleSuspend time.Duration
	MaxSessions int // MaxSessions=: the largest number of sessions, archived ones included
	MaxRunning  int // MaxRunning=: the largest number of sessions that run at the same time, 0 for any number
	// AgentsMayControl=: the sessions that an agent may control, one of the Control constants.
	AgentsMayControl string
	// LoginShell=: whether runs that come without a caller's environment get that of the login shell.
	LoginShell    bool
	TmuxConfig    string        // TmuxConfig=: absolute path of a file to source, or TmuxConfigUser, or "" for none
	DetachKey     string        // DetachKey=: tmux name of the key that detaches a terminal, "" for none
	Terminal      string        // Terminal=: command of the terminal emulator for windows, "" to search for one
	Notifications bool          // Notifications=: whether desktop notifications are sent
	Notify        []string      // Notify=: the kinds of events to notify of, from NotifyAll
	NotifyUrgency Urgencies     // NotifyUrgency=: urgencies of notifications that differ from the default
	TmuxMessages  bool          // TmuxMessages=: whether terminals attached to another session show a message
	NotifyAfter   time.Duration // NotifyCompletedSec=: shortest duration of a completed run to notify of
	OnLimit       string        // OnLimit=: what happens once a usage limit has reset: LimitNotify or LimitContinue
	ContinueText  string        // ContinueText=: what the agent is then given
	PortRange     PortRange     // PortRange=: the TCP ports that are reserved for sessions
	Hosts         Hosts         // Hosts=: other machines; only corralctl uses them
	Retention     Retention
	Repositories  Repositories

	Sandboxes Sandboxes // sandboxes/*.sandbox
}

// NotifyAll lists the values of Notify=: the kinds of events that users can be notified of.
var NotifyAll = []string{word.Failed, word.Waiting, word.Completed, word.Stale, word.Orphaned, word.Suspended}

// NotifyLabel is the session label whose value overrides Notify= for that session.
const NotifyLabel = "notify"

// The values of OnLimit=: what happens when an agent has reached a usage limit.
const (
	LimitNotify   = "notify"   // a person is notified
	LimitContinue = "continue" // the agent is given ContinueText= once the limit has reset
)

// OnLimitLabel is the session label whose value overrides OnLimit= for that session.
const OnLimitLabel = "on-limit"

// ParseOnLimit parses a value of OnLimit=.
var ParseOnLimit = either(LimitNotify, LimitContinue)

// The values of AgentsMayControl=: the sessions that an agent may control.
const (
	ControlNone        = "none"
	ControlDescendants = "descendants" // its own, those that it has created, and the descendants of these
	ControlAll         = "all"
)

// Retention specifies how long ended sessions are kept; Infinity keeps them until they are removed.
type Retention struct {
	Suspended time.Duration // SuspendedRetentionSec=: suspended, and the agent cannot resume its conversation
	Resumable time.Duration // ResumableRetentionSec=: suspended, and the agent can resume it
	Failed    time.Duration // FailedRetentionSec=: failed, from the time when a person has seen it
	Unseen    time.Duration // UnseenRetentionSec=: failed and unseen; the longer of this and Failed applies
	Completed time.Duration // CompletedRetentionSec=
	Stopped   time.Duration // StoppedRetentionSec=
}

// Default returns the configuration that applies without any configuration file.
func Default() Config {
	return Config{
		StopTimeout:   10 * time.Second,
		LogMaxSize:    16 << 20,
		IdleAfter:     3 * time.Second,
		IdleSuspend:   Infinity,
		MaxSessions:   10000,
		LoginShell:    true,
		DetachKey:     "C-q",
		Notifications: true,
		Notify:        NotifyAll,
		TmuxMessages:  true,
		NotifyAfter:   time.Minute,
		OnLimit:       LimitNotify,
		ContinueText: "The usage limit has reset. Continue with what you were doing, " +
			"and do not repeat what is already done.",
		PortRange:        PortRange{20000, 29999}, // outside of the kernel's ip_local_port_range
		AgentsMayControl: ControlDescendants,
		Retention: Retention{
			Suspended: 7 * day, Resumable: 30 * day, Failed: day, Unseen: 7 * day, Completed: 7 * day, Stopped: 7 * day,
		},
	}
}

// Load reads corral.conf from the first directory that has one, then its drop-ins,
// sandboxes/*.sandbox and repositories/*.repository from all directories. An error means that
// corral.conf exists but cannot be read; the returned configuration then contains only the
// defaults, the drop-ins, the sandboxes and the repositories.
func Load(dirs []string) (Config, []Warning, error) {
	const name, section = "corral.conf", "Corral"
	c := Default()
	var warnings []Warning
	keys := c.parsers()
	apply := func(assignments []assignment) {
		for _, a := range assignments {
			if err := keys.set(a.key, a); err != nil {
				warnings = append(warnings, a.warn("%v", err))
			}
		}
	}
	file, ok, err := findFile(dirs, name)
	if ok && !file.masked {
		var own []assignment
		own, warnings, err = readUnitFile(file.path, section)
		apply(own)
	}
	more, _, warned := dropIns(dirs, name, section)
	warnings = append(warnings, warned...)
	apply(more)
	c.Sandboxes, warned = LoadSandboxes(dirs)
	warnings = append(warnings, warned...)
	c.Repositories, warned = loadRepositories(dirs)
	warnings = append(warnings, warned...)
	return c, warnings, err
}

// parsers returns the functions that parse the values of the keys and store them in c.
func (c *Config) parsers() parsers {
	def := Default()
	return parsers{
		"StopTimeoutSec":        parser(&c.StopTimeout, def.StopTimeout, finiteSpan),
		"LogMaxSize":            parser(&c.LogMaxSize, def.LogMaxSize, logSize),
		"IdleAfterSec":          parser(&c.IdleAfter, def.IdleAfter, finiteSpan),
		"IdleSuspendSec":        parser(&c.IdleSuspend, def.IdleSuspend, idleSpan),
		"MaxSessions":           parser(&c.MaxSessions, def.MaxSessions, count),
		"MaxRunning":            parser(&c.MaxRunning, def.MaxRunning, count),
		"LoginShell":            parser(&c.LoginShell, def.LoginShell, ParseBool),
		"TmuxConfig":            parser(&c.TmuxConfig, def.TmuxConfig, tmuxConfig),
		"DetachKey":             parser(&c.DetachKey, "", detachKey),
		"Terminal":              parser(&c.Terminal, def.Terminal, terminalCommand),
		"Notifications":         parser(&c.Notifications, def.Notifications, ParseBool),
		"Notify":                parser(&c.Notify, def.Notify, ParseNotify),
		"NotifyUrgency":         parser(&c.NotifyUrgency, def.NotifyUrgency, ParseUrgencies),
		"TmuxMessages":          parser(&c.TmuxMessages, def.TmuxMessages, ParseBool),
		"NotifyCompletedSec":    parser(&c.NotifyAfter, def.NotifyAfter, ParseTimeSpan),
		"OnLimit":               parser(&c.OnLimit, def.OnLimit, ParseOnLimit),
		"ContinueText":          parser(&c.ContinueText, def.ContinueText, prompt),
		"PortRange":             parser(&c.PortRange, def.PortRange, portRange),
		"Hosts":                 parser(&c.Hosts, def.Hosts, ParseHosts),
		"AgentsMayControl":      parser(&c.AgentsMayControl, def.AgentsMayControl, control),
		"SuspendedRetentionSec": parser(&c.Retention.Suspended, def.Retention.Suspended, ParseTimeSpan),
		"ResumableRetentionSec": parser(&c.Retention.Resumable, def.Retention.Resumable, ParseTimeSpan),
		"FailedRetentionSec":    parser(&c.Retention.Failed, def.Retention.Failed, ParseTimeSpan),
		"UnseenRetentionSec":    parser(&c.Retention.Unseen, def.Retention.Unseen, ParseTimeSpan),
		"CompletedRetentionSec": parser(&c.Retention.Completed, def.Retention.Completed, ParseTimeSpan),
		"StoppedRetentionSec":   parser(&c.Retention.Stopped, def.Retention.Stopped, ParseTimeSpan),
	}
}

// parsers are functions that parse and store the value of an assignment, by the name of the key.
type parsers map[string]func(assignment) error

// set applies an assignment. An invalid value changes nothing and is returned as an error.
func (p parsers) set(name string, a assignment) error {
	if store, known := p[name]; known {
		return store(a)
	}
	return fmt.Errorf("unknown key %s= in section [%s]", a.key, a.section)
}

// parser returns a function that parses the value of an assignment and stores it in *to. An empty
// value stores the default.
func parser[T any](to *T, def T, parse func(string) (T, error)) func(assignment) error {
	return func(a assignment) error {
		if a.value == "" {
			*to = def
			return nil
		}
		v, err := parse(a.value)
		if err != nil {
			return fmt.Errorf("%s=: %w", a.key, err)
		}
		*to = v
		return nil
	}
}

// finiteSpan parses a timeout: a time span greater than 0 and less than infinity.
func finiteSpan(s string) (time.Duration, error) {
	d, err := ParseTimeSpan(s)
	if err == nil && (d == 0 || d == Infinity) {
		return 0, fmt.Errorf("invalid time span %q: expected more than 0 and less than infinity", s)
	}
	return d, err
}

// idleSpan parses a time span after which an idle session is suspended; 0 means never, like
// infinity.
func idleSpan(s string) (time.Duration, error) {
	d, err := ParseTimeSpan(s)
	if d == 0 {
		d = Infinity
	}
	return d, err
}

func logSize(s string) (int64, error) {
	n, err := ParseBytes(s)
	if err == nil && n < minLogSize {
		return 0, fmt.Errorf("invalid size %q: expected at least 64K", s)
	}
	return n, err
}

func count(s string) (int, error) {
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("invalid number %q: expected 1 or more", s)
	}
	return int(n), nil
}

// either returns a function that parses one of two words.
func either(a, b string) func(string) (string, error) {
	return func(s string) (string, error) {
		if s != a && s != b {
			return "", fmt.Errorf("invalid value %q: expected %s or %s", s, a, b)
		}
		return s, nil
	}
}

func control(s string) (string, error) {
	switch s {
	case ControlNone, ControlDescendants, ControlAll:
		return s, nil
	}
	return "", fmt.Errorf("invalid value %q: expected %s, %s or %s", s, ControlNone, ControlDescendants, ControlAll)
}

func tmuxConfig(s string) (string, error) {
	if s != TmuxConfigUser && !filepath.IsAbs(s) {
		return "", fmt.Errorf("invalid value %q: expected an absolute path or %q", s, TmuxConfigUser)
	}
	return s, nil
}

func terminalCommand(s string) (string, error) {
	_, err := SplitCommand(s)
	return s, err
}

// prompt parses a text for an agent. It is given to the agent as if it was typed, in one line.
func prompt(s string) (string, error) {
	if !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
		return "", fmt.Errorf("invalid text %q: expected UTF-8 without control characters", s)
	}
	return s, nil
}

// ParseNotify parses a value of Notify=: a list of kinds from NotifyAll, or yes for all of them, or
// no for none. The result for no is an empty list that is not nil.
func ParseNotify(s string) ([]string, error) {
	if on, err := ParseBool(s); err == nil {
		if on {
			return NotifyAll, nil
		}
		return []string{}, nil
	}
	for word := range strings.FieldsSeq(s) {
		if !slices.Contains(NotifyAll, word) {
			return nil, fmt.Errorf("invalid value %q: expected yes, no or some of %s", word, strings.Join(NotifyAll, ", "))
		}
	}
	return strings.Fields(s), nil
}
