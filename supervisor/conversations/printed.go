package conversations

import (
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/ecma48"
	"github.com/corrald/corral/internal/safefile"
	"github.com/corrald/corral/internal/shimwire"
)

// Printed describes the id of its conversation that an agent prints at its end.
type Printed struct {
	Pattern *regexp.Regexp // the first group is the id
	Saved   Saved          // has to be true of a conversation with this id
}

// maxPrinted bounds how much of an agent's output is searched for the id of its conversation, which
// the agent prints at its end, in bytes.
const maxPrinted = 16 << 10

// DetectPrinted returns the last match of the pattern in the end of the output, which is in the
// session's state directory, if the agent has saved a conversation with that id; otherwise "".
func (Detector) DetectPrinted(dir string, p Printed, variables Variables) string {
	text, err := tail(dir, maxPrinted)
	if err != nil {
		return ""
	}
	found := p.Pattern.FindAllStringSubmatch(plain(text), -1)
	if len(found) == 0 {
		return ""
	}
	id := found[len(found)-1][1]
	if !config.ValidConversationID(id) {
		return ""
	}
	p.Saved.Values.Conversation = id
	if saved, _, err := p.Saved.check(variables); err != nil || !saved {
		return ""
	}
	return id
}

// tail reads the last size bytes of a session's log, which may have been rotated just before.
func tail(dir string, size int64) ([]byte, error) {
	var text []byte
	for _, name := range []string{shimwire.LogName, shimwire.OlderLogName} {
		f, err := safefile.Open(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) { // the new file could not be created, or the log was never rotated
			continue
		}
		if err != nil {
			return nil, err
		}
		info, err := f.Stat()
		if err == nil {
			_, err = f.Seek(max(0, info.Size()-(size-int64(len(text)))), io.SeekStart)
		}
		var more []byte
		if err == nil {
			more, err = io.ReadAll(io.LimitReader(f, size))
		}
		_ = f.Close()
		if err != nil {
			return nil, err
		}
		if text = append(more, text...); int64(len(text)) >= size {
			break
		}
	}
	return text, nil
}

// plain returns the text that a program has written to its terminal, without escape sequences and
// without control characters except line feeds.
func plain(b []byte) string {
	var parser ecma48.Parser
	text := make([]byte, 0, len(b))
	for len(b) > 0 {
		token, n := parser.Next(b)
		from := n
		switch token {
		case ecma48.Text:
			from = 0
		case ecma48.Control:
			from = n - 1
		}
		for _, c := range b[from:n] {
			if c >= ' ' && c != 0x7f || c == '\n' {
				text = append(text, c)
			}
		}
		b = b[n:]
	}
	return strings.ToValidUTF8(string(text), "\uFFFD")
}
