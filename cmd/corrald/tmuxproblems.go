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

// tmuxProblems publishes the invalid lines of tmux configurations as problems. Its methods may be
// called concurrently.
type tmuxProblems struct {
	log     *slog.Logger
	publish func(topic, text string) // publishes a problem, or resolves it if text is empty

	mu    sync.Mutex
	known map[string][]tmux.InvalidLine // by value of TmuxConfig=
}

// record records which lines of the configuration named by a value of TmuxConfig= a tmux server has
// rejected.
func (t *tmuxProblems) record(value string, invalid []tmux.InvalidLine) {
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
		line := shimwire.SanitizeLine(i.String()) // a file may contain any bytes
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
	t.publish("tmux configuration "+value, text)
}

// resolveAll resolves all problems: the next session that starts reads the configuration again.
func (t *tmuxProblems) resolveAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for value := range t.known {
		t.publish("tmux configuration "+value, "")
	}
	clear(t.known)
}
