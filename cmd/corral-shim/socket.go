package main

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/clock"
	"github.com/corrald/corral/internal/shimwire"
)

// maxConns is how many connections there can be at a time; one more is closed at once. The
// session's own processes have two of them at most: see makeRoom.
const maxConns = 8

// listener is the shim's socket. It exists from the beginning, under a temporary name, and gets its
// own once the agent runs: who sees it can connect, and is answered.
type listener struct {
	fd   int
	dir  int
	name string
	ino  uint64 // to tell it from another run's
}

// listen makes the socket for path. The address is given relative to its directory, because a
// socket's path may have only 107 bytes (unix(7)).
func listen(path string) (listener, error) {
	l := listener{name: filepath.Base(path)}
	var err error
	if l.dir, err = unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return l, &os.PathError{Op: "open", Path: filepath.Dir(path), Err: err}
	}
	if l.fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0); err != nil {
		return l, os.NewSyscallError("socket", err)
	}
	temp := l.temp()
	_ = unix.Unlinkat(l.dir, temp, 0)
	mask := unix.Umask(0o177) // chmod would come after bind, and somebody in between
	err = unix.Bind(l.fd, &unix.SockaddrUnix{Name: "/proc/self/fd/" + strconv.Itoa(l.dir) + "/" + temp})
	unix.Umask(mask)
	if err != nil {
		return l, os.NewSyscallError("bind", err)
	}
	if err := unix.Listen(l.fd, maxConns); err != nil {
		return l, os.NewSyscallError("listen", err)
	}
	var st unix.Stat_t
	if err := unix.Fstatat(l.dir, temp, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return l, os.NewSyscallError("stat", err)
	}
	l.ino = st.Ino
	return l, nil
}

// listenAgain makes the socket anew, if somebody has removed or replaced it. The connections that
// there are stay.
func (s *shim) listenAgain() {
	var st unix.Stat_t
	if unix.Lstat(s.spec.Socket, &st) == nil && st.Ino == s.listener.ino {
		return
	}
	l, err := listen(s.spec.Socket)
	if err == nil {
		err = s.poller.add(l.fd, aboutListener)
	}
	if err == nil {
		err = l.publish()
	}
	if err != nil { // whoever has asked for it asks again
		if l.fd > 0 { // 0 is our terminal, and no socket was made
			_ = unix.Close(l.fd)
		}
		closeIfOpen(l.dir)
		return
	}
	_, _ = unix.Close(s.listener.fd), unix.Close(s.listener.dir)
	s.listener = l
}

func (l *listener) temp() string { return "." + l.name + ".new" }

// publish gives the socket its name.
func (l *listener) publish() error {
	return os.NewSyscallError("rename", unix.Renameat(l.dir, l.temp(), l.dir, l.name))
}

