package supervisor

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/failpoint"
	"github.com/corrald/corral/internal/shimwire"
	"github.com/corrald/corral/supervisor/session"
	"github.com/corrald/corral/supervisor/sources"
)

// shimConn is the connection to the shim of a run.
type shimConn struct {
	e      *entry
	socket sources.Descriptor
	peer   session.Process // the process at its other end

	spanStart      time.Duration // by CLOCK_MONOTONIC: begin of the span that limits the messages
	messagesInSpan int           // number of messages that were read in that span

	redialScheduled bool          // the loop is about to connect again
	redialDelay     time.Duration // before the next such attempt, 0 for none
	redialedAt      time.Duration // by CLOCK_MONOTONIC: when the last attempt was made
}

// shimSocket is the name of the shim's socket in the session's runtime directory.
const shimSocket = "shim.sock"

// notifySocket is the name of the shim's socket for sd_notify(3) in the same directory.
const notifySocket = "notify"

// connect connects to the run's shim, if its socket exists.
func (c *shimConn) connect() {
	e, r := c.e, c.e.rec.Run
	if c.socket.IsOpen() || !r.Live() || r.Exit != nil {
		return
	}
	t := e.target()
	fd, peer, err := e.loop.system.Terminals.DialShim(t)
	if errors.Is(err, unix.EAGAIN) {
		c.redial()
		return
	}
	if err != nil {
		c.reportForeignSocket(err)
		// Either an event will report the socket, or the shim has exited: then the recorded exit or the
		// end of the scope is reported.
		return
	}
	e.loop.problems.clearFile(e, t.ShimSocket())
	d, err := e.loop.descriptors.Watch(fd, c.read)
	if err != nil {
		c.logNotWatched(err)
		return
	}
	c.socket, c.peer = d, peer
	c.read()
}

// announceEnd informs the shim, before its agent gets a signal, that the scope of the run will end:
// a line about the exit in the pane, which takes long to prepare, would not be seen. If the message
// is lost, the line is printed.
func (c *shimConn) announceEnd() {
	if c.socket.IsOpen() {
		m := shimwire.Message{Kind: shimwire.ScopeEnds}
		_ = unix.Send(c.socket.FD(), m.Append(nil), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	}
}

// logNotWatched logs why the loop is not notified of the shim's messages.
func (c *shimConn) logNotWatched(err error) {
	if c.e.takeLogSlot("shim") {
		c.e.loop.log.Warn("cannot listen to a shim", "session", c.e.rec.ID, "err", err)
	}
}

// The delays before the loop connects again to a running shim that does not keep a connection. The
// first attempt is immediate; then the delay doubles from minRedialDelay to maxRedialDelay.
const (
	minRedialDelay = 100 * time.Millisecond
	maxRedialDelay = 10 * time.Second
)

// redial connects again to a running shim. The shim has closed the connection because other
// processes have as many as it accepts, or cannot accept one because it is frozen and its queue of
// connections is full.
func (c *shimConn) redial() {
	e, run := c.e, c.e.rec.Run.ID
	if c.redialScheduled {
		return
	}
	if e.loop.clocks.Monotonic()-c.redialedAt > maxRedialDelay {
		c.redialDelay = 0
	}
	attempt := func() {
		c.redialScheduled, c.redialedAt = false, e.loop.clocks.Monotonic()
		if c.connect(); !c.socket.IsOpen() && !c.redialScheduled {
			c.disconnected()
		}
	}
	wait := c.redialDelay
	c.redialScheduled, c.redialDelay = true, min(max(2*wait, minRedialDelay), maxRedialDelay)
	if wait == 0 {
		attempt()
		return
	}
	e.loop.clocks.AfterFunc(wait, func() { e.postFor(run, attempt) })
}

// read reads and handles the messages that the shim has sent. It never waits.
func (c *shimConn) read() {
	shim, buffer := c.socket, c.e.loop.shimMessage[:]
	for c.socket.IsOpen() && c.socket == shim && c.takeMessageSlot() { // a message may end the connection
		n, _, err := unix.Recvfrom(shim.FD(), buffer, unix.MSG_DONTWAIT)
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			if err := c.e.loop.descriptors.Rearm(shim); err != nil {
				c.logNotWatched(err)
			}
			return
		case err != nil || n == 0:
			c.disconnected()
			return
		default:
			c.messagesInSpan++
			if m, err := shimwire.ParseMessage(buffer[:n]); err == nil {
				c.handle(m)
			}
		}
	}
}

