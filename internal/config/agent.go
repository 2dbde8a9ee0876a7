package config

import (
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/corrald/corral/internal/keys"
)

// CommandAgent is the agent that is always there and has no command of its own: whoever starts it
// brings one.
const CommandAgent = "command"

// Where an agent's conversation id comes from: IdSource=.
//
//nolint:revive // named after the key
const (
	IdNone        = "none"         // it has none, or it is not known
	IdPreset      = "preset"       // we choose a UUID and give it to Command as %U
	IdCreate      = "create"       // a command of the agent creates one
	IdReport      = "report"       // the agent chooses it and reports it while it runs
	IdHistoryFile = "history-file" // the file it keeps its conversation in, named after an id that we choose
)

// Who is asked first to end: StopTarget=.
const (
	StopAgent = "agent" // the agent's own process, which ends what it has started
	StopAll   = "all"   // each of its processes at once
)

// How an agent is known to be there: Type=.
const (
	TypeSimple = "simple" // once it was executed
	TypeNotify = "notify" // once it says so
)

var idSources = []string{IdNone, IdPreset, IdCreate, IdReport, IdHistoryFile}

// agentSections are the sections of an agent's file.
var agentSections = []string{"Agent", "Environment", "Status", "Scope"}

// Agent is a definition: agents/NAME.agent with its drop-ins. In Command, ResumeCommand, IdCommand,
// Environment and EnvironmentFiles specifiers are still to be expanded (Expand), in ResumeCondition
// as well (ExpandPatterns), but known to be right.
type Agent struct {
	Name             string
	Description      string
	Detect           []string       // names or paths of programs: that one of them is there shows that the agent is installed; nil for that of Command
	Command          []string       // argument vector of a fresh run; empty for CommandAgent alone
	ResumeCommand    []string       // of one that continues the conversation; empty if the agent cannot
	ResumeCondition  []string       // patterns of file names: one of them has to match a file for there to be a conversation; nil if that cannot be told
	ResumeContent    *regexp.Regexp // has to match in the first of such a file, too; nil if its being there is enough
	Environment      []string       // [Environment] Set=: NAME=VALUE, a name at most once
	UnsetEnvironment []string       // [Environment] Unset=: names that the agent does not inherit; what Set= names it gets all the same
	EnvironmentFiles []string       // [Environment] EnvironmentFile=: absolute paths, with a - in front where the file may be missing
	LoginShell       *bool          // [Environment] LoginShell=, as in Config; nil for what is configured there
	IdSource         string         //nolint:revive // by the key: one of the Id constants, or what somebody wrote instead
	IdCommand        []string       //nolint:revive // by the key: argument vector of what makes an id and prints it, for IdCreate
	IdFile           *regexp.Regexp //nolint:revive // by the key: of the path of a file that the agent holds open; its first group is the id. nil for none
	IdFileContent    *regexp.Regexp //nolint:revive // by the key: has to match in such a file; of several that it matches in, the one that was written last counts. nil for none
	IdPattern        *regexp.Regexp //nolint:revive // by the key: of what the agent prints at its end; its first group is the id. nil for none
	StopTarget       string         // StopTarget=: StopAgent, or StopAll for one that hears only signals to all of its processes
	NoTypeAhead      bool           // TypeAhead=no: what is typed before the agent takes input is lost
	Type             string         // Type=: TypeSimple, or TypeNotify for one that says when it is ready, and how it is (sd_notify(3))
	IdleAfter        time.Duration  // IdleAfterSec=, as in Config; 0 for what is configured there
	IdleSuspend      time.Duration  // IdleSuspendSec=, as in Config; 0 for what is configured there
	Notify           []string       // Notify=, as in Config; nil for what is configured there
	NotifyUrgency    Urgencies      // NotifyUrgency=, as in Config, whose value applies to the kinds that are not in this one
	TmuxConfig       string         // as in Config; "" for what is configured there
	ApproveKeys      []string       // ApproveKeys=: tmux's names of the keys that approve what the agent asks permission for; nil if they are not known
	DenyKeys         []string       // DenyKeys=: of those that deny it
	Status           Status         // [Status]
	Properties       []string       // [Scope]: NAME=VALUE of the unit, as written and in order
	Source           string         // path of its file, "" where there is none
	DropIns          []string       // paths, in the order they were applied
}

