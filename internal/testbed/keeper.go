package testbed

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/testbed/claim"
	"github.com/corrald/corral/internal/testbed/ready"
)

type unixWaitStatus = syscall.WaitStatus

// controlFD is the descriptor of the pipe through which the owner sends signal numbers. End of file
// means that the owner has died.
const controlFD = 4

// runKeeperStage starts the user manager, then the command in it, and returns the command's exit
// status. The owner kills what still runs then; if the keeper is the first process of a pid
// namespace, all other processes die when it exits.
func runKeeperStage(p *plan) int {
	// Received and ignored: the owner forwards the signals that matter.
	signal.Notify(make(chan os.Signal, 1), unix.SIGINT, unix.SIGTERM, unix.SIGQUIT, unix.SIGHUP)
	root := os.Geteuid() == 0
	if err := p.prepareKeeper(root); err != nil {
		return report(err)
	}
	k := &keeper{plan: p, root: root, exits: make(chan exitEvent), control: make(chan unix.Signal)}
	children := make(chan os.Signal, 1)
	signal.Notify(children, unix.SIGCHLD)
	go k.reap(children)
	go k.forwardSignals()
	status, err := k.run()
	if hasOwnerDied() { // together with the command, whose input may have been the owner's
		k.killAll()
	}
	if err != nil {
		return report(err)
	}
	return status
}

func (p *plan) prepareKeeper(root bool) error {
	unix.CloseOnExec(controlFD)
	if root {
		return p.mountPrivately()
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot become a subreaper: %w", err)
	}
	cgroup, err := claim.OwnCgroup()
	if err != nil {
		return err
	}
	if err := os.WriteFile(claim.CgroupFile(p.Dir), []byte(cgroup), 0o600); err != nil {
		return fmt.Errorf("cannot record the cgroup: %w", err)
	}
	return nil
}

// keeper is the parent of the user manager, the command and all orphaned processes.
type keeper struct {
	*plan
	root    bool
	exits   chan exitEvent   // the exit of every child
	control chan unix.Signal // signals to forward to the command
}

type exitEvent struct {
	pid    int
	status syscall.WaitStatus
}

// reap collects every child that exits and notifies run.
func (k *keeper) reap(children <-chan os.Signal) {
	for range children {
		for {
			var e exitEvent
			var err error
			if e.pid, err = syscall.Wait4(-1, &e.status, syscall.WNOHANG, nil); err != nil || e.pid == 0 {
				break
			}
			k.exits <- e
		}
	}
}

// forwardSignals forwards the owner's signals to run. When the owner has died, it kills everything.
func (k *keeper) forwardSignals() {
	control := os.NewFile(controlFD, "control")
	for number := make([]byte, 1); ; {
		if _, err := control.Read(number); err == nil {
			k.control <- unix.Signal(number[0])
			continue
		}
		k.killAll()
	}
}

// hasOwnerDied reports whether the owner's end of the control pipe is closed.
func hasOwnerDied() bool {
	control := []unix.PollFd{{Fd: controlFD}}
	n, err := unix.Poll(control, 0)
	return err == nil && n > 0 && control[0].Revents&unix.POLLHUP != 0
}

// killAll kills the keeper and all processes of the test bed. For root, the kernel kills them when
// the keeper exits.
func (k *keeper) killAll() {
	if cgroup, err := os.ReadFile(claim.CgroupFile(k.Dir)); err == nil && !k.root {
		_ = os.WriteFile(filepath.Join(string(cgroup), "cgroup.kill"), []byte("1"), 0)
	}
	os.Exit(statusCannotRun)
}

func (k *keeper) run() (int, error) {
	notified, err := ready.Listen(k.notifySocket())
	if err != nil {
		return 0, err
	}
	manager, err := k.startManager()
	if err != nil {
		return 0, err
	}
	if err := k.awaitReady(manager, notified); err != nil {
		return 0, err
	}
	command, err := k.startCommand()
	if err != nil {
		return 0, err
	}
	for {
		select {
		case e := <-k.exits:
			if e.pid == command {
				return exitStatus(e.status), nil
			}
		case s := <-k.control:
			_ = unix.Kill(command, s)
		}
	}
}

// startCommand starts this program a third time, as the manager's user, to run the tests or the
// command.
func (k *keeper) startCommand() (int, error) {
	command := *k.plan
	command.Stage, command.Socket = stageCommand, true
	program, arguments := k.program(), []string{k.program()}
	if k.Test {
		arguments = k.Command
	}
	process, err := os.StartProcess(program, arguments, &os.ProcAttr{
		Env:   append(k.commandEnvironment(), command.variable()),
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr, os.NewFile(ownerFD, "owner")},
		Sys:   &syscall.SysProcAttr{Credential: k.credential()},
	})
	if err != nil {
		return 0, fmt.Errorf("cannot start the command: %w", err)
	}
	return process.Pid, nil
}

// credential returns the unprivileged user's if root started the test bed, nil otherwise.
func (k *keeper) credential() *syscall.Credential {
	if !k.root {
		return nil
	}
	return &syscall.Credential{Uid: uint32(k.UID), Gid: uint32(k.UID)}
}

// exitStatus returns the exit status as a shell does: 128 and the signal number if a signal killed
// the process.
func exitStatus(status syscall.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}
