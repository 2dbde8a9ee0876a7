// Package sandbox composes the command of bubblewrap, bwrap(1), that confines an agent: what the
// agent sees of the file system, and what of that it can change.
//
// The whole file system is visible and read-only, except for what the request names. Directories
// with the sockets and files of other programs are empty: /tmp, /var/tmp, /run, $XDG_RUNTIME_DIR.
// In the git repository of the workspace, the agent cannot change what makes git run programs.
package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Program is the name of bubblewrap's program.
const Program = "bwrap"

// ErrNotInstalled is returned by Command if there is no bubblewrap.
var ErrNotInstalled = errors.New("bubblewrap is not installed; install the package bubblewrap")

// ShimPath is where the program Request.Shim is found in the sandbox.
const ShimPath = "/run/corral-shim"

// Request describes a sandbox. All paths are absolute.
type Request struct {
	Workspace string // the agent can change it
	Network   bool   // the agent reaches the network

	// Patterns of filepath.Glob. What exists and matches is hidden, read-only, writable, or private: a
	// directory in whose place the agent has another one. Of several that contain a path, the longest
	// applies, but nothing below a hidden directory is visible. A writable or private pattern that
	// ends in "/" is that of a directory, which is created if it does not exist.
	Hide, ReadOnly, Writable, Private []string

	PrivateDir string // contains what the agent has in the place of private directories

	Visible []string // visible and read-only, even in a directory that is empty otherwise
	Home    string   // the home directory, which is not writable as a whole
	Runtime string   // $XDG_RUNTIME_DIR
	Socket  string   // the socket for sd_notify(3), which has to exist when the sandbox is set up; "" for none
	// Shim is the program that ShimPath refers to, and that is run in the sandbox, as the first
	// process of its PID namespace; "" for a program that does not expect that.
	Shim string
}

// kind is how a path appears in the sandbox. Of two kinds for the same path, the greater applies.
type kind int

const (
	emptied  kind = iota + 1 // an empty directory, writable and private to the sandbox
	private                  // a directory in PrivateDir
	visible                  // as it is, read-only
	writable                 // as it is
	readOnly
	hidden // an empty directory that is read-only, or an empty file
)

// view is the file system in the sandbox: the kinds of the paths that differ from what is around
// them.
type view map[string]kind

func (v view) set(path string, k kind) { v[path] = max(v[path], k) }

// Command is the command that sets up a sandbox.
type Command struct {
	Args []string // the command to be run in the sandbox follows
	// Forbidden is the path of a file that must not be created: the sandbox cannot prevent that, but
	// has to be ended then. "" for none.
	Forbidden string
}

// NewCommand returns the command that sets up the sandbox. In the git repository of the workspace,
// it creates a missing directory for hooks; it also creates the directories of Request.Writable and
// Request.Private. Errors: ErrNotInstalled; a workspace or writable path that would give the agent
// more than that, or that is hidden.
func NewCommand(r Request) (Command, error) {
	program, err := exec.LookPath(Program)
	if err != nil {
		return Command{}, ErrNotInstalled
	}
	for _, dir := range []*string{&r.Home, &r.Runtime} {
		if *dir, err = filepath.EvalSymlinks(*dir); err != nil {
			return Command{}, err
		}
	}
	v, workspace, forbidden, err := r.view()
	if err != nil {
		return Command{}, err
	}
	args := []string{program, "--unshare-user", "--unshare-pid", "--unshare-ipc"}
	if r.Shim != "" {
		args = append(args, "--as-pid-1")
	}
	if !r.Network {
		args = append(args, "--unshare-net")
	}
	args = append(args, "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc")
	if args, err = v.appendMounts(args, r); err != nil {
		return Command{}, err
	}
	if r.Socket != "" {
		args = append(args, "--bind", r.Socket, r.Socket)
	}
	if r.Shim != "" {
		args = append(args, "--ro-bind", r.Shim, ShimPath)
	}
	for _, path := range systemLinks {
		if target, err := os.Readlink(path); err == nil {
			args = append(args, "--symlink", target, path)
		}
	}
	return Command{append(args, "--chdir", workspace, "--"), forbidden}, nil
}

// emptyDirectories contain the sockets and the temporary files of other programs.
var emptyDirectories = []string{"/tmp", "/var/tmp", "/run"}

// systemLinks are symbolic links in /run that programs of NixOS need.
var systemLinks = []string{"/run/current-system", "/run/booted-system", "/run/opengl-driver"}

// resolverConfiguration is a link into /run on many systems.
const resolverConfiguration = "/etc/resolv.conf"

