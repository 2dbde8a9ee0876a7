package main

import (
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// paneLossTimeout is how long a tmux server may take to exit after it has closed a pane. If the
// server still runs then, and still keeps a connection open, the user has closed the pane.
const paneLossTimeout = time.Second

// tmuxServer is the tmux server whose pane shows the agent, according to the pane's $TMUX.
type tmuxServer struct {
	socket string
	pid    int
	pidfd  int // 0 if unknown
	probe  int // a connection, which a server that is about to exit closes at once; 0 if there is none
}

// findServer opens the tmux server that a value of $TMUX describes: socket, process ID, session
// number.
func findServer(value string) tmuxServer {
	socket, pid, ok := parseTMUX(value)
	if !ok {
		return tmuxServer{}
	}
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return tmuxServer{}
	}
	return tmuxServer{socket: socket, pid: pid, pidfd: pidfd}
}

func parseTMUX(value string) (socket string, pid int, ok bool) {
	parts := strings.Split(value, ",")
	last := len(parts) - 1
	if last < 2 {
		return "", 0, false
	}
	pid, err := strconv.Atoi(parts[last-1])
	return strings.Join(parts[:last-1], ","), pid, err == nil && pid > 1 // the path may contain commas
}

// startProbe checks whether the server still runs. It returns true if the server is known to have
// exited, or to be about to, or if it is unknown. Else it opens a connection as a probe, and the
// result follows as an event: the pidfd or the probe reports the end. No event means that the
// server keeps running.
func (s *tmuxServer) startProbe() bool {
	if s.pidfd <= 0 || s.hasExited() {
		return true
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	s.probe = fd
	err = unix.Connect(fd, &unix.SockaddrUnix{Name: s.socket})
	return err != nil && err != unix.EAGAIN // EAGAIN: its queue is full, which proves nothing
}

// hasExited reports whether the server's process has exited.
func (s *tmuxServer) hasExited() bool {
	return isReady(s.pidfd, unix.POLLIN)
}

func (s *tmuxServer) hasClosedProbe() bool {
	return s.probe > 0 && isReady(s.probe, unix.POLLHUP|unix.POLLRDHUP)
}

// isReady reports whether one of the poll(2) events is pending for fd.
func isReady(fd int, events int16) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: events}}
	n, err := unix.Poll(p, 0)
	return err == nil && n > 0 && p[0].Revents&events != 0
}

// release closes the descriptors that watch the server.
func (s *tmuxServer) release() {
	for _, fd := range []int{s.pidfd, s.probe} {
		if fd > 0 {
			_ = unix.Close(fd)
		}
	}
	*s = tmuxServer{}
}