// At most messageBurst messages of a shim are received in each messageSpan. A real shim sends
// fewer: those that it repeats to each daemon, a burst of status reports (reportBurst in
// corral-shim), and ten each second. Further messages stay in the socket until the next span, so
// that a process that poses as a shim and sends without pause occupies neither the loop nor the
// processor.
const (
	messageBurst = 64
	messageSpan  = 400 * time.Millisecond
)

// takeMessageSlot reports whether one more message of the run's shim may be received in this span.
// If not, read is called again when the next span begins.
func (c *shimConn) takeMessageSlot() bool {
	e, shim := c.e, c.socket
	now := e.loop.clocks.Monotonic()
	if now-c.spanStart >= messageSpan {
		c.spanStart, c.messagesInSpan = now, 0
	}
	if c.messagesInSpan < messageBurst {
		return true
	}
	e.loop.clocks.AfterFunc(c.spanStart+messageSpan-now, func() {
		e.loop.post(func() {
			if c.socket == shim {
				c.read()
			}
		})
	})
	return false
}

func (c *shimConn) handle(m shimwire.Message) {
	e := c.e
	run := e.rec.Run.ID
	switch m.Kind {
	case shimwire.Hello:
		c.handleHello(m)
	case shimwire.Idle, shimwire.Working:
		e.run.reports.outputReceived(m.Kind == shimwire.Idle, m)
	case shimwire.StatusReport:
		e.run.reports.received(m)
	case shimwire.Ready:
		e.apply(session.AgentReady{Run: run, At: m.Since})
	case shimwire.Prompted:
		e.apply(session.Prompted{Run: run})
	case shimwire.Typed:
		e.run.reports.typed(m)
	case shimwire.PaneLost:
		go e.confirmTmuxDeath(run, e.target())
	case shimwire.PaneClosed:
		// The shim has sent SIGHUP to the agent's processes already: only the later steps remain.
		e.apply(session.EndRequested{Op: session.OpStop, Why: session.TerminalClosed, Signalled: true})
	}
}

// handleHello handles the first message of a shim, which names its process and that of the agent.
func (c *shimConn) handleHello(hello shimwire.Message) {
	e, r := c.e, c.e.rec.Run
	agent := session.Process{PID: hello.AgentPID, Start: hello.AgentStart}
	switch {
	case hello.RunID != r.ID:
		return
	case !e.loop.isHelloCredible(hello, c.peer):
		if e.takeLogSlot("untrue hello") {
			e.loop.log.Warn("a process claims to be the shim of a session and names processes that are not its own",
				"session", e.rec.ID, "pid", c.peer.PID, "shim", hello.ShimPID, "agent", hello.AgentPID)
		}
		return
	case r.Started.IsZero() && !e.loop.isInScope(r, agent.PID): // an agent that leaves its scope later is not killed
		c.killOutsideScope(agent)
		return
	}
	failpoint.Hit("start.agent-heard")
	e.apply(session.AgentStarted{
		Run: r.ID, Shim: c.peer, Agent: agent, SendsTyped: hello.SendsTyped, At: hello.Started,
	})
	e.run.reports.outputReceived(hello.Idle, hello)
	if e.run.exit.unproven {
		e.run.exit.read()
	}
}

// isHelloCredible reports whether the Hello of a shim can be believed: it comes from the process
// that it names as the shim, and names a child of that process as the agent. In a sandbox, there
// are two processes between these. An agent that has exited in the meantime has no parent.
func (l *loop) isHelloCredible(hello shimwire.Message, shim session.Process) bool {
	generations := 1
	if hello.Sandbox != "" {
		generations = 3
	}
	ancestor := hello.AgentPID
	for range generations {
		ancestor = l.system.Processes.Parent(ancestor)
		if ancestor == 0 || ancestor == shim.PID {
			return hello.ShimPID == shim.PID
		}
	}
	return false
}

