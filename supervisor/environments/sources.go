// Package environments composes the environment of a run from its sources: the user manager, the
// login shell, the agent's definition, the caller and the session. It records which variable comes
// from which source. Package environment contains the rules by which a variable of one source
// overrides that of another, or is not inherited.
package environments

import (
	"slices"
	"strings"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/environment"
)

// Sources contains the sources of a run's environment, except for the user manager, the login shell
// and Corral's own variables, which Composer adds.
type Sources struct {
	LoginShell bool                     // whether to run the login shell if the caller has no PATH of its own
	Default    []string                 // Default= of the agent's definition, NAME=VALUE
	Definition []string                 // Set= of the agent's definition, NAME=VALUE
	Files      []environment.SourceFile // EnvironmentFile= of the definition
	Unset      []string                 // Unset= of the definition: names that are not inherited
	Caller     []string                 // environment of the client that has requested the run; it is not stored
	Session    []string                 // the session's own variables

	Corral      []string // Corral's own variables besides those of every run; they are not inherited from elsewhere
	Directories []string // CreateDirectory= of the definition: paths
	// Account is whether the agent is an instance of a template: what its definition and its files set
	// is not inherited from elsewhere, which would be that of another account.
	Account bool
}

// Unexpanded is an entry of an agent's definition that is not in the sources, because one of its
// specifiers has no value.
type Unexpanded struct {
	Name string // of the variable; of an environment file, its path in the definition
	Err  error

	isFile bool
}

// NewSources returns the sources of a run of the agent, with the environment of the caller and the
// variables own of the session. LoginShell is LoginShell= of corral.conf, which the definition
// overrides. The entries that cannot be expanded are returned in the order of the definition.
func NewSources(
	def config.Agent, loginShell bool, values config.Specifiers, caller, own []string,
) (Sources, []Unexpanded) {
	if def.LoginShell != nil {
		loginShell = *def.LoginShell
	}
	s := Sources{
		LoginShell: loginShell, Unset: slices.Clone(def.UnsetEnvironment), Caller: caller, Session: slices.Clone(own),
	}
	var unexpanded []Unexpanded
	expand := func(entries []string, isFile bool, use func(entry, expanded string)) {
		for _, entry := range entries {
			expanded, err := config.Expand([]string{entry}, values)
			if err != nil {
				name, _, _ := strings.Cut(entry, "=")
				unexpanded = append(unexpanded, Unexpanded{Name: name, Err: err, isFile: isFile})
				continue
			}
			use(entry, expanded[0])
		}
	}
	expand(def.DefaultEnvironment, false, func(_, variable string) { s.Default = append(s.Default, variable) })
	expand(def.Environment, false, func(_, variable string) { s.Definition = append(s.Definition, variable) })
	expand(def.EnvironmentFiles, true, func(entry, path string) {
		path, optional := strings.CutPrefix(path, "-")
		s.Files = append(s.Files, environment.SourceFile{
			Path: path, Optional: optional, Private: config.UsesInstance(entry),
		})
	})
	expand(def.Directories, false, func(_, path string) { s.Directories = append(s.Directories, path) })
	_, _, s.Account = config.CutInstance(def.Name)
	return s, unexpanded
}

// IsPathKnown reports whether sources without these entries have the PATH that they have with them:
// no entry is PATH, or a file that may set it.
func IsPathKnown(unexpanded []Unexpanded) bool {
	return !slices.ContainsFunc(unexpanded, func(u Unexpanded) bool { return u.isFile || u.Name == "PATH" })
}

// CallerAfterStart returns the variables of the caller that are kept once the run has begun: those
// that occur in ResumeCondition= of the agent's definition, because the search for its conversation
// needs them.
func CallerAfterStart(caller []string, def config.Agent) []string {
	conditions := strings.Join(def.ResumeCondition, "\n")
	var kept []string
	for _, entry := range caller {
		if name, _, _ := strings.Cut(entry, "="); strings.Contains(conditions, name) {
			kept = append(kept, entry)
		}
	}
	return kept
}
