package main

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/corrald/corral/internal/atomicfile"
	"github.com/corrald/corral/internal/safefile"
)

// handleLogin restores the sessions of the last login, if this is the daemon's first start after
// it. After that, queued sessions may begin, and the notifier is informed.
func (d *parts) handleLogin(ctx context.Context) {
	err := d.restoreSessions(ctx)
	if err != nil && ctx.Err() == nil {
		d.log.Error("cannot restore the sessions of the last login", "err", err)
	}
	_ = d.sup.BeginQueued() // an error means that corrald exits
	d.notify.LoggedIn()
}

// restoreSessions resumes the suspended sessions with OnLogin=resume and starts those with
// OnLogin=start. It records which login that was, and the sessions that are still pending: a daemon
// that follows one killed in the middle continues with those, and one that was merely restarted
// does nothing.
func (d *parts) restoreSessions(ctx context.Context) error {
	now, err := d.units.Incarnation(ctx)
	if err != nil {
		return err
	}
	// A session id cannot start with a dot, so no session's directory has this name.
	progress := loginProgress{path: filepath.Join(d.runtime, ".login"), login: now}
	if !progress.read() {
		if progress.pending, err = d.sup.AtLogin(); err != nil {
			return err
		}
		if err := progress.write(); err != nil {
			return err
		}
	}
	return d.sup.Login(ctx, slices.Clone(progress.pending), func(id string) {
		if err := progress.done(id); err != nil {
			d.log.Warn("cannot record that a session was restored", "session", id, "err", err)
		}
	})
}

// loginProgress is a file that contains the incarnation of the user's systemd whose login was
// handled, and the ids of the pending sessions, one per line.
type loginProgress struct {
	path, login string

	mu      sync.Mutex
	pending []string
}

// maxLoginProgress bounds the bytes read from it; an id has at most 64.
const maxLoginProgress = 1 << 20

// read reads the pending sessions of this login. It reports whether a daemon has already begun with
// them.
func (p *loginProgress) read() bool {
	content, err := safefile.Read(p.path, maxLoginProgress)
	lines := strings.Fields(string(content))
	if err != nil || len(lines) == 0 || lines[0] != p.login {
		return false
	}
	p.pending = lines[1:]
	return true
}

func (p *loginProgress) write() error {
	return atomicfile.Write(p.path, []byte(strings.Join(append([]string{p.login}, p.pending...), "\n")+"\n"), 0o600)
}

// done removes a session from the file.
func (p *loginProgress) done(id string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pending = slices.DeleteFunc(p.pending, func(pending string) bool { return pending == id })
	return p.write()
}
