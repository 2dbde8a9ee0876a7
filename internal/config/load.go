package config

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

const agentsDir, agentSuffix = "agents", ".agent"

// LoadAgents reads agents/*.agent and the drop-ins from the directories. Files and assignments that
// cannot be used are ignored and reported as warnings, each once. The result always contains
// CommandAgent.
//
// The definition of a template consists of the files of the agent of the same name, if there is
// one, and then of its own: claude.agent, claude@.agent. That of an instance adds those of the
// instance: claude@work.agent. The drop-ins of each file follow that file.
func LoadAgents(dirs []string) (Agents, []Warning) {
	l := &definitions{files: map[string]*definition{}, agents: Agents{}}
	stray := l.read(dirs)
	l.sandboxes, _ = LoadSandboxes(dirs) // Load returns its warnings
	for _, name := range slices.Sorted(maps.Keys(l.files)) {
		l.define(name)
	}
	l.warn(stray...)
	return l.agents, l.warnings
}

// definitions are the files of all agents, and the agents that they define.
type definitions struct {
	files    map[string]*definition // by the name of the agent, template or instance
	agents   Agents
	warnings []Warning

	sandboxes Sandboxes
}

// definition is what the own file and the drop-ins of one name contain.
type definition struct {
	file   configFile // the own file; its path is "" if there is none
	broken bool       // the own file cannot be read

	own, added []assignment // those of the file and of the drop-ins
	dropIns    []string     // paths
	warnings   []Warning
}

// read reads the files of all agents. It returns warnings about drop-ins that belong to none.
func (l *definitions) read(dirs []string) (stray []Warning) {
	files, warnings := findFiles(dirs, agentsDir, agentSuffix)
	l.files[CommandAgent] = &definition{}
	for _, f := range files {
		l.files[strings.TrimSuffix(f.name, agentSuffix)] = &definition{file: f}
	}
	l.warn(warnings...)
	stray = l.findDropIns(dirs)
	for name, d := range l.files {
		if !d.file.masked || name == CommandAgent {
			d.read(dirs, name)
		}
	}
	return stray
}

// findDropIns adds the instances of templates that have drop-ins, but no file. It returns warnings
// about drop-ins for other agents that have no file: their name is probably misspelt.
func (l *definitions) findDropIns(dirs []string) []Warning {
	var warnings []Warning
	for _, dir := range dirs {
		// findFiles has already reported directories that cannot be listed
		names, _ := readNames(filepath.Join(dir, agentsDir))
		for _, entry := range names {
			name, ok := strings.CutSuffix(entry, agentSuffix+".d")
			if _, known := l.files[name]; !ok || known {
				continue
			}
			template, _, isInstance := CutInstance(name)
			if _, known := l.files[template+"@"]; isInstance && known && ValidAgentName(name) {
				l.files[name] = &definition{}
				continue
			}
			path := filepath.Join(dir, agentsDir, entry)
			warnings = append(warnings, Warning{
				File: path, Text: fmt.Sprintf("drop-ins for agent %q without a file, ignored", name),
			})
		}
	}
	return warnings
}

// read reads the own file, unless it is masked, and the drop-ins.
func (d *definition) read(dirs []string, name string) {
	if !ValidAgentName(name) && !IsTemplate(name) {
		d.broken = true
		d.warnings = []Warning{{File: d.file.path, Text: fmt.Sprintf("invalid agent name %q, ignored", name)}}
		return
	}
	if d.file.path != "" && !d.file.masked {
		var err error
		if d.own, d.warnings, err = readUnitFile(d.file.path, agentSections...); err != nil {
			d.broken = true
			d.warnings = []Warning{{File: d.file.path, Text: err.Error()}}
			return
		}
	}
	var warned []Warning
	d.added, d.dropIns, warned = dropIns(dirs, AgentFile("", name), agentSections...)
	d.warnings = append(d.warnings, warned...)
}

// warn adds warnings that are not there yet: the files of an agent are applied to its instances,
// too.
func (l *definitions) warn(warnings ...Warning) {
	for _, w := range warnings {
		if !slices.Contains(l.warnings, w) {
			l.warnings = append(l.warnings, w)
		}
	}
}

// layers returns the names whose files define an agent, in the order in which they apply.
func layers(name string) []string {
	template, instance, isInstance := CutInstance(name)
	switch {
	case !isInstance:
		return []string{name}
	case instance == "":
		return []string{template, name}
	}
	return []string{template, template + "@", name}
}

// define adds the agent, template or instance of this name, if its files define one that can be
// used. The names before it, in the order of their bytes, are defined already: an agent comes
// before its template, and that before its instances.
func (l *definitions) define(name string) {
	d := l.files[name]
	l.warn(d.warnings...)
	if template, _, isInstance := CutInstance(name); isInstance && d.file.path == "" && !l.has(template+"@") {
		return // drop-ins alone, of a template that cannot be used
	}
	loader := newAgentLoader(name)
	for _, layer := range layers(name) {
		d, there := l.files[layer]
		switch hidden := there && (d.broken || d.file.masked) && layer != CommandAgent; {
		case hidden && (layer == name || !IsTemplate(layer)):
			l.exclude(name)
			return // an agent that is hidden has no instances
		case there && !hidden:
			loader.applyDefinition(d)
		}
	}
	if loader.needsCommand() {
		loader.warnings = append(loader.warnings, Warning{File: loader.agent.Source, Text: "agent has no Command=, ignored"})
		l.exclude(name)
	} else {
		loader.checkContradictions()
		loader.checkSandbox(l.sandboxes)
		l.agents[name] = loader.agent
	}
	if template, _, _ := CutInstance(name); l.has(name) && IsTemplate(name) && l.has(template) {
		agent := l.agents[template]
		agent.HasTemplate = true
		l.agents[template] = agent
	}
	l.warn(loader.warnings...)
}

// applyDefinition applies the assignments of a file and of its drop-ins.
func (l *agentLoader) applyDefinition(d *definition) {
	if d.file.path != "" && !d.file.masked && !d.broken {
		l.agent.Source = d.file.path
	}
	l.agent.DropIns = append(l.agent.DropIns, d.dropIns...)
	l.apply(d.own)
	l.apply(d.added)
}

func (l *definitions) has(name string) bool {
	_, ok := l.agents[name]
	return ok
}

// exclude prevents that an instance whose own file is masked or cannot be used is run as its
// template defines it.
func (l *definitions) exclude(name string) {
	template, instance, _ := CutInstance(name)
	if agent, ok := l.agents[template+"@"]; ok && instance != "" {
		agent.unusable = append(agent.unusable, instance)
		l.agents[template+"@"] = agent
	}
}
