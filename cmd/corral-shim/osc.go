package main

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"strings"

	"github.com/corrald/corral/dbusapi/word"
	"github.com/corrald/corral/internal/shimwire"
)

// handleOSC handles an operating system command of the agent, without its introducer and end.
func (s *shim) handleOSC(b []byte) {
	number, rest, _ := bytes.Cut(b, []byte{';'})
	switch string(number) {
	case "0", "2":
		s.handleTitle(rest)
	case "9": // iTerm2
		if !isConEmuCommand(rest) {
			s.handleTerminalNotification("", rest)
		}
	case "99": // kitty
		if title, body, ok := s.kitty.add(rest); ok {
			s.handleTerminalNotification(title, []byte(body))
		}
	case "777": // urxvt
		if kind, rest, _ := bytes.Cut(rest, []byte{';'}); string(kind) == "notify" {
			title, body, _ := bytes.Cut(rest, []byte{';'})
			s.handleTerminalNotification(string(title), body)
		}
	case "133":
		s.handleShellMark(rest)
	case "7501":
		s.handleProgramStatus(rest)
	}
}

// isConEmuCommand reports whether an OSC 9 is one of ConEmu's commands, which start with a number,
// and not a notification. OSC 9;4, a progress bar, is ignored: the output already shows activity,
// and the bar stays when the program is killed.
func isConEmuCommand(rest []byte) bool {
	number, _, _ := bytes.Cut(rest, []byte{';'})
	return len(number) > 0 && len(number) <= 2 && len(bytes.Trim(number, "0123456789")) == 0
}

// handleTerminalNotification handles a notification sequence. It counts as a bell with a text.
func (s *shim) handleTerminalNotification(title string, body []byte) {
	parts := []string{shimwire.SanitizeLine(title), shimwire.SanitizeLine(string(body))}
	s.bellText = strings.Trim(strings.Join(parts, ": "), ": ")
	s.scanner.hasBell = true
}

// handleShellMark handles a shell's prompt marks (OSC 133): prompt shown (A), command started (C),
// command finished (D).
func (s *shim) handleShellMark(mark []byte) {
	if s.titleStatus.hasPatterns() { // the agent is not a shell
		return
	}
	kind, _, _ := bytes.Cut(mark, []byte{';'})
	switch string(kind) {
	case "A":
		s.setStatus(sourceTitle, agentStatus{activity: word.Idle})
		s.programStatus.handleShellPrompt()
	case "C":
		s.setStatus(sourceTitle, agentStatus{activity: word.Working})
		s.programStatus.handleShellCommand()
	case "D":
		s.setStatus(sourceTitle, agentStatus{activity: word.Idle})
	}
	s.setStatus(sourceOSC7501, s.programStatus.agentStatus())
}

// kittyNotification is a notification of kitty's protocol, which may consist of several commands:
// OSC 99 ; key=value:key=value ; payload.
type kittyNotification struct {
	id, title, body string
}

// add handles one command of the protocol. It returns the notification once it is complete.
func (n *kittyNotification) add(rest []byte) (title, body string, whole bool) {
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
		*n = kittyNotification{id: id}
	}
	switch kind {
	case "title":
		n.title = shimwire.SanitizeText(n.title + text)
	case "body":
		n.body = shimwire.SanitizeText(n.body + text)
	default: // a query, an icon, a button
		return "", "", false
	}
	if !done {
		return "", "", false
	}
	title, body = n.title, n.body
	*n = kittyNotification{}
	return title, body, cmp.Or(title, body) != ""
}
