package effects

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/environment"
	"github.com/corrald/corral/internal/program"
	"github.com/corrald/corral/internal/sandbox"
	"github.com/corrald/corral/supervisor"
	"github.com/corrald/corral/supervisor/session"
)

// withConversation returns the plan with the command that the run executes: if the plan has a
// conversation that the agent has saved, the command that continues it.
func (x *Executor) withConversation(
	ctx context.Context, p supervisor.Plan, report func(session.Event),
) (supervisor.Plan, error) {
	if p.Conversation == nil {
		return p, nil
	}
	variables := func() ([]environment.Variable, error) { return x.variables(ctx, p) }
	command, notFound, err := p.Conversation.Choose(p.Spec.RunID, p.Spec.Args, variables)
	if err != nil {
		return p, err
	}
	p.Spec.Args = command
	if notFound != nil {
		report(*notFound)
	}
	return p, nil
}

// variables returns the variables of the run's agent, with their sources.
func (x *Executor) variables(ctx context.Context, p supervisor.Plan) ([]environment.Variable, error) {
	return x.environments.Compose(ctx, p.Environment, p.ID, p.Spec.Dir)
}

// maxIDOutput bounds how much is read of the output of IdCommand=, in bytes.
const maxIDOutput = 64 << 10

// createConversation runs IdCommand=, which creates a conversation and prints its id as the only
// word of the last line, and reports that id.
func (x *Executor) createConversation(
	ctx context.Context, p supervisor.Plan, report func(session.Event),
) error {
	command := p.IDCommand
	doing := fmt.Sprintf("cannot create a conversation with %q", strings.Join(command, " "))
	if err := program.CheckWorkspace(p.Spec.Dir); err != nil {
		return err
	}
	variables, err := x.variables(ctx, p)
	if err != nil {
		return err
	}
	confined, variables, err := x.confine(p.Confinement, sandbox.Request{Workspace: p.Spec.Dir}, variables)
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	command = append(confined.Args, command...)
	env := environment.Entries(variables)
	path, err := program.Find(command[0], env, p.Spec.Dir)
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, path, command[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdout = p.Spec.Dir, env, &limitedWriter{to: &out, left: maxIDOutput}
	// The kernel kills the command if the daemon exits.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = time.Second // leftover processes of the command may hold the pipe open
	runtime.LockOSThread()      // the kernel sends Pdeathsig when the thread exits that has started the command
	err = cmd.Run()
	runtime.UnlockOSThread()
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("%s: it took too long", doing)
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		return fmt.Errorf("%s: %w; run it in the workspace to see its output", doing, err)
	}
	id, ok := lastID(out.String())
	if !ok {
		return fmt.Errorf("%s: the last line of its output is not an id", doing)
	}
	report(session.ConversationCreated{Run: p.Spec.RunID, ID: id})
	return nil
}

// lastID returns the last line of a program's output, and whether it is a valid conversation id.
func lastID(printed string) (string, bool) {
	printed = strings.TrimRight(printed, " \t\r\n")
	id := strings.TrimSpace(printed[strings.LastIndexByte(printed, '\n')+1:])
	return id, config.ValidConversationID(id)
}

// limitedWriter writes the first left bytes to another writer and discards the rest.
type limitedWriter struct {
	to   io.Writer
	left int
}

func (w *limitedWriter) Write(b []byte) (int, error) {
	n := min(len(b), w.left)
	w.left -= n
	if _, err := w.to.Write(b[:n]); err != nil {
		return 0, err
	}
	return len(b), nil
}
