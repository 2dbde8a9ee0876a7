package main

import (
	"bytes"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/shimwire"
)

const (
	maxQueued = 1 << 20 // bytes of texts that wait
	maxTexts  = 256

	// maxLine is how much of a line the kernel is given at once while the agent's terminal edits
	// lines: of one that is longer than 4095 bytes it throws the rest away (termios(3), canonical
	// mode). In between goes the end-of-file character, which in the middle of a line means no more
	// than: let the reader have this.
	maxLine = 4000

	inputTick = 5 * time.Millisecond // how often is looked whether the agent has read its input
	inputWait = 2 * time.Second

	// After the agent has read a text, Enter is pressed this much later. Without bracketed paste a
	// program can tell a paste by its speed alone, and some take an Enter that follows within a tenth
	// of a second for one of its line ends.
	enterAfterKeys = 150 * time.Millisecond

	// Some take an Enter that follows too soon after they have dealt with a paste for a part of it
	// (Gemini CLI: 40 ms, and the time in which it draws). That a program has dealt with it shows in
	// its printing something: enterAfterEcho later Enter is pressed, and the slower it was the later.
	// If it prints nothing, Enter is pressed enterUnseen after it has read.
	enterAfterEcho = 150 * time.Millisecond
	enterUnseen    = 400 * time.Millisecond
)

var (
	pasteBegin = []byte("\x1b[200~")
	pasteEnd   = []byte("\x1b[201~")
	enterKey   = []byte("\r")
)

// text is one text, or a sequence of keys, for the agent.
type text struct {
	from  *conn
	seq   uint32
	press *press // nil for a text
	enter bool
	mem   []byte // a mapping of its own: given back to the system when the text is done
	n     int    // bytes of it that are used

	stage int
	parts [3][]byte // what is still to be written
	lines bool      // the terminal edits lines, and eof makes it deliver one before its end
	eof   [1]byte
	acts  []byte    // the characters that the terminal would act on instead of handing them to the agent
	quote [2]byte   // one of them, with the character that has the terminal hand it on; it may have been written in part
	half  bool      // the first of the two was
	line  int       // bytes of the current line that were written since its begin or the last eof
	paste bool      // in brackets
	read  time.Time // since when the agent has read everything, zero if it has not
	echo  time.Time // when it was first seen to have printed something after that, zero if it has not
	due   time.Time // when Enter is pressed in any case
}

const (
	textWaits = iota // for what came before it
	textGoes         // to the terminal
	textRead         // by the agent, which is waited for
	textDone
)

// inputQueue is what the agent gets: keys and texts, in the order they came in.
type inputQueue struct {
	keys    [4096]byte
	pending []byte // of keys: those that were not written yet
	texts   []*text
	owed    int // answers to queries that the agent has to get: see answer
	count   int // texts, complete or not
	queued  int // bytes in them
}

