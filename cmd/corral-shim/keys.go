package main

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/dbusapi/word"
	"github.com/corrald/corral/internal/clock"
	"github.com/corrald/corral/internal/keys"
	"github.com/corrald/corral/internal/shimwire"
)

// Keys are written one at a time. The next key follows once the agent has read the previous one,
// because many programs treat everything that one read returns as one key or as a paste. After ESC
// the shim waits keyPause, or the program would combine ESC and the next key into one key with Alt;
// it also waits keyPause before Enter after a burst of characters, which would be a paste, and
// after an escape sequence: some programs drop an Enter that follows it at once. The time in which
// the program is running does not count: see maxRunning. If the program does not read for inputWait
// it gets the remaining keys at once, as if somebody had typed ahead. A key that answers a question
// is not written before the agent has read everything else.
const (
	keyPause = 150 * time.Millisecond

	// Some programs treat this many characters in quick succession, with the Enter that follows, as a
	// paste.
	pasteLength = 3
)

// answerTime is how long an agent may take to report that its question was answered. Until then any
// typed input counts as the answer.
const answerTime = time.Second

// keySequence is a sequence of keys for the agent.
type keySequence struct {
	names     []string
	question  *question // press keys only while the agent asks this; nil for unconditional keys
	next      int       // index of the next key
	unwritten []byte    // remaining bytes of a key that was written partially
	typed     int       // number of consecutive keys so far that typed text
	lastByte  byte      // last byte of the previous key, or 0
	sequence  bool      // the previous key sent an escape sequence, as the arrow keys do
	typeAhead bool      // the agent does not read, so the remaining keys are written without waiting
	buffer    [32]byte
}

// question is the question that the agent must still be asking: see shimwire.FlagIfStillAsking.
type question struct {
	source   int           // an index of sourceNames, or -1 for a source outside the shim
	since    time.Duration // by CLOCK_MONOTONIC
	knownSeq uint32        // the greatest Seq that the daemon had received
}

// addKeys queues the keys of a Keys message. It returns the reason if it rejects them, else "".
func (q *inputQueue) addKeys(c *conn, m *shimwire.Message) string {
	names := strings.Split(string(m.Data), "\x00")
	if _, err := keys.ParseAll(names); err != nil {
		return err.Error()
	}
	if q.count >= maxTexts {
		return "too many texts are waiting to be read by the agent"
	}
	k := &keySequence{names: names}
	if m.Flags&shimwire.FlagIfStillAsking != 0 {
		k.question = &question{source: slices.Index(sourceNames[:], m.Source), since: m.SinceMonotonic, knownSeq: m.KnownSeq}
	}
	q.count++
	q.texts = append(q.texts, &text{from: c, seq: m.Seq, keys: k})
	return ""
}

// nextText returns the text or keys to be written next, or nil. Keys typed in the pane precede
// everything that was not begun. Keys from clients precede texts that are held until the agent
// accepts input, because they answer its first dialog.
func (s *shim) nextText() *text {
	q := &s.input
	switch {
	case len(q.texts) == 0:
		return nil
	case q.texts[0].stage != textQueued:
		return q.texts[0]
	case s.pane.readable:
		return nil
	case !s.holdsTexts():
		return q.texts[0]
	}
	for i, t := range q.texts {
		if t.keys != nil {
			copy(q.texts[1:], q.texts[:i])
			q.texts[0] = t
			return t
		}
	}
	return nil
}

// writeKeys writes the next key if it can be written now. It returns whether there may be more to
// do without another event.
func (s *shim) writeKeys(t *text) bool {
	k, now := t.keys, time.Now()
	if t.stage == textQueued {
		t.stage, t.deadline = textWriting, now.Add(inputWait)
	}
	if len(k.unwritten) > 0 {
		k.unwritten = k.unwritten[s.writeTyped(k.unwritten):]
		return len(k.unwritten) == 0
	}
	if k.next == len(k.names) {
		if t.from == nil { // the text for which it clears the input line must be read separately
			if at := s.keyTime(t, nil, now); at.After(now) {
				s.timers.set(timerInput, at)
				return false
			}
		}
		s.finishText(t, "")
		return true
	}
	name := k.names[k.next]
	key, _ := keys.Parse(name) // addKeys has parsed it
	sends, ok := key.Append(k.buffer[:0], s.keyModes())
	if !ok {
		s.finishText(t, "the program in its terminal has not enabled keys such as "+name)
		return true
	}
	if at := s.keyTime(t, sends, now); at.After(now) {
		s.timers.set(timerInput, at)
		return false
	}
	if k.question != nil {
		switch s.readAhead(); {
		case s.masterReadable: // unread output may show that the question is over
			return s.hasRoom()
		case len(s.input.pending) > 0 || s.input.pendingAnswers > 0: // its queries are answered first
			return true
		}
		if problem := s.answerProblem(k); problem != "" {
			s.rejectKeys(t, problem)
			return true
		}
	}
	k.next++
	if t.from != nil {
		s.input.line.typed(sends, int(s.log.sizes.columns))
	}
	k.lastByte, k.sequence = sends[len(sends)-1], sends[0] == charEscape && len(sends) > 1
	if k.typed++; k.lastByte < ' ' || k.lastByte == 0x7f || sends[0] == charEscape {
		k.typed = 0
	}
	k.unwritten = sends[s.writeTyped(sends):]
	t.readAt, t.deadline, t.excluded = time.Time{}, now.Add(inputWait), 0
	return len(k.unwritten) == 0
}

