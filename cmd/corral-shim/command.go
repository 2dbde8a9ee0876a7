package main

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"strings"

	"github.com/corrald/corral/internal/shimwire"
)

// command takes an operating system command of the agent's.
func (s *shim) command(b []byte) {
	number, rest, _ := bytes.Cut(b, []byte{';'})
	switch string(number) {
	case "0", "2":
		s.titled(rest)
	case "9": // iTerm2's
		if !ofConEmu(rest) {
			s.notify("", rest)
		}
	case "99": // kitty's
		if title, body, ok := s.notice.add(rest); ok {
			s.notify(title, []byte(body))
		}
	case "777": // urxvt's
		if kind, rest, _ := bytes.Cut(rest, []byte{';'}); string(kind) == "notify" {
			title, body, _ := bytes.Cut(rest, []byte{';'})
			s.notify(string(title), body)
		}
	case "133":
		s.saysShell(rest)
	case "7501":
		s.saysStatus(rest)
	}
}

// ofConEmu tells whether an OSC 9 is not a notification but one of the commands that ConEmu has
// there, which begin with a number: 9;4 is the progress of what runs. That says nothing beyond what
// its output does, and stays as it is when the program is killed.
func ofConEmu(rest []byte) bool {
	number, _, _ := bytes.Cut(rest, []byte{';'})
	return len(number) > 0 && len(number) <= 2 && len(bytes.Trim(number, "0123456789")) == 0
}

// notify takes a notification of the agent's. It is a bell with a text.
func (s *shim) notify(title string, body []byte) {
	parts := []string{shimwire.SanitizeLine(title), shimwire.SanitizeLine(string(body))}
	s.rings = strings.Trim(strings.Join(parts, ": "), ": ")
	s.scanner.rang = true
}

// saysShell takes a mark of a shell's (OSC 133): it prompts, it runs a command, that has ended.
func (s *shim) saysShell(mark []byte) {
	if s.titles.mapped() { // it is no shell
		return
	}
	kind, _, _ := bytes.Cut(mark, []byte{';'})
	switch string(kind) {
	case "A":
		s.status.prompted()
		s.says(saidByProgram, s.status.word())
		s.says(saidByTitle, word{activity: "idle"})
	case "C":
		s.says(saidByTitle, word{activity: "working"})
	case "D":
		s.says(saidByTitle, word{activity: "idle"})
	}
}

// notice is a notification in kitty's protocol, which may come in several commands: OSC 99 ;
// key=value:key=value ; payload.
type notice struct {
	id, title, body string
}

// add takes one command of the protocol, and returns the notification once it is whole.
func (n *notice) add(rest []byte) (title, body string, whole bool) {
	keys, payload, _ := bytes.Cut(rest, []byte{';'})
	id, kind, done, text := "", "title", true, string(payload)
	for pair := range strings.SplitSeq(string(keys), ":") {
		key, value, _ := strings.Cut(pair, "=")
		switch key {
		case "i":
			id = value
		case "p":
			kind = value
		case "d":
			done = value != "0"
		case "e":
			if decoded, err := base64.StdEncoding.DecodeString(text); value == "1" && err == nil {
				text = string(decoded)
			}
		}
	}
	if n.id != id {
		*n = notice{id: id}
	}
	switch kind {
	case "title":
		n.title = shimwire.SanitizeText(n.title + text)
	case "body":
		n.body = shimwire.SanitizeText(n.body + text)
	default: // a question, an icon, a button
		return "", "", false
	}
	if !done {
		return "", "", false
	}
	title, body = n.title, n.body
	*n = notice{}
	return title, body, cmp.Or(title, body) != ""
}
