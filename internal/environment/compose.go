package environment

import (
	"slices"
	"strings"
)

// The values of Variable.Source.
const (
	Manager    = "manager"     // the environment of the user manager, which every unit inherits
	LoginShell = "login-shell" // set by the start-up files of the user's login shell
	Corral     = "corral"      // set by corrald: terminal, session, bus
	Definition = "definition"  // Set= and Default= of the agent's definition
	File       = "file"        // EnvironmentFile= of the agent's definition
	Caller     = "caller"      // sent by the client that started this run
	Session    = "session"     // set for the session: corralctl run -E
)

// Sources lists the variables of a run's environment by their origin, as NAME=VALUE. A later source
// overrides an earlier one.
type Sources struct {
	Manager    []string
	LoginShell []string // only the variables that the shell adds, see Added
	Corral     []string
	Default    []string // only those that neither the manager nor the login shell sets
	Definition []string
	Files      []string
	Caller     []string // as received; Compose filters it
	Session    []string

	Unset []string // names that are not inherited from the manager, the login shell and the caller
}

// Variable is one variable of a run's environment, with the source that it comes from.
type Variable struct {
	Name, Value, Source string
}

// Compose returns the run's environment, with each name once.
func (s Sources) Compose() []Variable {
	var all []Variable
	at := map[string]int{}
	set := func(source string, entries []string, keep func(name, entry string) bool) {
		for _, entry := range entries {
			name, value, ok := strings.Cut(entry, "=")
			if !ok || !keep(name, entry) {
				continue
			}
			v := Variable{name, value, source}
			if i, there := at[name]; there {
				all[i] = v
				continue
			}
			at[name] = len(all)
			all = append(all, v)
		}
	}
	inherited := func(name, _ string) bool { return !IsExcluded(name) && !slices.Contains(s.Unset, name) }
	shell := func(name, entry string) bool {
		return inherited(name, entry) && ValidName(name) && !slices.Contains(managerOnly, name)
	}
	always := func(string, string) bool { return true }
	set(Manager, s.Manager, inherited)
	set(LoginShell, s.LoginShell, shell)
	set(Corral, s.Corral, func(name, _ string) bool { return name != authSock || !slices.Contains(s.Unset, name) })
	set(Definition, s.Default, func(name, _ string) bool { _, isSet := at[name]; return !isSet })
	set(Definition, s.Definition, always)
	set(File, s.Files, always)
	set(Caller, s.Caller, func(name, entry string) bool { return shell(name, entry) && s.isSetByCaller(name, entry) })
	set(Session, s.Session, always)
	return all
}

// authSock is the variable that corrald sets for every agent unless its definition unsets it.
const authSock = "SSH_AUTH_SOCK"

// isSetByCaller reports whether the caller has chosen the variable itself. It has not if it
// inherited the value from the manager: then the value from the login shell applies. Nor has it if
// it runs in a session and the definition sets the variable, because then its value comes from its
// own agent's definition.
func (s Sources) isSetByCaller(name, entry string) bool {
	if _, inside := Lookup(s.Caller, sessionMarker); inside {
		if _, defined := Lookup(slices.Concat(s.Default, s.Definition, s.Files), name); defined {
			return false
		}
	}
	return !slices.Contains(s.Manager, entry)
}

// sessionMarker is the variable that contains the session id in the environment of every agent.
const sessionMarker = "CORRAL_SESSION"

// CallerVariables selects the variables that a client sends with a start: those that an agent may
// inherit, and those that the daemon needs, which are the caller's session and its SSH_AUTH_SOCK.
func CallerVariables(environ []string) []string {
	sent := []string{}
	for _, entry := range environ {
		name, _, ok := strings.Cut(entry, "=")
		needed := name == sessionMarker || name == authSock
		if ok && ValidName(name) && (needed || !IsExcluded(name) && !slices.Contains(managerOnly, name)) {
			sent = append(sent, entry)
		}
	}
	return sent
}

// CallerHasPath reports whether the caller has a PATH of its own, usually from a shell. A program
// started by the manager, such as a desktop's launcher, a timer or a unit, has the manager's PATH.
func (s Sources) CallerHasPath() bool {
	path, ok := Lookup(s.Caller, "PATH")
	return ok && s.isSetByCaller("PATH", "PATH="+path)
}

// ForHelper returns the environment for a helper program of Corral: the inheritable part of the
// manager's environment, overridden by set.
func ForHelper(manager []string, set ...string) []string {
	return Entries(Sources{Manager: manager, Session: set}.Compose())
}

// Entries returns the variables in the form that execve expects.
func Entries(variables []Variable) []string {
	entries := make([]string, len(variables))
	for i, v := range variables {
		entries[i] = v.Name + "=" + v.Value
	}
	return entries
}

// Added returns the entries of after that are missing in before or have another value there.
func Added(before, after []string) []string {
	var added []string
	for _, entry := range after {
		if !slices.Contains(before, entry) {
			added = append(added, entry)
		}
	}
	return added
}
