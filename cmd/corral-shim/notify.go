package main

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/shimwire"
)

// maxNotifyPath is what the address of a socket holds, less the closing NUL (unix(7)): the agent
// has to reach it by its path.
const maxNotifyPath = 107

// notifier is the socket on which the agent, and what it has started, may say how it is
// (sd_notify(3)). It is there for as long as the agent, whatever becomes of the daemon.
type notifier struct {
	fd    int // 0 if there is none
	path  string
	group []byte // the control group that a sender has to be in
	more  bool   // there may be more to receive

	room [4 << 10]byte // for what is asked of each sender: a program may say how it is each second, for days

	activity, reason, status string // as last said
}

// listenNotify makes the socket at path.
func listenNotify(path string) (notifier, error) {
	n := notifier{path: path}
	if len(path) > maxNotifyPath {
		return n, &os.PathError{Op: "bind", Path: path, Err: unix.ENAMETOOLONG}
	}
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return n, err
	}
	n.group = ownCgroup(text)
	if n.fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0); err != nil {
		return n, os.NewSyscallError("socket", err)
	}
	if err := unix.SetsockoptInt(n.fd, unix.SOL_SOCKET, unix.SO_PASSCRED, 1); err != nil {
		return n, os.NewSyscallError("setsockopt", err)
	}
	_ = unix.Unlink(path)
	mask := unix.Umask(0o177)
	err = unix.Bind(n.fd, &unix.SockaddrUnix{Name: path})
	unix.Umask(mask)
	return n, os.NewSyscallError("bind", err)
}

func (n *notifier) remove() {
	if n.fd > 0 {
		_ = unix.Unlink(n.path)
		_ = unix.Close(n.fd)
		n.fd = 0
	}
}

// environment is env with the socket in it.
func (n *notifier) environment(env []string) []string {
	if n.fd == 0 {
		return env
	}
	const name = "NOTIFY_SOCKET="
	env = slices.DeleteFunc(env, func(entry string) bool { return strings.HasPrefix(entry, name) })
	return append(env, name+n.path)
}

// inside tells whether a process is in the agent's control group, or below it. The number is the
// kernel's, who sends cannot choose it.
func (n *notifier) inside(pid int32) bool {
	group := groupOf(pid, n.room[:])
	below, ok := bytes.CutPrefix(group, bytes.TrimSuffix(n.group, []byte("/")))
	ok = ok && group != nil
	return ok && (len(below) == 0 || below[0] == '/')
}

// hearNotify takes what was sent to the notification socket. It returns whether there is more.
func (s *shim) hearNotify() (more bool) {
	for range receiveAtOnce {
		if !s.notifier.more {
			return false
		}
		text, sender, e := s.incoming.receiveFrom(s.notifier.fd)
		if e == unix.EAGAIN {
			s.notifier.more = false
			return false
		}
		if e == 0 && s.notifier.inside(sender) {
			s.notified(parseNotification(text))
		}
	}
	return s.notifier.more
}

// receiveFrom takes one datagram and tells which process has sent it. Descriptors that came with it
// are closed: so is that of a BARRIER=1, which tells the sender that all it has sent before was
// taken.
func (r *receiver) receiveFrom(fd int) (b []byte, sender int32, e unix.Errno) {
	b, passed, e := r.receive(fd)
	closeIfOpen(passed)
	if e != 0 {
		return nil, 0, e
	}
	return b, r.sender, 0
}

// notification is what one datagram says.
type notification struct {
	ready                                   bool
	status, activity, reason                string
	saysStatus, saysActivity, asksForPerson bool
}

// What a program of one's own can say beyond sd_notify's own words, by names that are free for
// that: what it does, and why it wants a person.
const (
	activityKey = "X_CORRAL_ACTIVITY"
	reasonKey   = "X_CORRAL_REASON"
)

// parseNotification reads the lines NAME=VALUE of a datagram. What it does not know it passes over;
// of a name that comes twice the last one counts.
func parseNotification(text []byte) notification {
	var n notification
	for line := range bytes.SplitSeq(text, []byte{'\n'}) {
		name, value, ok := bytes.Cut(line, []byte{'='})
		if !ok {
			continue
		}
		switch string(name) {
		case "READY":
			n.ready = n.ready || string(value) == "1"
		case "STATUS":
			n.status, n.saysStatus = shimwire.SanitizeLine(string(value)), true
		case activityKey:
			if word := oneOf(shimwire.Activities, value); word != "" {
				n.activity, n.saysActivity = word, true
			}
		case reasonKey:
			if word := oneOf(shimwire.Reasons, value); word != "" {
				n.reason, n.asksForPerson = word, true
			}
		}
	}
	return n
}

// notified takes note of what the agent says. A reason is of the activity that it comes with.
func (s *shim) notified(n notification) {
	if n.ready && s.ready.IsZero() {
		s.ready = time.Now()
		s.tell(shimwire.Message{Kind: shimwire.Ready, Since: s.ready})
	}
	last := &s.notifier
	if n.saysStatus {
		last.status = n.status
	}
	if n.saysActivity {
		last.activity, last.reason = n.activity, ""
	}
	if n.asksForPerson {
		last.reason = n.reason
	}
	switch w := (word{last.activity, last.reason, last.status}); {
	case n.asksForPerson || n.saysActivity && n.activity == "waiting": // again, perhaps: what it asked before may be answered
		s.saysAnew(saidByNotify, w)
	case n.saysStatus || n.saysActivity:
		s.says(saidByNotify, w)
	}
	s.tellPrompt(time.Now())
}
