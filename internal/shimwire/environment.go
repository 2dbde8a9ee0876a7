package shimwire

import (
	"bytes"
	"strings"
)

// AppendEnvironment appends the output of "corral-shim environment MARK" to b: the environment
// between two markers that contain mark. A caller who chooses a random mark can find the
// environment in a stream that also contains output of a shell's startup files.
func AppendEnvironment(b []byte, mark string, environ []string) []byte {
	b = append(b, mark+" begin\x00"...)
	for _, entry := range environ {
		b = append(append(b, entry...), 0)
	}
	return append(b, mark+" end\x00"...)
}

// FindEnvironment extracts an environment that AppendEnvironment wrote from the output so far.
// found is false as long as the output does not contain all of it.
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
