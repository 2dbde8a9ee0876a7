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
	"github.com/corrald/corral/dbusapi/word"
)

// attachment is one run of corralctl attach: it shows a session to the person at the terminal.
type attachment struct {
	c           *ctl
	id          string
	options     attachOptions
	signals     chan os.Signal
	mayBeTyping bool // the agent ended while the person was attached: ignore what they were typing to it
	revisited   bool // attachOnce has run before
	screenShown bool // the last screen of the ended session is on the terminal already
}

// Limits of how long attach waits.
const (
	// detachTimeout bounds how long a tmux client may take to exit and restore the terminal.
	detachTimeout = 2 * time.Second
	// stateTimeout bounds how long the daemon may take to notice that a tmux server or its session is
	// gone.
	stateTimeout = 5 * time.Second
)

// attach shows the session's terminal until the person detaches. If its agent has ended, it shows
// the last screen and asks what to do.
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

// withoutTimeout returns a context for what a person decides: --timeout= limits how long corrald
// may take, not how long somebody is attached. It closes the connection to the bus, which ends with
// the context that it was made with; the next connect makes a new one.
func (a *attachment) withoutTimeout(ctx context.Context) context.Context {
	if a.c.client != nil {
		_ = a.c.client.Close()
		a.c.client = nil
	}
	a.c.timeout = timeSpan{}
	return context.WithoutCancel(ctx)
}

// attachOnce attaches to the session or, if it has ended, asks what to do about it. It returns
// whether to look at the session again.
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
	if isUnattachable(s) && s.State != word.Suspended {
		return a.showEnded(ctx, s)
	}
	argv, variables, err := bus.AttachCommand(ctx, a.id) // resumes a session that was suspended for being idle
	switch {
	case err == nil:
	case !isInvalidState(err):
		return false, a.attachError(err)
	case isUnattachable(s):
		return a.showEnded(ctx, s)
	default:
		return a.waitForStateChange(ctx, s, err)
	}
	if !a.c.onTerminal() {
		return false, a.c.noTerminalError(ctx, []string{a.id})
	}
	updateSSHAgentLink()
	_ = bus.Acknowledge(ctx, a.id) // also if another client is attached: tmux reports only the first one
	if !a.options.here && a.c.showInTmux(ctx, bus, s) {
		return false, nil
	}
	return a.showTerminal(a.withoutTimeout(ctx), argv, attachEnvironment(os.Environ(), variables))
}

// attachError returns the error of a failed attach. A session that was shown before and does not
// exist now was removed meanwhile.
func (a *attachment) attachError(err error) error {
	if a.revisited && isRemoved(err) {
		return &failure{code: exitNoSession, message: fmt.Sprintf("session %q was removed", a.id)}
	}
	return a.c.cannot("attach to", a.id, err)
}

// isUnattachable reports whether a person cannot use the session's terminal as it is: its agent has
// ended or never ran, its tmux server has died, or it is frozen.
func isUnattachable(s client.Session) bool {
	switch s.State {
	case word.Stale:
		return true
	case word.Orphaned:
		return !s.SessionAlive
	case word.Suspended: // also the state of a session that an exiting daemon leaves running
		return !s.AgentAlive
	}
	return s.Frozen || wording.IsEnded(s.State)
}

