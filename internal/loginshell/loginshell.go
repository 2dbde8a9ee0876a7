// Package loginshell finds out what a user's login shell adds to the environment: the PATH of nvm,
// pyenv and npm's own directory, the keys that are exported there. A user manager that was started
// at boot has none of that.
//
// A shell's start-up files are programs: they print, ask, hang, fail, and start others. So the
// shell is asked apart from everything else, without input or a terminal, for a bounded time; what
// it has started ends with it.
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

// Limit bounds how long a shell is waited for, all in all; most of it, how long an interactive one
// is.
const (
	Limit       = 5 * time.Second
	interactive = 4 * time.Second
)

// After a shell that was not ready in time, the next one to need it waits for it again, but not
// soon: it may have been slow once, as at boot, or be slow always.
const (
	againAfter = time.Minute
	againMost  = time.Hour
)

// maxPrinted bounds what a shell may print, in bytes: the start-up files' own output, and an
// environment.
const maxPrinted = 4 << 20

// Start starts a program with the environment that the user's manager gives to everything, and set,
// with nothing to read and no terminal. What it prints can be read until its end. Close ends all
// that it has started.
type Start func(ctx context.Context, path string, args, set []string) (io.ReadCloser, error)

// Shell asks a login shell, and keeps what it said: in memory, for it may hold secrets.
type Shell struct {
	start Start
	shim  string        // path of corral-shim, which prints its environment
	turn  chan struct{} // holds one value, which whoever asks the shell has taken
	known answer        // of the one who has the turn
}

// answer is what a shell added to an environment.
type answer struct {
	question [32]byte // what it depends on
	added    []string
	err      error     // why there is no more
	until    time.Time // it is to be asked again from then on, zero for never
	pause    time.Duration
}

// New makes a Shell that is started by start and prints its environment by the corral-shim at shim.
func New(start Start, shim string) *Shell {
	s := &Shell{start: start, shim: shim, turn: make(chan struct{}, 1)}
	s.turn <- struct{}{}
	return s
}

// Added returns what the user's login shell adds to the environment that it is given, which is the
// manager's: new variables, and those with another value. The shell is asked once, and again when
// it, what it is given, or one of its start-up files has changed. An error may come with what could
// be found out all the same, and is the same one until the shell was asked again.
func (s *Shell) Added(ctx context.Context, given []string) ([]string, error) {
	select {
	case <-s.turn:
		defer func() { s.turn <- struct{}{} }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	question := dependsOn(given)
	if s.known.question == question && (s.known.until.IsZero() || time.Now().Before(s.known.until)) {
		return s.known.added, s.known.err
	}
	added, late, err := s.probe(ctx, given)
	if ctx.Err() != nil {
		return nil, ctx.Err() // the caller's time was over, not the shell's
	}
	pause := s.known.pause
	s.known = answer{question: question, added: added, err: err}
	if late {
		s.known.pause = min(max(2*pause, againAfter), againMost)
		s.known.until = time.Now().Add(s.known.pause)
	}
	return added, err
}

// Invalidate has the shell asked again.
func (s *Shell) Invalidate() {
	<-s.turn
	s.known = answer{}
	s.turn <- struct{}{}
}

// probe asks the shell as somebody who logs in and gets a prompt, and where that is not answered,
// as one who does not get one. Late tells that time was up.
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
	first, cancelFirst := deadline.Context(ctx, interactive)
	defer cancelFirst()
	after, err := s.ask(first, shell, true)
	if err != nil {
		late = first.Err() != nil
		reason := why(first, err, interactive)
		if after, err = s.ask(ctx, shell, false); err != nil {
			late = late || ctx.Err() != nil
			return nil, late, fmt.Errorf("cannot read the environment of the login shell %s: with a prompt it %s, without one it %s", shell, reason, why(ctx, err, Limit))
		}
		err = fmt.Errorf("cannot read the whole environment of the login shell %s: with a prompt it %s; its environment without a prompt is used", shell, reason)
	}
	added = slices.DeleteFunc(environment.Added(given, after), func(entry string) bool { return slices.Contains(asked, entry) })
	return added, late, err
}

// why tells what a shell did instead of answering.
func why(ctx context.Context, err error, limit time.Duration) string {
	if ctx.Err() != nil {
		return "did not answer within " + limit.String()
	}
	return err.Error()
}

// asked is what a shell that is asked has in its environment. Start-up files that enter a
// multiplexer look whether they are in one; those that need a good terminal, at TERM; and any of
// them can tell by CORRAL_LOGIN_SHELL that nobody is there.
var asked = []string{"TERM=dumb", "TMUX=/dev/null,0,0", "STY=corral", "ZELLIJ=0", "SSH_ASKPASS_REQUIRE=never", "CORRAL_LOGIN_SHELL=1"}

// ask starts the shell and reads its environment.
func (s *Shell) ask(ctx context.Context, shell string, interactively bool) ([]string, error) {
	if strings.ContainsAny(s.shim, "'\\\n") {
		return nil, errors.New("cannot run corral-shim: its path contains a quote or a line break")
	}
	mark := rand.Text()
	args := arguments(shell, interactively, "'"+s.shim+"' environment "+mark)
	output, err := s.start(ctx, shell, args, asked)
	if err != nil {
		return nil, fmt.Errorf("cannot be started: %w", err)
	}
	defer func() { _ = output.Close() }()
	var printed []byte
	buffer := make([]byte, 32<<10)
	for len(printed) < maxPrinted {
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

// arguments are those of a login shell that executes a command.
func arguments(shell string, interactively bool, command string) []string {
	name := filepath.Base(shell)
	if name == "csh" || name == "tcsh" { // which take -l alone only, and are login shells by their name, too
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
