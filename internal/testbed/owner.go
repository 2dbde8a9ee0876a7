package testbed

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/testbed/claim"
)

// runOwner runs the plan's command in a private user manager and returns its exit status.
func runOwner(p *plan) int {
	// The keeper is signalled when the thread that started it dies (prctl(2), PR_SET_PDEATHSIG), so
	// this thread has to stay.
	runtime.LockOSThread()
	if err := requirePrograms(); err != nil {
		return report(err)
	}
	c, err := claim.New()
	if err != nil {
		return report(err)
	}
	status, err := runClaimed(p, c)
	if err = errors.Join(err, c.Release()); err != nil {
		return report(err)
	}
	return status
}

func runClaimed(p *plan, c *claim.Claim) (int, error) {
	p.Stage, p.Dir, p.UID = stageKeeper, c.Dir, os.Geteuid()
	if p.UID == 0 {
		p.UID = c.UID()
	}
	if err := p.makeDirectories(); err != nil {
		return 0, err
	}
	collect := func() error { return nil }
	if p.Test {
		p.Command, collect = redirectOutputs(p.Command, filepath.Join(c.Dir, "out"))
	}
	status, err := runKeeper(p, c)
	return status, errors.Join(err, collect())
}

// runKeeper starts the keeper and serves its requests until it exits.
func runKeeper(p *plan, c *claim.Claim) (int, error) {
	keeper, err := keeperCommand(p, c)
	if err != nil {
		return 0, err
	}
	ours, theirs, err := socketPair()
	if err != nil {
		return 0, err
	}
	defer func() { _ = ours.Close() }()
	life, control, err := os.Pipe()
	if err != nil {
		return 0, fmt.Errorf("cannot make a pipe: %w", err)
	}
	defer func() { _ = control.Close() }()
	keeper.Stdin, keeper.Stdout, keeper.Stderr = os.Stdin, os.Stdout, os.Stderr
	keeper.ExtraFiles = []*os.File{theirs, life} // descriptors 3 and 4
	terminal := openTerminal()
	defer terminal.close()
	forwardSignals(control, terminal)
	err = keeper.Start()
	_, _ = theirs.Close(), life.Close()
	if err != nil {
		return 0, fmt.Errorf("cannot start the keeper: %w", err)
	}
	go serveBuilds(ours, filepath.Join(c.Dir, "bin"))
	err = keeper.Wait()
	if exited := new(exec.ExitError); err != nil && !errors.As(err, &exited) {
		return 0, fmt.Errorf("cannot wait for the keeper: %w", err)
	}
	return exitStatus(keeper.ProcessState.Sys().(unixWaitStatus)), nil
}

// keeperCommand returns the command that runs this program as the keeper, in a place where it may
// create cgroups. The plan is passed in the environment and not in the arguments, in which
// systemd-run expands `$` from version 258 on.
func keeperCommand(p *plan, c *claim.Claim) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("cannot find the own program: %w", err)
	}
	var cmd *exec.Cmd
	if os.Geteuid() == 0 {
		cmd, err = keeperInNamespaces(self, c)
	} else {
		cmd, err = keeperInScope(self, c)
	}
	if err != nil {
		return nil, err
	}
	cmd.Env = append(os.Environ(), p.variable())
	return cmd, nil
}

// keeperInNamespaces returns the keeper's command for root. The keeper becomes the first process of
// a pid namespace, so that no process outlives it. It joins its cgroup before the cgroup namespace
// is created, so that this cgroup becomes the root of the namespace.
func keeperInNamespaces(self string, c *claim.Claim) (*exec.Cmd, error) {
	cgroup, err := c.MakeCgroup()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.SysProcAttr = &unix.SysProcAttr{
		Cloneflags:   unix.CLONE_NEWPID,
		Unshareflags: unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP,
		UseCgroupFD:  true,
		CgroupFD:     int(cgroup.Fd()),
		Pdeathsig:    unix.SIGKILL,
	}
	return cmd, nil
}

// keeperInScope returns the keeper's command for an ordinary user: it runs in a delegated scope of
// the user's own manager.
func keeperInScope(self string, c *claim.Claim) (*exec.Cmd, error) {
	if _, err := os.Stat(filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "systemd/private")); err != nil {
		return nil, errors.New("no systemd user manager is running for this user: " +
			"log in through logind (console, ssh, machinectl shell), or run this as root")
	}
	cmd := exec.Command("systemd-run", "--user", "--scope", "--collect", "--quiet", "--property=Delegate=yes",
		"--unit="+fmt.Sprintf("corral-testbed-%d-%s", os.Getpid(), filepath.Base(c.Dir)), "--", self)
	// Only for systemd-run; the keeper notices by the control pipe.
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGTERM}
	return cmd, nil
}

// forwardSignals writes the number of each termination signal to the control pipe. Signals from a
// terminal are not forwarded: they reach every process in the foreground, the command included.
func forwardSignals(control *os.File, terminal *terminal) {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGQUIT, unix.SIGHUP)
	go func() {
		for s := range signals {
			number := s.(unix.Signal)
			if (number == unix.SIGINT || number == unix.SIGQUIT) && terminal.foreground() {
				continue
			}
			_, _ = control.Write([]byte{byte(number)})
		}
	}()
}

// socketPair returns a connection for the owner and its other end for the tests.
func socketPair() (ours net.Conn, theirs *os.File, err error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot make a socket pair: %w", err)
	}
	file := os.NewFile(uintptr(ends[0]), "tests")
	defer func() { _ = file.Close() }()
	theirs = os.NewFile(uintptr(ends[1]), "owner")
	if ours, err = net.FileConn(file); err != nil {
		_ = theirs.Close()
		return nil, nil, fmt.Errorf("cannot use a socket pair: %w", err)
	}
	return ours, theirs, nil
}
