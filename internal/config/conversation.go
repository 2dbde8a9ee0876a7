package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// programs reads names or paths of programs.
func programs(s string) ([]string, error) {
	names, err := SplitWords(s)
	if err == nil && slices.Contains(names, "") {
		err = fmt.Errorf("invalid command %q: expected a program", s)
	}
	return names, err
}

func stopWhom(s string) (string, error) {
	if s != StopAgent && s != StopAll {
		return "", fmt.Errorf("invalid value %q: expected %s or %s", s, StopAgent, StopAll)
	}
	return s, nil
}

// idPattern reads a regular expression whose first group is a conversation's id.
func idPattern(s string) (*regexp.Regexp, error) {
	re, err := regexp.Compile(s)
	if err != nil {
		return nil, err
	}
	if re.NumSubexp() == 0 {
		return nil, fmt.Errorf("invalid pattern %q: expected a group (…) around the id", s)
	}
	return re, nil
}

// setResumeCondition adds patterns: a file of any of them is enough.
func (l *agentLoader) setResumeCondition(a assignment) error {
	patterns, err := words(a)
	if err != nil {
		return err
	}
	if len(patterns) == 0 {
		l.agent.ResumeCondition = nil
	}
	for _, pattern := range patterns {
		if err := checkPattern(pattern); err != nil {
			l.warnings = append(l.warnings, a.warn("ResumeCondition=: %v", err))
			continue
		}
		l.agent.ResumeCondition = append(l.agent.ResumeCondition, pattern)
	}
	return nil
}

// contradictions tells of keys that have no use, or cannot work, without another one. The line is
// that of the key.
func (l *agentLoader) contradictions() {
	agent := &l.agent
	before := agent.IdSource == IdPreset || agent.IdSource == IdHistoryFile || agent.IdSource == IdCreate // the id is known before the first run
	tell := func(key string, is bool, text string) {
		if is {
			a := l.last[key]
			l.warnings = append(l.warnings, Warning{a.file, a.line, text})
		}
	}
	tell("IdSource", agent.IdSource == IdCreate && len(agent.IdCommand) == 0, "IdSource=create requires IdCommand=")
	tell("IdSource", before && len(agent.Command) > 0 && !UsesConversation(agent.Command), "IdSource="+agent.IdSource+" has no effect: Command= has no %U")
	tell("IdCommand", agent.IdSource != IdCreate && len(agent.IdCommand) > 0, "IdCommand= has no effect without IdSource=create")
	tell("IdCommand", UsesConversation(agent.IdCommand), "IdCommand= has %U, the id that the command has to create")
	tell("Command", UsesConversation(agent.Command) && !before,
		"Command= has %U, which is unknown before the agent runs unless IdSource= is preset, history-file or create")
	tell("IdFileContent", agent.IdFileContent != nil && agent.IdFile == nil, "IdFileContent= has no effect without an IdFile=")
	tell("ResumeContent", agent.ResumeContent != nil && len(agent.ResumeCondition) == 0, "ResumeContent= has no effect without a ResumeCondition=")
	tell("ResumeCondition", len(agent.ResumeCondition) > 0 && len(agent.ResumeCommand) == 0, "ResumeCondition= has no effect without a ResumeCommand=")
}

// Programs gives the names or paths of which one shows that the agent is installed; none for one
// whose command is given by whoever starts it.
func (agent *Agent) Programs() []string {
	if len(agent.Detect) > 0 || len(agent.Command) == 0 {
		return agent.Detect
	}
	return agent.Command[:1]
}

// StopTimeout gives the time between the polite end and SIGKILL that the definition's [Scope] asks
// for, 0 where it does not.
func (agent *Agent) StopTimeout() time.Duration {
	var timeout time.Duration
	for _, property := range agent.Properties {
		if value, is := strings.CutPrefix(property, "TimeoutStopSec="); is {
			timeout, _ = ParseTimeSpan(value) // what cannot be read is told by whoever reads the property for systemd
		}
	}
	return timeout
}

// FindConversation returns the id of the conversation with which a process was executed that shows
// these arguments, "" if that is not to be seen. What stands in front of an agent's own arguments
// may be an interpreter, what comes after them is a client's.
func (agent *Agent) FindConversation(shown []string, s Specifiers) string {
	for _, template := range [][]string{agent.Command, agent.ResumeCommand} {
		if len(template) < 2 || !UsesConversation(template) {
			continue
		}
		rest := template[1:] // the program may be shown by another name
		for i := 1; i+len(rest) <= len(shown); i++ {
			if id := matchConversation(rest, shown[i:i+len(rest)], s); id != "" {
				return id
			}
		}
	}
	return ""
}

// matchConversation returns the id that makes the arguments of the template, "" if none does.
func matchConversation(template, args []string, s Specifiers) string {
	at := slices.IndexFunc(template, func(arg string) bool { return strings.Contains(arg, "%U") })
	if at < 0 || at >= len(args) {
		return ""
	}
	before, after, _ := strings.Cut(template[at], "%U")
	front, err := expandOne(before, s.value)
	if err != nil {
		return ""
	}
	back, err := expandOne(after, s.value)
	if err != nil {
		return ""
	}
	text, begins := strings.CutPrefix(args[at], front)
	text, ends := strings.CutSuffix(text, back)
	s.Conversation = text
	if made, err := Expand(template, s); !begins || !ends || err != nil || !slices.Equal(made, args) {
		return ""
	}
	return text
}
