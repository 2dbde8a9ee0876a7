package worktree

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	commands "github.com/corrald/corral/internal/program"
)

// ErrNoGit is returned if git is not in PATH.
var ErrNoGit = errors.New("git is not installed, or not in corrald's PATH")

// terminationTimeout is how long git may take to clean up after SIGTERM, before it is killed.
const terminationTimeout = 5 * time.Second

// maxMessage bounds the length of an error message of git, in bytes.
const maxMessage = 400

// program runs git as a child of the process that runs a step.
type program struct {
	environment []string // NAME=VALUE; variables whose names begin with GIT_ are omitted
	ceiling     string   // git does not look for a repository in this directory or above it; "" for no limit
}

// baseOptions prevent git from starting a file system monitor or a maintenance in the background.
var baseOptions = []string{"-c", "core.fsmonitor=false", "-c", "gc.auto=0", "-c", "maintenance.auto=false"}

// safeOptions also prevent git from running the programs that a repository names: hooks and
// gpg.program. Filters run only in commands that convert or compare the contents of files; run is
// not called with such a command.
var safeOptions = slices.Concat(baseOptions,
	[]string{"-c", "core.hooksPath=/dev/null", "-c", "log.showSignature=false"})

// offlineEnvironment prevents git from starting a transport (core.sshCommand, an ext:: address, a
// remote helper) to fetch objects that a partial clone lacks. It overrides a repository's
// protocol.NAME.allow, which -c protocol.allow=never does not.
var offlineEnvironment = []string{"GIT_ALLOW_PROTOCOL=none", "GIT_NO_LAZY_FETCH=1"}

// run runs a git command in a directory, without a terminal, and returns its standard output. git
// runs no programs of the repository: see safeOptions. When ctx is done, git and its process group
// are terminated.
func (p program) run(ctx context.Context, dir string, args ...string) (string, error) {
	return p.execute(ctx, dir, offlineEnvironment, safeOptions, args)
}

// runWithHooks is like run, for a command that checks files out: it runs the repository's hooks and
// filters, and fetches what a partial clone lacks.
func (p program) runWithHooks(ctx context.Context, dir string, args ...string) (string, error) {
	return p.execute(ctx, dir, nil, baseOptions, args)
}

// command returns a git command, not started yet.
func (p program) command(ctx context.Context, dir string, variables, options, args []string) (*exec.Cmd, error) {
	// The PATH of the environment may differ from that of this process.
	path, err := commands.Find("git", p.environment, "")
	if err != nil {
		return nil, ErrNoGit
	}
	inherited := slices.DeleteFunc(slices.Clone(p.environment), func(entry string) bool {
		return strings.HasPrefix(entry, "GIT_")
	})
	cmd := exec.CommandContext(ctx, path, slices.Concat(options, args)...)
	cmd.Dir = dir
	cmd.Env = slices.Concat(inherited, variables,
		[]string{"GIT_TERMINAL_PROMPT=0", "GIT_PAGER=cat", "GIT_OPTIONAL_LOCKS=0", "LC_ALL=C"})
	if p.ceiling != "" {
		cmd.Env = append(cmd.Env, "GIT_CEILING_DIRECTORIES="+p.ceiling)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = terminationTimeout
	return cmd, nil
}

func (p program) execute(ctx context.Context, dir string, variables, options, args []string) (string, error) {
	cmd, err := p.command(ctx, dir, variables, options, args)
	if err != nil {
		return "", err
	}
	// Pipes would not do: a process that a hook leaves in the background keeps them open, so that
	// their end is not seen before it exits.
	stdout, err1 := memoryFile("stdout")
	stderr, err2 := memoryFile("stderr")
	defer func() { _, _ = stdout.Close(), stderr.Close() }()
	if err := cmp.Or(err1, err2); err != nil {
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	err = cmd.Run()
	if ctx.Err() != nil && cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // also a hook or a filter that ignores SIGTERM
	}
	switch {
	case ctx.Err() != nil:
		return "", fmt.Errorf("git %s takes too long: %w", args[0], ctx.Err())
	case err != nil:
		text, _ := readFromStart(stderr)
		return "", &gitError{args[0], errorMessage(text), err}
	}
	return readFromStart(stdout)
}

func memoryFile(name string) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// readFromStart returns the content of a file from its beginning, without moving the offset of
// others who have it open.
func readFromStart(f *os.File) (string, error) {
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.NewSectionReader(f, 0, info.Size()))
	return string(text), err
}

// gitError is a failure of a git command, with git's error message.
type gitError struct {
	verb, message string
	err           error
}

func (e *gitError) Error() string {
	if e.message == "" {
		return fmt.Sprintf("git %s: %v", e.verb, e.err)
	}
	return fmt.Sprintf("git %s: %s", e.verb, e.message)
}

func (e *gitError) Unwrap() error { return e.err }

// errorMessage reduces git's standard error to one line: its errors if there are any, else all of
// it.
func errorMessage(stderr string) string {
	var all, errs []string
	for line := range strings.SplitSeq(stderr, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "hint:") {
			continue
		}
		all = append(all, line)
		for _, prefix := range []string{"fatal: ", "error: "} {
			if text, ok := strings.CutPrefix(line, prefix); ok {
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

// runLine is run for a command that prints one line.
func (p program) runLine(ctx context.Context, dir string, args ...string) (string, error) {
	out, err := p.run(ctx, dir, args...)
	return strings.TrimSuffix(out, "\n"), err
}

// runCount is run for a command that prints a number.
func (p program) runCount(ctx context.Context, dir string, args ...string) (int, error) {
	out, err := p.runLine(ctx, dir, args...)
	if err != nil {
		return 0, err
	}
	n := 0
	_, err = fmt.Sscan(out, &n)
	return n, err
}

// isNonZeroExit reports whether git exited by itself with an error, as opposed to a failure to run
// it.
func isNonZeroExit(err error) bool {
	var exit *exec.ExitError
	return errors.As(err, &exit) && exit.Exited()
}
