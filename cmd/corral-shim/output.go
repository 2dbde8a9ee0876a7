package main

import (
	"bytes"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/proc"
	"github.com/corrald/corral/internal/shimwire"
)

const (
	outputSize = 64 << 10 // limit of the bytes that wait for the pane

	// Additional space, in bytes, for what the agent's terminal still holds when the agent has exited,
	// which is never more.
	outputReserve = 32 << 10
)

// minRead is the minimum number of bytes that one read returns from a terminal that has more
// (N_TTY_BUF_SIZE, without the wrap).
const minRead = 4095

// output holds output of the agent that was not written to the pane yet.
type output struct {
	buf        [outputSize + outputReserve]byte
	start, end int
	held       int // last bytes before end that must not be shown yet: see oscFilter
}

func (o *output) pending() []byte { return o.buf[o.start : o.end-o.held] }

// restart drops the pending output and inserts first before the held bytes.
func (o *output) restart(first []byte) {
	var held [maxHeld]byte
	n := copy(held[:], o.buf[o.end-o.held:o.end])
	o.start, o.end = 0, copy(o.buf[:], first)
	o.end += copy(o.buf[o.end:], held[:n])
}

// hasRoom reports whether more output can be read.
func (s *shim) hasRoom() bool { return len(s.out.pending()) == 0 || !s.pane.isOpen() }

// readOutput reads what the agent has printed as far as there is room. If the pane is slow the
// agent's terminal fills up, as any terminal does; without a pane there is always room.
func (s *shim) readOutput() []byte {
	o := &s.out
	if s.hasRoom() {
		o.restart(nil)
	}
	limit := outputSize
	if s.agentEnded {
		limit = len(o.buf)
	}
	begin := o.end
	for s.masterReadable && o.end < limit {
		room := o.buf[o.end:limit]
		n, e := sysRead(s.inner.master, room)
		if e != 0 || n == 0 { // EAGAIN, or EIO after a hangup
			s.masterReadable = false
			break
		}
		o.end += n
		// The terminal is empty; further output causes another event.
		if n < min(minRead, len(room)) && !s.agentEnded {
			s.masterReadable = false
		}
	}
	return o.buf[begin:o.end]
}

// passOutput writes pending output to the pane and processes fresh, the part that was just read. If
// the filter has to remove nothing from it the pane comes first, so that tmux works in parallel.
func (s *shim) passOutput(fresh []byte) {
	switch {
	case len(fresh) == 0:
		s.writePane()
	case s.scanner.filter.isNeeded(fresh):
		s.processOutput(fresh)
		s.writeAnswers()
		s.writePane()
	default:
		s.writePane()
		s.processOutput(fresh)
	}
}

// processOutput logs fresh unchanged, scans and filters it, and updates everything that depends on
// output except the pane.
func (s *shim) processOutput(fresh []byte) {
	if len(fresh) == 0 {
		return
	}
	s.log.write(fresh)
	if s.screenStatus != nil {
		s.screenStatus.screen.write(fresh)
	}
	o := &s.out
	piece := o.end - len(fresh) - o.held
	o.end = piece + len(s.scanner.scan(o.buf[piece:o.end]))
	o.held = s.scanner.filter.held
	s.noteOutput()
	if s.scanner.hasBell {
		s.handleBell()
	}
	s.scheduleScreenCheck()
	s.tryPrompt(s.lastOutput)
}

// writePane writes pending output to the pane as far as it accepts it.
func (s *shim) writePane() {
	for s.pane.writable && len(s.out.pending()) > 0 {
		n, e := sysWrite(s.pane.fd, s.out.pending())
		switch {
		case e == unix.EAGAIN:
			s.pane.writable = false
		case e != 0:
			s.handlePaneHangup()
			return
		}
		if n < len(s.out.pending()) { // the pane is full; an event follows when there is room again
			s.pane.writable = false
		}
		s.out.start += n
	}
}

// flushHeld makes the held bytes pending when no more output follows. If they are the start of a
// sequence that is being removed they are dropped.
func (o *output) flushHeld(isRemoving bool) {
	if isRemoving {
		o.end -= o.held
	}
	o.held = 0
}

// noteOutput updates the activity after the agent has printed something.
func (s *shim) noteOutput() {
	s.lastOutput = time.Now()
	if s.idle {
		s.idle, s.activitySince = false, s.lastOutput
		s.sendActivity(shimwire.Working)
		s.clearOldBell(s.activitySince)
		s.timers.set(timerIdle, s.activitySince.Add(s.spec.IdleAfter))
	}
}

// checkIdle makes the agent idle if it has been silent for IdleAfter. The timer is not reset at
// each output, but here.
func (s *shim) checkIdle(now time.Time) {
	if due := s.lastOutput.Add(s.spec.IdleAfter); due.After(now) {
		s.timers.set(timerIdle, due)
		return
	}
	if !s.wasIdle {
		s.wasIdle = true
		proc.ReleaseFilePages()
	}
	s.idle, s.activitySince = true, s.lastOutput
	s.sendActivity(shimwire.Idle)
	s.clearOldBell(s.activitySince)
}

func (s *shim) sendActivity(kind shimwire.Kind) {
	s.lastSeq++
	s.activitySeq = s.lastSeq
	s.typedSent = false
	s.broadcast(shimwire.Message{Kind: kind, Since: s.activitySince, Seq: s.lastSeq})
}

// drainTimeout is how long the pane may take to accept the rest of the output after the agent has
// exited.
const drainTimeout = time.Second

// drainPane writes the rest of the output to the pane, for at most drainTimeout, and waits until
// tmux has read it: tmux closes a pane whose program has exited together with everything that it
// has not read yet (server_child_exited, which checks for unread bytes only if pipe-pane is used).
func (s *shim) drainPane() {
	deadline := time.Now().Add(drainTimeout)
	s.writePane()
	for len(s.out.pending()) > 0 {
		if !s.pane.isOpen() || !poll(s.pane.fd, unix.POLLOUT, deadline) {
			return
		}
		s.pane.writable = true
		s.writePane()
	}
	if s.pane.isOpen() && time.Now().Before(deadline) {
		s.pane.awaitTmux(deadline)
	}
}

// awaitTmux waits until tmux has read everything written so far. It sends a query and reads until
// tmux answers it: Device Status Report (ECMA-48, 8.3.35). Keys that arrive meanwhile are dropped.
func (p *pane) awaitTmux(deadline time.Time) {
	if p.server.pidfd <= 0 { // no tmux server is known that would answer
		return
	}
	if n, e := sysWrite(p.fd, []byte("\x1b[5n")); e != 0 || n == 0 {
		return
	}
	answer := []byte("\x1b[0n")
	var got [64]byte
	kept := 0
	for poll(p.fd, unix.POLLIN, deadline) {
		n, e := sysRead(p.fd, got[kept:])
		switch {
		case e == unix.EAGAIN:
			continue
		case e != 0 || n == 0: // tmux has exited
			return
		case bytes.Contains(got[:kept+n], answer):
			return
		}
		kept = copy(got[:], got[max(0, kept+n-len(answer)+1):kept+n])
	}
}
