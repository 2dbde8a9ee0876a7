package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// AgentFile gives the path that the agent's own file has, or would have, in one of the directories.
func AgentFile(dir, name string) string { return filepath.Join(dir, "agents", name+".agent") }

// AgentFiles gives the paths of what defines an agent: its own file (in front, if there is one),
// then its drop-ins in the order in which they are applied. One that is masked is among them. None
// for an agent that nobody defines.
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

// AgentText is the text of an agent's own file, or of a drop-in, that is to be checked before it is
// put in its place.
type AgentText struct {
	Name   string // of the agent
	Path   string // where it will be, for the warnings
	DropIn bool
	Text   []byte
	Dirs   []string // where the agent's other files are looked for, which have to go with a drop-in
}

// Check returns what LoadAgents would warn of in the text, and the agent that it makes alone.
func (t AgentText) Check() (Agent, []Warning) {
	if len(t.Text) > maxFileSize {
		return Agent{}, []Warning{{File: t.Path, Text: fmt.Sprintf("file is larger than %d bytes", maxFileSize)}}
	}
	assignments, warnings := parseUnit(t.Path, t.Text, agentSections...)
	l := newAgentLoader(t.Name)
	l.apply(assignments)
	if !t.DropIn {
		l.contradictions()
	}
	warnings = append(warnings, l.warnings...)
	if t.DropIn {
		warnings = append(warnings, t.contradictions(assignments)...)
	}
	if !t.DropIn && len(l.agent.Command) == 0 && t.Name != CommandAgent {
		warnings = append(warnings, Warning{File: t.Path, Text: "agent has no Command="})
	}
	return l.agent, warnings
}

// contradictions tells of what in a drop-in does not go with the agent's other files.
func (t AgentText) contradictions(assignments []assignment) []Warning {
	files, err := AgentFiles(t.Dirs, t.Name)
	if err != nil || len(files) == 0 {
		return nil // that is told by others
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
	l.contradictions()
	return slices.DeleteFunc(l.warnings, func(w Warning) bool { return w.File != t.Path })
}

// IsMasked tells whether the file is there to hide others of its name: it is empty, or a link to
// /dev/null.
func IsMasked(path string) bool {
	masked, err := isMask(path)
	return err == nil && masked
}

// Remove deletes a file of configuration, and its directory if that is empty then. That there is
// none is no error.
func Remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot remove configuration: %w", err)
	}
	_ = os.Remove(filepath.Dir(path))
	return nil
}
