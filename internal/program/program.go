// Package program finds the file that a command's name stands for, by the rules of execvp(3):
// corrald before it creates a session, the shim before it executes the agent.
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

// Error is why a command cannot be executed: a sentence for a person, and the exit code that a
// shell has for it.
type Error struct {
	Text string
	Code int // NotFound or NotExecutable

	hidden bool // the directory of the file may not be searched: nobody knows whether the file is there
}

func (e *Error) Error() string { return e.Text }

// The exit codes of an Error.
const (
	NotExecutable = 126
	NotFound      = 127
)

// Find returns the path of the file that a command's name stands for: the name itself if it
// contains a slash, else the first match in the PATH of env, whose directories that may not be
// searched are skipped, as in a shell. A relative path is relative to dir. Every error is an
// *Error.
func Find(name string, env []string, dir string) (string, error) {
	if strings.Contains(name, "/") {
		return name, executable(name, name, dir)
	}
	var denied error
	for d := range strings.SplitSeq(SearchPath(env), ":") {
		path := "./" + name
		if d != "" {
			path = d + "/" + name
		}
		err := executable(path, name, dir)
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
	return "", &Error{Text: "command " + strconv.Quote(name) + " not found", Code: NotFound}
}

// SearchPath returns the PATH of an environment, or the directories that the C library searches
// without one.
func SearchPath(env []string) string {
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			return v
		}
	}
	return "/bin:/usr/bin"
}

// executable returns why the file at path, which name stands for, cannot be executed.
func executable(path, name, dir string) error {
	if !filepath.IsAbs(path) {
		path = dir + "/" + path
	}
	st, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return &Error{Text: "command " + strconv.Quote(name) + " not found", Code: NotFound}
	case err == nil && st.Mode().IsRegular() && unix.Faccessat(unix.AT_FDCWD, path, unix.X_OK, unix.AT_EACCESS) == nil:
		return nil
	case err == nil, errors.Is(err, fs.ErrPermission):
		return &Error{Text: "command " + strconv.Quote(name) + " is not executable", Code: NotExecutable, hidden: err != nil}
	}
	if e := syscall.Errno(0); errors.As(err, &e) {
		err = e
	}
	return &Error{Text: "command " + strconv.Quote(name) + " cannot be found: " + err.Error(), Code: NotFound}
}
