package main

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/corrald/corral/internal/shimwire"
	"github.com/corrald/corral/tmux"
)

// maxShownLines bounds the invalid lines that a problem names.
const maxShownLines = 5

// tmuxTrouble keeps what is invalid in the tmux configurations that sessions read. Its methods may
// be called at the same time.
type tmuxTrouble struct {
	log    *slog.Logger
	report func(topic, text string) // publishes a problem, or that it is over

	mu    sync.Mutex
	known map[string][]tmux.InvalidLine // by value of TmuxConfig=
}

// read takes note of what a tmux server has found invalid in the configuration that a value of
// TmuxConfig= names.
func (t *tmuxTrouble) read(value string, invalid []tmux.InvalidLine) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if slices.Equal(t.known[value], invalid) {
		return
	}
	if t.known == nil {
		t.known = map[string][]tmux.InvalidLine{}
	}
	t.known[value] = invalid
	var lines []string
	for _, i := range invalid {
		line := shimwire.SanitizeLine(i.String()) // a file may have any bytes
		t.log.Warn("a line of a tmux configuration is invalid and ignored", "detail", line, "file", i.File, "line", i.Line)
		lines = append(lines, line)
	}
	text := ""
	if len(lines) > maxShownLines {
		lines = append(lines[:maxShownLines], fmt.Sprintf("and %d more", len(lines)-maxShownLines))
	}
	if len(lines) > 0 {
		text = "invalid lines of a tmux configuration (TmuxConfig=) are ignored: " + strings.Join(lines, "; ") +
			"; the next session that starts reads it again"
	}
	t.report("tmux configuration "+value, text)
}

// forget ends what is reported: the next session that starts reads the configuration again.
func (t *tmuxTrouble) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for value := range t.known {
		t.report("tmux configuration "+value, "")
	}
	clear(t.known)
}
