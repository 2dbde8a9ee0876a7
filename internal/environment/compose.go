package environment

import (
	"slices"
	"strings"
)

// Where a variable comes from.
const (
	Manager    = "manager"     // the user manager: what everything has that it starts
	LoginShell = "login-shell" // the user's login shell, by its start-up files
	Corral     = "corral"      // us: the terminal, the session, the bus
	Definition = "definition"  // Set= of the agent's definition
	File       = "file"        // EnvironmentFile= of the agent's definition
	Caller     = "caller"      // whoever asked for this run
	Session    = "session"     // the session itself: corralctl run -E
)

// Sources is what a run's environment is made of: lists of NAME=VALUE, of which a later one counts
// for more.
type Sources struct {
	Manager    []string
	LoginShell []string // only what it adds, see Added
	Corral     []string
	Definition []string
	Files      []string
	Caller     []string // as it was sent: what an agent does not get is left out here
	Session    []string

	Unset []string // names that are inherited neither from the manager, nor from the login shell, nor from the caller
}

// Variable is one variable of a run.
type Variable struct {
	Name, Value, Source string
}

// Compose returns the run's environment, each name once.
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
		return inherited(name, entry) && ValidName(name) && !slices.Contains(managers, name)
	}
	always := func(string, string) bool { return true }
	set(Manager, s.Manager, inherited)
	set(LoginShell, s.LoginShell, shell)
	set(Corral, s.Corral, func(name, _ string) bool { return name != authSock || !slices.Contains(s.Unset, name) })
	set(Definition, s.Definition, always)
	set(File, s.Files, always)
	set(Caller, s.Caller, func(name, entry string) bool { return shell(name, entry) && s.callersOwn(name, entry) })
	set(Session, s.Session, always)
	return all
}

// authSock is what we set for every agent, unless its definition says that it is not to be set.
const authSock = "SSH_AUTH_SOCK"

// callersOwn tells whether the caller's variable says anything: not if the manager has given it to
// the caller, too, for then what the login shell makes of it counts; and not if the caller is
// itself in a session, and has it from its own agent's definition.
func (s Sources) callersOwn(name, entry string) bool {
	if _, inside := Lookup(s.Caller, sessionMarker); inside {
		if _, defined := Lookup(slices.Concat(s.Definition, s.Files), name); defined {
			return false
		}
	}
	return !slices.Contains(s.Manager, entry)
}

// sessionMarker is the variable that every agent has its session's id in.
const sessionMarker = "CORRAL_SESSION"

// FromCaller returns what a client sends of its environment along with a start: what an agent may
// get of it, and what the daemon has to know, which are the session that the caller is in and its
// SSH_AUTH_SOCK.
func FromCaller(environ []string) []string {
	sent := []string{}
	for _, entry := range environ {
		name, _, ok := strings.Cut(entry, "=")
		told := name == sessionMarker || name == authSock
		if ok && ValidName(name) && (told || !IsExcluded(name) && !slices.Contains(managers, name)) {
			sent = append(sent, entry)
		}
	}
	return sent
}

// CallerHasPath tells whether the caller has a PATH of its own, which is that of a shell: a program
// that the manager has started, such as a desktop's launcher, a timer or a unit, has the manager's.
func (s Sources) CallerHasPath() bool {
	path, is := Lookup(s.Caller, "PATH")
	return is && s.callersOwn("PATH", "PATH="+path)
}

// ForHelper returns what a helper of ours gets of the manager's environment, and then what set
// says.
func ForHelper(manager []string, set ...string) []string {
	return Entries(Sources{Manager: manager, Session: set}.Compose())
}

// Entries returns the variables as execve takes them.
func Entries(variables []Variable) []string {
	entries := make([]string, len(variables))
	for i, v := range variables {
		entries[i] = v.Name + "=" + v.Value
	}
	return entries
}

// Added returns what of an environment is not in the one that it began with, or has another value
// there.
func Added(before, after []string) []string {
	var added []string
	for _, entry := range after {
		if !slices.Contains(before, entry) {
			added = append(added, entry)
		}
	}
	return added
}
