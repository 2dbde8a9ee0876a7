package main

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/corrald/corral/dbusapi/word"
	"github.com/corrald/corral/internal/shimwire"
)

// This file implements OSC 7501, the Program Status Protocol, revision 0.3 (2026-10-07) and earlier
// ones: https://www.superlogical.com/rex/docs/build/program-status
//
//	OSC 7501 ; state=blocked:kind=permission:app=claude:msg=BASE64 ST
//
// A report replaces one record: the root, which describes the program itself, or a part of the
// program that has an ID. The keys app and progress are not used. The terminfo capability Pst, with
// which a terminal announces the protocol, is not set: the terminfo entry is tmux's, and a program
// that does not find the capability sends the query.

// The answers to the query whether the protocol is supported: the query itself, with the terminator
// that the program has used.
var (
	statusAnswer     = []byte("\x1b]7501;?\x1b\\")
	statusAnswerBell = []byte("\x1b]7501;?\a")
)

// Limits of the protocol, in bytes unless noted. That of a whole report, 4096 bytes, is the
// scanner's maxCommand.
const (
	maxStatusKey     = 16
	maxStatusApp     = 32
	maxStatusID      = 128
	maxStatusDepth   = 8 // segments of an ID
	maxStatusSegment = 32
	maxStatusTitle   = 192     // decoded
	maxStatusMessage = 2 << 10 // decoded
	maxStatusRecords = 256     // records; the protocol requires a terminal to keep at least 64
)

// statusRecord is one record, or a report that changes one.
type statusRecord struct {
	id    string // "" for the root
	state string
	kind  string // what a blocked program waits for, "" if that is not reported
	text  string // message for the user
}

// The states, in order of increasing urgency. Clear occurs only in reports.
const (
	statusIdle    = "idle"
	statusDone    = "done"
	statusWorking = "working"
	statusError   = "error"
	statusBlocked = "blocked"
	statusClear   = "clear"
)

var statusStates = []string{statusIdle, statusDone, statusWorking, statusError, statusBlocked, statusClear}

// statusKinds are what a blocked program can wait for.
var statusKinds = []string{word.Permission, word.Question, word.Auth}

// parseStatus decodes the part of the sequence after "7501;". It ignores blanks around keys and
// values, unknown keys and malformed pairs; if a key occurs twice the last one applies. An invalid
// ID is never taken for the root's, and, like a key or an application name that is too long,
// invalidates the report even if a later pair replaces it. An invalid text is dropped without the
// report: the protocol would discard the whole report, and then the user would not learn that an
// agent waits. A report that the root works or is idle allocates no memory, because programs may
// send it very often.
//
// A program that works with a message that matches background, unless that is nil, has finished its
// turn: only what it has started in the background continues.
func parseStatus(body []byte, background *regexp.Regexp) (r statusRecord, ok bool) {
	var title, message []byte
	for pair := range bytes.SplitSeq(body, []byte{':'}) {
		key, value, found := bytes.Cut(pair, []byte{'='})
		if !found {
			continue
		}
		key, value = bytes.TrimSpace(key), bytes.TrimSpace(value)
		switch {
		case len(key) > maxStatusKey,
			string(key) == "app" && len(value) > maxStatusApp,
			string(key) == "id" && !isValidStatusID(value):
			return statusRecord{}, false
		case bytes.ContainsFunc(value, isInvalidInValue):
			continue
		}
		switch string(key) {
		case "state":
			r.state = oneOf(statusStates, value)
		case "id":
			r.id = string(value)
		case "kind":
			r.kind = oneOf(statusKinds, value)
		case "title":
			title = value
		case "msg":
			message = value
		}
	}
	if r.state == "" {
		return statusRecord{}, false
	}
	if r.state != statusBlocked {
		r.kind = ""
	}
	if r.state == statusWorking && background != nil && message != nil &&
		background.MatchString(decodeStatusText(message, maxStatusMessage)) {
		r.state = statusDone
	}
	// The text of a working or idle program is ignored: it would wake the daemon with each line of
	// progress of a busy agent.
	if r.state != statusWorking && r.state != statusIdle {
		r.text = cmp.Or(decodeStatusText(message, maxStatusMessage), decodeStatusText(title, maxStatusTitle))
	}
	return r, true
}

// oneOf returns the word that equals value, or "".
func oneOf(words []string, value []byte) string {
	for _, word := range words {
		if word == string(value) {
			return word
		}
	}
	return ""
}

func isInvalidInValue(c rune) bool { return !isValidInSegment(c) && !strings.ContainsRune(",/=", c) }

func isValidInSegment(c rune) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("_.+-", c)
}

