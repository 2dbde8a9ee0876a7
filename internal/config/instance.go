package config

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Agents are the agent definitions by name. The name of a template, "claude@", ends in "@"; its
// instances are found without having an entry. The values may be read by several goroutines.
type Agents map[string]Agent

// ValidAgentName reports whether s can be the name of an agent that runs: NAME or
// TEMPLATE@INSTANCE, whose parts are names by ValidName. It returns false for the name of a
// template.
func ValidAgentName(s string) bool {
	template, instance, isInstance := CutInstance(s)
	return ValidName(template) && (!isInstance || ValidName(instance))
}

// CutInstance splits the name of an agent, TEMPLATE@INSTANCE, at the first "@". Without one, ok is
// false and template is the name. The instance of a template's own name is "".
func CutInstance(name string) (template, instance string, ok bool) { return strings.Cut(name, "@") }

// IsTemplate reports whether the name of a definition is that of a template, whose instances can be
// run.
func IsTemplate(name string) bool {
	template, instance, ok := CutInstance(name)
	return ok && instance == "" && ValidName(template)
}

// Find returns the definition of an agent: its own, or that of its template as the instance of this
// name. It returns false if there is neither, for a masked instance, and for a template, which
// cannot be run.
func (a Agents) Find(name string) (Agent, bool) {
	template, instance, isInstance := CutInstance(name)
	agent, ok := a[name]
	if !isInstance || ok && instance != "" {
		return agent, ok
	}
	agent, ok = a[template+"@"]
	if !ok || !ValidName(instance) || slices.Contains(agent.unusable, instance) {
		return Agent{}, false
	}
	agent.Name = name
	return agent, true
}

// Known returns the names of all agents that can be run, sorted, and of the instances only those
// that a user has set up: with a file or drop-ins of their own, or with an environment file. It
// reads the directories of these files.
func (a Agents) Known(values Specifiers) []string {
	names := map[string]bool{}
	for name, agent := range a {
		if !IsTemplate(name) {
			names[name] = true
			continue
		}
		for _, file := range agent.accountFiles(values) {
			if _, ok := a.Find(name + file.Account); ok {
				names[name+file.Account] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// AccountFile is the environment file of an account, to which an EnvironmentFile= with %I in its
// name refers.
type AccountFile struct {
	Path    string
	Account string // the text in place of %I, which may not be a valid name
}

// AccountFiles returns the existing environment files of accounts, sorted by path. It reads their
// directories.
func (a Agents) AccountFiles(values Specifiers) []AccountFile {
	byPath := map[string]AccountFile{}
	for name, agent := range a {
		if !IsTemplate(name) {
			continue
		}
		for _, file := range agent.accountFiles(values) {
			byPath[file.Path] = file
		}
	}
	files := make([]AccountFile, 0, len(byPath))
	for _, path := range slices.Sorted(maps.Keys(byPath)) {
		files = append(files, byPath[path])
	}
	return files
}

// accountFiles returns the existing environment files of the instances of a template.
func (agent *Agent) accountFiles(values Specifiers) []AccountFile {
	const marker = "\x00" // no path contains it
	values.Instance = marker
	var files []AccountFile
	for _, file := range agent.EnvironmentFiles {
		expanded, err := Expand([]string{strings.TrimPrefix(file, "-")}, values)
		if err != nil {
			continue // it depends on the session
		}
		dir, name := filepath.Split(expanded[0])
		before, after, ok := strings.Cut(name, marker)
		if !ok || strings.Contains(dir+after, marker) {
			continue
		}
		entries, _ := os.ReadDir(dir) // a directory that cannot be read has no file that a start could read
		for _, entry := range entries {
			rest, hasPrefix := strings.CutPrefix(entry.Name(), before)
			account, hasSuffix := strings.CutSuffix(rest, after)
			if hasPrefix && hasSuffix {
				files = append(files, AccountFile{Path: filepath.Join(dir, entry.Name()), Account: account})
			}
		}
	}
	return files
}
