package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi/client"
)

// attachment is one corralctl attach: a person at a terminal, and the session that is shown there.
type attachment struct {
	c           *ctl
	id          string
	options     attachOptions
	signals     chan os.Signal
	mayBeTyping bool // the agent has ended under a person who was attached, and who may be typing
	revisited   bool // the person was attached, or was asked, before
	screenShown bool // the screen of the ended session has been shown already
}

// The bounds of what attach waits for.
const (
	// detachTimeout bounds how long a tmux client may take to give the terminal back.
	detachTimeout = 2 * time.Second
	// stateTimeout bounds how long the daemon may take to notice that a tmux server or its session is
	// gone.
	stateTimeout = 5 * time.Second
)

// attach shows the session's terminal until the person detaches. Where its agent has ended, it
// shows what is left and asks what to do.
func (c *ctl) attach(ctx context.Context, id string, o attachOptions) error {
	a := &attachment{c: c, id: id, options: o, signals: make(chan os.Signal, 8)}
	signal.Notify(a.signals, unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM)
	defer signal.Stop(a.signals)
	again, err := a.attachOnce(ctx)
	for err == nil && again {
		a.revisited = true
		again, err = a.attachOnce(a.withoutTimeout(ctx))
	}
	return err
}

// withoutTimeout returns a context for what a person decides: --timeout= limits how long corrald may
// take, not for how long somebody is attached. The connection to the bus, which ends with the
// context that it was made with, is made again.
func (a *attachment) withoutTimeout(ctx context.Context) context.Context {
	if a.c.client != nil {
		_ = a.c.client.Close()
		a.c.client = nil
	}
	a.c.timeout = span{}
	return context.WithoutCancel(ctx)
}

// attachOnce attaches, or asks what to do about a session that has ended. It returns whether the session
// is to be looked at again.
func (a *attachment) attachOnce(ctx context.Context) (again bool, err error) {
	bus, err := a.c.connect(ctx)
	if err != nil {
		return false, a.c.cannot("attach to", a.id, err)
	}
	if err := a.c.refuseOwnSession(ctx, bus, a.id, "attach to"); err != nil {
		return false, err
	}
	s, err := bus.Session(ctx, a.id)
	if err != nil {
		return false, a.attachError(err)
	}
	if isUnattachable(s) && s.State != "suspended" {
		return a.offer(ctx, s)
	}
	argv, variables, err := bus.AttachCommand(ctx, a.id) // it resumes a session that was suspended for being idle
	switch {
	case err == nil:
	case !isInvalidState(err):
		return false, a.attachError(err)
	case isUnattachable(s):
		return a.offer(ctx, s)
	default:
		return a.waitForStateChange(ctx, s, err)
	}
	if !a.c.onTerminal() {
		return false, a.c.noTerminalError(ctx, []string{a.id})
	}
	followAgent()
	_ = bus.Acknowledge(ctx, a.id) // also where somebody is attached already: tmux reports the first one only
	if !a.options.here && a.c.showInTmux(ctx, bus, s) {
		return false, nil
	}
	return a.showTerminal(a.withoutTimeout(ctx), argv, attachEnvironment(os.Environ(), variables))
}

// attachError returns why the person cannot be attached. The session may have been removed under them.
func (a *attachment) attachError(err error) error {
	if a.revisited && isRemoved(err) {
		return &failure{code: exitNoSession, message: fmt.Sprintf("session %q was removed", a.id)}
	}
	return a.c.cannot("attach to", a.id, err)
}

// isUnattachable tells whether a session has no terminal that a person could use as it is: its agent has
// ended or never ran, its tmux server has died, or it is frozen.
func isUnattachable(s client.Session) bool {
	switch s.State {
	case "stale":
		return true
	case "orphaned":
		return !s.SessionAlive
	case "suspended": // also said of a session that a daemon leaves running as it exits
		return !s.AgentAlive
	}
	return s.Frozen || wording.IsEnded(s.State)
}

// waitForStateChange waits for the end of a start or a stop, during which a session may have no terminal.
// Refused is why it cannot be attached to.
func (a *attachment) waitForStateChange(ctx context.Context, before client.Session, refused error) (again bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, stateTimeout)
	defer cancel()
	err = a.c.follow(ctx, a.id, func(_ context.Context, _ *lastingWatch, s client.Session) (bool, error) {
		return isUnattachable(s) || s.State != before.State, nil
	})
	if errors.Is(err, context.DeadlineExceeded) {
		err = refused
	}
	if err != nil && !isRemoved(err) {
		return false, a.c.cannot("attach to", a.id, err)
	}
	return true, nil
}

