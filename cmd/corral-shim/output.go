package main

import (
	"bytes"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/shimwire"
)

const (
	outSize = 64 << 10 // bytes that wait for the pane at most
	outRest = 32 << 10 // room beyond that for what the agent's terminal still holds when the agent has ended: it cannot hold more
)

// readable is how many bytes the kernel gives at least in one read from a terminal that has more of
// them (N_TTY_BUF_SIZE, without the wrap).
const readable = 4095

// output is what the pane has not taken yet.
type output struct {
	buf        [outSize + outRest]byte
	start, end int
	held       int // bytes before end that are not to be shown yet: see cut
}

func (o *output) waiting() []byte { return o.buf[o.start : o.end-o.held] }

// reset forgets what waits, but for what is held back.
func (o *output) reset() {
	o.start, o.end = 0, copy(o.buf[:], o.buf[o.end-o.held:o.end])
}

// begin is reset with something to be shown before that.
func (o *output) begin(first []byte) {
	var held [maxHeld]byte
	n := copy(held[:], o.buf[o.end-o.held:o.end])
	o.start, o.end = 0, copy(o.buf[:], first)
	o.end += copy(o.buf[o.end:], held[:n])
}

// hasRoom tells whether more of the output can be read.
func (s *shim) hasRoom() bool { return len(s.out.waiting()) == 0 || !s.pane.there() }

// readOut reads what the agent has printed, as far as there is room for it. While a pane is slow
// the agent's terminal fills up, as any terminal does; without a pane there is always room.
func (s *shim) readOut() []byte {
	o := &s.out
	if s.hasRoom() {
		o.reset()
	}
	limit := outSize
	if s.ended {
		limit = len(o.buf)
	}
	begin := o.end
	for s.masterReadable && o.end < limit {
		room := o.buf[o.end:limit]
		n, e := sysRead(s.inner.master, room)
		if e != 0 || n == 0 { // EAGAIN, or EIO of a terminal that was hung up
			s.masterReadable = false
			break
		}
		o.end += n
		if n < min(readable, len(room)) && !s.ended { // it was emptied: what comes now is another event
			s.masterReadable = false
		}
	}
	return o.buf[begin:o.end]
}

// pass gives the pane what it takes of the output, of which fresh was just read, and does
// everything else that is done with it. If nothing has to be cut out of it tmux has it first: then
// tmux works on it meanwhile.
func (s *shim) pass(fresh []byte) {
	switch {
	case len(fresh) == 0:
		s.show()
	case s.scanner.cut.needed(fresh):
		s.keep(fresh)
		s.answer()
		s.show()
	default:
		s.show()
		s.keep(fresh)
	}
}

// keep does everything with what the agent has printed but show it. The log has it as it was.
func (s *shim) keep(fresh []byte) {
	if len(fresh) == 0 {
		return
	}
	s.log.write(fresh)
	if s.setup != nil {
		s.setup.screen.write(fresh)
	}
	o := &s.out
	piece := o.end - len(fresh) - o.held
	o.end = piece + len(s.scanner.scan(o.buf[piece:o.end]))
	o.held = s.scanner.cut.held
	s.active()
	if s.scanner.rang {
		s.ring()
	}
	s.tellPrompt(s.lastOutput)
}

// show gives the pane what it takes.
func (s *shim) show() {
	for s.pane.writable && len(s.out.waiting()) > 0 {
		n, e := sysWrite(s.pane.fd, s.out.waiting())
		switch {
		case e == unix.EAGAIN:
			s.pane.writable = false
		case e != 0:
			s.paneHungUp()
			return
		}
		if n < len(s.out.waiting()) { // it is full: that there is room again is an event
			s.pane.writable = false
		}
		s.out.start += n
	}
}

// release lets go of what was held back: nothing more comes. If it is the beginning of what is cut
// out, that is not shown.
func (o *output) release(going bool) {
	if going {
		o.end -= o.held
	}
	o.held = 0
}

// active notes that the agent has printed something.
func (s *shim) active() {
	s.lastOutput = time.Now()
	if s.idle {
		s.idle, s.since = false, s.lastOutput
		s.tellActivity(shimwire.Working)
		s.goneOn(s.since)
		s.timers.set(timerIdle, s.since.Add(s.spec.IdleAfter))
	}
}

// rest looks whether the agent has been silent for long enough. The timer is not put off at each
// output, but here.
func (s *shim) rest(now time.Time) {
	if due := s.lastOutput.Add(s.spec.IdleAfter); due.After(now) {
		s.timers.set(timerIdle, due)
		return
	}
	if !s.rested {
		s.rested = true
		giveBack()
	}
	s.idle, s.since = true, s.lastOutput
	s.tellActivity(shimwire.Idle)
	s.goneOn(s.since)
	s.lookForSetup()
}

func (s *shim) tellActivity(kind shimwire.Kind) {
	s.seq++
	s.saidActive = s.seq
	s.tell(shimwire.Message{Kind: kind, Since: s.since, Seq: s.seq})
}

// showTime is how long a pane may take for the rest of the output after the agent has ended.
const showTime = time.Second

// showRest gives the pane what is left, for a bounded time, and waits until tmux has read it: a
// pane whose program is gone it closes with all that it has not read yet (server_child_exited,
// which asks for unread bytes only where pipe-pane is used).
func (s *shim) showRest() {
	deadline := time.Now().Add(showTime)
	for {
		s.show()
		left := time.Until(deadline).Milliseconds()
		if !s.pane.there() || left <= 0 {
			return
		}
		if len(s.out.waiting()) == 0 {
			s.pane.awaitRead(deadline)
			return
		}
		p := []unix.PollFd{{Fd: int32(s.pane.fd), Events: unix.POLLOUT}}
		_, _ = unix.Poll(p, int(left))
		s.pane.writable = true
	}
}

// awaitRead waits until tmux has read everything before, which it shows by its answer to a
// question: Device Status Report (ECMA-48, 8.3.35). What else comes out of the pane is keys that
// nobody takes any more.
func (p *pane) awaitRead(deadline time.Time) {
	if p.server.pidfd <= 0 { // nobody who is known to answer
		return
	}
	if n, e := sysWrite(p.fd, []byte("\x1b[5n")); e != 0 || n == 0 {
		return
	}
	answer := []byte("\x1b[0n")
	var got [64]byte
	kept := 0
	for {
		left := time.Until(deadline).Milliseconds()
		if left <= 0 {
			return
		}
		ready := []unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}
		if _, err := unix.Poll(ready, int(left)); err == unix.EINTR {
			continue
		}
		n, e := sysRead(p.fd, got[kept:])
		switch {
		case e == unix.EAGAIN || e == unix.EINTR:
			continue
		case e != 0 || n == 0: // tmux is gone
			return
		}
		if bytes.Contains(got[:kept+n], answer) {
			return
		}
		kept = copy(got[:], got[max(0, kept+n-len(answer)+1):kept+n])
	}
}
