// Package loginshell determines what a user's login shell adds to the environment: the PATH of nvm,
// pyenv and npm's own directory, and exported API keys. A user manager that was started at boot has
// none of these.
//
// A shell's start-up files are programs: they print, ask questions, hang, fail, and start other
// programs. So the shell runs separately from everything else, without input or a terminal, for a
// bounded time; the processes that it has started are killed with it.
package loginshell

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/corrald/corral/internal/deadline"
	"github.com/corrald/corral/internal/environment"
	"github.com/corrald/corral/internal/shimwire"
)

// Limit bounds the time for running a shell in total; interactiveLimit the part of it for an
// interactive shell.
const (
	Limit            = 5 * time.Second
	interactiveLimit = 4 * time.Second
)

// A shell that did not finish in time is run again when its result is next needed, but not before a
// delay, which doubles each time: it may have been slow once, as at boot, or may always be slow.
const (
	minRetryDelay = time.Minute
	maxRetryDelay = time.Hour
)

// maxOutput bounds the output of a shell, in bytes: that of the start-up files, and an environment.
const maxOutput = 4 << 20

// Start is a function that starts a program with the environment of the user's manager and the
// variables in set, without standard input and without a terminal. The program's output can be read
// until its end. Close kills all processes that it has started.
type Start func(ctx context.Context, path string, args, set []string) (io.ReadCloser, error)

// Shell runs a login shell and caches its environment, only in memory because it may contain
// secrets.
type Shell struct {
	start  Start
	shim   string        // path of corral-shim, which prints its environment
	lock   chan struct{} // contains one value, which is taken while the shell runs
	cached cachedResult  // protected by lock
}

// cachedResult is what a shell has added to an environment.
type cachedResult struct {
	key        [32]byte // see cacheKey
	added      []string
	err        error     // why added is incomplete
	retryAt    time.Time // when the shell runs again, zero for never
	retryDelay time.Duration
}

// New returns a Shell that runs programs with start, and the corral-shim at path shim to print the
// environment.
func New(start Start, shim string) *Shell {
	s := &Shell{start: start, shim: shim, lock: make(chan struct{}, 1)}
	s.lock <- struct{}{}
	return s
}

// Added returns what the user's login shell adds to the given environment, which is the manager's:
// new variables, and those with a different value. The shell runs once, and again if it, the given
// environment, or one of its start-up files has changed. An error may come with a partial result,
// and is repeated until the shell runs again.
func (s *Shell) Added(ctx context.Context, given []string) ([]string, error) {
	select {
	case <-s.lock:
		defer func() { s.lock <- struct{}{} }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	key := cacheKey(given)
	if s.cached.key == key && (s.cached.retryAt.IsZero() || time.Now().Before(s.cached.retryAt)) {
		return s.cached.added, s.cached.err
	}
	added, late, err := s.probe(ctx, given)
	if ctx.Err() != nil {
		return nil, ctx.Err() // the caller has cancelled; the shell did not time out
	}
	lastDelay := s.cached.retryDelay
	s.cached = cachedResult{key: key, added: added, err: err}
	if late {
		s.cached.retryDelay = min(max(2*lastDelay, minRetryDelay), maxRetryDelay)
		s.cached.retryAt = time.Now().Add(s.cached.retryDelay)
	}
	return added, err
}

// Invalidate makes the next call of Added run the shell again.
func (s *Shell) Invalidate() {
	<-s.lock
	s.cached = cachedResult{}
	s.lock <- struct{}{}
}

// probe runs the shell as an interactive login shell and, if that fails, as a non-interactive one.
// Late reports whether a time limit expired.
func (s *Shell) probe(ctx context.Context, given []string) (added []string, late bool, err error) {
	shell, _ := environment.Lookup(given, "SHELL")
	if !filepath.IsAbs(shell) {
		shell = "/bin/sh"
	}
	if slices.Contains([]string{"nologin", "false", "true"}, filepath.Base(shell)) {
		return nil, false, nil
	}
	ctx, cancel := deadline.Context(ctx, Limit)
	defer cancel()
	interactiveCtx, cancelInteractive := deadline.Context(ctx, interactiveLimit)
	defer cancelInteractive()
	after, err := s.run(interactiveCtx, shell, true)
	if err != nil {
		late = interactiveCtx.Err() != nil
		reason := failureReason(interactiveCtx, err, interactiveLimit)
		if after, err = s.run(ctx, shell, false); err != nil {
			late = late || ctx.Err() != nil
			return nil, late, fmt.Errorf("cannot read the environment of the login shell %s: "+
				"with a prompt it %s, without one it %s", shell, reason, failureReason(ctx, err, Limit))
		}
		err = fmt.Errorf("cannot read the whole environment of the login shell %s: with a prompt it %s; "+
			"its environment without a prompt is used", shell, reason)
	}
	added = slices.DeleteFunc(environment.Added(given, after), func(entry string) bool {
		return slices.Contains(probeEnvironment, entry)
	})
	return added, late, err
}

// failureReason describes why a shell did not print its environment.
func failureReason(ctx context.Context, err error, limit time.Duration) string {
	if ctx.Err() != nil {
		return "did not answer within " + limit.String()
	}
	return err.Error()
}

// probeEnvironment contains the variables that are set for the shell. Start-up files that start a
// terminal multiplexer check whether they already run in one; those that need a full terminal check
// TERM; and any of them can detect by CORRAL_LOGIN_SHELL that no user is present.
var probeEnvironment = []string{
	"TERM=dumb", "TMUX=/dev/null,0,0", "STY=corral", "ZELLIJ=0",
	"SSH_ASKPASS_REQUIRE=never", "CORRAL_LOGIN_SHELL=1",
}

// run starts the shell and reads its environment.
func (s *Shell) run(ctx context.Context, shell string, interactively bool) ([]string, error) {
	if strings.ContainsAny(s.shim, "'\\\n") {
		return nil, errors.New("cannot run corral-shim: its path contains a quote or a line break")
	}
	mark := rand.Text()
	args := shellArguments(shell, interactively, "'"+s.shim+"' environment "+mark)
	output, err := s.start(ctx, shell, args, probeEnvironment)
	if err != nil {
		return nil, fmt.Errorf("cannot be started: %w", err)
	}
	defer func() { _ = output.Close() }()
	var printed []byte
	buffer := make([]byte, 32<<10)
	for len(printed) < maxOutput {
		n, err := output.Read(buffer)
		printed = append(printed, buffer[:n]...)
		if environ, found := shimwire.FindEnvironment(printed, mark); found {
			return environ, nil
		}
		if err != nil {
			return nil, errors.New("ended without an answer")
		}
	}
	return nil, errors.New("printed too much")
}

// shellArguments returns the arguments of a login shell that executes a command.
func shellArguments(shell string, interactively bool, command string) []string {
	name := filepath.Base(shell)
	// These accept -l only without other options, but also become login shells by their name.
	if name == "csh" || name == "tcsh" {
		if interactively {
			return []string{"-" + name, "-i", "-c", command}
		}
		return []string{"-" + name, "-c", command}
	}
	if interactively {
		return []string{name, "-l", "-i", "-c", command}
	}
	return []string{name, "-l", "-c", command}
}