// keyTime returns when the next key, whose bytes are sends, may be written if the agent has read
// everything before it, else when to check again.
func (s *shim) keyTime(t *text, sends []byte, now time.Time) time.Time {
	readable := s.lastTyped.Add(inputTick) // the kernel makes written bytes readable with a short delay
	switch {
	case t.keys.typeAhead:
		return now
	case readable.After(now):
		return readable
	}
	if unread, e := sysUnread(s.inner.slave); e == 0 && unread > 0 {
		if t.keys.question != nil || now.Before(t.deadline) {
			t.readAt = time.Time{}
			return now.Add(inputTick)
		}
		t.keys.typeAhead = true
	}
	if t.readAt.IsZero() {
		t.readAt, t.checkedAt = now, now
	}
	mayJoin := t.keys.sequence || t.keys.typed >= pasteLength
	if t.keys.lastByte == charEscape || mayJoin && bytes.Equal(sends, enterKey) {
		t.excludeRunning(now, s.isAgentRunning())
		if t.readAt.Add(keyPause).After(now) {
			return now.Add(inputTick)
		}
	}
	return t.readAt
}

// keyModes returns the modes of the agent's terminal that change what keys send.
func (s *shim) keyModes() keys.Modes {
	m := &s.scanner.modes
	kitty := len(m.keyboard) > 0 && m.keyboard[len(m.keyboard)-1] != 0
	return keys.Modes{
		ApplicationCursor: m.private&cursorKeys != 0,
		ApplicationKeypad: m.keypad,
		ModifyOtherKeys:   m.modifyOtherKeys > 0,
		Kitty:             kitty,
	}
}

// readAhead reads and handles what the agent has printed so far. Afterwards masterReadable is true
// if there is more, which remains unread while the pane does not accept output.
func (s *shim) readAhead() {
	s.masterReadable = isReady(s.inner.master, unix.POLLIN)
	if s.masterReadable && s.hasRoom() {
		s.passOutput(s.readOutput())
		s.masterReadable = isReady(s.inner.master, unix.POLLIN)
	}
}

// answerProblem returns why the question that the keys are to answer is no longer pending, or "".
// Once the first of the keys was written, input from others is not considered.
func (s *shim) answerProblem(k *keySequence) string {
	for _, source := range []int{sourceOSC7501, sourceNotify, sourceTitle, sourceScreen} {
		if s.reports[source].seq > k.question.knownSeq {
			return "its agent has continued meanwhile"
		}
	}
	now := time.Now()
	since, exact := now.Add(k.question.since-clock.Monotonic()), k.question.source >= 0
	if exact {
		since = s.reports[k.question.source].since
	}
	switch {
	case exact && s.reports[k.question.source].activity != word.Waiting:
		return "its agent has continued meanwhile"
	case k.next > 0 || !s.lastTyped.After(since):
	case now.Sub(s.lastTyped) < answerTime:
		return "it was answered just now"
	case !exact: // the agent may have continued since, which the shim could not detect
		return "somebody has typed in its terminal since it asked"
	}
	return ""
}

// rejectKeys drops the keys that were not written. If some were written, the agent has continued
// because of them, and the sequence counts as delivered.
func (s *shim) rejectKeys(t *text, problem string) {
	if t.keys.next > 0 {
		s.finishText(t, "")
		return
	}
	s.dequeue(t)
	s.send(t.from, shimwire.Message{
		Kind: shimwire.InputDone, Seq: t.seq, Flags: shimwire.FlagIfStillAsking, Error: problem,
	})
}

// isUserInput reports whether b, read from the pane, contains more than reports of the terminal
// about focus, mouse, or itself. Agents query their terminal when they start.
func isUserInput(b []byte) bool {
	for len(b) > 0 {
		if len(b) < 3 || b[0] != charEscape {
			return true
		}
		rest := b[2:]
		switch b[1] {
		case '[':
			end := bytes.IndexFunc(rest, func(r rune) bool { return r >= 0x40 })
			isMarked := bytes.IndexByte([]byte("<?>"), rest[0]) >= 0
			switch {
			case end < 0:
				return !isMarked // of these, an incomplete sequence
			case !isMarked && bytes.IndexByte([]byte("IORt"), rest[end]) < 0: // focus, cursor position, size
				return true
			}
			b = rest[end+1:]
		case ']', 'P', '_': // a control string, such as the background colour
			end := bytes.IndexAny(rest, "\a\x1b")
			if end < 0 {
				return false
			}
			if b = rest[end+1:]; rest[end] == charEscape {
				b = bytes.TrimPrefix(b, []byte(`\`))
			}
		default:
			return true
		}
	}
	return false
}
