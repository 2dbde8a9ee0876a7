// Package program checks whether a command can be executed in a workspace, and finds its executable
// file by the rules of execvp(3). The environment is not that of this process: what a program runs
// in its own environment, exec.LookPath finds.
package program

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Error is the reason for which a command cannot be executed: a message for users, and the exit
// code that a shell uses for it.
type Error struct {
	Text string
	Code int // NotFound or NotExecutable

	// hidden means that a directory on the path cannot be searched, so that it is unknown whether the
	// file exists.
	hidden bool
}

func (e *Error) Error() string { return e.Text }

// The exit codes of an Error.
const (
	NotExecutable = 126
	NotFound      = 127
)

// Find returns the path of the executable file for a command name: the name itself if it contains a
// slash, else the first match in the PATH of env. As in a shell, directories that cannot be
// searched are skipped. A relative path is relative to dir; if that is "", it is not found. Every
// error is an *Error.
func Find(name string, env []string, dir string) (string, error) {
	if strings.Contains(name, "/") {
		return name, checkExecutable(name, name, dir)
	}
	var denied error
	for d := range strings.SplitSeq(SearchPath(env), ":") {
		path := "./" + name
		if d != "" {
			path = d + "/" + name
		}
		err := checkExecutable(path, name, dir)
		if err == nil && name != "" {
			return path, nil
		}
		if e := (*Error)(nil); errors.As(err, &e) && e.Code == NotExecutable && !e.hidden && name != "" {
			denied = err
		}
	}
	if denied != nil {
		return "", denied
	}
	return "", notFound(name)
}

func notFound(name string) error {
	return &Error{Text: "command " + strconv.Quote(name) + " not found", Code: NotFound}
}

// SearchPath returns the PATH of an environment, or the C library's default if it has none.
func SearchPath(env []string) string {
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			return v
		}
	}
	return "/bin:/usr/bin"
}

// checkExecutable returns the reason for which the file at path cannot be executed. The name is the
// one that the user has specified.
func checkExecutable(path, name, dir string) error {
	if !filepath.IsAbs(path) {
		if dir == "" {
			return notFound(name)
		}
		path = dir + "/" + path
	}
	st, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return notFound(name)
	case err == nil && st.Mode().IsRegular() && unix.Faccessat(unix.AT_FDCWD, path, unix.X_OK, unix.AT_EACCESS) == nil:
		return nil
	case err == nil, errors.Is(err, fs.ErrPermission):
		return &Error{Text: "command " + strconv.Quote(name) + " is not executable", Code: NotExecutable, hidden: err != nil}
	}
	return &Error{Text: "command " + strconv.Quote(name) + " cannot be found: " + errnoText(err), Code: NotFound}
}

// CheckWorkspace returns the reason for which no command can be executed in the directory at path:
// it does not exist, or cannot be entered. Every error is an *Error. It may block.
func CheckWorkspace(path string) error {
	info, err := os.Stat(path)
	if err == nil && info.IsDir() {
		err = unix.Access(path, unix.X_OK)
	}
	workspace := "workspace " + strconv.Quote(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &Error{Text: workspace + " does not exist", Code: NotExecutable}
	case err != nil:
		return &Error{Text: "cannot use " + workspace + ": " + errnoText(err), Code: NotExecutable}
	case !info.IsDir():
		return &Error{Text: workspace + " is not a directory", Code: NotExecutable}
	}
	return nil
}

// errnoText returns the kernel's error message without the operation and the path.
func errnoText(err error) string {
	if e := syscall.Errno(0); errors.As(err, &e) {
		return e.Error()
	}
	return err.Error()
}