// waitForStateChange waits until a start or a stop in progress, during which a session may have no
// terminal, has changed the session's state. If this takes longer than stateTimeout, it returns
// refused, the error of the attempt to attach.
func (a *attachment) waitForStateChange(
	ctx context.Context, before client.Session, refused error,
) (again bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, stateTimeout)
	defer cancel()
	err = a.c.follow(ctx, a.id, func(_ context.Context, _ *reconnectingWatch, s client.Session) (bool, error) {
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

// showTerminal runs the tmux client until the person detaches or the agent ends. The client uses
// the terminal meanwhile: it is in the foreground too, so keys, changes of the window's size and a
// hangup reach it directly.
func (a *attachment) showTerminal(ctx context.Context, argv, environment []string) (again bool, err error) {
	if err := a.c.out.Flush(); err != nil {
		return false, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		err := a.c.follow(ctx, a.id, func(ctx context.Context, watch *reconnectingWatch, s client.Session) (bool, error) {
			if s.Frozen { // tmux is frozen too: it shows nothing and cannot detach its client
				return true, nil
			}
			return watch.hasEnded(ctx, s)
		})
		ended <- err
	}()
	status, end, err := a.runClient(argv, environment, ended)
	if err != nil || end == endedBySignal {
		return false, err
	}
	attached := end == exitedByItself && serverHasSession(argv, environment)
	switch {
	case end == endedWithAgent:
		a.mayBeTyping = true
		return true, nil
	case attached && status == 0:
		return a.afterDetach(ctx)
	case attached:
		message := fmt.Sprintf("cannot attach to %q: tmux exited with code %d", a.id, status)
		return false, &failure{code: exitFailed, message: message}
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

// waitAfterServerLoss waits until the daemon also knows that the session has lost its tmux server,
// or its place in the server, or until the session has another server: somebody may have restarted
// it.
func (a *attachment) waitAfterServerLoss(ctx context.Context) (again bool, err error) {
	restoreScreen(a.c.outTTY)
	ctx, cancel := context.WithTimeout(ctx, stateTimeout)
	defer cancel()
	bus, err := a.c.connect(ctx)
	if err != nil {
		return false, a.c.cannot("attach to", a.id, err)
	}
	err = a.c.follow(ctx, a.id, func(_ context.Context, _ *reconnectingWatch, s client.Session) (bool, error) {
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

// clientEnd is the reason why a tmux client has exited.
type clientEnd int

const (
	exitedByItself clientEnd = iota // the client exited without a signal from corralctl
	endedWithAgent                  // corralctl ended it because the agent has ended, or because the session was frozen
	endedBySignal                   // corralctl ended it because corralctl itself got a signal
)

// runClient runs the tmux client. ended receives nil when the session's agent has ended, or an
// error when the session was removed.
func (a *attachment) runClient(argv, environment []string, ended <-chan error) (status int, end clientEnd, err error) {
	terminal := int(a.c.in.Fd())
	modes, err := unix.IoctlGetTermios(terminal, unix.TCGETS)
	if err != nil {
		return 0, exitedByItself, fmt.Errorf("cannot read the modes of the terminal: %w", err)
	}
	// The kernel sends Pdeathsig when the thread that started the child exits.
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
	terminate := func(why clientEnd) {
		if end == exitedByItself {
			end, unresponsive = why, time.After(detachTimeout)
			_ = command.Process.Signal(unix.SIGTERM)
		}
	}
	for {
		select {
		case status = <-exited:
			_ = unix.IoctlSetTermios(terminal, unix.TCSETSW, modes)
			if end == endedWithAgent && status == exitFailed {
				a.eraseMessage("[terminated]")
			}
			if end == endedBySignal {
				err = exit(signalCode(sig))
			}
			return status, end, err
		case watchErr := <-ended:
			if ended = nil; watchErr == nil || isRemoved(watchErr) {
				terminate(endedWithAgent)
			}
		case sig = <-a.signals:
			if sig != unix.SIGINT && sig != unix.SIGQUIT { // these come from keys, which are for the client
				terminate(endedBySignal)
			}
		case <-unresponsive:
			_ = command.Process.Kill()
			restoreScreen(a.c.outTTY)
		}
	}
}

// waitStoppable waits for a child and returns its exit code. If a stop signal stops the child, as
// tmux's suspend-client does, it stops corralctl as well, so that the shell takes the terminal
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

// stopSelf stops this process by a signal, and returns once it was continued. It has to wait
// because the signal may be delivered to another thread, later. It waits a second at most because
// SIGTSTP is ignored in an orphaned process group, which no shell would continue.
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

// signalCode returns the exit code that reports a signal as shells do: 128 plus its number.
func signalCode(sig os.Signal) int {
	if number, ok := sig.(syscall.Signal); ok {
		return 128 + int(number)
	}
	return exitFailed
}

// serverHasSession asks the tmux server that argv attaches to whether it still has the session. It
// returns true if the server does not answer in time.
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

// eraseMessage removes the line that a tmux client prints when it exits: corralctl reports in its
// own words what has happened.
func (a *attachment) eraseMessage(line string) {
	if t := a.c.outTTY; t != nil && !t.dumb && len(line) < t.width {
		fmt.Fprint(a.c.out, "\x1b[A\r\x1b[2K")
	}
}

// restoreScreen leaves the alternate screen and switches off the reports that tmux switches on in a
// terminal, for a server that exited without doing so. See xterm's ctlseqs.
func restoreScreen(t *terminal) {
	if t != nil && !t.dumb {
		fmt.Fprint(os.Stdout, "\x1b[?1049l\x1b[?1000;1002;1003;1004;1006;2004l\x1b[>4m\x1b[?1l\x1b>\x1b[?25h\x1b[m\x1b(B\r")
	}
}

// errRemoved is the error of following a session that was removed.
var errRemoved = errors.New("it was removed")

// follow watches a session over a connection of its own until done returns true. It survives
// restarts of the daemon, and starts none. Errors: errRemoved, NoSuchSession, that of ctx, those of
// done, and those of a connection that cannot be made.
func (c *ctl) follow(
	ctx context.Context, id string, done func(context.Context, *reconnectingWatch, client.Session) (bool, error),
) error {
	own := &ctl{globals: c.globals, name: c.name, err: io.Discard}
	watch := &reconnectingWatch{c: own, ids: []string{id}, onOutage: func(string) {}}
	defer func() {
		if own.client != nil {
			_ = own.client.Close()
		}
	}()
	if err := watch.connect(ctx); err != nil {
		return err
	}
	s, known, err := watch.session(ctx, id)
	for err == nil {
		if known {
			if isDone, err := done(ctx, watch, s); isDone || err != nil {
				return err
			}
		}
		var event client.Event
		if event, err = watch.next(ctx); err != nil {
			break
		}
		switch e := event.(type) {
		case client.SessionChanged:
			if known && e.ID == id {
				_, err = applyChange(&s, e)
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

// isRemoved reports whether err means that there is no such session, or no longer.
func isRemoved(err error) bool {
	return errors.Is(err, errRemoved) || err != nil && isNoSuchSession(err)
}
