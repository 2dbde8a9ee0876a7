package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// programs parses a list of program names or paths.
func programs(s string) ([]string, error) {
	names, err := SplitWords(s)
	if err == nil && slices.Contains(names, "") {
		err = fmt.Errorf("invalid command %q: expected a program", s)
	}
	return names, err
}

// idPattern parses a regular expression whose first group is the conversation id.
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

// limitRecord parses a regular expression with a group message, and possibly a group until.
func limitRecord(s string) (*regexp.Regexp, error) {
	re, err := regexp.Compile(s)
	if err == nil && re.SubexpIndex("message") < 0 {
		err = fmt.Errorf("invalid pattern %q: expected a group (?P<message>…)", s)
	}
	return re, err
}

// checkContradictions warns about keys that have no effect, or cannot work, without another key.
// The warning has the line of the key.
func (l *agentLoader) checkContradictions() {
	agent := &l.agent
	// The id is known before the first run.
	idKnown := agent.IdSource == IdPreset || agent.IdSource == IdHistoryFile || agent.IdSource == IdCreate
	warnIf := func(key string, condition bool, text string) {
		if condition {
			a := l.last[key]
			l.warnings = append(l.warnings, Warning{a.file, a.line, text})
		}
	}
	warnIf("IdSource", agent.IdSource == IdCreate && len(agent.IdCommand) == 0, "IdSource=create requires IdCommand=")
	warnIf("IdSource", idKnown && len(agent.Command) > 0 && !UsesConversation(agent.Command),
		"IdSource="+agent.IdSource+" has no effect: Command= has no %U")
	warnIf("IdCommand", agent.IdSource != IdCreate && len(agent.IdCommand) > 0,
		"IdCommand= has no effect without IdSource=create")
	warnIf("IdCommand", UsesConversation(agent.IdCommand), "IdCommand= has %U, the id that the command has to create")
	warnIf("Command", UsesConversation(agent.Command) && !idKnown,
		"Command= has %U, which is unknown before the agent runs unless IdSource= is preset, history-file or create")
	warnIf("ForkCommand", len(agent.ForkCommand) > 0 && !usesForked(agent.ForkCommand),
		"ForkCommand= has no %F, the ID of the conversation that it has to copy")
	warnIf("ForkCommand", UsesConversation(agent.ForkCommand) && !idKnown,
		"ForkCommand= has %U, which is unknown before the agent runs unless IdSource= is preset or history-file")
	warnIf("ForkCommand", agent.IdSource == IdCreate && len(agent.ForkCommand) > 0,
		"ForkCommand= has no effect with IdSource=create")
	warnIf("ForkElsewhere", agent.NoForkElsewhere && len(agent.ForkCommand) == 0,
		"ForkElsewhere= has no effect without a ForkCommand=")
	warnIf("IdFileContent", agent.IdFileContent != nil && agent.IdFile == nil,
		"IdFileContent= has no effect without an IdFile=")
	warnIf("LimitRecord", agent.LimitRecord != nil && agent.IdFile == nil, "LimitRecord= has no effect without an IdFile=")
	warnIf("ResumeContent", agent.ResumeContent != nil && len(agent.ResumeCondition) == 0,
		"ResumeContent= has no effect without a ResumeCondition=")
	warnIf("ResumeCondition", len(agent.ResumeCondition) > 0 && len(agent.ResumeCommand) == 0,
		"ResumeCondition= has no effect without a ResumeCommand=")
}

// Programs returns the names or paths of programs of which any shows that the agent is installed.
// It returns none for an agent whose command is supplied by the caller.
func (agent *Agent) Programs() []string {
	if len(agent.Detect) > 0 || len(agent.Command) == 0 {
		return agent.Detect
	}
	return agent.Command[:1]
}

// StopTimeout returns the time between SIGTERM and SIGKILL that TimeoutStopSec= in section [Scope]
// asks for, 0 if it is not set.
func (agent *Agent) StopTimeout() time.Duration {
	var timeout time.Duration
	for _, property := range agent.Properties {
		if value, ok := strings.CutPrefix(property, "TimeoutStopSec="); ok {
			timeout, _ = ParseTimeSpan(value) // an invalid value is reported when the property is parsed for systemd
		}
	}
	return timeout
}

// FindConversation returns the id of the conversation that a process was started with, given the
// arguments that the process shows, or "" if they contain none. The agent's own arguments may be
// preceded by an interpreter and followed by arguments of a client.
func (agent *Agent) FindConversation(shown []string, s Specifiers) string {
	for _, template := range [][]string{agent.Command, agent.ResumeCommand} {
		if len(template) < 2 || !UsesConversation(template) {
			continue
		}
		rest := template[1:] // the process may show another program name
		for i := 1; i+len(rest) <= len(shown); i++ {
			if id := matchConversation(rest, shown[i:i+len(rest)], s); id != "" {
				return id
			}
		}
	}
	return ""
}

// matchConversation returns the conversation id with which template expands to args, "" if there is
// none.
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