// showTerminal runs the tmux client until the person detaches or the agent ends. The client has the
// terminal meanwhile: it is in the foreground as well, and the keys, the window's changes of size
// and a hangup reach it by themselves.
func (a *attachment) showTerminal(ctx context.Context, argv, environment []string) (again bool, err error) {
	if err := a.c.out.Flush(); err != nil {
		return false, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		err := a.c.follow(ctx, a.id, func(ctx context.Context, watch *lastingWatch, s client.Session) (bool, error) {
			if s.Frozen { // and tmux with it, which shows nothing then and detaches nobody
				return true, nil
			}
			return watch.ended(ctx, s)
		})
		ended <- err
	}()
	status, over, err := a.runClient(argv, environment, ended)
	if err != nil || over == endedBySignal {
		return false, err
	}
	attached := over == exitedByItself && serverHasSession(argv, environment)
	switch {
	case over == endedWithAgent:
		a.mayBeTyping = true
		return true, nil
	case attached && status == 0:
		return a.afterDetach(ctx)
	case attached:
		return false, &failure{code: exitFailed, message: fmt.Sprintf("cannot attach to %q: tmux exited with code %d", a.id, status)}
	}
	a.mayBeTyping = true
	return a.waitAfterServerLoss(ctx)
}

// afterDetach reports that the person has detached, unless the agent has ended at the same time.
func (a *attachment) afterDetach(ctx context.Context) (again bool, err error) {
	a.eraseMessage("[detached (from session " + a.id + ")]")
	bus, err := a.c.connect(ctx)
	if err == nil {
		bus.DisableAutoStart()
		now, err := bus.Session(ctx, a.id)
		if err == nil && isUnattachable(now) || isRemoved(err) {
			a.mayBeTyping = true
			return true, nil
		}
	}
	if !a.c.quiet {
		a.c.print("detached from %s; it keeps running\n", a.id)
	}
	return false, nil
}

// reportDaemonGone waits until the daemon knows as well that the session has lost its tmux server, or its place
// in that, or has another one: somebody may have restarted it.
func (a *attachment) waitAfterServerLoss(ctx context.Context) (again bool, err error) {
	restoreScreen(a.c.outTTY)
	ctx, cancel := context.WithTimeout(ctx, stateTimeout)
	defer cancel()
	bus, err := a.c.connect(ctx)
	if err != nil {
		return false, a.c.cannot("attach to", a.id, err)
	}
	err = a.c.follow(ctx, a.id, func(_ context.Context, _ *lastingWatch, s client.Session) (bool, error) {
		if isUnattachable(s) {
			return true, nil
		}
		argv, environment, err := bus.AttachCommand(ctx, a.id)
		return err == nil && serverHasSession(argv, environment), nil
	})
	if err != nil && !isRemoved(err) {
		return false, a.c.cannot("attach to", a.id, err)
	}
	return true, nil
}

// clientEnd is what has ended a tmux client.
type clientEnd int

const (
	exitedByItself clientEnd = iota // it exited by itself
	endedWithAgent                  // it was ended because the agent has, or because the session was frozen
	endedBySignal                   // it was ended by a signal to corralctl
)

// runClient runs the tmux client. Ended reports the end of the session's agent, or an error where
// the session was removed.
func (a *attachment) runClient(argv, environment []string, ended <-chan error) (status int, by clientEnd, err error) {
	terminal := int(a.c.in.Fd())
	modes, err := unix.IoctlGetTermios(terminal, unix.TCGETS)
	if err != nil {
		return 0, exitedByItself, fmt.Errorf("cannot read the modes of the terminal: %w", err)
	}
	// The kernel sends Pdeathsig when the thread exits that has started the child.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	command := exec.Command(argv[0], argv[1:]...)
	command.Env, command.Stdin, command.Stdout, command.Stderr = environment, a.c.in, os.Stdout, os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := command.Start(); err != nil {
		return 0, exitedByItself, a.c.cannot("attach to", a.id, fmt.Errorf("cannot run %q: %w", argv[0], err))
	}
	exited := make(chan int, 1)
	go func() { exited <- waitStoppable(command.Process.Pid) }()
	var unresponsive <-chan time.Time
	var sig os.Signal
	end := func(why clientEnd) {
		if by == exitedByItself {
			by, unresponsive = why, time.After(detachTimeout)
			_ = command.Process.Signal(unix.SIGTERM)
		}
	}
	for {
		select {
		case status = <-exited:
			_ = unix.IoctlSetTermios(terminal, unix.TCSETSW, modes)
			if by == endedWithAgent && status == exitFailed {
				a.eraseMessage("[terminated]")
			}
			if by == endedBySignal {
				err = exit(signalCode(sig))
			}
			return status, by, err
		case lost := <-ended:
			if ended = nil; lost == nil || isRemoved(lost) {
				end(endedWithAgent)
			}
		case sig = <-a.signals:
			if sig != unix.SIGINT && sig != unix.SIGQUIT { // those are keys of a terminal that the client has
				end(endedBySignal)
			}
		case <-unresponsive:
			_ = command.Process.Kill()
			restoreScreen(a.c.outTTY)
		}
	}
}