func isValidStatusID(id []byte) bool {
	depth := 0
	for segment := range bytes.SplitSeq(id, []byte{'/'}) {
		depth++
		if len(segment) == 0 || len(segment) > maxStatusSegment ||
			bytes.ContainsFunc(segment, func(c rune) bool { return !isValidInSegment(c) }) {
			return false
		}
	}
	return len(id) <= maxStatusID && depth <= maxStatusDepth
}

// decodeStatusText decodes a text and truncates it to limit bytes. It returns "" if the text is
// invalid.
func decodeStatusText(value []byte, limit int) string {
	value = bytes.TrimRight(value, "=")
	text := make([]byte, base64.RawStdEncoding.DecodedLen(len(value)))
	n, err := base64.RawStdEncoding.Decode(text, value)
	if err != nil {
		return ""
	}
	end := min(n, limit)
	for end > 0 && end < n && !utf8.RuneStart(text[end]) {
		end--
	}
	return shimwire.SanitizeLine(string(text[:end]))
}

// programStatus holds the records of a program, the most recently reported one first.
type programStatus struct {
	records []statusRecord
}

// update applies a report.
func (p *programStatus) update(r statusRecord) {
	if r.state == statusClear {
		p.records = slices.DeleteFunc(p.records, func(have statusRecord) bool {
			return r.id == "" || have.id == r.id || strings.HasPrefix(have.id, r.id+"/")
		})
		return
	}
	p.records = slices.DeleteFunc(p.records, func(have statusRecord) bool { return have.id == r.id })
	p.records = slices.Insert(p.records, 0, r)
	if len(p.records) > maxStatusRecords { // keep the root, which is the program itself
		last := len(p.records) - 1
		if p.records[last].id == "" {
			last--
		}
		p.records = slices.Delete(p.records, last, last+1)
	}
}

// handleShellPrompt is called when a shell prints its prompt, which means that the previous program
// has exited. Records about a finished or failed task remain. The protocol leaves open whether an
// idle one does: it would hide what the shell does next.
func (p *programStatus) handleShellPrompt() {
	p.records = slices.DeleteFunc(p.records, func(r statusRecord) bool {
		return r.state != statusDone && r.state != statusError
	})
}

// handleShellCommand is called when a shell begins to execute a command. The user has seen by then
// what the previous program has finished. The protocol leaves open when such records end; here they
// would hide what the shell does until another program reports its status.
func (p *programStatus) handleShellCommand() {
	p.records = slices.DeleteFunc(p.records, func(r statusRecord) bool {
		return r.state != statusWorking && r.state != statusBlocked
	})
}

// agentStatus summarizes the records. The activity is that of the root, regardless of the parts;
// without a root it is that of the most urgent record. If a part is blocked its reason and text are
// added, unless the root itself is blocked or has failed.
func (p *programStatus) agentStatus() agentStatus {
	if len(p.records) == 0 {
		return agentStatus{}
	}
	urgency := func(a, b statusRecord) int {
		return slices.Index(statusStates, a.state) - slices.Index(statusStates, b.state)
	}
	urgent := slices.MaxFunc(p.records, urgency)
	root := slices.IndexFunc(p.records, func(r statusRecord) bool { return r.id == "" })
	if root < 0 {
		return urgent.agentStatus()
	}
	status := p.records[root].agentStatus()
	if urgent.state == statusBlocked && p.records[root].state != statusError && p.records[root].state != statusBlocked {
		status.reason, status.text = urgent.reason(), urgent.text
	}
	return status
}

// reason returns the reason for attention of a blocked program. The kinds are such reasons.
func (r statusRecord) reason() string { return cmp.Or(r.kind, word.Blocked) }

func (r statusRecord) agentStatus() agentStatus {
	switch r.state {
	case statusWorking:
		return agentStatus{activity: word.Working}
	case statusDone:
		return agentStatus{activity: word.Idle, reason: word.TurnEnded, text: r.text}
	case statusBlocked:
		return agentStatus{activity: word.Waiting, reason: r.reason(), text: r.text}
	case statusError:
		return agentStatus{activity: word.Idle, reason: word.Error, text: r.text}
	}
	return agentStatus{activity: word.Idle}
}

// handleProgramStatus handles an OSC 7501.
func (s *shim) handleProgramStatus(body []byte) {
	if s.spec.IgnoreOSC7501 {
		return
	}
	if string(bytes.TrimSpace(body)) == "?" {
		s.input.addAnswer(s.scanner.isEndedByBell)
		return
	}
	if r, ok := parseStatus(body, s.background); ok {
		s.programStatus.update(r)
		s.setStatus(sourceOSC7501, s.programStatus.agentStatus())
	}
}

// resetProgramStatus is called when the terminal is reset.
func (s *shim) resetProgramStatus() {
	s.programStatus = programStatus{}
	s.setStatus(sourceOSC7501, agentStatus{})
}
