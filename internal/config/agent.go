package config

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/corrald/corral/internal/environment"
	"github.com/corrald/corral/internal/keys"
)

// CommandAgent is the built-in agent without a command of its own: whoever starts it supplies the
// command.
const CommandAgent = "command"

// The values of IdSource=: the source of an agent's conversation id.
//
//nolint:revive // named after the key
const (
	IdNone        = "none"         // the agent has no id, or Corral cannot know it
	IdPreset      = "preset"       // corrald generates a UUID and passes it to Command as %U
	IdCreate      = "create"       // IdCommand= creates one
	IdReport      = "report"       // the agent chooses one and reports it while it runs
	IdHistoryFile = "history-file" // the agent's history file is named after an id that corrald generates
)

// The values of StopWhom=: which processes get the first SIGTERM of a stop.
const (
	StopAgent = "agent" // the agent's main process, which ends its children itself
	StopAll   = "all"   // every process of the session at once
)

// The values of Type=: when a started agent counts as ready.
const (
	TypeSimple = "simple" // once the program was executed
	TypeNotify = "notify" // once the agent sends READY=1
)

var idSources = []string{IdNone, IdPreset, IdCreate, IdReport, IdHistoryFile}

// agentSections are the sections of an agent file.
var agentSections = []string{"Agent", "Environment", "Sandbox", "Status", "Scope"}

// Agent is the definition of an agent: agents/NAME.agent with its drop-ins. Command, ResumeCommand,
// ForkCommand, IdCommand, Environment, EnvironmentFiles, Directories and the defaults contain
// specifiers, which Expand replaces; those in ResumeCondition are replaced by ExpandPatterns. All
// specifiers were checked while loading.
type Agent struct {
	Name        string
	Description string
	// Detect=: names or paths of programs; any of them shows that the agent is installed. nil for
	// the program of Command.
	Detect        []string
	Command       []string // Command=: argument vector of a fresh run; empty only for CommandAgent
	ResumeCommand []string // ResumeCommand=: continues a conversation; empty if the agent cannot do that
	ForkCommand   []string // ForkCommand=: begins a copy of a conversation; empty if the agent cannot do that
	// ForkElsewhere=no: ForkCommand= cannot be used in another workspace than that of the
	// conversation.
	NoForkElsewhere bool
	// ResumeCondition=: file name patterns; a conversation exists if any of them matches a file. nil
	// if that cannot be determined.
	ResumeCondition    []string
	ResumeContent      *regexp.Regexp // ResumeContent=: has to match in the first such file, too; nil for any content
	Environment        []string       // [Environment] Set=: NAME=VALUE, each name at most once
	DefaultEnvironment []string       // [Environment] Default=: NAME=VALUE, for names that nothing else sets
	UnsetEnvironment   []string       // [Environment] Unset=: names not to inherit; Set= overrides this
	EnvironmentFiles   []string       // [Environment] EnvironmentFile=: absolute paths; prefix - for optional files
	Directories        []string       // [Environment] CreateDirectory=: absolute paths; created before each run
	LoginShell         *bool          // [Environment] LoginShell=, as in Config; nil for the value there
	IdSource           string         //nolint:revive // named after the key; one of the Id constants, or an unknown value
	IdCommand          []string       //nolint:revive // named after the key; creates and prints an id, for IdCreate
	// IdFile=: matches the path of a file that the agent keeps open; its first group is the id. nil
	// for none.
	IdFile *regexp.Regexp //nolint:revive // named after the key
	// IdFileContent=: has to match in that file. Of several matching files, the one written last
	// applies. nil for any content.
	IdFileContent *regexp.Regexp //nolint:revive // named after the key
	// LimitRecord=: matches the end of that file if a usage limit has ended the last turn. Its groups
	// message and until have the text, in JSON, and the time of the reset, in seconds since 1970. nil
	// for none.
	LimitRecord *regexp.Regexp
	// IdPattern=: matches what the agent prints when it exits; its first group is the id. nil for
	// none.
	IdPattern *regexp.Regexp //nolint:revive // named after the key
	// StopWhom=: StopAgent, or StopAll for an agent that reacts only to signals to all its processes.
	StopTarget    string
	NoTypeAhead   bool          // TypeAhead=no: input is lost until the agent is ready for it
	Type          string        // Type=: TypeSimple, or TypeNotify for an agent that uses sd_notify(3)
	IdleAfter     time.Duration // IdleAfterSec=, as in Config; 0 for the value there
	IdleSuspend   time.Duration // IdleSuspendSec=, as in Config; 0 for the value there
	MaxRunning    int           // MaxRunning=: of this agent's sessions, in addition to that in Config; 0 for any number
	Notify        []string      // Notify=, as in Config; nil for the value there
	NotifyUrgency Urgencies     // NotifyUrgency=, as in Config; other kinds have the value there
	TmuxConfig    string        // TmuxConfig=, as in Config; "" for the value there
	ApproveKeys   []string      // ApproveKeys=: tmux names of the keys that grant a permission; nil if unknown
	DenyKeys      []string      // DenyKeys=: of the keys that deny it
	ClearKeys     []string      // ClearKeys=: of the keys that delete a row of the input line; nil for none
	OnLimit       string        // OnLimit=, as in Config; "" for the value there
	ContinueText  string        // ContinueText=, as in Config; "" for the value there
	LimitKeys     []string      // LimitKeys=: of the keys that close its dialog about a usage limit; nil for none
	// AgentsMayControl=, as in Config, of this agent's sessions; "" for the value there.
	AgentsMayControl string
	// AutoContinue=: the agent continues by itself once a usage limit has reset, if it is still alive.
	AutoContinue bool
	// Sandbox=: the sandbox profile in which the agent runs unless a client chooses another; "" or
	// NoSandbox for none.
	Sandbox string
	// [Sandbox] Writable=, ReadOnly=: file name patterns for ExpandPatterns: the state of the agent
	// that it can change in a sandbox, and what of that it cannot.
	SandboxWritable, SandboxReadOnly []string
	// [Sandbox] Default=: NAME=VALUE, for names that nothing else sets, in a sandbox alone.
	SandboxDefaults []string

	Status     Status   // [Status]
	Properties []string // [Scope]: unit properties NAME=VALUE, as written and in order
	Source     string   // path of the agent's own file, else of its template's, "" if there is none
	DropIns    []string // paths in the order in which they were applied

	HasTemplate bool // whether there is a template of this name, so that NAME@INSTANCE can be run
	// unusable has the instances of a template that are masked, or whose own files cannot be used.
	unusable []string
}