// namePattern is the rule of agent names and session ids, which become part of a unit's name
// without being escaped.
var namePattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9_])?$`)

// ValidName tells whether s can be the name of an agent or the id of a session: a lower-case letter
// or digit, then also ".", "_" and "-", neither "." nor "-" at the end, 64 bytes at most.
func ValidName(s string) bool { return namePattern.MatchString(s) }

// LoadAgents reads agents/*.agent from the directories, with drop-ins. What cannot be used is told
// and left out. CommandAgent is in the result in any case.
func LoadAgents(dirs []string) (map[string]Agent, []Warning) {
	const sub, suffix = "agents", ".agent"
	files, warnings := findFiles(dirs, sub, suffix)
	byName := map[string]found{CommandAgent: {}}
	for _, f := range files {
		byName[strings.TrimSuffix(f.name, suffix)] = f
	}
	agents := map[string]Agent{}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		file := byName[name]
		if file.masked && name != CommandAgent {
			continue
		}
		if !ValidName(name) {
			warnings = append(warnings, Warning{File: file.path, Text: fmt.Sprintf("invalid agent name %q, ignored", name)})
			continue
		}
		l := newAgentLoader(name)
		ok := l.load(dirs, filepath.Join(sub, name+suffix), file)
		warnings = append(warnings, l.warnings...)
		if ok {
			agents[name] = l.agent
		}
	}
	return agents, append(warnings, strayDropIns(dirs, sub, suffix, byName)...)
}

// strayDropIns tells of drop-ins for agents that have no file: most likely their name is misspelt.
func strayDropIns(dirs []string, sub, suffix string, files map[string]found) []Warning {
	var warnings []Warning
	for _, dir := range dirs {
		names, _ := readNames(filepath.Join(dir, sub)) // what cannot be listed was told while looking for agents
		for _, entry := range names {
			name, ok := strings.CutSuffix(entry, suffix+".d")
			if _, known := files[name]; ok && !known {
				path := filepath.Join(dir, sub, entry)
				warnings = append(warnings, Warning{File: path, Text: fmt.Sprintf("drop-ins for agent %q without a file, ignored", name)})
			}
		}
	}
	return warnings
}

// agentLoader makes one agent of its assignments.
type agentLoader struct {
	agent    Agent
	last     map[string]assignment // by key: the last to section [Agent]
	warnings []Warning
}

func newAgentLoader(name string) agentLoader {
	return agentLoader{
		agent: Agent{Name: name, IdSource: IdNone, Type: TypeSimple, StopTarget: StopAgent, Status: Status{ReadyTimeout: defaultReadyTimeout}},
		last:  map[string]assignment{},
	}
}

// load reads the agent's file and drop-ins and tells whether it can be used.
func (l *agentLoader) load(dirs []string, name string, file found) bool {
	if file.path != "" && !file.masked {
		assignments, warned, err := readUnitFile(file.path, agentSections...)
		if err != nil {
			l.warnings = append(l.warnings, Warning{File: file.path, Text: err.Error()})
			return l.agent.Name == CommandAgent
		}
		l.agent.Source = file.path
		l.warnings = append(l.warnings, warned...)
		l.apply(assignments)
	}
	assignments, paths, warned := dropIns(dirs, name, agentSections...)
	l.agent.DropIns = paths
	l.warnings = append(l.warnings, warned...)
	l.apply(assignments)
	if len(l.agent.Command) == 0 && l.agent.Name != CommandAgent {
		l.warnings = append(l.warnings, Warning{File: l.agent.Source, Text: "agent has no Command=, ignored"})
		return false
	}
	l.contradictions()
	return true
}

func (l *agentLoader) apply(assignments []assignment) {
	for _, a := range assignments {
		if a.section == "Agent" {
			l.last[a.key] = a
		}
		if a.section == "Scope" {
			l.agent.setProperty(a.key, a.value)
			continue
		}
		set := l.set
		if a.section == "Status" {
			set = l.setStatus
		}
		if err := set(a); err != nil {
			l.warnings = append(l.warnings, a.warn("%v", err))
		}
	}
}

// setProperty keeps a unit property as it is written, for systemd to judge. A property may be a
// list, so the same name may come again; an empty value takes back what came before.
func (agent *Agent) setProperty(name, value string) {
	if value == "" {
		agent.Properties = slices.DeleteFunc(agent.Properties, func(p string) bool { return strings.HasPrefix(p, name+"=") })
		return
	}
	agent.Properties = append(agent.Properties, name+"="+value)
}

func (l *agentLoader) set(a assignment) error {
	agent := &l.agent
	switch a.section + "." + a.key {
	case "Agent.Description":
		agent.Description = a.value
	case "Agent.Command":
		if agent.Name == CommandAgent {
			return fmt.Errorf("agent %q takes its command from whoever starts it: Command=", CommandAgent)
		}
		return setValue(&agent.Command, a.key, a.value, nil, command)
	case "Agent.ResumeCommand":
		return setValue(&agent.ResumeCommand, a.key, a.value, nil, command)
	case "Agent.ResumeCondition":
		return l.setResumeCondition(a)
	case "Agent.ResumeContent":
		return setValue(&agent.ResumeContent, a.key, a.value, nil, regexp.Compile)
	case "Agent.Detect":
		return setValue(&agent.Detect, a.key, a.value, nil, programs)
	case "Agent.IdCommand":
		return setValue(&agent.IdCommand, a.key, a.value, nil, command)
	case "Agent.IdFile":
		return setValue(&agent.IdFile, a.key, a.value, nil, idPattern)
	case "Agent.IdFileContent":
		return setValue(&agent.IdFileContent, a.key, a.value, nil, regexp.Compile)
	case "Agent.IdPattern":
		return setValue(&agent.IdPattern, a.key, a.value, nil, idPattern)
	case "Agent.TypeAhead":
		return setValue(&agent.NoTypeAhead, a.key, a.value, false, negated)
	case "Agent.StopWhom":
		return setValue(&agent.StopTarget, a.key, a.value, StopAgent, stopWhom)
	case "Agent.TmuxConfig":
		return setValue(&agent.TmuxConfig, a.key, a.value, "", tmuxConfig)
	case "Agent.IdSource":
		return l.setIDSource(a)
	default:
		return l.setWhileRunning(a)
	}
	return nil
}

// setWhileRunning takes the keys about an agent that runs: how it is known to be there and idle,
// and how a person deals with it.
func (l *agentLoader) setWhileRunning(a assignment) error {
	agent := &l.agent
	switch a.section + "." + a.key {
	case "Agent.Type":
		return setValue(&agent.Type, a.key, a.value, TypeSimple, agentType)
	case "Agent.IdleAfterSec":
		return setValue(&agent.IdleAfter, a.key, a.value, 0, finiteSpan)
	case "Agent.IdleSuspendSec":
		return setValue(&agent.IdleSuspend, a.key, a.value, 0, idleSpan)
	case "Agent.Notify":
		return setValue(&agent.Notify, a.key, a.value, nil, ParseNotify)
	case "Agent.NotifyUrgency":
		return setValue(&agent.NotifyUrgency, a.key, a.value, nil, ParseUrgencies)
	case "Agent.ApproveKeys":
		return setValue(&agent.ApproveKeys, a.key, a.value, nil, keyNames)
	case "Agent.DenyKeys":
		return setValue(&agent.DenyKeys, a.key, a.value, nil, keyNames)
	}
	return l.setVariables(a)
}

func (l *agentLoader) setVariables(a assignment) error {
	switch a.section + "." + a.key {
	case "Environment.Set":
		return l.setEnvironment(a)
	case "Environment.Unset":
		return l.unsetEnvironment(a)
	case "Environment.EnvironmentFile":
		return l.addEnvironmentFile(a)
	case "Environment.LoginShell":
		return setValue(&l.agent.LoginShell, a.key, a.value, nil, yesOrNo)
	}
	return fmt.Errorf("unknown key %s= in section [%s]", a.key, a.section)
}

func agentType(s string) (string, error) {
	if s != TypeSimple && s != TypeNotify {
		return "", fmt.Errorf("invalid value %q: expected %s or %s", s, TypeSimple, TypeNotify)
	}
	return s, nil
}

// setIDSource keeps a word that is not known, too: whoever uses it decides what is still possible.
func (l *agentLoader) setIDSource(a assignment) error {
	l.agent.IdSource = a.value
	if a.value == "" {
		l.agent.IdSource = IdNone
	} else if !slices.Contains(idSources, a.value) {
		text := fmt.Sprintf("IdSource=: unknown value %q: expected %s", a.value, strings.Join(idSources, ", "))
		l.warnings = append(l.warnings, Warning{a.file, a.line, text})
	}
	return nil
}

func (l *agentLoader) setEnvironment(a assignment) error {
	entries, err := words(a)
	if err != nil {
		return err
	}
	if len(entries) == 0 {
		l.agent.Environment = nil
	}
	for _, entry := range entries {
		name, _, ok := strings.Cut(entry, "=")
		if !ok || !variablePattern.MatchString(name) {
			l.warnings = append(l.warnings, a.warn("Set=: invalid entry %q: expected NAME=VALUE", entry))
			continue
		}
		if err := checkSpecifiers(entry); err != nil {
			l.warnings = append(l.warnings, a.warn("Set=: %v", err))
			continue
		}
		l.agent.Environment = slices.DeleteFunc(l.agent.Environment, func(have string) bool { return strings.HasPrefix(have, name+"=") })
		l.agent.Environment = append(l.agent.Environment, entry)
	}
	return nil
}

func (l *agentLoader) unsetEnvironment(a assignment) error {
	names, err := words(a)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		l.agent.UnsetEnvironment = nil
	}
	for _, name := range names {
		if !variablePattern.MatchString(name) {
			l.warnings = append(l.warnings, a.warn("Unset=: invalid variable name %q", name))
		} else if !slices.Contains(l.agent.UnsetEnvironment, name) {
			l.agent.UnsetEnvironment = append(l.agent.UnsetEnvironment, name)
		}
	}
	return nil
}

func (l *agentLoader) addEnvironmentFile(a assignment) error {
	if a.value == "" {
		l.agent.EnvironmentFiles = nil
		return nil
	}
	path := strings.TrimPrefix(a.value, "-")
	if err := checkSpecifiers(path); err != nil {
		return fmt.Errorf("%s=: %w", a.key, err)
	}
	if !filepath.IsAbs(path) && !slices.ContainsFunc([]string{"%h", "%w", "%t"}, func(dir string) bool { return strings.HasPrefix(path, dir+"/") }) {
		return fmt.Errorf("%s=: invalid path %q: expected an absolute path", a.key, path)
	}
	l.agent.EnvironmentFiles = append(l.agent.EnvironmentFiles, a.value)
	return nil
}

func yesOrNo(s string) (*bool, error) {
	b, err := ParseBool(s)
	return &b, err
}

// variablePattern is what systemd takes for the name of an environment variable.
var variablePattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func words(a assignment) ([]string, error) {
	list, err := SplitWords(a.value)
	if err != nil {
		return nil, fmt.Errorf("%s=: %w", a.key, err)
	}
	return list, nil
}

// command reads an argument vector whose specifiers are all known.
func command(s string) ([]string, error) {
	args, err := SplitWords(s)
	if err != nil {
		return nil, err
	}
	if len(args) == 0 || args[0] == "" {
		return nil, fmt.Errorf("invalid command %q: expected a program", s)
	}
	for _, arg := range args {
		if err := checkSpecifiers(arg); err != nil {
			return nil, err
		}
	}
	return args, nil
}

// keyNames reads tmux's names of keys.
func keyNames(s string) ([]string, error) {
	names, err := SplitWords(s)
	if err == nil {
		_, err = keys.ParseAll(names)
	}
	return names, err
}

func negated(s string) (bool, error) {
	b, err := ParseBool(s)
	return !b, err
}
