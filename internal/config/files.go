package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// AgentFile returns the path of the agent's own file in a configuration directory.
func AgentFile(dir, name string) string { return filepath.Join(dir, "agents", name+".agent") }

// AgentFiles returns the paths of the files that define an agent: its own file, if there is one,
// then its drop-ins in the order in which they apply. Masked files are included. The result is
// empty for an unknown agent.
func AgentFiles(dirs []string, name string) ([]string, error) {
	relative := AgentFile("", name)
	file, ok, err := findFile(dirs, relative)
	if err != nil {
		return nil, err
	}
	var paths []string
	if ok {
		paths = append(paths, file.path)
	} else if name != CommandAgent {
		return nil, nil
	}
	more, warnings := findFiles(dirs, relative+".d", ".conf")
	if len(warnings) > 0 {
		return nil, errors.New(warnings[0].String())
	}
	for _, f := range more {
		paths = append(paths, f.path)
	}
	return paths, nil
}

// AgentText is the text of an agent's own file or of a drop-in, to be checked before it is saved.
type AgentText struct {
	Name   string // of the agent
	Path   string // where the text will be saved; used in warnings
	DropIn bool
	Text   []byte
	Dirs   []string // directories of the agent's other files, with which a drop-in is checked
}

// Check returns the warnings that LoadAgents would give for the text, and the agent that the text
// alone defines.
func (t AgentText) Check() (Agent, []Warning) {
	if len(t.Text) > maxFileSize {
		return Agent{}, []Warning{{File: t.Path, Text: fmt.Sprintf("file is larger than %d bytes", maxFileSize)}}
	}
	assignments, warnings := parseUnit(t.Path, t.Text, agentSections...)
	l := newAgentLoader(t.Name)
	l.apply(assignments)
	if !t.DropIn {
		l.checkContradictions()
	}
	warnings = append(warnings, l.warnings...)
	if t.DropIn {
		warnings = append(warnings, t.checkContradictions(assignments)...)
	}
	if !t.DropIn && len(l.agent.Command) == 0 && t.Name != CommandAgent {
		warnings = append(warnings, Warning{File: t.Path, Text: "agent has no Command="})
	}
	return l.agent, warnings
}

// checkContradictions warns about keys in a drop-in that contradict the agent's other files.
func (t AgentText) checkContradictions(assignments []assignment) []Warning {
	files, err := AgentFiles(t.Dirs, t.Name)
	if err != nil || len(files) == 0 {
		return nil // LoadAgents reports these cases
	}
	l := newAgentLoader(t.Name)
	for _, file := range files {
		if file == t.Path || IsMasked(file) {
			continue
		}
		if more, _, err := readUnitFile(file, agentSections...); err == nil {
			l.apply(more)
		}
	}
	l.apply(assignments)
	l.warnings = nil
	l.checkContradictions()
	return slices.DeleteFunc(l.warnings, func(w Warning) bool { return w.File != t.Path })
}

// IsMasked reports whether the file only hides others of its name: it is empty or a link to
// /dev/null.
func IsMasked(path string) bool {
	masked, err := isMask(path)
	return err == nil && masked
}

// Remove deletes a configuration file, and its directory if that becomes empty. A missing file is
// not an error.
func Remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot remove configuration: %w", err)
	}
	_ = os.Remove(filepath.Dir(path))
	return nil
}
