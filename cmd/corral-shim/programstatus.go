package main

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"slices"
	"strings"

	"github.com/corrald/corral/dbusapi/word"
	"github.com/corrald/corral/internal/shimwire"
)

// This file implements OSC 7501, the Program Status Protocol, revision 0.2:
// https://www.superlogical.com/rex/docs/build/program-status
//
//	OSC 7501 ; state=blocked:kind=permission:app=claude:msg=BASE64 ST
//
// A report replaces one record: the root, which describes the program itself, or a part of the
// program that has an ID.

// statusAnswer is the answer to the query whether the protocol is supported: the query itself.
var statusAnswer = []byte("\x1b]7501;?\x1b\\")

// Limits of the protocol, in bytes unless noted.
const (
	maxStatusID      = 128
	maxStatusDepth   = 8 // segments of an ID
	maxStatusSegment = 32
	maxStatusText    = 2 << 10
	maxStatusRecords = 64 // records; the protocol requires a terminal to keep at least this many
)

// statusRecord is one record, or a report that changes one.
type statusRecord struct {
	id    string // "" for the root
	state string
	kind  string // what a blocked program waits for
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
var statusKinds = []string{"permission", "question", "auth"}

// parseStatus decodes the part of the sequence after "7501;". It ignores unknown keys and malformed
// pairs; if a key occurs twice the last one applies. An invalid text is dropped without the report:
// the protocol would discard the whole report, and then the user would not learn that an agent
// waits. A report that the root works or is idle allocates no memory, because programs may send it
// very often.
func parseStatus(body []byte) (r statusRecord, ok bool) {
	var title, message []byte
	valid := true
	for pair := range bytes.SplitSeq(body, []byte{':'}) {
		key, value, found := bytes.Cut(pair, []byte{'='})
		if !found || bytes.ContainsFunc(value, isInvalidInValue) {
			continue
		}
		switch string(key) {
		case "state":
			r.state = oneOf(statusStates, value)
		case "id":
			r.id, valid = string(value), isValidStatusID(string(value))
		case "kind":
			r.kind = oneOf(statusKinds, value)
		case "title":
			title = value
		case "msg":
			message = value
		}
	}
	if r.state == "" || !valid {
		return statusRecord{}, false
	}
	if r.state != statusBlocked {
		r.kind = ""
	} else if r.kind == "" {
		r.kind = "question"
	}
	// The text of a working or idle program is ignored: it would wake the daemon with each line of
	// progress of a busy agent.
	if r.state != statusWorking && r.state != statusIdle {
		r.text = cmp.Or(decodeStatusText(message), decodeStatusText(title))
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

func isValidStatusID(id string) bool {
	segments := strings.Split(id, "/")
	isInvalid := func(segment string) bool {
		return segment == "" || len(segment) > maxStatusSegment ||
			strings.ContainsFunc(segment, func(c rune) bool { return !isValidInSegment(c) })
	}
	return len(id) <= maxStatusID && len(segments) <= maxStatusDepth && !slices.ContainsFunc(segments, isInvalid)
}

// decodeStatusText decodes a text. It returns "" if the text is invalid.
func decodeStatusText(value []byte) string {
	value = bytes.TrimRight(value, "=")
	text := make([]byte, base64.RawStdEncoding.DecodedLen(len(value)))
	n, err := base64.RawStdEncoding.Decode(text, value)
	if err != nil {
		return ""
	}
	return shimwire.SanitizeLine(string(text[:min(n, maxStatusText)]))
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
// has exited. Records about a finished or failed task remain.
func (p *programStatus) handleShellPrompt() {
	p.records = slices.DeleteFunc(p.records, func(r statusRecord) bool {
		return r.state != statusDone && r.state != statusError
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
		status.reason, status.text = urgent.kind, urgent.text
	}
	return status
}

func (r statusRecord) agentStatus() agentStatus {
	switch r.state {
	case statusWorking:
		return agentStatus{activity: word.Working}
	case statusDone:
		return agentStatus{activity: word.Idle, reason: word.TurnEnded, text: r.text}
	case statusBlocked:
		return agentStatus{activity: word.Waiting, reason: r.kind, text: r.text}
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
	if bytes.HasPrefix(body, []byte{'?'}) { // later revisions may append to the query
		s.input.pendingAnswers = min(s.input.pendingAnswers+1, maxPendingAnswers)
		return
	}
	if r, ok := parseStatus(body); ok {
		s.programStatus.update(r)
		s.setStatus(sourceOSC7501, s.programStatus.agentStatus())
	}
}

// resetProgramStatus is called when the terminal is reset.
func (s *shim) resetProgramStatus() {
	s.programStatus = programStatus{}
	s.setStatus(sourceOSC7501, agentStatus{})
}
