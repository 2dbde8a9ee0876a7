package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// AgentFile returns the path of the agent's own file in a configuration directory.
func AgentFile(dir, name string) string { return filepath.Join(dir, "agents", name+".agent") }

// AgentFiles returns the paths of the files that define an agent, a template or an instance: its
// own file, if there is one, then its drop-ins, in the order in which they apply. Those of an
// instance follow those of its template, and these follow those of the agent that the template
// extends. Masked files are included. The result is empty for an unknown agent.
func AgentFiles(dirs []string, name string) ([]string, error) {
	var paths []string
	known := name == CommandAgent
	for _, layer := range layers(name) {
		own, isDefined, err := ownFiles(dirs, layer)
		if err != nil {
			return nil, err
		}
		paths = append(paths, own...)
		// The agent alone does not define its template and its instances.
		known = known || isDefined && (layer == name || IsTemplate(layer))
	}
	if !known {
		return nil, nil
	}
	return paths, nil
}

// ownFiles returns the paths of a file and its drop-ins. IsDefined is whether there is such a file.
func ownFiles(dirs []string, name string) (paths []string, isDefined bool, err error) {
	relative := AgentFile("", name)
	file, isDefined, err := findFile(dirs, relative)
	if err != nil {
		return nil, false, err
	}
	if isDefined {
		paths = append(paths, file.path)
	} else if _, instance, _ := CutInstance(name); instance == "" && name != CommandAgent {
		return nil, false, nil
	}
	more, warnings := findFiles(dirs, relative+".d", ".conf")
	if len(warnings) > 0 {
		return nil, false, errors.New(warnings[0].String())
	}
	for _, f := range more {
		paths = append(paths, f.path)
	}
	return paths, isDefined, nil
}

// AgentText is the text of an agent's own file or of a drop-in, to be checked before it is saved.
type AgentText struct {
	Name   string // of the agent
	Path   string // where the text will be saved; used in warnings
	DropIn bool
	Text   []byte
	Dirs   []string // directories of the agent's other files, with which a part of a definition is checked
}

// Check returns the warnings that LoadAgents would give for the text, and the agent that the text
// alone defines.
func (t AgentText) Check() (Agent, []Warning) {
	if len(t.Text) > maxFileSize {
		return Agent{}, []Warning{{File: t.Path, Text: fmt.Sprintf("file is larger than %d bytes", maxFileSize)}}
	}
	assignments, warnings := parseUnit(t.Path, t.Text, agentSections...)
	alone := newAgentLoader(t.Name)
	alone.apply(assignments)
	warnings = append(warnings, alone.warnings...)
	template, _, extends := CutInstance(t.Name)
	all := newAgentLoader(t.Name)
	if t.DropIn || extends {
		// If the other files cannot be read, LoadAgents reports that.
		files, _ := AgentFiles(t.Dirs, t.Name)
		if len(files) == 0 { // of the agent that a new template extends
			files, _ = AgentFiles(t.Dirs, template)
		}
		if len(files) == 0 && t.DropIn {
			return alone.agent, warnings
		}
		all.applyFiles(files, t.Path)
	}
	all.apply(assignments)
	all.warnings = nil
	all.checkContradictions()
	sandboxes, _ := LoadSandboxes(t.Dirs)
	all.checkSandbox(sandboxes)
	for _, w := range all.warnings {
		if w.File == t.Path {
			warnings = append(warnings, w)
		}
	}
	if !t.DropIn && all.needsCommand() {
		warnings = append(warnings, Warning{File: t.Path, Text: "agent has no Command="})
	}
	return alone.agent, warnings
}

// applyFiles applies the assignments of the files, except for one.
func (l *agentLoader) applyFiles(files []string, except string) {
	for _, file := range files {
		if file == except || IsMasked(file) {
			continue
		}
		if assignments, _, err := readUnitFile(file, agentSections...); err == nil {
			l.apply(assignments)
		}
	}
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
