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

// own runs the plan's command in a private user manager and returns its exit status.
func own(p *plan) int {
	runtime.LockOSThread() // the keeper is told of the death of the thread that started it (prctl(2), PR_SET_PDEATHSIG), so this one stays
	if err := requirePrograms(); err != nil {
		return complain(err)
	}
	c, err := claim.New()
	if err != nil {
		return complain(err)
	}
	status, err := ownClaimed(p, c)
	if err = errors.Join(err, c.Release()); err != nil {
		return complain(err)
	}
	return status
}

func ownClaimed(p *plan, c *claim.Claim) (int, error) {
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

// runKeeper starts the keeper and serves it until it ends.
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

// keeperCommand makes the command that runs this program again as the keeper, where it can have
// cgroups. The plan goes through the environment and not through the arguments, in which
// systemd-run expands `$` from 258 on.
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

// keeperInNamespaces is the way of root. The keeper becomes the first process of a pid namespace,
// so that nothing outlives it. It joins its cgroup before the cgroup namespace is made, which takes
// that cgroup for its root.
func keeperInNamespaces(self string, c *claim.Claim) (*exec.Cmd, error) {
	dir, err := c.MakeCgroup()
	if err != nil {
		return nil, err
	}
	cgroup, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot open cgroup %q: %w", dir, err)
	}
	cmd := exec.Command(self)
	cmd.SysProcAttr = &unix.SysProcAttr{
		Cloneflags:   unix.CLONE_NEWPID,
		Unshareflags: unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP,
		UseCgroupFD:  true,
		CgroupFD:     cgroup, // open until this process ends: one, and not inherited
		Pdeathsig:    unix.SIGKILL,
	}
	return cmd, nil
}

// keeperInScope is the way of an ordinary user: a delegated scope of the user's own manager.
func keeperInScope(self string, c *claim.Claim) (*exec.Cmd, error) {
	if _, err := os.Stat(filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "systemd/private")); err != nil {
		return nil, errors.New("no systemd user manager is running for this user: log in through logind (console, ssh, machinectl shell), or run this as root")
	}
	cmd := exec.Command("systemd-run", "--user", "--scope", "--collect", "--quiet", "--property=Delegate=yes",
		"--unit="+fmt.Sprintf("corral-testbed-%d-%s", os.Getpid(), filepath.Base(c.Dir)), "--", self)
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGTERM} // for systemd-run; the keeper then looks at the control pipe
	return cmd, nil
}

// forwardSignals sends the number of each signal that asks us to end through the control pipe. What
// a terminal sends is not passed on: it goes to every process in the foreground, the command
// included.
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

// socketPair returns a connection for the owner and the other end of it for the tests.
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
