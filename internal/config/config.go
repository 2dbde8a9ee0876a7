// Package config reads what people configure: corral.conf, and the agents' definitions
// (LoadAgents).
//
// Both are written like systemd's own files (systemd.syntax(7)), looked for in Dirs, and extended
// by drop-ins. What is wrong in them, or not known, is told as a Warning with file and line and
// passed over: a mistake in one line never keeps the daemon from starting.
package config

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// TmuxConfigUser stands for the tmux configurations that the user has where tmux looks for them.
const TmuxConfigUser = "user"

// minLogSize is the smallest LogMaxSize=: below it, rotation would cost more than it saves.
const minLogSize = 64 << 10

// Config is section [Corral] of corral.conf.
type Config struct {
	StopTimeout   time.Duration // StopTimeoutSec=: between the polite end and SIGKILL
	LogMaxSize    int64         // LogMaxSize=: bytes of a session's output.log
	IdleAfter     time.Duration // IdleAfterSec=: how long without output until an agent counts as idle
	IdleSuspend   time.Duration // IdleSuspendSec=: how long an agent may be idle until its session is suspended; Infinity: for ever
	MaxSessions   int           // MaxSessions=: how many there may be, archived ones too
	LoginShell    bool          // LoginShell=: whether the login shell is asked for a run that comes without an environment of its caller's
	TmuxConfig    string        // TmuxConfig=: absolute path of a tmux configuration to source, or TmuxConfigUser, or "" for ours alone
	DetachKey     string        // DetachKey=: the key that detaches a terminal from a session, by tmux's name, "" for none
	Terminal      string        // Terminal=: command of the terminal emulator that windows are opened with, "" to look for one
	Notifications bool          // Notifications=: whether desktop notifications are sent
	Notify        []string      // Notify=: of what a person is told in any way, some of NotifyAll
	NotifyUrgency Urgencies     // NotifyUrgency=: the urgency of notifications, where it is not the default
	TmuxMessages  bool          // TmuxMessages=: whether who is attached to another session is told
	NotifyAfter   time.Duration // NotifyCompletedSec=: how long a run that completed has to have lasted to be told
	Retention     Retention
}

// NotifyAll are the words of Notify=: what a person may want to be notified of.
var NotifyAll = []string{"failed", "waiting", "completed", "stale", "orphaned", "suspended"}

// NotifyLabel is the name of a session's label whose value counts as Notify= for that session.
const NotifyLabel = "notify"

// Retention tells how long an ended session is kept; Infinity is for ever.
type Retention struct {
	Suspended time.Duration // SuspendedRetentionSec=: of an agent that cannot resume its conversation
	Resumable time.Duration // ResumableRetentionSec=: suspended, and its agent can
	Failed    time.Duration // FailedRetentionSec=: after a person has seen that it failed
	Unseen    time.Duration // UnseenRetentionSec=: failed, and nobody has seen it; the longer of this and Failed counts
	Completed time.Duration // CompletedRetentionSec=
	Stopped   time.Duration // StoppedRetentionSec=
}

// Default is what holds where nothing is configured.
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
		Retention:     Retention{Suspended: 7 * day, Resumable: 30 * day, Failed: day, Unseen: 7 * day, Completed: 7 * day, Stopped: 7 * day},
	}
}

// Load reads corral.conf from the first of the directories that has one, then its drop-ins from all
// of them. The error is that corral.conf is there but cannot be read; the drop-ins count then, too.
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

// set takes over one assignment. An empty value brings back the default; a bad one is told and
// changes nothing.
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

// setValue parses a value into its place, or puts the default there if it is empty.
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

// finiteSpan is a time span that somebody waits for: it has to end, and to be one.
func finiteSpan(s string) (time.Duration, error) {
	d, err := ParseTimeSpan(s)
	if err == nil && (d == 0 || d == Infinity) {
		return 0, fmt.Errorf("invalid time span %q: expected more than 0 and less than infinity", s)
	}
	return d, err
}

// idleSpan is a time span after which something is done; 0 means never, too.
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
	words, err := SplitWords(s)
	if err == nil && (len(words) == 0 || words[0] == "") {
		err = fmt.Errorf("invalid command %q: expected a program", s)
	}
	return s, err
}

// ParseNotify reads a value of Notify=: words of NotifyAll, or yes for all of them, or no for none,
// which is a list that is empty and not nil.
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
