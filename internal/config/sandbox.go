package config

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

const sandboxesDir, sandboxSuffix = "sandboxes", ".sandbox"

// NoSandbox stands for no sandbox, where a profile is named: no profile can have this name.
const NoSandbox = "none"

// The values of Network=: what the agent reaches of the network.
const (
	NetworkOpen = "open" // what every program of the user reaches
	NetworkNone = "none" // a loopback interface of its own
)

// Sandbox is a sandbox profile: sandboxes/NAME.sandbox with its drop-ins. Hide, ReadOnly, Writable
// and Private are file name patterns as in ResumeCondition=, for ExpandPatterns; Wrapper contains
// specifiers, which Expand replaces. All were checked while loading.
type Sandbox struct {
	Name        string
	Description string
	Network     string   // Network=: NetworkOpen or NetworkNone
	Hide        []string // Hide=: what the agent cannot see
	ReadOnly    []string // ReadOnly=: what it cannot change, below what it can
	Writable    []string // Writable=: what it can change, in addition to the workspace
	Private     []string // Private=: directories in whose place it has others, which it can change
	Unset       []string // Unset=: names of variables that it does not get, patterns of path.Match
	// Wrapper=: the command of another tool, which runs the command that follows as its arguments; nil
	// for bubblewrap.
	Wrapper []string
	Source  string   // path of the profile's own file
	DropIns []string // paths in the order in which they were applied
}

// Sandboxes are the sandbox profiles by name.
type Sandboxes map[string]Sandbox

// Names returns the names of the profiles, sorted.
func (s Sandboxes) Names() []string { return slices.Sorted(maps.Keys(s)) }

// Missing describes that there is no profile of this name, or that it cannot be used.
func (s Sandboxes) Missing(name string) string {
	usable := strings.Join(s.Names(), ", ")
	if usable == "" {
		usable = "none"
	}
	return fmt.Sprintf("no usable sandbox profile %.80q; usable are: %s", name, usable)
}

// LoadSandboxes reads sandboxes/*.sandbox and the drop-ins from the directories. A file that cannot
// be used defines no profile, so that nothing runs with less protection than the user wrote down;
// the same applies to a profile with an invalid line. Each is reported as a warning.
func LoadSandboxes(dirs []string) (Sandboxes, []Warning) {
	var all Sandboxes
	files, warnings := findFiles(dirs, sandboxesDir, sandboxSuffix)
	for _, f := range files {
		if f.masked {
			continue
		}
		s, warned := loadSandbox(dirs, f)
		if len(warned) > 0 {
			warnings = append(warnings, warned...)
			warnings = append(warnings, Warning{File: f.path, Text: "the sandbox profile cannot be used: " +
				"a line that is ignored could be one that protects something"})
			continue
		}
		if all == nil {
			all = Sandboxes{}
		}
		all[s.Name] = s
	}
	return all, warnings
}

// loadSandbox reads a profile and its drop-ins.
func loadSandbox(dirs []string, f configFile) (Sandbox, []Warning) {
	const section = "Sandbox"
	s := Sandbox{Name: strings.TrimSuffix(f.name, sandboxSuffix), Network: NetworkOpen, Source: f.path}
	if !ValidName(s.Name) || s.Name == NoSandbox {
		return s, []Warning{{File: f.path, Text: fmt.Sprintf("invalid name %q of a sandbox profile", s.Name)}}
	}
	assignments, warnings, err := readUnitFile(f.path, section)
	if err != nil {
		return s, []Warning{{File: f.path, Text: err.Error()}}
	}
	more, paths, warned := dropIns(dirs, sandboxesDir+"/"+f.name, section)
	s.DropIns, warnings = paths, append(warnings, warned...)
	keys := s.parsers()
	used := map[string]assignment{}
	for _, a := range append(assignments, more...) {
		if err := keys.set(a.key, a); err != nil {
			warnings = append(warnings, a.warn("%v", err))
		}
		used[a.key] = a
	}
	for _, key := range []string{"Network", "Hide", "ReadOnly", "Writable", "Private"} {
		if a, is := used[key]; is && a.value != "" && len(s.Wrapper) > 0 {
			warnings = append(warnings, a.warn("%s= has no effect with Wrapper=", key))
		}
	}
	return s, warnings
}

// parsers returns the functions that parse the values of the keys and store them in s.
func (s *Sandbox) parsers() parsers {
	return parsers{
		"Description": parser(&s.Description, "", anyText),
		"Network":     parser(&s.Network, NetworkOpen, either(NetworkOpen, NetworkNone)),
		"Hide":        patternList(&s.Hide, checkAbsolute),
		"ReadOnly":    patternList(&s.ReadOnly, checkAbsolute),
		"Writable":    patternList(&s.Writable, checkAbsolute),
		"Private":     patternList(&s.Private, checkAbsolute),
		"Unset":       patternList(&s.Unset, checkNamePattern),
		"Wrapper":     parser(&s.Wrapper, nil, command),
	}
}

// patternList returns a function that adds the words of a value to a list. An empty value empties
// the list.
func patternList(to *[]string, check func(string) error) func(assignment) error {
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
				return fmt.Errorf("%s=: %w", a.key, err)
			}
			*to = addNew(*to, word)
		}
		return nil
	}
}

// checkAbsolute returns an error if the word is not a pattern of absolute paths: ExpandPatterns
// would leave it out.
func checkAbsolute(word string) error {
	if err := checkPattern(word); err != nil {
		return err
	}
	if strings.HasPrefix(word, "${") {
		return nil
	}
	return checkPath(word)
}

// checkNamePattern returns an error if the word is not a pattern for names of variables.
func checkNamePattern(word string) error {
	if _, err := path.Match(word, ""); err != nil || strings.ContainsAny(word, "=/") {
		return fmt.Errorf("invalid pattern %q for names of variables", word)
	}
	return nil
}

// sandboxProfile parses the name of a profile. Whether there is such a profile is checked when it
// is used, and by checkSandbox.
func sandboxProfile(s string) (string, error) {
	if !ValidName(s) {
		return "", fmt.Errorf("invalid name %q of a sandbox profile", s)
	}
	return s, nil
}

// checkSandbox warns about a sandbox profile that does not exist.
func (l *agentLoader) checkSandbox(known Sandboxes) {
	name := l.agent.Sandbox
	if _, exists := known[name]; name != "" && name != NoSandbox && !exists {
		a := l.last["Sandbox"]
		l.warnings = append(l.warnings, Warning{a.file, a.line, "Sandbox=: " + known.Missing(name)})
	}
}
