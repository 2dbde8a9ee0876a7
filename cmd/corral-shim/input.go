package main

import (
	"bytes"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/shimwire"
)

const (
	maxQueued = 1 << 20 // size limit of queued texts together, in bytes
	maxTexts  = 256

	// maxLine is how many bytes of a line are written at once while the agent's terminal is in
	// canonical mode: the kernel discards everything beyond 4095 bytes of a line (termios(3)). Between
	// the parts the end-of-file character is written, which in the middle of a line only delivers it
	// to the reader.
	maxLine = 4000

	inputTick = 5 * time.Millisecond // interval of checks whether the agent has read its input
	inputWait = 2 * time.Second      // how long the agent may take to read its input before more is written
)

var (
	pasteBegin = []byte("\x1b[200~")
	pasteEnd   = []byte("\x1b[201~")
	enterKey   = []byte("\r")
)

// text is one text, or one sequence of keys, for the agent.
type text struct {
	from  *conn
	seq   uint32
	keys  *keySequence // nil for a text
	enter bool
	mem   []byte // a separate mapping, which is unmapped when the text is done
	n     int    // used bytes of mem

	stage        int
	parts        [3][]byte // the unwritten bytes: start of the paste, text, end of the paste
	lineMode     bool      // the terminal is in canonical mode; eof makes it deliver an incomplete line
	eof          [1]byte
	special      []byte        // characters that the terminal would interpret and not pass on
	quote        [2]byte       // a quoting character (VLNEXT) and one of these
	quoteStarted bool          // only the first byte of quote was written
	line         int           // bytes of the current line written since its start or the last eof
	paste        bool          // sent as a bracketed paste
	readAt       time.Time     // since when everything has been read; zero if it has not
	echoedAt     time.Time     // when output was first seen after that; zero if none was
	deadline     time.Time     // when Enter is pressed even if the text was not read
	checkedAt    time.Time     // when excludeRunning was last called, or has to begin
	excluded     time.Duration // how long it has postponed Enter, or the next key
}

const (
	textQueued  = iota // not yet begun
	textWriting        // being written to the terminal
	textUnread         // written, but not yet read by the agent
	textWritten        // complete, except for Enter
)

// inputQueue holds the input for the agent: keys typed in the pane, and texts and keys from
// clients, in the order in which they arrived.
type inputQueue struct {
	keys           [4096]byte
	pending        []byte // the part of keys that was not written yet
	texts          []*text
	pendingAnswers int    // answers to status queries that the agent has not got yet: see writeAnswers
	answer         []byte // their form, which is that of the last query
	count          int    // complete and incomplete texts
	queued         int    // their bytes
	line           inputLine
}

// add queues the text of an Input message. If the text is rejected it returns the reason and
// ignores the text's further messages.
func (q *inputQueue) add(c *conn, m *shimwire.Message) string {
	more := m.Flags&shimwire.FlagMore != 0
	if c.isRejecting && c.rejectedSeq == m.Seq {
		c.isRejecting = more
		return ""
	}
	problem := q.accept(c, m, more)
	c.isRejecting, c.rejectedSeq = problem != "" && more, m.Seq
	return problem
}

func (q *inputQueue) accept(c *conn, m *shimwire.Message, more bool) string {
	t := c.partial
	if t != nil && t.seq != m.Seq {
		q.discard(t)
		t, c.partial = nil, nil
	}
	if t == nil {
		if q.count >= maxTexts {
			return "too many texts are waiting to be read by the agent"
		}
		t = &text{from: c, seq: m.Seq}
		q.count++
	}
	if q.queued+len(m.Data) > maxQueued || !t.append(m.Data) {
		c.partial = nil
		q.discard(t)
		return "too much text is waiting to be read by the agent"
	}
	q.queued += len(m.Data)
	if more {
		c.partial = t
		return ""
	}
	c.partial = nil
	t.enter = m.Flags&shimwire.FlagEnter != 0
	q.texts = append(q.texts, t)
	return ""
}

func (q *inputQueue) discard(t *text) {
	q.count--
	q.queued -= t.n
	if t.mem != nil {
		_ = unix.Munmap(t.mem)
		t.mem = nil
	}
}

func (t *text) append(b []byte) bool {
	if need := t.n + len(b); need > len(t.mem) {
		size := max(64<<10, len(t.mem))
		for size < need {
			size *= 2
		}
		mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			return false
		}
		if t.mem != nil {
			copy(mem, t.mem[:t.n])
			_ = unix.Munmap(t.mem)
		}
		t.mem = mem
	}
	t.n += copy(t.mem[t.n:], b)
	return true
}

