// Package setup runs the commands that set a git worktree up before its first use, and tear it down
// before its removal. They run in a process of their own, which a Runner starts.
package setup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/corrald/corral/dbusapi/word"
	"github.com/corrald/corral/internal/outcome"
	"github.com/corrald/corral/internal/program"
	"github.com/corrald/corral/internal/safefile"
)

// Command is a command to run in a worktree.
type Command struct {
	// Prefix is an argument vector that runs the one after it, such as that of a sandbox.
	Prefix []string
	Args   []string
	// Script is executed instead of the program that Args names, if it is not empty: a copy of it, in
	// a new directory in ScriptDir, so that nobody can have replaced what is executed.
	Script    []byte
	ScriptDir string

	Environment []string      // NAME=VALUE, all of it
	Dir         string        // the worktree
	Log         string        // directory of the log to which the output is appended
	LogMax      int64         // bytes of that log
	Limit       time.Duration // how long the command may take
}

// Runner runs RunStep in a process of its own, and returns its output. It ends everything that the
// command has started. When ctx is done, it ends the command. The name is that of the session. The
// step ends by itself after limit. An error means that it did not.
type Runner func(ctx context.Context, name string, limit time.Duration, input []byte) (output []byte, err error)

// terminationTimeout is how long a command may take to exit after SIGTERM, before it is killed.
const terminationTimeout = 5 * time.Second

// Failure describes how a command has failed. A log must not contain the LastLine.
type Failure struct {
	How      string // one clause for a person
	LastLine string // the last line with text that the command has printed, "" if there is none
}

func (f *Failure) Error() string {
	if f.LastLine == "" {
		return f.How
	}
	return f.How + ": " + f.LastLine
}

// Run runs a command through a Runner. Errors: *Failure.
func (run Runner) Run(ctx context.Context, name string, c Command) error {
	input, err := json.Marshal(c)
	if err != nil {
		return err
	}
	output, err := run(ctx, name, c.Limit+2*terminationTimeout, input)
	if err != nil {
		return err
	}
	var failure Failure
	if err := json.Unmarshal(output, &failure); err != nil {
		return fmt.Errorf("cannot read the result of %q: %w", c.Args[0], err)
	}
	if failure.How != "" {
		return &failure
	}
	return nil
}

// RunStep runs the command that the input describes as a child of this process, and is called in
// the process that a Runner starts. When ctx is done, the command is terminated.
func RunStep(ctx context.Context, input []byte) (output []byte) {
	var c Command
	failure := &Failure{}
	err := json.Unmarshal(input, &c)
	if err == nil {
		err = c.run(ctx)
	}
	if err != nil && !errors.As(err, &failure) {
		failure.How = err.Error()
	}
	output, _ = json.Marshal(failure) // strings are always valid
	return output
}

func (c Command) run(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, c.Limit)
	defer cancel()
	args := c.Args
	if len(c.Script) > 0 {
		copied, err := c.copyScript()
		if err != nil {
			return fmt.Errorf("cannot copy %s: %w", c.Args[0], err)
		}
		defer func() { _ = os.RemoveAll(filepath.Dir(copied)) }()
		args = []string{copied}
	}
	args = slices.Concat(c.Prefix, args)
	path, err := program.Find(args[0], c.Environment, c.Dir)
	if err != nil {
		return err
	}
	log, err := openLog(c.Log, c.LogMax)
	if err != nil {
		return fmt.Errorf("cannot open the log of the session: %w", err)
	}
	defer log.close()
	cmd := exec.CommandContext(limited, path)
	cmd.Args, cmd.Dir, cmd.Env = args, c.Dir, c.Environment
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = terminationTimeout // also if a process that it left in the background has its output open
	err = cmd.Run()
	if limited.Err() != nil && cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("command %q was stopped", c.Args[0])
	case limited.Err() != nil:
		return fmt.Errorf("command %q took longer than %v", c.Args[0], c.Limit)
	case errors.As(err, &exit):
		return &Failure{fmt.Sprintf("command %q %s", c.Args[0], phrase(exit.ProcessState)), log.lastLine()}
	case errors.Is(err, exec.ErrWaitDelay): // it has succeeded
		return nil
	}
	return err
}

// copyScript writes the script to a new file that only the user can access, and returns its path.
func (c Command) copyScript() (string, error) {
	if err := os.MkdirAll(c.ScriptDir, 0o700); err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(c.ScriptDir, "script-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, filepath.Base(c.Args[0]))
	file, err := safefile.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o500)
	if err == nil {
		_, err = file.Write(c.Script)
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	return path, nil
}

// phrase returns how a process that has not succeeded has ended.
func phrase(state *os.ProcessState) string {
	if status, is := state.Sys().(syscall.WaitStatus); is && status.Signaled() {
		return outcome.Phrase(word.Signal, int(status.Signal()))
	}
	return outcome.Phrase(word.ExitCode, state.ExitCode())
}
