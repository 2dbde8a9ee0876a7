package main

import (
	"errors"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/proc"
	"github.com/corrald/corral/internal/program"
	"github.com/corrald/corral/internal/shimwire"
)

// agent is the process that the shim runs.
type agent struct {
	pid        int
	pidfd      int
	startTicks uint64 // start time in clock ticks since boot; with pid it identifies the process
	started    time.Time

	// Of an agent in a sandbox, else 0: the socket and the pidfd of the confined shim, and the process
	// of bubblewrap outside of the sandbox.
	sandbox, confined, sandboxPID, sandboxPidfd int
}

// startAgent executes the command of the spec as the leader of a new session whose controlling
// terminal is slave. It returns once the program was executed; every error is a *program.Error. The
// pidfd, which it gets from clone(2), requires Linux 5.2.
func startAgent(spec *shimwire.Spec, slave int) (agent, error) {
	if spec.SandboxArgs > 0 {
		return startConfined(spec, slave)
	}
	if err := program.CheckWorkspace(spec.Dir); err != nil {
		return agent{}, err
	}
	name := spec.Args[0]
	path, err := program.Find(name, spec.Env, spec.Dir)
	if err != nil {
		return agent{}, err
	}
	a := agent{pidfd: -1}
	attr := &syscall.ProcAttr{
		Dir: spec.Dir, Env: spec.Env, Files: []uintptr{uintptr(slave), uintptr(slave), uintptr(slave)},
		Sys: &syscall.SysProcAttr{Setsid: true, Setctty: true, PidFD: &a.pidfd},
	}
	a.started = time.Now()
	a.pid, err = syscall.ForkExec(path, spec.Args, attr)
	if errors.Is(err, syscall.ENOEXEC) { // as execvp(3) does, run a file without #! as a shell script
		a.pid, err = syscall.ForkExec("/bin/sh", append([]string{"sh", path}, spec.Args[1:]...), attr)
	}
	if err != nil {
		return agent{}, execError(name, err)
	}
	status, _ := proc.Stat(a.pid)
	a.startTicks = status.Start
	return a, nil
}

// execError describes an execve error of a command whose file exists and is executable.
func execError(name string, err error) error {
	text := "command " + strconv.Quote(name)
	switch {
	case errors.Is(err, syscall.ENOENT):
		text += " needs an interpreter that does not exist"
	case errors.Is(err, syscall.EACCES):
		text += " is not executable"
	default:
		text += " cannot be executed: " + err.Error()
	}
	return &program.Error{Text: text, Code: program.NotExecutable}
}

// sendHangup sends the signals that the kernel sends when a terminal is closed: SIGHUP to the
// session leader and to the foreground processes, and SIGCONT, because a stopped process could not
// react.
func (a *agent) sendHangup(master int) {
	a.signal(master, unix.SIGHUP)
	a.signal(master, unix.SIGCONT)
}

// signal sends sig to the foreground processes of the agent's terminal, and to the agent if it is
// not one of them.
func (a *agent) signal(master int, sig unix.Signal) {
	group, err := unix.IoctlGetInt(master, unix.TIOCGPGRP)
	if err == nil && group > 1 {
		_ = unix.Kill(-group, sig)
	}
	if group != a.pid {
		_ = unix.PidfdSendSignal(a.pidfd, sig, nil, 0)
	}
}
