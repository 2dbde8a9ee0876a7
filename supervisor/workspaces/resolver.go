package workspaces

import (
	"context"
	"time"

	"github.com/corrald/corral/internal/deadline"
)

// Resolver resolves the paths of workspaces. Another goroutine does so, at most one at a time for
// each path.
type Resolver struct {
	resolve func(path string) (string, error)
	post    func(func())
	timer   deadline.Start
	running map[string]*Resolution // by path
}

// NewResolver returns a Resolver. Resolve returns a path without symbolic links; it may block. Post
// has a function called on the event loop; it may block as well, and is called by other goroutines
// only.
func NewResolver(
	resolve func(path string) (string, error), post func(func()), timer deadline.Start,
) *Resolver {
	return &Resolver{resolve, post, timer, map[string]*Resolution{}}
}

// Resolution is the result of resolving a path.
type Resolution struct {
	timer deadline.Start
	done  chan struct{} // closed when the other fields are set

	dir Directory // its inode is zero if there is no directory
	err error
}

// Resolve begins to resolve a path, unless that is in progress already. It is called on the event
// loop.
func (r *Resolver) Resolve(path string) *Resolution {
	if running := r.running[path]; running != nil {
		return running
	}
	begun := &Resolution{timer: r.timer, done: make(chan struct{})}
	r.running[path] = begun
	go func() {
		if begun.dir.Path, begun.err = r.resolve(path); begun.err == nil {
			begun.dir.Inode = InodeOf(begun.dir.Path)
		}
		close(begun.done)
		r.post(func() { delete(r.running, path) })
	}()
	return begun
}

// Timeout is how long Resolution.Wait waits at most.
const Timeout = 5 * time.Second

// Wait waits for the result, until ctx ends and no longer than Timeout. It reports whether there is
// a result; that the path cannot be resolved is one, too. It is not called on the event loop.
func (r *Resolution) Wait(ctx context.Context) bool {
	ctx, cancel := r.timer.Context(ctx, Timeout)
	defer cancel()
	select {
	case <-r.done:
		return true
	case <-ctx.Done():
		return false
	}
}

// Directory returns the directory to which the path has resolved; ok is false if r is nil, or if
// the path could not be resolved. It is called after Wait has returned true, on any goroutine.
func (r *Resolution) Directory() (dir Directory, ok bool) {
	if r == nil || r.err != nil {
		return Directory{}, false
	}
	return r.dir, true
}
