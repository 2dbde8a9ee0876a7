package config

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/corrald/corral/internal/environment"
)

const repositoriesDir, repositorySuffix = "repositories", ".repository"

// Repository is what is configured for the worktrees of some git repositories:
// repositories/NAME.repository with its drop-ins. The zero value is for a repository without any.
type Repository struct {
	Paths        []string // [Match] Path=: absolute paths of the repositories, with specifiers
	Ports        int      // [Worktree] Ports=: how many TCP ports a session gets
	PortVariable string   // [Worktree] PortVariable=: name of a variable with the first port, "" for none
	// [Worktree] SetupCommand= and TeardownCommand=: argument vectors, with specifiers, of the
	// commands that set a new worktree up, and tear it down before it is removed; nil for none.
	SetupCommand    []string
	TeardownCommand []string
	SetupTimeout    time.Duration // [Worktree] SetupTimeoutSec=: of each of them; 0 for the default
}

// Setup returns the command that sets a new worktree up, nil if there is none.
func (r *Repository) Setup() []string { return r.SetupCommand }

// Teardown returns the command that tears a worktree down, nil if there is none.
func (r *Repository) Teardown() []string { return r.TeardownCommand }

// HasCommands reports whether at least one of the two commands is configured.
func (r *Repository) HasCommands() bool { return len(r.SetupCommand)+len(r.TeardownCommand) > 0 }

// TimeLimit returns how long each of the two commands may take.
func (r *Repository) TimeLimit() time.Duration { return cmp.Or(r.SetupTimeout, 10*time.Minute) }

// Repositories are the configurations in the order of the names of their files.
type Repositories []Repository

// loadRepositories reads repositories/*.repository and the drop-ins from the directories. Files and
// assignments that cannot be used are ignored and reported as warnings.
func loadRepositories(dirs []string) (Repositories, []Warning) {
	files, warnings := findFiles(dirs, repositoriesDir, repositorySuffix)
	var all Repositories
	for _, f := range files {
		if f.masked {
			continue
		}
		assignments, warned, err := readUnitFile(f.path, "Match", "Worktree")
		warnings = append(warnings, warned...)
		if err != nil {
			warnings = append(warnings, Warning{File: f.path, Text: err.Error()})
			continue
		}
		more, _, warned := dropIns(dirs, filepath.Join(repositoriesDir, f.name), "Match", "Worktree")
		warnings = append(warnings, warned...)
		var r Repository
		keys := r.parsers()
		for _, a := range append(assignments, more...) {
			if err := keys.set(a.section+"."+a.key, a); err != nil {
				warnings = append(warnings, a.warn("%v", err))
			}
		}
		if len(r.Paths) == 0 {
			warnings = append(warnings, Warning{File: f.path, Text: "Path= in section [Match] is missing, ignored"})
			continue
		}
		all = append(all, r)
	}
	return all, warnings
}

// parsers returns the functions that parse the values of the keys, by "Section.Key", and store them
// in r.
func (r *Repository) parsers() parsers {
	return parsers{
		"Match.Path":               r.addPaths,
		"Worktree.Ports":           parser(&r.Ports, 0, ports),
		"Worktree.PortVariable":    parser(&r.PortVariable, "", portVariable),
		"Worktree.SetupCommand":    parser(&r.SetupCommand, nil, command),
		"Worktree.TeardownCommand": parser(&r.TeardownCommand, nil, command),
		"Worktree.SetupTimeoutSec": parser(&r.SetupTimeout, 0, finiteSpan),
	}
}

// addPaths adds the paths of a value. An empty value empties the list.
func (r *Repository) addPaths(a assignment) error {
	paths, err := SplitWords(a.value)
	if err != nil {
		return fmt.Errorf("%s=: %w", a.key, err)
	}
	if len(paths) == 0 {
		r.Paths = nil
	}
	for _, path := range paths {
		expanded, err := Expand([]string{path}, Specifiers{Home: "/", ConfigHome: "/"})
		if err == nil && !filepath.IsAbs(expanded[0]) {
			err = fmt.Errorf("invalid path %q: expected an absolute path", path)
		}
		if err != nil {
			return fmt.Errorf("%s=: %w", a.key, err)
		}
	}
	r.Paths = append(r.Paths, paths...)
	return nil
}

// Find returns the first configuration one of whose paths leads to the repository at this path,
// after symbolic links, or the zero value. Values has the home directory. It examines the file
// system.
func (all Repositories) Find(repository string, values Specifiers) Repository {
	if len(all) == 0 {
		return Repository{}
	}
	if path, err := filepath.EvalSymlinks(repository); err == nil {
		repository = path
	}
	i := slices.IndexFunc(all, func(r Repository) bool {
		paths, _ := Expand(r.Paths, values) // they were checked while loading
		return slices.ContainsFunc(paths, func(path string) bool {
			resolved, err := filepath.EvalSymlinks(path)
			return err == nil && resolved == repository
		})
	})
	if i < 0 {
		return Repository{}
	}
	return all[i]
}

// MaxPorts is the greatest number of ports of a session.
const MaxPorts = 100

func ports(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n > MaxPorts {
		return 0, fmt.Errorf("invalid number of ports %q: expected 0 to %d", s, MaxPorts)
	}
	return int(n), nil
}

func portVariable(s string) (string, error) {
	if !environment.ValidName(s) {
		return "", fmt.Errorf("invalid variable name %q", s)
	}
	return s, nil
}

// PortRange is a range of TCP ports.
type PortRange struct{ First, Last int }

func (r PortRange) String() string { return fmt.Sprintf("%d-%d", r.First, r.Last) }

// portRange parses FIRST-LAST. Ports below 1024 are reserved for root.
func portRange(s string) (r PortRange, err error) {
	first, last, _ := strings.Cut(s, "-")
	from, err1 := strconv.ParseUint(strings.TrimSpace(first), 10, 16)
	to, err2 := strconv.ParseUint(strings.TrimSpace(last), 10, 16)
	if err1 != nil || err2 != nil || from < 1024 || from > to {
		return r, fmt.Errorf("invalid range of ports %q: expected FIRST-LAST, from 1024 to 65535", s)
	}
	return PortRange{int(from), int(to)}, nil
}