// prepare converts the text to what a terminal would send, depending on the modes that the agent
// has set: line ends as the Enter key sends them, and a bracketed paste if the agent has enabled
// that, without any sequence inside that would end it. A text must not act as keys: characters that
// the terminal would interpret, such as ^C, are quoted in canonical mode and removed where quoting
// is not possible.
func (t *text) prepare(paste bool, mode *unix.Termios) {
	body := t.mem[:t.n]
	t.stage = textWriting
	t.lineMode = mode.Lflag&unix.ICANON != 0 && !paste
	t.eof[0] = mode.Cc[unix.VEOF]
	if mode.Lflag&unix.ICANON == 0 || mode.Iflag&unix.ICRNL != 0 {
		body = normalizeLineEnds(body)
	}
	t.special = specialCharacters(mode)
	t.quote[0] = mode.Cc[unix.VLNEXT]
	if !t.lineMode || mode.Lflag&unix.IEXTEN == 0 || t.quote[0] == 0 {
		body, t.special = removeBytes(body, t.special), nil
	}
	if paste && len(body) > 0 {
		t.paste = true
		t.parts = [3][]byte{pasteBegin, removePasteEnd(body), pasteEnd}
		return
	}
	t.parts[1] = body
}

// specialCharacters returns the characters that a terminal in this mode interprets (termios(3)).
func specialCharacters(mode *unix.Termios) []byte {
	var special []byte
	add := func(on bool, characters ...int) {
		for _, i := range characters {
			if c := mode.Cc[i]; on && c > 0 && (c < 0x20 || c == 0x7f) {
				special = append(special, c)
			}
		}
	}
	add(mode.Lflag&unix.ISIG != 0, unix.VINTR, unix.VQUIT, unix.VSUSP)
	add(mode.Iflag&unix.IXON != 0, unix.VSTART, unix.VSTOP)
	canonical := mode.Lflag&unix.ICANON != 0
	add(canonical, unix.VEOF, unix.VERASE, unix.VKILL)
	add(canonical && mode.Lflag&unix.IEXTEN != 0, unix.VWERASE, unix.VREPRINT, unix.VLNEXT)
	return special
}

// normalizeLineEnds replaces each line end in b, \n or \r\n, by \r, in place.
func normalizeLineEnds(b []byte) []byte {
	n, last := 0, byte(0)
	for _, c := range b {
		follows := c == '\n' && last == '\r'
		last = c
		if follows {
			continue
		}
		if c == '\n' {
			c = '\r'
		}
		b[n] = c
		n++
	}
	return b[:n]
}

// removeBytes removes all these characters from b, in place.
func removeBytes(b, characters []byte) []byte {
	if len(characters) == 0 {
		return b
	}
	n := 0
	for _, c := range b {
		if bytes.IndexByte(characters, c) < 0 {
			b[n] = c
			n++
		}
	}
	return b[:n]
}

// next returns the bytes to be written next, or nothing if all were written.
func (t *text) next() []byte {
	var b []byte
	for i := range t.parts {
		if b = t.parts[i]; len(b) > 0 {
			break
		}
	}
	if !t.lineMode || len(b) == 0 {
		return b
	}
	if t.quoteStarted {
		return t.quote[1:]
	}
	if t.line >= maxLine {
		return t.eof[:]
	}
	if bytes.IndexByte(t.special, b[0]) >= 0 {
		t.quote[1] = b[0]
		return t.quote[:]
	}
	b = b[:min(len(b), maxLine-t.line)]
	for i, c := range b {
		switch {
		case c == '\r' || c == '\n':
			return b[:i+1]
		case bytes.IndexByte(t.special, c) >= 0:
			return b[:i]
		}
	}
	return b
}

// advance records that the terminal has accepted the first n bytes, at least one, of what next
// returned.
func (t *text) advance(n int) {
	if t.lineMode && t.line >= maxLine && !t.quoteStarted {
		t.line = 0
		return
	}
	for i, p := range t.parts {
		if len(p) == 0 {
			continue
		}
		if t.quoteStarted || bytes.IndexByte(t.special, p[0]) >= 0 {
			if t.quoteStarted = !t.quoteStarted && n == 1; t.quoteStarted {
				return
			}
			n = 1
		}
		t.line += n
		if end := p[n-1]; end == '\r' || end == '\n' {
			t.line = 0
		}
		t.parts[i] = p[n:]
		return
	}
}

// writeInput writes a part of the pending input to the agent's terminal. It returns whether there
// may be more to do without another event.
func (s *shim) writeInput() bool {
	q := &s.input
	switch {
	case !s.masterWritable:
		return false
	case len(q.pending) > 0:
		q.pending = q.pending[s.writeMaster(q.pending):]
	case q.pendingAnswers > 0 && !q.isWriting():
		q.pendingAnswers--
		q.pending = q.answer
	default:
		if t := s.nextText(); t != nil {
			return s.writeText(t)
		}
		if !s.pane.readable {
			return false
		}
		s.readPane()
	}
	return true
}

