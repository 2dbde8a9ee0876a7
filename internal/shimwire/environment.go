package shimwire

import (
	"bytes"
	"strings"
)

// AppendEnvironment adds what "corral-shim environment MARK" prints to b: its environment, between
// two marks that nobody else knows. What else is in the same stream, from a shell's start-up files,
// is before and behind it.
func AppendEnvironment(b []byte, mark string, environ []string) []byte {
	b = append(b, mark+" begin\x00"...)
	for _, entry := range environ {
		b = append(append(b, entry...), 0)
	}
	return append(b, mark+" end\x00"...)
}

// FindEnvironment finds such an environment in what was printed so far; found is false as long as
// it is not there, whole.
func FindEnvironment(printed []byte, mark string) (environ []string, found bool) {
	_, rest, begun := bytes.Cut(printed, []byte(mark+" begin\x00"))
	if !begun {
		return nil, false
	}
	text, _, ended := bytes.Cut(rest, []byte(mark+" end\x00"))
	if !ended || len(text) > 0 && text[len(text)-1] != 0 {
		return nil, false
	}
	for entry := range strings.SplitSeq(string(text), "\x00") {
		if entry != "" {
			environ = append(environ, entry)
		}
	}
	return environ, true
}
