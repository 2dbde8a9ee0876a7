package main

import (
	"bytes"
	"cmp"
	"context"
	"os"
	"regexp"
	"regexp/syntax"
	"runtime"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/corrald/corral/cmd/corralctl/transcript"
	"github.com/corrald/corral/cmd/corralctl/wording"
)

// matchValue is a matching line of a log as JSON.
type matchValue struct {
	Id   string //nolint:revive // the name on the bus
	Time int64  // µs; 0 if it is unknown
	Line string
}

// parsePattern decodes the value of --grep.
func parsePattern(text string) (*regexp.Regexp, error) {
	pattern, err := regexp.Compile(text)
	if err != nil {
		return nil, usagef("logs", "invalid value %q for --grep: %s", text,
			strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	}
	return pattern, nil
}

// grep prints the lines of the sessions' logs that match o.pattern. If there is none, the exit code
// is 1.
func (o *logsOptions) grep(ctx context.Context, c *ctl, words []string) error {
	ids, unresolved := c.resolveIncluded(ctx, words, isAny)
	if len(ids) == 0 {
		return unresolved
	}
	manager, err := c.client.Manager(ctx)
	if err != nil {
		return c.cannot(c.doing(), ids[0], err)
	}
	c.startPager()
	type result struct {
		lines []matchValue
		err   error
	}
	results, slots := make([]chan result, len(ids)), make(chan struct{}, runtime.GOMAXPROCS(0))
	for i := range ids {
		results[i] = make(chan result, 1)
	}
	go func() {
		for i, id := range ids {
			slots <- struct{}{}
			go func() {
				lines, err := o.matches(sessionDirectory(manager, id), id,
					func() (*os.File, error) { return c.client.OpenLog(ctx, id) })
				results[i] <- result{lines, err}
				<-slots
			}()
		}
	}()
	var failed failures
	all := []matchValue{}
	found := false
	for i, id := range ids {
		r := <-results[i]
		if r.err != nil && (len(words) > 0 || !isInvalidState(r.err)) { // --all includes sessions without a log
			failed.add(c, c.cannot(c.doing(), id, r.err))
		}
		found = found || len(r.lines) > 0
		if c.wantsJSON() {
			all = append(all, r.lines...)
			continue
		}
		for _, m := range r.lines {
			c.print("%s %-19s %s\n", m.Id, timeOfLine(m.Time), wording.PrintableLines(m.Line))
		}
	}
	if c.wantsJSON() {
		if err := c.printJSON(all); err != nil {
			return err
		}
	}
	if err := cmp.Or(unresolved, failed.first()); err != nil || found {
		return err
	}
	return exit(exitFailed)
}

// matches returns the matching lines of a session's log in a directory, the last ones with --lines.
// It opens the log itself with open.
func (o *logsOptions) matches(directory, id string, open func() (*os.File, error)) ([]matchValue, error) {
	files, err := openLogFiles(directory, open)
	if err != nil {
		return nil, err
	}
	defer files.close()
	var lines []matchValue
	m := newLineMatcher(o.pattern)
	p := &playback{transcript: transcript.NewLines(func(line []byte, printed int64) {
		if m.match(line) {
			lines = append(lines, matchValue{id, printed * int64(time.Second/time.Microsecond), string(line)})
		}
	})}
	p.sink = p.transcript
	if files.sizes.known { // otherwise the offsets in the log are unknown
		p.times = readTimes(directory)
	}
	if err := p.play(files); err != nil {
		return nil, err
	}
	err = p.Close()
	if o.lines >= 0 {
		lines = lines[max(0, len(lines)-o.lines):]
	}
	return lines, err
}

// timeOfLine returns when a line was printed, "-" if that is unknown.
func timeOfLine(usec int64) string {
	if usec == 0 {
		return "-"
	}
	return wording.BusTime(uint64(usec)).Format(time.DateTime)
}

// lineMatcher matches lines with a pattern. Before it runs the pattern, it searches for a text that
// each match contains, which is many times faster.
type lineMatcher struct {
	pattern *regexp.Regexp
	text    []byte // empty if there is none
	fold    bool   // the case of letters is ignored; text is then ASCII, in lower case
	lower   []byte // scratch memory
}

func newLineMatcher(pattern *regexp.Regexp) *lineMatcher {
	m := &lineMatcher{pattern: pattern}
	if parsed, err := syntax.Parse(pattern.String(), syntax.Perl); err == nil {
		m.text, m.fold = requiredText(parsed)
	}
	if m.fold {
		var ascii bool
		if m.text, ascii = appendLower(nil, m.text); !ascii {
			m.text = nil
		}
	}
	return m
}

func (m *lineMatcher) match(line []byte) bool {
	searched, isExact := line, true
	if m.fold {
		// Other characters may be equal to ASCII letters, such as the Kelvin sign.
		m.lower, isExact = appendLower(m.lower[:0], line)
		searched = m.lower
	}
	return (!isExact || bytes.Contains(searched, m.text)) && m.pattern.Match(line)
}

// requiredText returns the longest text found that each match of an expression contains, and
// whether the case of its letters is ignored.
func requiredText(re *syntax.Regexp) (text []byte, fold bool) {
	switch {
	case re.Op == syntax.OpLiteral:
		return []byte(string(re.Rune)), re.Flags&syntax.FoldCase != 0
	case re.Op == syntax.OpConcat, re.Op == syntax.OpCapture, re.Op == syntax.OpPlus,
		re.Op == syntax.OpRepeat && re.Min > 0:
		for _, part := range re.Sub {
			if t, f := requiredText(part); len(t) > len(text) {
				text, fold = t, f
			}
		}
	}
	return text, fold
}

// appendLower appends text to b with its ASCII letters in lower case. It returns false if text
// contains other characters than ASCII.
func appendLower(b, text []byte) (lower []byte, isASCII bool) {
	b = append(b, text...)
	var all byte
	for i, c := range b[len(b)-len(text):] {
		all |= c
		if 'A' <= c && c <= 'Z' {
			b[len(b)-len(text)+i] = c + 'a' - 'A'
		}
	}
	return b, all < utf8.RuneSelf
}
