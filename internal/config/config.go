// Package config reads the configuration: corral.conf (Load) and the agent definitions
// (LoadAgents).
//
// Both use the syntax of systemd's own files (systemd.syntax(7)), are searched for in Dirs, and can
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

	"github.com/corrald/corral/dbusapi/word"
)

// TmuxConfigUser is the value of TmuxConfig= that selects the user's own tmux configuration files.
const TmuxConfigUser = "user"

// minLogSize is the smallest accepted LogMaxSize=, in bytes: below it, rotation would cost more
// than it saves.
const minLogSize = 64 << 10

// Config is section [Corral] of corral.conf.
type Config struct {
	StopTimeout time.Duration // StopTimeoutSec=: between SIGTERM and SIGKILL
	LogMaxSize  int64         // LogMaxSize=: bytes of a session's output.log
	IdleAfter   time.Duration // IdleAfterSec=: time without output after which an agent counts as idle
	// IdleSuspendSec=: time after which the session of an idle agent is suspended; Infinity for never.
	IdleSuspend time.Duration
	MaxSessions int // MaxSessions=: the largest number of sessions, archived ones included
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
	Retention     Retention
}

// NotifyAll lists the values of Notify=: the kinds of events that users can be notified of.
var NotifyAll = []string{word.Failed, word.Waiting, word.Completed, word.Stale, word.Orphaned, word.Suspended}

// NotifyLabel is the session label whose value overrides Notify= for that session.
const NotifyLabel = "notify"

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
		Retention: Retention{
			Suspended: 7 * day, Resumable: 30 * day, Failed: day, Unseen: 7 * day, Completed: 7 * day, Stopped: 7 * day,
		},
	}
}

// Load reads corral.conf from the first directory that has one, then its drop-ins from all
// directories. An error means that corral.conf exists but cannot be read; the returned
// configuration then contains only the defaults and the drop-ins.
func Load(dirs []string) (Config, []Warning, error) {
	const name, section = "corral.conf", "Corral"
	c := Default()
	var warnings []Warning
	apply := func(assignments []assignment) {
		for _, a := range assignments {
			if err := c.set(a.key, a.value); err != nil {
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
	return c, warnings, err
}

// set applies one assignment. An empty value restores the default; an invalid value changes nothing
// and is returned as an error.
func (c *Config) set(key, value string) error {
	def := Default()
	switch key {
	case "StopTimeoutSec":
		return setValue(&c.StopTimeout, key, value, def.StopTimeout, finiteSpan)
	case "LogMaxSize":
		return setValue(&c.LogMaxSize, key, value, def.LogMaxSize, logSize)
	case "IdleAfterSec":
		return setValue(&c.IdleAfter, key, value, def.IdleAfter, finiteSpan)
	case "IdleSuspendSec":
		return setValue(&c.IdleSuspend, key, value, def.IdleSuspend, idleSpan)
	case "MaxSessions":
		return setValue(&c.MaxSessions, key, value, def.MaxSessions, count)
	case "LoginShell":
		return setValue(&c.LoginShell, key, value, def.LoginShell, ParseBool)
	case "TmuxConfig":
		return setValue(&c.TmuxConfig, key, value, def.TmuxConfig, tmuxConfig)
	case "DetachKey":
		return setValue(&c.DetachKey, key, value, "", detachKey)
	case "Terminal":
		return setValue(&c.Terminal, key, value, def.Terminal, terminalCommand)
	case "Notifications":
		return setValue(&c.Notifications, key, value, def.Notifications, ParseBool)
	case "Notify":
		return setValue(&c.Notify, key, value, def.Notify, ParseNotify)
	case "NotifyUrgency":
		return setValue(&c.NotifyUrgency, key, value, def.NotifyUrgency, ParseUrgencies)
	case "TmuxMessages":
		return setValue(&c.TmuxMessages, key, value, def.TmuxMessages, ParseBool)
	case "NotifyCompletedSec":
		return setValue(&c.NotifyAfter, key, value, def.NotifyAfter, ParseTimeSpan)
	}
	return c.Retention.set(key, value)
}

func (r *Retention) set(key, value string) error {
	def := Default().Retention
	switch key {
	case "SuspendedRetentionSec":
		return setValue(&r.Suspended, key, value, def.Suspended, ParseTimeSpan)
	case "ResumableRetentionSec":
		return setValue(&r.Resumable, key, value, def.Resumable, ParseTimeSpan)
	case "FailedRetentionSec":
		return setValue(&r.Failed, key, value, def.Failed, ParseTimeSpan)
	case "UnseenRetentionSec":
		return setValue(&r.Unseen, key, value, def.Unseen, ParseTimeSpan)
	case "CompletedRetentionSec":
		return setValue(&r.Completed, key, value, def.Completed, ParseTimeSpan)
	case "StoppedRetentionSec":
		return setValue(&r.Stopped, key, value, def.Stopped, ParseTimeSpan)
	}
	return fmt.Errorf("unknown key %s= in section [Corral]", key)
}

// setValue parses a value and stores it in *to. An empty value stores the default.
func setValue[T any](to *T, key, value string, def T, parse func(string) (T, error)) error {
	if value == "" {
		*to = def
		return nil
	}
	v, err := parse(value)
	if err != nil {
		return fmt.Errorf("%s=: %w", key, err)
	}
	*to = v
	return nil
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
