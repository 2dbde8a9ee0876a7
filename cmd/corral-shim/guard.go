package main

import (
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// guard watches for a file that an agent in a sandbox must not create (shimwire.Spec.Forbidden),
// and that no mount can keep it from creating, because the directory has to be writable. If the
// agent does so, the file is removed, and all processes in the sandbox are killed.
type guard struct {
	path     string
	fd       int  // of inotify, 0 if nothing is watched
	confined int  // the pidfd of the confined shim: if it is killed, the kernel kills the others
	violated bool // the agent has created the file
}

// watchForbidden starts to watch. The sandbox is not set up yet.
func (s *shim) watchForbidden() error {
	g := &s.guard
	g.path = s.spec.Forbidden
	if g.path == "" {
		return nil
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return err
	}
	g.fd = fd
	const created = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_ONLYDIR
	if _, err := unix.InotifyAddWatch(fd, filepath.Dir(g.path), created); err != nil {
		return err
	}
	return s.poller.add(fd, eventGuard)
}

// check is called when something was created in the directory. What it reads does not matter: if
// there were too many events, some are missing.
func (g *guard) check(buffer []byte) {
	for {
		if n, e := sysRead(g.fd, buffer); e != 0 || n <= 0 {
			break
		}
	}
	if g.remove() {
		g.violated = true
		_ = unix.PidfdSendSignal(g.confined, unix.SIGKILL, nil, 0)
	}
}

// remove removes the file, and reports whether it was there. A directory of that name has no effect
// on git but an error.
func (g *guard) remove() bool { return g.path != "" && unix.Unlink(g.path) == nil }

// violation returns what the agent has done, for a person.
func (g *guard) violation() string {
	return "command was killed by SIGKILL: it created " + strconv.Quote(g.path) +
		", with which it could leave its sandbox"
}