// view returns the view that the request describes, the workspace without symbolic links, and the
// forbidden file.
func (r Request) view() (v view, workspace, forbidden string, err error) {
	v = view{}
	for _, dir := range append(emptyDirectories, r.Runtime) {
		if dir, err := filepath.EvalSymlinks(dir); err == nil {
			v.set(dir, emptied)
		}
	}
	for _, path := range append(r.Visible, r.Home, resolverConfiguration) {
		if path, err := filepath.EvalSymlinks(path); err == nil {
			v.set(path, visible)
		}
	}
	if workspace, err = filepath.EvalSymlinks(r.Workspace); err != nil {
		return nil, "", "", err
	}
	if err := v.add(private, findOrCreate, r.Private); err != nil {
		return nil, "", "", err
	}
	if err := v.addWritable(r, workspace); err != nil {
		return nil, "", "", err
	}
	if forbidden, err = v.addRepository(workspace, r.Home); err != nil {
		return nil, "", "", fmt.Errorf("cannot protect the git repository of the workspace: %w", err)
	}
	if err := errors.Join(v.add(readOnly, filepath.Glob, r.ReadOnly), v.add(hidden, filepath.Glob, r.Hide)); err != nil {
		return nil, "", "", err
	}
	if dir, is := v.hiddenAbove(workspace); is {
		return nil, "", "", fmt.Errorf("the workspace %q is hidden by Hide=, which matches %q", workspace, dir)
	}
	return v, workspace, forbidden, nil
}

// add adds the paths that find returns for the patterns.
func (v view) add(k kind, find func(pattern string) ([]string, error), patterns []string) error {
	for _, pattern := range patterns {
		paths, err := find(pattern)
		if err != nil {
			return err
		}
		for _, path := range paths {
			if path, err := filepath.EvalSymlinks(path); err == nil {
				v.set(path, k)
			}
		}
	}
	return nil
}

// addWritable adds the workspace and the writable paths.
func (v view) addWritable(r Request, workspace string) error {
	if err := r.checkWritable(workspace); err != nil {
		return err
	}
	v.set(workspace, writable)
	trusted := []string{workspace} // what the agent of an earlier run may have changed
	patterns := slices.Clone(r.Writable)
	slices.Sort(patterns) // a directory before those in it
	for _, pattern := range patterns {
		paths, err := findOrCreate(pattern)
		if err != nil {
			return err
		}
		for _, path := range paths {
			resolved, err := resolve(path, trusted)
			if err != nil {
				return err
			}
			if err := r.checkWritable(resolved); err != nil {
				return err
			}
			v.set(resolved, writable)
			trusted = append(trusted, resolved)
		}
	}
	return nil
}

// findOrCreate returns the paths that match a pattern. It creates the directory that a pattern
// describes by "/" at its end.
func findOrCreate(pattern string) ([]string, error) {
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) > 0 || !strings.HasSuffix(pattern, "/") {
		return found, err
	}
	dir, literal := unquote(pattern)
	if !literal {
		return nil, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot create a directory for the sandbox: %w", err)
	}
	return []string{dir}, nil
}

// unquote returns the only path that a pattern matches. It returns false if there can be several.
func unquote(pattern string) (path string, literal bool) {
	var b strings.Builder
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; c {
		case '*', '?', '[':
			return "", false
		case '\\':
			i++
			if i == len(pattern) {
				return "", false
			}
			b.WriteByte(pattern[i])
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), true
}

// checkWritable returns an error for a path that would make everything writable which the sandbox
// protects.
func (r Request) checkWritable(path string) error {
	for _, protected := range append(emptyDirectories, r.Home, r.Runtime) {
		if protected, err := filepath.EvalSymlinks(protected); err == nil && contains(path, protected) {
			return fmt.Errorf("%q cannot be writable in a sandbox: it contains %q", path, protected)
		}
	}
	return nil
}

// hiddenAbove returns a hidden directory that contains the path, or is it.
func (v view) hiddenAbove(path string) (dir string, is bool) {
	for dir, k := range v {
		if k == hidden && contains(dir, path) {
			return dir, true
		}
	}
	return "", false
}

// appendMounts appends the options of bwrap for the view. Each directory comes before those in it.
func (v view) appendMounts(args []string, r Request) ([]string, error) {
	paths := make([]string, 0, len(v))
	for path := range v {
		if dir, is := v.hiddenAbove(path); !is || dir == path {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	for _, path := range paths {
		switch v[path] {
		case emptied:
			if path == r.Runtime {
				args = append(args, "--perms", "0700")
			}
			args = append(args, "--tmpfs", path)
		case private:
			source := filepath.Join(r.PrivateDir, path)
			if err := os.MkdirAll(source, 0o700); err != nil {
				return nil, fmt.Errorf("cannot create a directory for the sandbox: %w", err)
			}
			args = append(args, "--bind", source, path)
		case visible, readOnly:
			args = append(args, "--ro-bind", path, path)
		case writable:
			args = append(args, "--bind", path, path)
		case hidden:
			info, err := os.Stat(path)
			switch {
			case errors.Is(err, fs.ErrNotExist):
			case err != nil:
				return nil, err
			case info.IsDir():
				args = append(args, "--tmpfs", path, "--remount-ro", path)
			default:
				args = append(args, "--dev-bind", "/dev/null", path)
			}
		}
	}
	return args, nil
}

// contains reports whether a path is the directory, or below it. Both are without symbolic links.
func contains(dir, path string) bool {
	below, is := strings.CutPrefix(path, strings.TrimSuffix(dir, "/"))
	return is && (below == "" || below[0] == '/')
}
