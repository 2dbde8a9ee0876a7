package main

import (
	"bytes"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/clock"
	"github.com/corrald/corral/internal/keys"
	"github.com/corrald/corral/internal/shimwire"
)

// Keys are written one at a time: the next one once the agent has read the one before, because many
// programs take all that one read returns for one key, or for a paste. A program that has been sent
// ESC has keyPause before the next key, or it would take the two for one key with Alt; so has one
// that has been sent a burst of characters before Enter. A program that does not read for inputWait
// gets the rest at once, as if somebody had typed ahead. An answer to its question is not written
// before it has read everything else.
const (
	keyPause = 150 * time.Millisecond
	burst    = 3 // so many characters in quick succession some take for a paste, with the Enter that follows
)

// settleTime is how long an agent may take to report that it has been answered. Until then its
// question counts as answered by what was typed.
const settleTime = time.Second

// press is a sequence of keys for the agent.
type press struct {
	names []string
	asks  *asks  // only while the agent asks this; nil to press them in any case
	next  int    // index of the key to be written next
	rest  []byte // what is left of the key that was written in part
	typed int    // how many keys that type text came last, one after the other
	last  byte   // the last byte of the key before, 0 if there is none
	ahead bool   // the agent does not read: nothing is waited for any more
	bytes [32]byte
}

// asks is what the agent has to be asking still: see shimwire.FlagIfStillAsking.
type asks struct {
	source int           // an index of sourceNames, saidCount for a source that is not the shim's
	since  time.Duration // by CLOCK_MONOTONIC
	known  uint32        // the greatest Seq that the daemon knew
}

// addKeys queues a Keys message. It returns why it is refused, "" if it is not.
func (q *inputQueue) addKeys(c *conn, m *shimwire.Message) string {
	names := strings.Split(string(m.Data), "\x00")
	if _, err := keys.ParseAll(names); err != nil {
		return err.Error()
	}
	if q.count >= maxTexts {
		return "too many texts are waiting to be read by the agent"
	}
	p := &press{names: names}
	if m.Flags&shimwire.FlagIfStillAsking != 0 {
		p.asks = &asks{source: sourceNamed(m.Source), since: m.SinceMonotonic, known: m.KnownSeq}
	}
	q.count++
	q.texts = append(q.texts, &text{from: c, seq: m.Seq, press: p})
	return ""
}

func sourceNamed(name string) int {
	for i, n := range sourceNames {
		if n == name {
			return i
		}
	}
	return saidCount
}

// nextText returns the text or the keys to be written next, nil if there is nothing yet. Keys that
// were typed in the pane come before everything that has not begun. Keys overtake texts that are
// held back until the agent takes input: they are what its first dialog is answered with.
func (s *shim) nextText() *text {
	q := &s.input
	switch {
	case len(q.texts) == 0:
		return nil
	case q.texts[0].stage != textWaits:
		return q.texts[0]
	case s.pane.readable:
		return nil
	case !s.holds():
		return q.texts[0]
	}
	for i, t := range q.texts {
		if t.press != nil {
			copy(q.texts[1:], q.texts[:i])
			q.texts[0] = t
			return t
		}
	}
	return nil
}

// feedKeys writes the next key, if it can be written now. It returns whether there may be more to
// do at once.
func (s *shim) feedKeys(t *text) bool {
	p, now := t.press, time.Now()
	if t.stage == textWaits {
		t.stage, t.due = textGoes, now.Add(inputWait)
	}
	if len(p.rest) > 0 {
		p.rest = p.rest[s.enter(p.rest):]
		return len(p.rest) == 0
	}
	if p.next == len(p.names) {
		s.finishText(t, "")
		return true
	}
	name := p.names[p.next]
	key, _ := keys.Parse(name) // it was parsed before
	sends, ok := key.Append(p.bytes[:0], s.keyModes())
	if !ok {
		s.finishText(t, "the program in its terminal has not enabled keys such as "+name)
		return true
	}
	if at := s.keyAt(t, sends, now); at.After(now) {
		s.timers.set(timerInput, at)
		return false
	}
	if p.asks != nil {
		switch s.readAhead(); {
		case s.masterReadable: // it may have printed that it does not ask any more
			return s.hasRoom()
		case len(s.input.pending) > 0 || s.input.owed > 0: // what it has asked the terminal is answered first
			return true
		}
		if why := s.refusesAnswer(p); why != "" {
			s.refuseKeys(t, why)
			return true
		}
	}
	p.next++
	p.last = sends[len(sends)-1]
	if p.typed++; p.last < ' ' || p.last == 0x7f || sends[0] == charEscape {
		p.typed = 0
	}
	p.rest = sends[s.enter(sends):]
	t.read, t.due = time.Time{}, now.Add(inputWait)
	return len(p.rest) == 0
}