// add takes an Input message. It returns why its text is refused, if it is; what then still comes
// of that text is passed over.
func (q *inputQueue) add(c *conn, m *shimwire.Message) string {
	more := m.Flags&shimwire.FlagMore != 0
	if c.refusing && c.refused == m.Seq {
		c.refusing = more
		return ""
	}
	why := q.accept(c, m, more)
	c.refusing, c.refused = why != "" && more, m.Seq
	return why
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

// prepare makes the text what a terminal would send for it, by the modes that the agent has set:
// line ends as the Enter key has them, and in brackets where the agent asked for that, without
// anything inside that would close them. A text is no keys: a character that the terminal would act
// on, as on ^C, is quoted where it edits lines, and left out where there is no quoting.
func (t *text) prepare(paste bool, mode *unix.Termios) {
	body := t.mem[:t.n]
	t.stage = textGoes
	t.lines = mode.Lflag&unix.ICANON != 0 && !paste
	t.eof[0] = mode.Cc[unix.VEOF]
	if mode.Lflag&unix.ICANON == 0 || mode.Iflag&unix.ICRNL != 0 {
		body = returns(body)
	}
	t.acts = actedOn(mode)
	t.quote[0] = mode.Cc[unix.VLNEXT]
	if !t.lines || mode.Lflag&unix.IEXTEN == 0 || t.quote[0] == 0 {
		body, t.acts = without(body, t.acts), nil
	}
	if paste && len(body) > 0 {
		t.paste = true
		t.parts = [3][]byte{pasteBegin, withoutPasteEnd(body), pasteEnd}
		return
	}
	t.parts[1] = body
}

// actedOn returns the characters that a terminal in this mode keeps for itself (termios(3)).
func actedOn(mode *unix.Termios) []byte {
	var acts []byte
	add := func(on bool, characters ...int) {
		for _, i := range characters {
			if c := mode.Cc[i]; on && c > 0 && (c < 0x20 || c == 0x7f) {
				acts = append(acts, c)
			}
		}
	}
	add(mode.Lflag&unix.ISIG != 0, unix.VINTR, unix.VQUIT, unix.VSUSP)
	add(mode.Iflag&unix.IXON != 0, unix.VSTART, unix.VSTOP)
	lines := mode.Lflag&unix.ICANON != 0
	add(lines, unix.VEOF, unix.VERASE, unix.VKILL)
	add(lines && mode.Lflag&unix.IEXTEN != 0, unix.VWERASE, unix.VREPRINT, unix.VLNEXT)
	return acts
}

// returns replaces each line end in b, \n or \r\n, by \r, in place.
func returns(b []byte) []byte {
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

// without removes all of these characters from b, in place.
func without(b, characters []byte) []byte {
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

// piece is what can be given to the terminal at once, nothing if all was.
func (t *text) piece() []byte {
	var b []byte
	for i := range t.parts {
		if b = t.parts[i]; len(b) > 0 {
			break
		}
	}
	if !t.lines || len(b) == 0 {
		return b
	}
	if t.half {
		return t.quote[1:]
	}
	if t.line >= maxLine {
		return t.eof[:]
	}
	if bytes.IndexByte(t.acts, b[0]) >= 0 {
		t.quote[1] = b[0]
		return t.quote[:]
	}
	b = b[:min(len(b), maxLine-t.line)]
	for i, c := range b {
		switch {
		case c == '\r' || c == '\n':
			return b[:i+1]
		case bytes.IndexByte(t.acts, c) >= 0:
			return b[:i]
		}
	}
	return b
}

// wrote takes note that the terminal has taken the first n bytes, at least one, of what piece
// returned.
func (t *text) wrote(n int) {
	if t.lines && t.line >= maxLine && !t.half {
		t.line = 0
		return
	}
	for i, p := range t.parts {
		if len(p) == 0 {
			continue
		}
		if t.half || bytes.IndexByte(t.acts, p[0]) >= 0 {
			if t.half = !t.half && n == 1; t.half {
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

// feed gives the agent's terminal a piece of what is next. It returns whether there may be more to
// do at once.
func (s *shim) feed() bool {
	q := &s.input
	switch {
	case !s.masterWritable:
		return false
	case len(q.pending) > 0:
		q.pending = q.pending[s.put(q.pending):]
	case q.owed > 0 && !q.within():
		q.owed--
		q.pending = statusAnswer
	default:
		if t := s.nextText(); t != nil {
			return s.feedText(t)
		}
		if !s.pane.readable {
			return false
		}
		s.readPane()
	}
	return true
}

// readPane reads keys that were pressed in the pane. Those that were pressed before a text came are
// taken before it.
func (s *shim) readPane() {
	q := &s.input
	n, e := sysRead(s.pane.fd, q.keys[:])
	switch {
	case e == unix.EAGAIN:
		s.pane.readable = false
	case e != 0 || n == 0:
		s.paneHungUp()
	}
	if q.pending = q.keys[:n]; isTyped(q.pending) {
		s.typed = time.Now()
	}
}

// within tells whether a text, or a key, was written in part.
func (q *inputQueue) within() bool {
	return len(q.texts) > 0 && q.texts[0].stage == textGoes && (q.texts[0].press == nil || len(q.texts[0].press.rest) > 0)
}

// maxOwed bounds the answers that an agent can be owed: one that asks on and on, and does not read,
// gets no more.
const maxOwed = 16

// answer gives the agent the answers that it is owed, as far as its terminal takes them. They come
// before every key that tmux sends from now on: an agent asks two questions at once, the second one
// of a kind that every terminal answers, and takes its answer, if that comes first, for "no" to the
// first.
func (s *shim) answer() {
	for q := &s.input; q.owed > 0 && s.masterWritable && !q.within(); {
		s.feed()
	}
}

// answers tells whether a text answers what the agent asks. It is typed then, even by one who can
// take a paste: a dialog takes keys, and passes over a paste.
func (s *shim) answers(t *text) bool {
	return s.asks() && bytes.IndexByte(t.mem[:t.n], '\n') < 0
}

// put writes to the agent's terminal and returns how much that has taken.
func (s *shim) put(b []byte) int {
	n, e := sysWrite(s.inner.master, b)
	if e != 0 || n < len(b) {
		s.masterWritable = false
	}
	return n
}

// enter is put for what somebody has typed.
func (s *shim) enter(b []byte) int {
	s.typed = time.Now()
	return s.put(b)
}

func (s *shim) feedText(t *text) bool {
	if t.press != nil {
		return s.feedKeys(t)
	}
	switch t.stage {
	case textWaits:
		mode, err := unix.IoctlGetTermios(s.inner.slave, unix.TCGETS)
		if err != nil {
			mode = sane()
		}
		t.prepare(s.scanner.modes.paste && !s.answers(t), mode)
	case textGoes:
		b := t.piece()
		if len(b) > 0 {
			n := s.enter(b)
			if n > 0 {
				t.wrote(n)
			}
			if n < len(b) || len(t.piece()) > 0 {
				return true
			}
		}
		t.stage = textDone
		if t.enter && t.n > 0 && !t.lines {
			t.stage = textRead
			now := time.Now()
			t.due = now.Add(inputWait)
			s.timers.set(timerInput, now.Add(inputTick))
			return false
		}
		return s.feedText(t)
	case textRead:
		return false // until the timer says so
	case textDone:
		if t.enter && s.enter(enterKey) == 0 {
			return false
		}
		s.finishText(t, "")
	}
	return true
}

// finishText takes the text, which is the first, out of the queue and answers it. err is why the
// agent has not got all of it, "" if it has.
func (s *shim) finishText(t *text, err string) {
	s.dequeue(t)
	s.send(t.from, shimwire.Message{Kind: shimwire.InputDone, Seq: t.seq, Error: err})
}

// dequeue takes the text, which is the first, out of the queue.
func (s *shim) dequeue(t *text) {
	s.input.texts = append(s.input.texts[:0], s.input.texts[1:]...)
	s.input.discard(t)
}

// watchReading looks whether the agent has read the text that Enter is to follow.
func (s *shim) watchReading(now time.Time) {
	if len(s.input.texts) == 0 || s.input.texts[0].stage != textRead {
		return
	}
	t := s.input.texts[0]
	switch unread, e := sysUnread(s.inner.slave); {
	case e == 0 && unread > 0:
		t.read = time.Time{}
	case t.read.IsZero():
		t.read = now
	case t.echo.IsZero() && !s.lastOutput.Before(t.read.Add(-inputTick)): // it may have read it right after the last look
		t.echo = now
	}
	if now.After(t.due) || !t.read.IsZero() && now.After(t.enterAt()) {
		t.stage = textDone
		return
	}
	s.timers.set(timerInput, now.Add(inputTick))
}

// enterAt is when Enter can be pressed after a text that the agent has read.
func (t *text) enterAt() time.Time {
	switch {
	case !t.paste:
		return t.read.Add(enterAfterKeys)
	case t.echo.IsZero():
		return t.read.Add(enterUnseen)
	}
	return t.echo.Add(enterAfterEcho + 2*t.echo.Sub(t.read))
}

// withdraw forgets the texts of a connection that is gone of which nothing was written yet: nobody
// is told any more that the agent has them. Of keys those are forgotten that were not written.
func (q *inputQueue) withdraw(c *conn) {
	kept := q.texts[:0]
	for _, t := range q.texts {
		if t.from == c && (t.stage == textWaits || t.press != nil && len(t.press.rest) == 0) {
			q.discard(t)
			continue
		}
		if t.from == c && t.press != nil {
			t.press.names = t.press.names[:t.press.next]
		}
		kept = append(kept, t)
	}
	q.texts = kept
}

// refuse answers all texts that the agent will not get.
func (q *inputQueue) refuse(send func(*conn, shimwire.Message), why string) {
	for _, t := range q.texts {
		send(t.from, shimwire.Message{Kind: shimwire.InputDone, Seq: t.seq, Error: why})
	}
}
