package main

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"slices"
	"strings"

	"github.com/corrald/corral/internal/shimwire"
)

// This is OSC 7501, the Program Status Protocol, revision 0.2:
// https://www.superlogical.com/rex/docs/build/program-status
//
//	OSC 7501 ; state=blocked:kind=permission:app=claude:msg=BASE64 ST
//
// A report is about one record, which it replaces: the root, which is the program itself, or a part
// of it that has an id.

// statusAnswer says that the protocol is understood. It is the query itself, which is how a
// terminal answers it.
var statusAnswer = []byte("\x1b]7501;?\x1b\\")

// Bounds of the protocol, in bytes unless something else is said.
const (
	maxStatusID      = 128
	maxStatusDepth   = 8 // segments
	maxStatusSegment = 32
	maxStatusText    = 2 << 10
	maxStatusRecords = 64 // records: what a terminal has to keep at least
)

// status is one record, or a report of one.
type status struct {
	id    string // "" for the root
	state string
	kind  string // of a blocked one
	text  string // for a person
}

// The states, by how much they ask of a person. Clear is of a report alone.
const (
	statusIdle    = "idle"
	statusDone    = "done"
	statusWorking = "working"
	statusError   = "error"
	statusBlocked = "blocked"
	statusClear   = "clear"
)

var statusStates = []string{statusIdle, statusDone, statusWorking, statusError, statusBlocked, statusClear}

// statusKinds are what a blocked program waits for.
var statusKinds = []string{"permission", "question", "auth"}

// parseStatus reads what is between "7501;" and the end. What it does not know it passes over, and
// so it does with pairs that are not well formed; of a key that comes twice the last one counts. A
// text that breaks the rules costs the text, not the report: the protocol would have it thrown away
// whole, and nobody would learn that an agent waits. Of the program itself, that it works or is
// idle costs no memory, however often it says so.
func parseStatus(body []byte) (r status, ok bool) {
	var title, message []byte
	valid := true
	for pair := range bytes.SplitSeq(body, []byte{':'}) {
		key, value, found := bytes.Cut(pair, []byte{'='})
		if !found || bytes.ContainsFunc(value, notInValue) {
			continue
		}
		switch string(key) {
		case "state":
			r.state = oneOf(statusStates, value)
		case "id":
			r.id, valid = string(value), validStatusID(string(value))
		case "kind":
			r.kind = oneOf(statusKinds, value)
		case "title":
			title = value
		case "msg":
			message = value
		}
	}
	if r.state == "" || !valid {
		return status{}, false
	}
	if r.state != statusBlocked {
		r.kind = ""
	} else if r.kind == "" {
		r.kind = "question"
	}
	if r.state != statusWorking && r.state != statusIdle { // or a busy agent would wake its daemon with each line
		r.text = cmp.Or(statusText(message), statusText(title))
	}
	return r, true
}

// oneOf is the word that the value is, "" if it is none of them.
func oneOf(words []string, value []byte) string {
	for _, word := range words {
		if word == string(value) {
			return word
		}
	}
	return ""
}

func notInValue(c rune) bool { return !inSegment(c) && !strings.ContainsRune(",/=", c) }

func inSegment(c rune) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("_.+-", c)
}

func validStatusID(id string) bool {
	segments := strings.Split(id, "/")
	return len(id) <= maxStatusID && len(segments) <= maxStatusDepth && !slices.ContainsFunc(segments, func(s string) bool {
		return s == "" || len(s) > maxStatusSegment || strings.ContainsFunc(s, func(c rune) bool { return !inSegment(c) })
	})
}

// statusText decodes a text. One that cannot be decoded is none.
func statusText(value []byte) string {
	value = bytes.TrimRight(value, "=")
	text := make([]byte, base64.RawStdEncoding.DecodedLen(len(value)))
	n, err := base64.RawStdEncoding.Decode(text, value)
	if err != nil {
		return ""
	}
	return shimwire.SanitizeLine(string(text[:min(n, maxStatusText)]))
}

// programStatus has the records of a program, the one first that was reported last.
type programStatus struct {
	records []status
}

// report takes note of a report.
func (p *programStatus) report(r status) {
	if r.state == statusClear {
		p.records = slices.DeleteFunc(p.records, func(have status) bool {
			return r.id == "" || have.id == r.id || strings.HasPrefix(have.id, r.id+"/")
		})
		return
	}
	p.records = slices.DeleteFunc(p.records, func(have status) bool { return have.id == r.id })
	p.records = slices.Insert(p.records, 0, r)
	if len(p.records) > maxStatusRecords { // the root is not one to go: it is the program
		last := len(p.records) - 1
		if p.records[last].id == "" {
			last--
		}
		p.records = slices.Delete(p.records, last, last+1)
	}
}

// prompted is called when a shell prompts: what has run in it does so no more. What it has said of
// its end stands.
func (p *programStatus) prompted() {
	p.records = slices.DeleteFunc(p.records, func(r status) bool { return r.state != statusDone && r.state != statusError })
}

// word is what the records come to. What the program does the root says, whatever its parts do;
// where there is no root, the record that asks most of a person. That one of the parts is blocked
// is told beside it, unless the root itself is, or has failed.
func (p *programStatus) word() word {
	if len(p.records) == 0 {
		return word{}
	}
	urgency := func(a, b status) int {
		return slices.Index(statusStates, a.state) - slices.Index(statusStates, b.state)
	}
	urgent := slices.MaxFunc(p.records, urgency)
	root := slices.IndexFunc(p.records, func(r status) bool { return r.id == "" })
	if root < 0 {
		return urgent.word()
	}
	w := p.records[root].word()
	if urgent.state == statusBlocked && p.records[root].state != statusError && p.records[root].state != statusBlocked {
		w.reason, w.text = urgent.kind, urgent.text
	}
	return w
}

func (r status) word() word {
	switch r.state {
	case statusWorking:
		return word{activity: "working"}
	case statusDone:
		return word{activity: "idle", reason: "turn-ended", text: r.text}
	case statusBlocked:
		return word{activity: "waiting", reason: r.kind, text: r.text}
	case statusError:
		return word{activity: "idle", reason: "error", text: r.text}
	}
	return word{activity: "idle"}
}

// saysStatus takes an OSC 7501.
func (s *shim) saysStatus(body []byte) {
	if s.spec.IgnoreOSC7501 {
		return
	}
	if bytes.HasPrefix(body, []byte{'?'}) { // a later revision may ask for more
		s.input.owed = min(s.input.owed+1, maxOwed)
		return
	}
	if r, ok := parseStatus(body); ok {
		s.status.report(r)
		s.says(saidByProgram, s.status.word())
	}
}

// forgetStatus is called when the terminal is reset.
func (s *shim) forgetStatus() {
	s.status = programStatus{}
	s.says(saidByProgram, word{})
}
