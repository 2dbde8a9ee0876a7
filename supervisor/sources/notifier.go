package sources

import (
	"errors"
	"fmt"

	"github.com/fsnotify/fsnotify"

	"github.com/corrald/corral/internal/inotify"
)

// Notifier reports changes of watched paths: each change of what is at a path and, if that is a
// directory, of its entries. Only the event loop calls Add and Remove. Run calls changed and, when
// events were lost, lost on the goroutine that called it, until Close.
type Notifier interface {
	Add(path string) error
	Remove(path string) error
	Run(changed func(fsnotify.Event), lost func())
	Close() error
}

// Open returns an inotify instance and a Notifier, both of the kernel. The error is EMFILE if the
// user has no instances left (fs.inotify.max_user_instances).
func Open() (Inotify, Notifier, error) {
	in, err := inotify.New()
	if err != nil {
		return nil, nil, err
	}
	n, err := newNotifier()
	if err != nil {
		_ = in.Close()
		return nil, nil, err
	}
	return in, n, nil
}

// kernelNotifier is the Notifier of the kernel.
type kernelNotifier struct {
	watcher *fsnotify.Watcher
	lost    chan struct{} // has a value if events were lost
}

// newNotifier returns a Notifier. The watcher may send an error while it holds the lock that Add
// needs. Therefore nothing that receives its errors waits for the event loop, which may be in Add.
func newNotifier() (Notifier, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("cannot watch files: %w", err)
	}
	n := kernelNotifier{w, make(chan struct{}, 1)}
	go func() {
		for err := range w.Errors {
			if errors.Is(err, fsnotify.ErrEventOverflow) {
				select {
				case n.lost <- struct{}{}:
				default: // it is known already
				}
			}
		}
	}()
	return n, nil
}

// Add implements Notifier. The error is ENOSPC if the user has no watches left.
func (n kernelNotifier) Add(path string) error {
	if err := n.watcher.Add(path); err != nil {
		return inotify.AddError(path, err)
	}
	return nil
}

// Remove implements Notifier.
func (n kernelNotifier) Remove(path string) error { return n.watcher.Remove(path) }

// Close implements Notifier.
func (n kernelNotifier) Close() error { return n.watcher.Close() }

// Run implements Notifier.
func (n kernelNotifier) Run(changed func(fsnotify.Event), lost func()) {
	for {
		select {
		case ev, open := <-n.watcher.Events:
			if !open {
				return
			}
			changed(ev)
		case <-n.lost:
			lost()
		}
	}
}