// killOutsideScope kills an agent that has started outside of its scope, where its limits do not
// apply and a stop does not reach it. A session that cannot be limited or stopped must not run.
func (c *shimConn) killOutsideScope(agent session.Process) {
	e := c.e
	group := e.loop.system.Processes.ControlGroup(agent.PID)
	// First the agent: its shim then records that it was killed, before everything in the scope gets
	// SIGTERM.
	e.queueEffect(session.KillProcess{Process: agent})
	e.apply(session.StartFailed{
		Run: e.rec.Run.ID, Reason: fmt.Sprintf("its agent was moved out of its scope, into %q", group),
		Moment: e.loop.now(),
	})
	if !e.pending.Ending() { // the run began in the scope of an earlier one
		e.apply(session.EndRequested{Op: session.OpStop, Grace: session.FailedGrace})
	}
}

// disconnected determines why the connection to the shim was closed: the agent's exit is recorded,
// the shim is still running, or it was killed.
func (c *shimConn) disconnected() {
	e, run := c.e, c.e.rec.Run.ID
	e.loop.descriptors.Close(&c.socket)
	if e.run.exit.read() {
		return
	}
	t := e.target()
	// A frozen tmux server cannot respond, and is assumed to run.
	frozen := e.rec.Frozen && e.rec.Run.Tmux == session.Alive
	go func() {
		err := e.loop.probeShim(t)
		// Two kinds of shims still run: one that has closed the connection because the daemon did not
		// read from it, and one whose socket was removed.
		running := err == nil || errors.Is(err, unix.EAGAIN)
		if running || e.loop.executeImmediate(e.loop.ctx, t, session.ReopenSockets{}) == nil {
			e.postFor(run, c.redial)
			return
		}
		responding := frozen || e.loop.system.Terminals.IsTmuxResponding(e.loop.ctx, t)
		e.postFor(run, func() {
			if !e.run.exit.read() {
				e.apply(session.ShimDied{Run: run, TmuxSurvived: responding, At: time.Now()})
			}
		})
		if !responding {
			e.confirmTmuxDeath(run, t)
		}
	}()
}

// probeShim returns the error of a connection to the shim of a run, nil if it can be established.
// Any goroutine may call it.
func (l *loop) probeShim(t Target) error {
	fd, _, err := l.system.Terminals.DialShim(t)
	if err == nil {
		_ = unix.Close(fd)
	}
	return err
}

// ForeignSocketError is the error if another process than the session's shim listens on the shim's
// socket.
type ForeignSocketError struct {
	Path         string
	PID          int    // of the process that listens there, 0 if it is in an invisible pid namespace
	ControlGroup string // of that process, "" if it has exited
}

func (e *ForeignSocketError) Error() string {
	return fmt.Sprintf("process %d in control group %q listens on %q but is not the session's shim",
		e.PID, e.ControlGroup, e.Path)
}

// reportForeignSocket reports a socket that is not the shim's, as a problem and in the journal. It
// ignores any error that is not a *ForeignSocketError.
func (c *shimConn) reportForeignSocket(err error) {
	e := c.e
	var foreign *ForeignSocketError
	if !errors.As(err, &foreign) {
		return
	}
	if e.takeLogSlot("foreign socket") {
		e.loop.log.Warn("another process listens on the socket of a session's shim", "session", e.rec.ID, "err", err)
	}
	e.loop.problems.setFile(e, foreign.Path, err.Error()+": nothing is sent to it, "+
		"and the activity of the agent is unknown until the shim listens there again; "+
		"find out which program replaced the socket")
}

// checkRestored removes the problem with the socket of a session's shim, if there is one and the
// shim listens there again.
func (c *shimConn) checkRestored() {
	e, t := c.e, c.e.target()
	isOfSocket := func(p Problem) bool { return p.Session == t.ID && p.Path == t.ShimSocket() }
	if slices.ContainsFunc(e.loop.problems.added, isOfSocket) && e.loop.probeShim(t) == nil {
		e.loop.problems.clearFile(e, t.ShimSocket())
	}
}
