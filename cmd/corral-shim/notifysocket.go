package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/dbusapi/word"
	"github.com/corrald/corral/internal/shimwire"
)

// maxNotifyPath is the size of a socket address's path without the terminating NUL, in bytes
// (unix(7)). The agent has to connect by this path.
const maxNotifyPath = 107

// notifier is the socket on which the agent and its child processes can report their status
// (sd_notify(3)). It exists as long as the agent, independent of the daemon.
type notifier struct {
	fd         int // 0 if there is none
	path       string
	cgroup     []byte // the control group to which a sender must belong, empty if it is not known
	isReadable bool   // there may be more datagrams

	// For reading the control group of each sender. It is reused because a program may send a
	// notification each second for days.
	buffer [4 << 10]byte

	activity, reason, status string // as last reported
}

// listenNotify creates the socket at path, for senders in the control group.
func listenNotify(path string, cgroup []byte) (notifier, error) {
	n := notifier{path: path, cgroup: cgroup}
	if len(path) > maxNotifyPath {
		return n, &os.PathError{Op: "bind", Path: path, Err: unix.ENAMETOOLONG}
	}
	var err error
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

// environment returns env with NOTIFY_SOCKET set.
func (n *notifier) environment(env []string) []string {
	const name = "NOTIFY_SOCKET="
	env = slices.DeleteFunc(env, func(entry string) bool { return strings.HasPrefix(entry, name) })
	return append(env, name+n.path)
}

// hasMember reports whether a process is in the agent's control group or below it; none is if that
// is not known. The process ID comes from the kernel (SCM_CREDENTIALS), so a sender cannot choose
// it.
func (n *notifier) hasMember(pid int32) bool {
	cgroup := cgroupOf(pid, n.buffer[:])
	below, ok := bytes.CutPrefix(cgroup, bytes.TrimSuffix(n.cgroup, []byte("/")))
	ok = ok && cgroup != nil && len(n.cgroup) > 0
	return ok && (len(below) == 0 || below[0] == '/')
}

// receiveNotifications receives a batch of datagrams from the notification socket. It returns
// whether there are more.
func (s *shim) receiveNotifications() (more bool) {
	for range receiveBatch {
		if !s.notifier.isReadable {
			return false
		}
		text, passed, e := s.incoming.receive(s.notifier.fd)
		// The sender of BARRIER=1 waits for this, to know that everything sent before was received.
		closeIfOpen(passed)
		if e == unix.EAGAIN {
			s.notifier.isReadable = false
			return false
		}
		if e == 0 && s.notifier.hasMember(s.incoming.sender) {
			s.handleNotification(parseNotification(text))
		}
	}
	return s.notifier.isReadable
}

// notification is the content of one datagram.
type notification struct {
	isReady                           bool
	status, activity, reason          string
	report                            []byte // of a hook, see package hookreport; nil for none
	hasStatus, hasActivity, hasReason bool
}

// Variables beyond those of sd_notify(3) with which a program can report what it does and why it
// needs the user's attention. The prefix X_ is reserved for such extensions.
const (
	activityVariable = "X_CORRAL_ACTIVITY"
	reasonVariable   = "X_CORRAL_REASON"
	// A complete report of a hook in a sandbox, where there is no bus: the content of ReportName.
	reportVariable = shimwire.ReportVariable
)

// parseNotification decodes the lines NAME=VALUE of a datagram. It ignores unknown names; if a name
// occurs twice the last one applies.
func parseNotification(text []byte) notification {
	var n notification
	for line := range bytes.SplitSeq(text, []byte{'\n'}) {
		name, value, ok := bytes.Cut(line, []byte{'='})
		if !ok {
			continue
		}
		switch string(name) {
		case "READY":
			n.isReady = n.isReady || string(value) == "1"
		case "STATUS":
			n.status, n.hasStatus = shimwire.SanitizeLine(string(value)), true
		case activityVariable:
			if word := oneOf(word.Activities, value); word != "" {
				n.activity, n.hasActivity = word, true
			}
		case reportVariable:
			n.report = value
		case reasonVariable:
			if word := oneOf(shimwire.Reasons, value); word != "" {
				n.reason, n.hasReason = word, true
			}
		}
	}
	return n
}

// handleNotification updates the agent's status. A reason applies to the activity that it came
// with.
func (s *shim) handleNotification(n notification) {
	if n.isReady && s.readyAt.IsZero() {
		s.readyAt = time.Now()
		s.broadcast(shimwire.Message{Kind: shimwire.Ready, Since: s.readyAt})
	}
	if n.report != nil {
		s.leaveReport(n.report)
	}
	if s.spec.OnlyHooks {
		return
	}
	last := &s.notifier
	if n.hasStatus {
		last.status = n.status
	}
	if n.hasActivity {
		last.activity, last.reason = n.activity, ""
	}
	if n.hasReason {
		last.reason = n.reason
	}
	switch status := (agentStatus{activity: last.activity, reason: last.reason, text: last.status}); {
	case n.hasReason || n.hasActivity && n.activity == word.Waiting:
		// Report even an unchanged status: the previous question may have been answered.
		s.reportStatus(sourceNotify, status)
	case n.hasStatus || n.hasActivity:
		s.setStatus(sourceNotify, status)
	}
	s.tryPrompt(time.Now())
}

// leaveReport leaves the report of a hook in a sandbox for the daemon, which is notified of the
// file. A report that cannot be written is lost, like one that a hook cannot send.
func (s *shim) leaveReport(report []byte) {
	dir := filepath.Dir(s.spec.Socket)
	temp := filepath.Join(dir, ".shim-"+shimwire.ReportName)
	if err := os.WriteFile(temp, report, 0o600); err == nil { //nolint:forbidigo // nobody else writes in this directory
		_ = os.Rename(temp, filepath.Join(dir, shimwire.ReportName))
	}
}
