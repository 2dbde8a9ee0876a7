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

// login has done what is to be done at login, at the daemon's first start since then.
func (d *parts) login(ctx context.Context) {
	err := d.loginOnce(ctx)
	if err != nil && ctx.Err() == nil {
		d.log.Error("cannot restore the sessions of the last login", "err", err)
	}
	d.notify.LoggedIn()
}

// loginOnce brings back what a login is to bring back. Which login that was is noted, with the
// sessions that are left to do: a daemon that comes after one that was killed in the middle of it
// goes on there, and one that was merely restarted does nothing.
func (d *parts) loginOnce(ctx context.Context) error {
	now, err := d.units.Incarnation(ctx)
	if err != nil {
		return err
	}
	note := loginNote{path: filepath.Join(d.runtime, ".login"), login: now} // no session can be called so, whose directory it would be
	if !note.read() {
		if note.left, err = d.sup.AtLogin(); err != nil {
			return err
		}
		if err := note.write(); err != nil {
			return err
		}
	}
	return d.sup.Login(ctx, slices.Clone(note.left), func(id string) {
		if err := note.done(id); err != nil {
			d.log.Warn("cannot record that a session was restored", "session", id, "err", err)
		}
	})
}

// loginNote is a file with the incarnation of the user's systemd whose login was seen to, and the
// ids that are left to do, a line each.
type loginNote struct {
	path, login string

	mu   sync.Mutex
	left []string
}

// maxLoginNote bounds what is read of it, in bytes: an id has 64 at most.
const maxLoginNote = 1 << 20

// read reads what is left to do of this login, and tells whether somebody has begun with that.
func (n *loginNote) read() bool {
	content, err := safefile.Read(n.path, maxLoginNote)
	lines := strings.Fields(string(content))
	if err != nil || len(lines) == 0 || lines[0] != n.login {
		return false
	}
	n.left = lines[1:]
	return true
}

func (n *loginNote) write() error {
	return atomicfile.Write(n.path, []byte(strings.Join(append([]string{n.login}, n.left...), "\n")+"\n"), 0o600)
}

// done takes one off.
func (n *loginNote) done(id string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.left = slices.DeleteFunc(n.left, func(left string) bool { return left == id })
	return n.write()
}
