package worktree

import (
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
)

// Git is the program, with the environment that it is run in.
type Git struct {
	Environment []string // NAME=VALUE; what begins with GIT_ is left out
}

// ErrNoGit is returned where there is no git in PATH.
var ErrNoGit = errors.New("git is not installed, or not in corrald's PATH")

// endTime is how long git has to tidy up after SIGTERM, which it does, before it is killed.
const endTime = 5 * time.Second

// maxMessage bounds what is told of an error of git's, in bytes.
const maxMessage = 400

// settings keep git from leaving processes behind in the caller's control group: a monitor of the file system, a maintenance.
var settings = []string{"-c", "core.fsmonitor=false", "-c", "gc.auto=0", "-c", "maintenance.auto=false"}

// turn is held by who runs a git that reads all worktrees of a repository, as it does to make or remove one or a branch: it fails where another one of them is
// half made, or half removed.
var turn = make(chan struct{}, 1)

// run runs git in a directory, without a terminal, and returns what it prints. When the context ends, so does it, with what it has started.
func (g Git) run(ctx context.Context, dir string, args ...string) (string, error) {
	if args[0] == "worktree" || args[0] == "branch" {
		select {
		case turn <- struct{}{}:
			defer func() { <-turn }()
		case <-ctx.Done():
			return "", fmt.Errorf("git %s has to wait too long for another one: %w", args[0], ctx.Err())
		}
	}
	cmd := exec.CommandContext(ctx, "git", slices.Concat(settings, args)...)
	cmd.Dir = dir
	cmd.Env = append(g.environment(), "GIT_TERMINAL_PROMPT=0", "GIT_PAGER=cat", "GIT_OPTIONAL_LOCKS=0", "LC_ALL=C")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = endTime
	out, said, err := outputs()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	defer func() { _, _ = out.Close(), said.Close() }()
	cmd.Stdout, cmd.Stderr = out, said
	err = cmd.Run()
	if ctx.Err() != nil && cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // a hook, or a filter, that has not heard
	}
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return "", ErrNoGit
	case ctx.Err() != nil:
		return "", fmt.Errorf("git %s takes too long: %w", args[0], ctx.Err())
	case err != nil:
		text, _ := written(said)
		return "", &gitError{args[0], complaint(text), err}
	}
	return written(out)
}

// outputs makes two files for what a program prints. They are no pipes, of which the end is only seen once a hook's process has closed them that git left behind.
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

func (g Git) environment() []string {
	return slices.DeleteFunc(slices.Clone(g.Environment), func(entry string) bool { return strings.HasPrefix(entry, "GIT_") })
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
func (g Git) line(ctx context.Context, dir string, args ...string) (string, error) {
	out, err := g.run(ctx, dir, args...)
	return strings.TrimSuffix(out, "\n"), err
}

// count is run for what prints a number.
func (g Git) count(ctx context.Context, dir string, args ...string) (int, error) {
	out, err := g.line(ctx, dir, args...)
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
