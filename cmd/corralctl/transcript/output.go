package transcript

import "io"

// output buffers the emitted lines and writes them together: at the end of each Write of the
// transcript, and whenever they exceed maxPending. If emitLine is set it buffers only the current
// line, and calls emitLine at its end instead.
type output struct {
	writer       io.Writer
	emitLine     func(line []byte, printed int64)
	now          int64 // the time of what is written: see SetTime
	pending      []byte
	printed      int64 // when the last character in pending was written; 0 without emitLine
	unterminated *line // the line that was emitted last without its newline, because it continues in another line
	err          error // error of writer; it is returned from then on
}

// endLine writes the newline of the unterminated line, unless l continues that line.
func (o *output) endLine(l *line) {
	if o.unterminated != nil && (l == nil || l.continues != o.unterminated) {
		o.newline()
	}
	o.unterminated = nil
}

// add appends the text of a line, without a newline.
func (o *output) add(l *line) {
	o.pending = l.text(o.pending)
	o.printed = max(o.printed, l.printed)
}

// newline terminates the pending text.
func (o *output) newline() {
	if o.emitLine == nil {
		o.pending = append(o.pending, '\n')
		return
	}
	o.emitLine(o.pending, o.printed)
	o.pending, o.printed = o.pending[:0], 0
}

func (o *output) flush() error {
	if o.emitLine != nil {
		return nil
	}
	if o.err == nil && len(o.pending) > 0 {
		_, o.err = o.writer.Write(o.pending)
	}
	o.pending = o.pending[:0]
	return o.err
}

func (o *output) flushIfLarge() {
	if len(o.pending) > maxPending {
		_ = o.flush() // flush keeps the error in o.err
	}
}
