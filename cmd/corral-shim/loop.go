package main

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/shimwire"
)

// redrawTime is how long the agent's terminal is a line too small after a new pane has joined.
// Programs draw anew when the size has changed, and must have seen that it had before it is as it
// was.
const redrawTime = 100 * time.Millisecond

// loop moves bytes and obeys events until the agent has ended.
func (s *shim) loop() {
	s.masterReadable = true
	for busy := true; !s.ended; {
		for _, e := range s.poller.wait(busy) {
			s.obey(int(e.Fd), e.Events)
		}
		busy = s.pump()
	}
	s.masterReadable = true
}

// pump moves one batch each way. It returns whether there is more to do without another event.
func (s *shim) pump() bool {
	s.pass(s.readOut())
	more := s.hear()
	more = s.hearNotify() || more
	return s.feed() || more || s.masterReadable && s.hasRoom()
}

func (s *shim) obey(about int, what uint32) {
	in := what&(unix.EPOLLIN|unix.EPOLLHUP|unix.EPOLLERR) != 0
	out := what&unix.EPOLLOUT != 0
	switch about {
	case aboutMaster:
		s.masterReadable = s.masterReadable || in
		s.masterWritable = s.masterWritable || out
	case aboutPane:
		s.pane.readable = s.pane.there() && (s.pane.readable || in)
		s.pane.writable = s.pane.there() && (s.pane.writable || out)
		if what&(unix.EPOLLHUP|unix.EPOLLERR) != 0 {
			s.paneHungUp()
		}
	case aboutAgent:
		s.ended = true
	case aboutTimer:
		s.timeIsUp()
	case aboutSignal:
		s.signalled()
	case aboutServer, aboutProbe:
		s.judge()
	case aboutListener:
		s.accept()
	case aboutNotify:
		s.notifier.more = true
	default:
		if c := s.conns[about-aboutConn]; c != nil && (in || what&unix.EPOLLRDHUP != 0) {
			c.more = true
		}
	}
}

// signalled does what a signal asks for.
func (s *shim) signalled() {
	var b [8]byte
	_, _ = sysRead(s.signals.heard, b[:])
	if s.signals.resized.Swap(false) && s.pane.joined == nil {
		s.resize()
	}
	if s.signals.missing.Swap(false) {
		s.listenAgain()
	}
}

func (s *shim) timeIsUp() {
	due := s.timers.fired()
	now := time.Now()
	for id, act := range [timerCount]func(){
		timerIdle:    func() { s.rest(now) },
		timerVerdict: s.paneWasClosed,
		timerTerm:    func() { s.agent.signal(s.inner.master, unix.SIGTERM) },
		timerInput:   func() { s.watchReading(now) },
		timerRedraw:  s.resize,
		timerSaid:    func() { s.tellSaid(now) },
		timerPrompt:  func() { s.tellPrompt(now) },
		timerSetup:   s.setupIsDue,
	} {
		if due&(1<<id) != 0 {
			act()
		}
	}
}

// resize gives the agent's terminal the size of the pane.
func (s *shim) resize() {
	if s.pane.there() {
		s.setSize(s.pane.size())
	}
}

// paneHungUp is called when the pane's terminal is gone, for whichever reason, which is still to be
// found out.
func (s *shim) paneHungUp() {
	if !s.pane.there() {
		return
	}
	s.closePane()
	if s.pane.server.dying() {
		s.paneWasLost()
		return
	}
	if s.pane.server.probe > 0 {
		_ = s.poller.add(s.pane.server.probe, aboutProbe)
	}
	s.timers.set(timerVerdict, time.Now().Add(verdictTime))
}

// closePane lets go of the terminal that is gone. If it is our own, nobody else has to keep it
// either. The output is left as it is: this may be found out while somebody works on it, and what
// nobody sees any more is forgotten at the next read.
func (s *shim) closePane() {
	_ = unix.Close(s.pane.fd)
	s.pane.fd, s.pane.readable, s.pane.writable = -1, false, false
	if s.pane.joined == nil {
		leaveTerminal()
	}
}

// leaveTerminal replaces the standard descriptors.
func leaveTerminal() {
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	for fd := range 3 {
		_ = unix.Dup3(null, fd, 0)
	}
	_ = unix.Close(null)
}

// judge is called when the pane's tmux server may have ended. That counts only if the pane is gone.
func (s *shim) judge() {
	if s.pane.there() || s.pane.server.pidfd == 0 {
		return
	}
	if s.pane.server.ended() || s.pane.server.refused() {
		s.paneWasLost()
	}
}

// paneWasLost: the tmux server has died. The agent is left alone.
func (s *shim) paneWasLost() {
	s.forgetPane()
	s.tell(shimwire.Message{Kind: shimwire.PaneLost})
}

// paneWasClosed: somebody closed the pane, and the agent gets what a program gets whose terminal is
// closed.
func (s *shim) paneWasClosed() {
	s.forgetPane()
	s.paneClosed = true
	s.tell(shimwire.Message{Kind: shimwire.PaneClosed})
	s.agent.hangUp(s.inner.master)
	s.timers.set(timerTerm, time.Now().Add(termAfter))
}

// termAfter is how long the agent has to end after its pane was closed, before it gets SIGTERM.
const termAfter = 5 * time.Second

// losePane is called when the shim in the joined pane has died: nobody closed that pane.
func (s *shim) losePane() {
	if s.pane.there() {
		s.closePane()
	}
	s.paneWasLost()
}

// forgetPane ends the inquiry, and lets the joined pane's shim end.
func (s *shim) forgetPane() {
	s.timers.clear(timerVerdict)
	s.pane.server.forget()
	c := s.pane.joined
	s.pane.joined = nil
	s.drop(c)
}

// join shows the agent in the terminal tty, which belongs to the pane of the shim behind c.
func (s *shim) join(c *conn, tty int, tmux string) {
	next := openPane(tty)
	if !next.there() {
		s.drop(c)
		return
	}
	old := s.pane
	s.pane = pane{fd: -1}
	s.timers.clear(timerVerdict)
	old.release()
	if old.joined != c {
		s.drop(old.joined)
	}
	s.pane = next
	s.pane.joined = c
	s.pane.server = findServer(tmux)
	s.watchPane()
	s.out.begin(s.scanner.modes.restore())
	size := s.pane.size()
	if size.Row > 1 {
		size.Row--
		s.timers.set(timerRedraw, time.Now().Add(redrawTime))
	}
	s.setSize(size)
}

// setSize gives the agent's terminal a size.
func (s *shim) setSize(size *unix.Winsize) {
	_ = unix.IoctlSetWinsize(s.inner.master, unix.TIOCSWINSZ, size)
	s.log.sizes.is(size)
	if s.setup != nil {
		s.setup.screen.resize(int(size.Row), int(size.Col))
	}
}
