package worktree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/environment"
)

// ErrNoGit is returned where there is no git in PATH.
var ErrNoGit = errors.New("git is not installed, or not in corrald's PATH")

// endTime is how long git has to tidy up after SIGTERM, which it does, before it is killed.
const endTime = 5 * time.Second

// maxMessage bounds what is told of an error of git's, in bytes.
const maxMessage = 400

// program is git, as a child of the process that carries out a step.
type program struct {
	environment []string // NAME=VALUE; variables whose names begin with GIT_ are left out
	ceiling     string   // git does not look for a repository in this directory or above it; "" for no limit
}

// settings keep git from starting a file system monitor and a maintenance in the background.
var settings = []string{"-c", "core.fsmonitor=false", "-c", "gc.auto=0", "-c", "maintenance.auto=false"}

// quiet are settings with which git executes nothing that a repository names: no hook, and no
// gpg.program. Filters are run by commands that convert or compare the content of files; run is not
// called with such a command.
var quiet = slices.Concat(settings, []string{"-c", "core.hooksPath=/dev/null", "-c", "log.showSignature=false"})

// offline keeps git from starting a transport (core.sshCommand, an ext:: address, a remote helper)
// in order to fetch objects that a partial clone lacks. It overrides protocol.NAME.allow of a
// repository, which -c protocol.allow=never does not.
var offline = []string{"GIT_ALLOW_PROTOCOL=none", "GIT_NO_LAZY_FETCH=1"}

// run runs a command of git in a directory, without a terminal, and returns its standard output.
// git executes nothing of the repository's: see quiet. When the context ends, git is terminated
// with its process group.
func (p program) run(ctx context.Context, dir string, args ...string) (string, error) {
	return p.execute(ctx, dir, offline, quiet, args)
}

// checkOut is run for a command that checks files out: the repository's hooks and filters are run,
// and what a partial clone lacks is fetched.
func (p program) checkOut(ctx context.Context, dir string, args ...string) (string, error) {
	return p.execute(ctx, dir, nil, settings, args)
}

// command returns a command of git, which is not started yet.
func (p program) command(ctx context.Context, dir string, set, options, args []string) (*exec.Cmd, error) {
	path, err := p.path()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, path, slices.Concat(options, args)...)
	cmd.Dir = dir
	cmd.Env = slices.Concat(p.inherited(), set, []string{"GIT_TERMINAL_PROMPT=0", "GIT_PAGER=cat", "GIT_OPTIONAL_LOCKS=0", "LC_ALL=C"})
	if p.ceiling != "" {
		cmd.Env = append(cmd.Env, "GIT_CEILING_DIRECTORIES="+p.ceiling)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = endTime
	return cmd, nil
}

func (p program) execute(ctx context.Context, dir string, set, options, args []string) (string, error) {
	cmd, err := p.command(ctx, dir, set, options, args)
	if err != nil {
		return "", err
	}
	out, said, err := outputs()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	defer func() { _, _ = out.Close(), said.Close() }()
	cmd.Stdout, cmd.Stderr = out, said
	err = cmd.Run()
	if ctx.Err() != nil && cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // a hook or a filter that ignores SIGTERM
	}
	switch {
	case ctx.Err() != nil:
		return "", fmt.Errorf("git %s takes too long: %w", args[0], ctx.Err())
	case err != nil:
		text, _ := written(said)
		return "", &gitError{args[0], complaint(text), err}
	}
	return written(out)
}

// path returns where git is in PATH of its environment, which need not be that of this process.
func (p program) path() (string, error) {
	value, _ := environment.Lookup(p.environment, "PATH")
	for _, dir := range filepath.SplitList(value) {
		if path, err := exec.LookPath(filepath.Join(dir, "git")); err == nil && filepath.IsAbs(path) {
			return path, nil
		}
	}
	return "", ErrNoGit
}

// outputs makes two files for what a program prints. They are no pipes, of which the end is only
// seen once a hook's process has closed them that git left behind.
func outputs() (out, said *os.File, err error) {
	if out, err = memory("out"); err != nil {
		return nil, nil, err
	}
	if said, err = memory("said"); err != nil {
		_ = out.Close()
		return nil, nil, err
	}
	return out, said, nil
}

func memory(name string) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// written returns what is in a file, from its beginning: who has it, too, goes on where they are.
func written(f *os.File) (string, error) {
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.NewSectionReader(f, 0, info.Size()))
	return string(text), err
}

// inherited returns the variables that git gets of the environment.
func (p program) inherited() []string {
	return slices.DeleteFunc(slices.Clone(p.environment), func(entry string) bool { return strings.HasPrefix(entry, "GIT_") })
}

// gitError is a failure of git's, in its own words.
type gitError struct {
	verb, says string
	err        error
}

func (e *gitError) Error() string {
	if e.says == "" {
		return fmt.Sprintf("git %s: %v", e.verb, e.err)
	}
	return fmt.Sprintf("git %s: %s", e.verb, e.says)
}

func (e *gitError) Unwrap() error { return e.err }

// complaint returns what git has to say, in one line: its errors if it names any, else all of it.
func complaint(said string) string {
	var all, errs []string
	for line := range strings.SplitSeq(said, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "hint:") {
			continue
		}
		all = append(all, line)
		for _, prefix := range []string{"fatal: ", "error: "} {
			if text, is := strings.CutPrefix(line, prefix); is {
				errs = append(errs, text)
			}
		}
	}
	if len(errs) > 0 {
		all = errs
	}
	text := strings.ToValidUTF8(strings.Join(all, "; "), "\uFFFD")
	if len(text) > maxMessage {
		text = strings.ToValidUTF8(text[:maxMessage], "") + "…"
	}
	return text
}

// line is run for what prints one line.
func (p program) line(ctx context.Context, dir string, args ...string) (string, error) {
	out, err := p.run(ctx, dir, args...)
	return strings.TrimSuffix(out, "\n"), err
}

// count is run for what prints a number.
func (p program) count(ctx context.Context, dir string, args ...string) (int, error) {
	out, err := p.line(ctx, dir, args...)
	if err != nil {
		return 0, err
	}
	n := 0
	_, err = fmt.Sscan(out, &n)
	return n, err
}

// refused tells of an error that is git's answer, and no failure to get one.
func refused(err error) bool {
	var exit *exec.ExitError
	return errors.As(err, &exit) && exit.Exited()
}