// remove removes the socket under both names, unless the name has passed on to another one. It is
// left open: who has just connected, and was not accepted any more, must not take the shim for dead
// before the agent's exit is recorded.
func (l *listener) remove() {
	var st unix.Stat_t
	for _, name := range []string{l.temp(), l.name} {
		if unix.Fstatat(l.dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Ino == l.ino {
			_ = unix.Unlinkat(l.dir, name, 0)
		}
	}
}

// conn is one connection: a daemon, or the shim that runs in a joined pane.
type conn struct {
	fd      int // -1 once it is closed
	kind    peerKind
	more    bool  // there may be more to receive
	partial *text // the text whose messages have not all come yet

	refusing bool // the rest of the text with the number refused
	refused  uint32
}

// receiver takes datagrams and the descriptors in them, without allocating anything.
type receiver struct {
	data    [shimwire.MaxMessage]byte
	control [64]byte
	vec     unix.Iovec
	header  unix.Msghdr
	sender  int32 // which process has sent the last datagram, where the socket passes that on; else 0
}

// receive takes one datagram. passed is the descriptor that came with it, -1 if there was none;
// more than one is too many and they are closed.
func (r *receiver) receive(fd int) (b []byte, passed int, e unix.Errno) {
	r.vec.Base = &r.data[0]
	r.vec.SetLen(len(r.data))
	r.header = unix.Msghdr{Iov: &r.vec, Control: &r.control[0]}
	r.header.SetIovlen(1)
	r.header.SetControllen(len(r.control))
	n, e := sysReceive(fd, &r.header)
	if e != 0 {
		return nil, -1, e
	}
	r.sender = 0
	passed = r.descriptor()
	if r.header.Flags&unix.MSG_TRUNC != 0 {
		closeIfOpen(passed)
		return nil, -1, unix.EMSGSIZE
	}
	return r.data[:n], passed, 0
}

func (r *receiver) descriptor() int {
	size := int(r.header.Controllen)
	if size == 0 {
		return -1
	}
	msgs, err := unix.ParseSocketControlMessage(r.control[:size])
	if err != nil {
		return -1
	}
	passed := -1
	for i := range msgs {
		if who, err := unix.ParseUnixCredentials(&msgs[i]); err == nil {
			r.sender = who.Pid
		}
		fds, err := unix.ParseUnixRights(&msgs[i])
		if err != nil {
			continue
		}
		for _, fd := range fds {
			closeIfOpen(passed)
			passed = fd
		}
	}
	return passed
}

func closeIfOpen(fd int) {
	if fd >= 0 {
		_ = unix.Close(fd)
	}
}

// accept takes the connections that wait.
func (s *shim) accept() {
	for {
		fd, e := sysAccept(s.listener.fd)
		if e != 0 {
			return
		}
		kind := s.peer(fd)
		s.makeRoom(kind)
		slot := s.freeSlot()
		if kind == foreignPeer || slot < 0 || s.poller.add(fd, aboutConn+slot) != nil {
			_ = unix.Close(fd)
			continue
		}
		s.conns[slot] = &conn{fd: fd, kind: kind}
		s.introduce(s.conns[slot])
	}
}

func (s *shim) freeSlot() int {
	for i, c := range s.conns {
		if c == nil || c.fd < 0 {
			return i
		}
	}
	return -1
}

func (s *shim) hello() shimwire.Message {
	return shimwire.Message{
		Kind: shimwire.Hello, RunID: s.spec.RunID, ShimPID: os.Getpid(), AgentPID: s.agent.pid, AgentStart: s.agent.ticks,
		Started: s.agent.started, Idle: s.idle, Pane: s.pane.there(), TakesKeys: true, Since: s.since, Seq: s.saidActive,
	}
}

// send sends m. Who does not take it is disconnected: it can come back, and then a new Hello tells
// it everything.
func (s *shim) send(c *conn, m shimwire.Message) {
	if c == nil || c.fd < 0 {
		return
	}
	if !m.Since.IsZero() {
		m.SinceMonotonic = clock.Monotonic() - time.Since(m.Since)
	}
	if sysSend(c.fd, m.Append(s.outgoing[:0])) != 0 {
		s.drop(c)
	}
}

// attended tells whether a daemon is connected.
func (s *shim) attended() bool {
	return slices.ContainsFunc(s.conns[:], func(c *conn) bool {
		return c != nil && c.fd >= 0 && c != s.pane.joined && c.kind.mayType() && !ready(c.fd, unix.POLLHUP|unix.POLLRDHUP)
	})
}

// tell tells every daemon.
func (s *shim) tell(m shimwire.Message) {
	for _, c := range s.conns {
		if c != s.pane.joined {
			s.send(c, m)
		}
	}
}

func (s *shim) drop(c *conn) {
	if c == nil || c.fd < 0 {
		return
	}
	_ = unix.Close(c.fd)
	c.fd = -1
	if c.partial != nil {
		s.input.discard(c.partial)
		c.partial = nil
	}
	s.input.withdraw(c)
	if c == s.pane.joined { // the shim in the pane has died, and its pane with it: nobody closed that one
		s.losePane()
	}
}

// receiveAtOnce is how many datagrams one connection may have taken before the others have their
// turn, and the agent.
const receiveAtOnce = 16

// hear takes what the connections have sent. It returns whether there is more.
func (s *shim) hear() (more bool) {
	for _, c := range s.conns {
		for range receiveAtOnce {
			if c == nil || c.fd < 0 || !c.more {
				break
			}
			c.more = s.receive(c)
		}
		more = more || c != nil && c.fd >= 0 && c.more
	}
	return more
}

// receive takes one datagram, and returns whether there may be another.
func (s *shim) receive(c *conn) bool {
	b, passed, e := s.incoming.receive(c.fd)
	if e == unix.EAGAIN {
		return false
	}
	var m shimwire.Message
	var err error
	if e == 0 && len(b) > 0 {
		m, err = shimwire.ParseMessage(b)
	}
	if e != 0 || len(b) == 0 || err != nil {
		closeIfOpen(passed)
		s.drop(c)
		return false
	}
	s.take(c, &m, passed)
	return true
}

func (s *shim) take(c *conn, m *shimwire.Message, passed int) {
	switch {
	case m.Kind == shimwire.Join && passed >= 0 && c.kind.mayJoin():
		s.join(c, passed, string(m.Data))
	case m.Kind == shimwire.Resized && c == s.pane.joined:
		s.resize()
	case (m.Kind == shimwire.Input || m.Kind == shimwire.Keys) && !c.kind.mayType():
		s.send(c, shimwire.Message{Kind: shimwire.InputDone, Seq: m.Seq, Error: "only corrald may send text"})
	case m.Kind == shimwire.Input:
		s.pane.readable = s.pane.there() // there may be keys, though nobody has looked yet
		if problem := s.input.add(c, m); problem != "" {
			s.send(c, shimwire.Message{Kind: shimwire.InputDone, Seq: m.Seq, Error: problem})
		}
	case m.Kind == shimwire.Keys:
		s.pane.readable = s.pane.there()
		if problem := s.input.addKeys(c, m); problem != "" {
			s.send(c, shimwire.Message{Kind: shimwire.InputDone, Seq: m.Seq, Error: problem})
		}
	}
	closeIfOpen(passed)
}