// keyAt returns when the next key, which sends these bytes, may be written, if the agent has read
// what came before; else when to look again.
func (s *shim) keyAt(t *text, sends []byte, now time.Time) time.Time {
	look := s.typed.Add(inputTick) // the kernel hands on a moment later what was written
	switch {
	case t.press.ahead:
		return now
	case look.After(now):
		return look
	}
	if unread, e := sysUnread(s.inner.slave); e == 0 && unread > 0 && (t.press.asks != nil || now.Before(t.due)) {
		t.read = time.Time{}
		return now.Add(inputTick)
	} else if e == 0 && unread > 0 {
		t.press.ahead = true
	}
	if t.read.IsZero() {
		t.read = now
	}
	if t.press.last == charEscape || t.press.typed >= burst && bytes.Equal(sends, enterKey) {
		return t.read.Add(keyPause)
	}
	return t.read
}

// keyModes returns the modes of the agent's terminal that change what keys send.
func (s *shim) keyModes() keys.Modes {
	m := &s.scanner.modes
	kitty := len(m.keyboard) > 0 && m.keyboard[len(m.keyboard)-1] != 0
	return keys.Modes{Cursor: m.private&cursorKeys != 0, Keypad: m.keypad, Other: m.other > 0, Kitty: kitty}
}

// readAhead reads and handles what the agent has printed so far. Whether there is more is in
// masterReadable: its output is not read while the pane does not take it.
func (s *shim) readAhead() {
	s.masterReadable = ready(s.inner.master, unix.POLLIN)
	if s.masterReadable && s.hasRoom() {
		s.pass(s.readOut())
		s.masterReadable = ready(s.inner.master, unix.POLLIN)
	}
}

// refusesAnswer returns why the agent does not ask what the keys are to answer, "" if it does. Once
// one of the keys was written, nobody else has typed.
func (s *shim) refusesAnswer(p *press) string {
	for _, source := range []int{saidByProgram, saidByNotify, saidByTitle, saidByScreen} {
		if s.said[source].seq > p.asks.known {
			return "its agent has continued meanwhile"
		}
	}
	now := time.Now()
	since, exact := now.Add(p.asks.since-clock.Monotonic()), p.asks.source < saidCount
	if exact {
		since = s.said[p.asks.source].since
	}
	switch {
	case exact && s.said[p.asks.source].activity != "waiting":
		return "its agent has continued meanwhile"
	case p.next > 0 || !s.typed.After(since):
	case now.Sub(s.typed) < settleTime:
		return "it was answered just now"
	case !exact: // it may have gone on since then, and nobody would know
		return "somebody has typed in its terminal since it asked"
	}
	return ""
}

// refuseKeys drops the keys that were not written. An agent that goes on after the first of several
// was answered by it.
func (s *shim) refuseKeys(t *text, why string) {
	if t.press.next > 0 {
		s.finishText(t, "")
		return
	}
	s.dequeue(t)
	s.send(t.from, shimwire.Message{Kind: shimwire.InputDone, Seq: t.seq, Flags: shimwire.FlagIfStillAsking, Error: why})
}

// isTyped reports whether what came from the pane is more than a report of the terminal: on its
// focus, the mouse, or itself.
func isTyped(b []byte) bool {
	for len(b) > 0 {
		rest, found := bytes.CutPrefix(b, []byte("\x1b["))
		if !found {
			return true
		}
		switch {
		case bytes.HasPrefix(rest, []byte{'I'}), bytes.HasPrefix(rest, []byte{'O'}):
			b = rest[1:]
			continue
		case bytes.HasPrefix(rest, []byte{'<'}), bytes.HasPrefix(rest, []byte{'?'}), bytes.HasPrefix(rest, []byte{'>'}):
			end := bytes.IndexFunc(rest[1:], func(r rune) bool { return r >= 0x40 })
			if end < 0 {
				return false // it is cut off
			}
			b = rest[end+2:]
			continue
		}
		return true
	}
	return false
}