// namePattern describes agent names and session ids, which become part of unit names without
// escaping.
var namePattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9_])?$`)

// ValidName reports whether s can be the name of an agent or the id of a session: at most 64 bytes,
// a lower-case letter or digit first, then also ".", "_" and "-", but neither "." nor "-" at the
// end.
func ValidName(s string) bool { return namePattern.MatchString(s) }

// agentLoader builds one agent from the assignments in its files.
type agentLoader struct {
	agent    Agent
	parsers  parsers
	last     map[string]assignment // by key: the last assignment in section [Agent]
	warnings []Warning
}

func newAgentLoader(name string) *agentLoader {
	l := &agentLoader{
		agent: Agent{
			Name: name, IdSource: IdNone, Type: TypeSimple, StopTarget: StopAgent,
			Status: Status{ReadyTimeout: defaultReadyTimeout},
		},
		last: map[string]assignment{},
	}
	l.parsers = l.newParsers()
	return l
}

// needsCommand reports whether the agent cannot be used, because it has no command and nobody
// supplies one.
func (l *agentLoader) needsCommand() bool {
	template, _, _ := CutInstance(l.agent.Name)
	return len(l.agent.Command) == 0 && template != CommandAgent
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
		err := l.checkAvailable(a)
		if err == nil {
			err = l.parsers.set(a.section+"."+a.key, a)
		}
		if err != nil {
			l.warnings = append(l.warnings, a.warn("%v", err))
		}
	}
}

// checkAvailable returns an error if the assignment uses %I, which only instances have, or %F,
// which only ForkCommand= has.
func (l *agentLoader) checkAvailable(a assignment) error {
	expanded := []string{"Command", "ResumeCommand", "ForkCommand", "ResumeCondition", "IdCommand", "Set",
		"EnvironmentFile", "CreateDirectory", "Writable", "ReadOnly"}
	if !slices.Contains(expanded, a.key) {
		return nil
	}
	if a.key != "ForkCommand" && usesSpecifier(a.value, 'F') {
		return fmt.Errorf("%s=: %%F has a value only in ForkCommand=", a.key)
	}
	if _, _, isInstance := CutInstance(l.agent.Name); !isInstance && UsesInstance(a.value) {
		return fmt.Errorf("%s=: %%I has a value only in the files of a template, such as %s@.agent", a.key, l.agent.Name)
	}
	return nil
}

// setProperty stores a unit property as written; systemd checks it. A property may be a list, so a
// name may occur more than once; an empty value removes the earlier entries of that name.
func (agent *Agent) setProperty(name, value string) {
	if value == "" {
		agent.Properties = slices.DeleteFunc(agent.Properties, func(p string) bool { return strings.HasPrefix(p, name+"=") })
		return
	}
	agent.Properties = append(agent.Properties, name+"="+value)
}

// newParsers returns the functions that parse the values of the keys, by "Section.Key", and store
// them in the agent.
func (l *agentLoader) newParsers() parsers {
	agent, status := &l.agent, &l.agent.Status
	all := parsers{
		"Agent.Description":     parser(&agent.Description, "", anyText),
		"Agent.Command":         parser(&agent.Command, nil, command),
		"Agent.ResumeCommand":   parser(&agent.ResumeCommand, nil, command),
		"Agent.ForkCommand":     parser(&agent.ForkCommand, nil, command),
		"Agent.ForkElsewhere":   parser(&agent.NoForkElsewhere, false, negated),
		"Agent.ResumeCondition": l.list(&agent.ResumeCondition, checkPattern, addNew),
		"Agent.ResumeContent":   parser(&agent.ResumeContent, nil, regexp.Compile),
		"Agent.Detect":          parser(&agent.Detect, nil, programs),
		"Agent.IdSource":        l.setIDSource,
		"Agent.IdCommand":       parser(&agent.IdCommand, nil, command),
		"Agent.IdFile":          parser(&agent.IdFile, nil, idPattern),
		"Agent.IdFileContent":   parser(&agent.IdFileContent, nil, regexp.Compile),
		"Agent.LimitRecord":     parser(&agent.LimitRecord, nil, limitRecord),
		"Agent.IdPattern":       parser(&agent.IdPattern, nil, idPattern),
		"Agent.StopWhom":        parser(&agent.StopTarget, StopAgent, either(StopAgent, StopAll)),
		"Agent.TypeAhead":       parser(&agent.NoTypeAhead, false, negated),
		"Agent.Type":            parser(&agent.Type, TypeSimple, either(TypeSimple, TypeNotify)),
		"Agent.IdleAfterSec":    parser(&agent.IdleAfter, 0, finiteSpan),
		"Agent.IdleSuspendSec":  parser(&agent.IdleSuspend, 0, idleSpan),
		"Agent.MaxRunning":      parser(&agent.MaxRunning, 0, count),
		"Agent.Notify":          parser(&agent.Notify, nil, ParseNotify),
		"Agent.NotifyUrgency":   parser(&agent.NotifyUrgency, nil, ParseUrgencies),
		"Agent.TmuxConfig":      parser(&agent.TmuxConfig, "", tmuxConfig),
		"Agent.ApproveKeys":     parser(&agent.ApproveKeys, nil, keyNames),
		"Agent.DenyKeys":        parser(&agent.DenyKeys, nil, keyNames),
		"Agent.ClearKeys":       parser(&agent.ClearKeys, nil, keyNames),
		"Agent.OnLimit":         parser(&agent.OnLimit, "", ParseOnLimit),
		"Agent.ContinueText":    parser(&agent.ContinueText, "", prompt),
		"Agent.LimitKeys":       parser(&agent.LimitKeys, nil, keyNames),
		"Agent.AutoContinue":    parser(&agent.AutoContinue, false, ParseBool),
		"Agent.Sandbox":         parser(&agent.Sandbox, "", sandboxProfile),

		"Agent.AgentsMayControl": parser(&agent.AgentsMayControl, "", control),

		"Sandbox.Writable": l.list(&agent.SandboxWritable, checkAbsolute, addNew),
		"Sandbox.ReadOnly": l.list(&agent.SandboxReadOnly, checkAbsolute, addNew),
		"Sandbox.Default":  l.list(&agent.SandboxDefaults, checkVariable, replaceVariable),

		"Environment.Set":             l.list(&agent.Environment, checkVariable, replaceVariable),
		"Environment.Default":         l.list(&agent.DefaultEnvironment, checkVariable, replaceVariable),
		"Environment.Unset":           l.list(&agent.UnsetEnvironment, checkName, addNew),
		"Environment.EnvironmentFile": l.addEnvironmentFile,
		"Environment.CreateDirectory": l.list(&agent.Directories, checkPath, addNew),
		"Environment.LoginShell":      parser(&agent.LoginShell, nil, yesOrNo),

		"Status.Sources":           l.setSources,
		"Status.TitleReady":        parser(&status.TitleReady, "", pattern),
		"Status.TitleWorking":      parser(&status.TitleWorking, "", pattern),
		"Status.TitleBlocked":      parser(&status.TitleBlocked, "", pattern),
		"Status.SetupPattern":      parser(&status.SetupPattern, "", pattern),
		"Status.LimitPattern":      parser(&status.LimitPattern, "", pattern),
		"Status.IdlePattern":       parser(&status.IdlePattern, "", pattern),
		"Status.WorkingPattern":    parser(&status.WorkingPattern, "", pattern),
		"Status.RetryPattern":      parser(&status.RetryPattern, "", pattern),
		"Status.BackgroundPattern": parser(&status.BackgroundPattern, "", pattern),
		"Status.ReadyTimeoutSec":   parser(&status.ReadyTimeout, defaultReadyTimeout, finiteSpan),
	}
	if template, _, _ := CutInstance(agent.Name); template == CommandAgent {
		all["Agent.Command"] = func(assignment) error {
			return fmt.Errorf("agent %q takes its command from whoever starts it: Command=", CommandAgent)
		}
	}
	return all
}

// anyText accepts every value and returns it unchanged.
func anyText(s string) (string, error) { return s, nil }

// setIDSource stores an unknown value, too: the code that uses it decides what is still possible.
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

// list returns a function that adds the words of a value to a list. It ignores a word, with a
// warning, if check returns an error. An empty value empties the list.
func (l *agentLoader) list(
	to *[]string, check func(word string) error, add func(list []string, word string) []string,
) func(assignment) error {
	return func(a assignment) error {
		words, err := SplitWords(a.value)
		if err != nil {
			return fmt.Errorf("%s=: %w", a.key, err)
		}
		if len(words) == 0 {
			*to = nil
		}
		for _, word := range words {
			if err := check(word); err != nil {
				l.warnings = append(l.warnings, a.warn("%s=: %v", a.key, err))
				continue
			}
			*to = add(*to, word)
		}
		return nil
	}
}

// checkVariable and replaceVariable are for a list of NAME=VALUE with each name at most once.
func checkVariable(entry string) error {
	name, _, ok := strings.Cut(entry, "=")
	if !ok || !environment.ValidName(name) {
		return fmt.Errorf("invalid entry %q: expected NAME=VALUE", entry)
	}
	return checkSpecifiers(entry)
}

func replaceVariable(list []string, entry string) []string {
	name, _, _ := strings.Cut(entry, "=")
	list = slices.DeleteFunc(list, func(have string) bool { return strings.HasPrefix(have, name+"=") })
	return append(list, entry)
}

func checkName(name string) error {
	if !environment.ValidName(name) {
		return fmt.Errorf("invalid variable name %q", name)
	}
	return nil
}

// addNew adds a word to a list that does not contain it yet.
func addNew(list []string, word string) []string {
	if slices.Contains(list, word) {
		return list
	}
	return append(list, word)
}

func (l *agentLoader) addEnvironmentFile(a assignment) error {
	if a.value == "" {
		l.agent.EnvironmentFiles = nil
		return nil
	}
	if err := checkPath(strings.TrimPrefix(a.value, "-")); err != nil {
		return fmt.Errorf("%s=: %w", a.key, err)
	}
	l.agent.EnvironmentFiles = append(l.agent.EnvironmentFiles, a.value)
	return nil
}

// checkPath returns an error if the path is not absolute once its specifiers are replaced.
func checkPath(path string) error {
	if err := checkSpecifiers(path); err != nil {
		return err
	}
	if !filepath.IsAbs(path) && !slices.ContainsFunc([]string{"%h", "%w", "%t", "%E"}, func(dir string) bool {
		return strings.HasPrefix(path, dir+"/")
	}) {
		return fmt.Errorf("invalid path %q: expected an absolute path", path)
	}
	return nil
}

func yesOrNo(s string) (*bool, error) {
	b, err := ParseBool(s)
	return &b, err
}

// command parses an argument vector and checks its specifiers.
func command(s string) ([]string, error) {
	args, err := SplitCommand(s)
	if err != nil {
		return nil, err
	}
	for _, arg := range args {
		if err := checkSpecifiers(arg); err != nil {
			return nil, err
		}
	}
	return args, nil
}

// keyNames parses a list of tmux key names.
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
