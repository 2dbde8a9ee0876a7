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

// progress tells on the terminal what a verb still waits for, once that has taken a second.
type progress struct {
	mu        sync.Mutex // the verb's goroutines and the ticker
	doing     string     // "Stopping"
	remaining []string
	start     time.Time
	out       io.Writer
	width     int
	once      sync.Once
	stop      chan struct{}
	stopped   chan struct{}
}

// newProgress begins; doing is what is done ("Stopping"), "" to stay silent. A terminal on which
// nothing can be written over is told nothing. The caller ends it.
func newProgress(c *ctl, doing string, ids []string) *progress {
	p := &progress{doing: doing, remaining: slices.Clone(ids), start: time.Now(), out: c.err, stop: make(chan struct{}), stopped: make(chan struct{})}
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
	return wording.Ellipsize(fmt.Sprintf("%s %d %s (%s): %s", p.doing, len(p.remaining), sessions, elapsed, strings.Join(p.remaining, ", ")), p.width-1)
}

func (p *progress) done(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.remaining = slices.DeleteFunc(p.remaining, func(other string) bool { return other == id })
}

// end ends it. It may be called more than once.
func (p *progress) end() {
	p.once.Do(func() { close(p.stop) })
	<-p.stopped
}
