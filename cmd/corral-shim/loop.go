package main

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/shimwire"
)

// redrawDelay is how long the agent's terminal is one row too small after a new pane has joined.
// Programs redraw when the size changes, and must have noticed the change before it is undone.
const redrawDelay = 100 * time.Millisecond

// loop transfers bytes and handles events until the agent has exited.
func (s *shim) loop() {
	s.masterReadable = true
	for busy := true; !s.agentEnded; {
		for _, e := range s.poller.wait(busy) {
			s.handleEvent(int(e.Fd), e.Events)
		}
		busy = s.pump()
	}
	s.masterReadable = true
}

// pump transfers one batch in each direction. It returns whether there is more to do without
// another event.
func (s *shim) pump() bool {
	s.passOutput(s.readOutput())
	more := s.receiveMessages()
	more = s.receiveNotifications() || more
	return s.writeInput() || more || s.masterReadable && s.hasRoom()
}

func (s *shim) handleEvent(source int, events uint32) {
	in := events&(unix.EPOLLIN|unix.EPOLLHUP|unix.EPOLLERR) != 0
	out := events&unix.EPOLLOUT != 0
	switch source {
	case eventMaster:
		s.masterReadable = s.masterReadable || in
		s.masterWritable = s.masterWritable || out
	case eventPane:
		s.pane.readable = s.pane.isOpen() && (s.pane.readable || in)
		s.pane.writable = s.pane.isOpen() && (s.pane.writable || out)
		if events&(unix.EPOLLHUP|unix.EPOLLERR) != 0 {
			s.handlePaneHangup()
		}
	case eventAgent:
		s.agentEnded = true
	case eventTimer:
		s.handleTimers()
	case eventSignal:
		s.handleSignals()
	case eventServer, eventProbe:
		s.checkServer()
	case eventListener:
		s.accept()
	case eventGuard:
		s.guard.check(s.incoming.data[:])
	case eventNotify:
		s.notifier.isReadable = true
	default:
		handleConnEvent(s.conns[source-eventConn], in || events&unix.EPOLLRDHUP != 0)
	}
}

func handleConnEvent(c *conn, isReadable bool) {
	if c != nil && isReadable {
		c.isReadable = true
	}
}

// handleSignals performs what caught signals request.
func (s *shim) handleSignals() {
	var b [8]byte
	_, _ = sysRead(s.signals.eventfd, b[:])
	if s.signals.resized.Swap(false) && s.pane.joined == nil {
		s.resize()
	}
	if s.signals.socketMissing.Swap(false) {
		s.recreateSocket()
	}
}

func (s *shim) handleTimers() {
	due := s.timers.fired()
	now := time.Now()
	for id, act := range [timerCount]func(){
		timerIdle:     func() { s.checkIdle(now) },
		timerPaneLoss: s.handlePaneClosed,
		timerTerm:     func() { s.agent.signal(s.inner.master, unix.SIGTERM) },
		timerInput:    func() { s.checkRead(now) },
		timerRedraw:   s.resize,
		timerReport:   func() { s.sendReports(now) },
		timerPrompt:   func() { s.tryPrompt(now) },
		timerScreen:   func() { s.checkScreen(now) },
	} {
		if due&(1<<id) != 0 {
			act()
		}
	}
}

// resize sets the size of the agent's terminal to that of the pane.
func (s *shim) resize() {
	if s.pane.isOpen() {
		s.setSize(s.pane.size())
	}
}

// handlePaneHangup is called at a hangup of the pane's terminal. It starts to determine whether the
// user closed the pane or the tmux server exited.
func (s *shim) handlePaneHangup() {
	if !s.pane.isOpen() {
		return
	}
	s.closePane()
	if s.pane.server.startProbe() {
		s.handlePaneLost()
		return
	}
	if s.pane.server.probe > 0 {
		_ = s.poller.add(s.pane.server.probe, eventProbe)
	}
	s.timers.set(timerPaneLoss, time.Now().Add(paneLossTimeout))
}

// closePane closes the terminal after its hangup. If it was the shim's own, the standard
// descriptors are replaced too, so that nothing keeps it open. The output buffer is not changed,
// because a caller may be working on it; the next read discards what no pane shows any more.
func (s *shim) closePane() {
	_ = unix.Close(s.pane.fd)
	s.pane.fd, s.pane.readable, s.pane.writable = -1, false, false
	if s.pane.joined == nil {
		replaceStandardDescriptors()
	}
}

// replaceStandardDescriptors connects the standard descriptors to /dev/null.
func replaceStandardDescriptors() {
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	for fd := range 3 {
		_ = unix.Dup3(null, fd, 0)
	}
	_ = unix.Close(null)
}

// checkServer is called when the pane's tmux server may have exited. That matters only after a
// hangup of the pane.
func (s *shim) checkServer() {
	if s.pane.isOpen() || s.pane.server.pidfd == 0 {
		return
	}
	if s.pane.server.hasExited() || s.pane.server.hasClosedProbe() {
		s.handlePaneLost()
	}
}

// handlePaneLost is called when the tmux server has exited. The agent is not affected.
func (s *shim) handlePaneLost() {
	s.clearPaneState()
	s.broadcast(shimwire.Message{Kind: shimwire.PaneLost})
}

// handlePaneClosed is called when the user closed the pane. The agent gets the signals of a closed
// terminal.
func (s *shim) handlePaneClosed() {
	s.clearPaneState()
	s.paneClosed = true
	s.broadcast(shimwire.Message{Kind: shimwire.PaneClosed})
	s.agent.sendHangup(s.inner.master)
	s.timers.set(timerTerm, time.Now().Add(sigtermDelay))
}

// sigtermDelay is how long the agent has to exit after its pane was closed, before it gets SIGTERM.
const sigtermDelay = 5 * time.Second

// handleJoinerExit is called when the shim in the joined pane has exited, which does not mean that
// the user closed that pane.
func (s *shim) handleJoinerExit() {
	if s.pane.isOpen() {
		s.closePane()
	}
	s.handlePaneLost()
}

// clearPaneState stops watching the tmux server and closes the connection to the joined pane's
// shim, which then exits.
func (s *shim) clearPaneState() {
	s.timers.clear(timerPaneLoss)
	s.pane.server.release()
	c := s.pane.joined
	s.pane.joined = nil
	s.disconnect(c)
}

// join shows the agent in the terminal tty, which was passed by the shim behind c. tmux is the
// $TMUX of that pane.
func (s *shim) join(c *conn, tty int, tmux string) {
	next := openPane(tty)
	if !next.isOpen() {
		s.disconnect(c)
		return
	}
	old := s.pane
	s.pane = pane{fd: -1}
	s.timers.clear(timerPaneLoss)
	old.release()
	if old.joined != c {
		s.disconnect(old.joined)
	}
	s.pane = next
	s.pane.joined = c
	s.pane.server = findServer(tmux)
	s.watchPane()
	s.out.restart(s.scanner.modes.restore())
	size := s.pane.size()
	if size.Row > 1 {
		size.Row--
		s.timers.set(timerRedraw, time.Now().Add(redrawDelay))
	}
	s.setSize(size)
}

// setSize sets the size of the agent's terminal and records it.
func (s *shim) setSize(size *unix.Winsize) {
	_ = unix.IoctlSetWinsize(s.inner.master, unix.TIOCSWINSZ, size)
	s.log.sizes.setSize(size)
	if s.screenStatus != nil {
		s.screenStatus.screen.resize(int(size.Row), int(size.Col))
	}
}