// readPane reads keys that were typed in the pane. Keys typed before a text arrived are read before
// the text is written.
func (s *shim) readPane() {
	q := &s.input
	n, e := sysRead(s.pane.fd, q.keys[:])
	switch {
	case e == unix.EAGAIN:
		s.pane.readable = false
	case e != 0 || n == 0:
		s.handlePaneHangup()
	}
	if q.pending = q.keys[:n]; isUserInput(q.pending) {
		s.noteTyped()
		q.line.typed(q.pending, int(s.log.sizes.columns))
	}
}

// isWriting reports whether a text or a key was written only partially.
func (q *inputQueue) isWriting() bool {
	if len(q.texts) == 0 || q.texts[0].stage != textWriting {
		return false
	}
	keys := q.texts[0].keys
	return keys == nil || len(keys.unwritten) > 0
}

// maxPendingAnswers limits the pending answers to an agent that keeps asking without reading.
const maxPendingAnswers = 16

// addAnswer adds an answer to a status query, which may have been terminated by a bell.
func (q *inputQueue) addAnswer(isEndedByBell bool) {
	q.answer = statusAnswer
	if isEndedByBell {
		q.answer = statusAnswerBell
	}
	q.pendingAnswers = min(q.pendingAnswers+1, maxPendingAnswers)
}

// writeAnswers writes the pending answers to status queries, as far as the agent's terminal accepts
// them. They must precede everything that tmux sends from now on: an agent sends a second query
// that every terminal answers, and if that answer comes first it concludes that the first query is
// not supported.
func (s *shim) writeAnswers() {
	for q := &s.input; q.pendingAnswers > 0 && s.masterWritable && !q.isWriting(); {
		s.writeInput()
	}
}

// isAnswer reports whether a text answers the agent's question. Such a text is typed even if the
// agent accepts pastes, because a dialog reads keys and ignores a paste.
func (s *shim) isAnswer(t *text) bool {
	return s.isAsking() && bytes.IndexByte(t.mem[:t.n], '\n') < 0
}

// writeMaster writes to the agent's terminal and returns how many bytes it accepted.
func (s *shim) writeMaster(b []byte) int {
	n, e := sysWrite(s.inner.master, b)
	if e != 0 || n < len(b) {
		s.masterWritable = false
	}
	return n
}

// writeTyped is writeMaster for input from a person or a client.
func (s *shim) writeTyped(b []byte) int {
	s.noteTyped()
	return s.writeMaster(b)
}

func (s *shim) writeText(t *text) bool {
	if t.keys != nil {
		return s.writeKeys(t)
	}
	switch t.stage {
	case textQueued:
		if s.clearInputLine(t) {
			return true
		}
		mode, err := unix.IoctlGetTermios(s.inner.slave, unix.TCGETS)
		if err != nil {
			mode = saneSettings()
		}
		s.input.line.added(t.mem[:t.n])
		t.prepare(s.scanner.modes.paste && !s.isAnswer(t), mode)
	case textWriting:
		b := t.next()
		if len(b) > 0 {
			n := s.writeTyped(b)
			if n > 0 {
				t.advance(n)
			}
			if n < len(b) || len(t.next()) > 0 {
				return true
			}
		}
		t.stage = textWritten
		if t.enter && !t.lineMode { // an Enter alone also waits: ESC before it would make it Alt+Enter
			t.stage = textUnread
			now := time.Now()
			t.deadline, t.checkedAt = now.Add(inputWait), now
			s.timers.set(timerInput, now.Add(inputTick))
			return false
		}
		return s.writeText(t)
	case textUnread:
		return false // checkRead continues when the timer fires
	case textWritten:
		if t.enter && s.writeTyped(enterKey) == 0 {
			return false
		}
		if t.enter {
			s.input.line.entered(int(s.log.sizes.columns))
		}
		s.finishText(t, "")
	}
	return true
}

// finishText removes the text, which is the first in the queue, and answers its sender. err is the
// reason why the agent did not get all of it, or "".
func (s *shim) finishText(t *text, err string) {
	s.dequeue(t)
	s.send(t.from, shimwire.Message{Kind: shimwire.InputDone, Seq: t.seq, Error: err})
}

// dequeue removes the text, which is the first in the queue.
func (s *shim) dequeue(t *text) {
	s.input.texts = append(s.input.texts[:0], s.input.texts[1:]...)
	s.input.discard(t)
}

// withdraw removes the queued texts of a closed connection that were not begun, because their
// sender will not learn that they were delivered. Of key sequences it removes the keys that were
// not written.
func (q *inputQueue) withdraw(c *conn) {
	kept := q.texts[:0]
	for _, t := range q.texts {
		if t.from == c && (t.stage == textQueued || t.keys != nil && len(t.keys.unwritten) == 0) {
			q.discard(t)
			continue
		}
		if t.from == c && t.keys != nil {
			t.keys.names = t.keys.names[:t.keys.next]
		}
		kept = append(kept, t)
	}
	q.texts = kept
}