// waitStoppable waits for a child and returns its exit code. When a stop signal stops the child, as
// tmux's suspend-client does, corralctl is stopped as well, so that the shell takes the terminal
// back; both are continued together.
func waitStoppable(pid int) int {
	for {
		var status unix.WaitStatus
		_, err := unix.Wait4(pid, &status, unix.WUNTRACED, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return exitFailed
		case status.Stopped():
			stopSelf(unix.SIGSTOP)
			_ = unix.Kill(pid, unix.SIGCONT)
		case status.Signaled():
			return signalCode(status.Signal())
		default:
			return status.ExitStatus()
		}
	}
}

// stopSelf has this process stopped by a signal, and returns once it was continued. Another thread
// may get the signal, later. In a process group that no shell would continue, SIGTSTP is ignored.
func stopSelf(sig unix.Signal) {
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, unix.SIGCONT)
	defer signal.Stop(continued)
	_ = unix.Kill(os.Getpid(), sig)
	select {
	case <-continued:
	case <-time.After(time.Second):
	}
}

// signalCode is the exit code that reports a signal, as a shell has it.
func signalCode(sig os.Signal) int {
	if number, ok := sig.(syscall.Signal); ok {
		return 128 + int(number)
	}
	return exitFailed
}

// serverHasSession asks the tmux server of a command to attach whether it still has the session. One that
// does not answer has it as far as is known.
func serverHasSession(argv, environment []string) bool {
	at := slices.Index(argv, "attach-session")
	if at < 0 {
		return true
	}
	ctx, cancel := context.WithTimeout(context.Background(), detachTimeout)
	defer cancel()
	ask := slices.Clone(argv)
	ask[at] = "has-session"
	command := exec.CommandContext(ctx, ask[0], ask[1:]...)
	command.Env = environment
	return command.Run() == nil || ctx.Err() != nil
}

// eraseMessage removes the line that a tmux client prints as it exits: what has happened is
// reported in the words of corralctl.
func (a *attachment) eraseMessage(line string) {
	if t := a.c.outTTY; t != nil && !t.dumb && len(line) < t.width {
		fmt.Fprint(a.c.out, "\x1b[A\r\x1b[2K")
	}
}

// restoreScreen leaves the alternate screen and switches off what tmux has a terminal report, for a
// server that could not do it any more. See xterm's ctlseqs.
func restoreScreen(t *terminal) {
	if t != nil && !t.dumb {
		fmt.Fprint(os.Stdout, "\x1b[?1049l\x1b[?1000;1002;1003;1004;1006;2004l\x1b[>4m\x1b[?1l\x1b>\x1b[?25h\x1b[m\x1b(B\r")
	}
}

// errRemoved is the error of following a session that was removed.
var errRemoved = errors.New("it was removed")

// follow watches a session over a connection of its own until it is as wanted. It outlives the
// daemon, and starts none. Errors: errRemoved, NoSuchSession, that of ctx, those of wanted, and
// those of a connection that cannot be made.
func (c *ctl) follow(ctx context.Context, id string, wanted func(context.Context, *lastingWatch, client.Session) (bool, error)) error {
	own := &ctl{globals: c.globals, name: c.name, err: io.Discard}
	watch := &lastingWatch{c: own, ids: []string{id}, away: func(string) {}}
	defer func() {
		if own.client != nil {
			_ = own.client.Close()
		}
	}()
	if err := watch.listen(ctx); err != nil {
		return err
	}
	s, known, err := watch.session(ctx, id)
	for err == nil {
		if known {
			if is, err := wanted(ctx, watch, s); is || err != nil {
				return err
			}
		}
		var event client.Event
		if event, err = watch.next(ctx); err != nil {
			break
		}
		switch e := event.(type) {
		case client.SessionChanged:
			if known && e.ID == id && !isOutdated(e.Properties, s) {
				err = e.Properties.Decode(&s)
			}
		case client.SessionRemoved:
			if e.ID == id {
				err = errRemoved
			}
		case client.DaemonBack:
			s, known, err = watch.session(ctx, id)
		}
	}
	return err
}

// isRemoved tells whether err says that there is no such session, or no more.
func isRemoved(err error) bool { return errors.Is(err, errRemoved) || err != nil && gone(err) }
