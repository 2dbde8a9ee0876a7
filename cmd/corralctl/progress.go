package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/corrald/corral/cmd/corralctl/wording"
)

// progress shows on the terminal, after a second, which sessions a verb is still waiting for.
type progress struct {
	mu        sync.Mutex // guards remaining, which the verb's goroutines change
	doing     string     // "Stopping"
	remaining []string
	start     time.Time
	out       io.Writer
	width     int
	once      sync.Once
	stop      chan struct{}
	stopped   chan struct{}
}

// newProgress starts a progress display; the caller has to end it. Doing is the word for the
// operation ("Stopping"), "" for no display. There is none either on a terminal where text cannot
// be overwritten.
func newProgress(c *ctl, doing string, ids []string) *progress {
	p := &progress{doing: doing, remaining: slices.Clone(ids), start: time.Now(), out: c.err, stop: make(chan struct{}),
		stopped: make(chan struct{})}
	if c.errTTY == nil || c.errTTY.dumb || c.quiet || doing == "" {
		close(p.stopped)
		return p
	}
	p.width = c.errTTY.width
	go p.run()
	return p
}

func (p *progress) run() {
	defer close(p.stopped)
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	shown := false
	for {
		select {
		case <-ticker.C:
			fmt.Fprintf(p.out, "\r\x1b[K%s", p.line())
			shown = true
		case <-p.stop:
			if shown {
				fmt.Fprint(p.out, "\r\x1b[K")
			}
			return
		}
	}
}

func (p *progress) line() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	sessions := "session"
	if len(p.remaining) != 1 {
		sessions = "sessions"
	}
	elapsed := wording.Span(time.Since(p.start))
	return wording.Ellipsize(fmt.Sprintf("%s %d %s (%s): %s", p.doing, len(p.remaining), sessions, elapsed,
		strings.Join(p.remaining, ", ")), p.width-1)
}

func (p *progress) done(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.remaining = slices.DeleteFunc(p.remaining, func(other string) bool { return other == id })
}

// end removes the display. It may be called more than once.
func (p *progress) end() {
	p.once.Do(func() { close(p.stop) })
	<-p.stopped
}
