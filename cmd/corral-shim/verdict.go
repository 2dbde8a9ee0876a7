package main

import (
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// verdictTime is how long a tmux server may take to die after it closed a pane. One that then still
// runs, and still keeps a connection, was told to close the pane.
const verdictTime = time.Second

// tmuxServer is the server whose pane shows the agent, as the pane's $TMUX names it.
type tmuxServer struct {
	socket string
	pid    int
	pidfd  int // 0 if it is not known
	probe  int // 0 if there is none: a connection that a server which is about to end closes at once
}

// findServer reads the value of $TMUX: the server's socket, its process, the session's number.
func findServer(value string) tmuxServer {
	socket, pid, ok := serverOf(value)
	if !ok {
		return tmuxServer{}
	}
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return tmuxServer{}
	}
	return tmuxServer{socket: socket, pid: pid, pidfd: pidfd}
}

func serverOf(value string) (socket string, pid int, ok bool) {
	rest, _, ok1 := cutLast(value, ',')
	socket, number, ok2 := cutLast(rest, ',')
	pid, err := strconv.Atoi(number)
	return socket, pid, ok1 && ok2 && err == nil && pid > 1
}

func cutLast(s string, sep byte) (before, after string, ok bool) {
	i := strings.LastIndexByte(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}

// dying asks the server whether it lives. It returns true if it is known to be dead or about to
// die, or if it is not known at all; else the answer comes as an event, of its pidfd or of the
// probe's end, or not at all, which means that it lives.
func (s *tmuxServer) dying() bool {
	if s.pidfd <= 0 || s.ended() {
		return true
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	s.probe = fd
	err = unix.Connect(fd, &unix.SockaddrUnix{Name: s.socket})
	return err != nil && err != unix.EAGAIN // EAGAIN: its queue is full, which says nothing
}

// ended tells whether the server's process has ended.
func (s *tmuxServer) ended() bool {
	return ready(s.pidfd, unix.POLLIN)
}

// refused tells whether the server has closed the probe.
func (s *tmuxServer) refused() bool {
	return s.probe > 0 && ready(s.probe, unix.POLLHUP|unix.POLLRDHUP)
}

// ready tells whether one of the conditions what holds for fd now.
func ready(fd int, what int16) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: what}}
	n, err := unix.Poll(p, 0)
	return err == nil && n > 0 && p[0].Revents&what != 0
}

// forget closes what was opened to watch the server.
func (s *tmuxServer) forget() {
	for _, fd := range []int{s.pidfd, s.probe} {
		if fd > 0 {
			_ = unix.Close(fd)
		}
	}
	*s = tmuxServer{}
}
