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

// maxConns is the maximum number of connections; further ones are closed at once. The session's own
// processes can have at most two of them: see limitOwnConnections.
const maxConns = 8

// listener is the shim's socket. It is created before the agent starts, under a temporary name, and
// renamed once the agent runs, so that every client that sees the socket gets an answer.
type listener struct {
	fd    int
	dir   int
	name  string
	inode uint64 // distinguishes it from the socket of another run
}

// listen creates the socket for path. It binds it relative to the directory, because the path in a
// socket address is limited to 107 bytes (unix(7)).
func listen(path string) (listener, error) {
	l := listener{name: filepath.Base(path)}
	var err error
	if l.dir, err = unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return l, &os.PathError{Op: "open", Path: filepath.Dir(path), Err: err}
	}
	if l.fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0); err != nil {
		return l, os.NewSyscallError("socket", err)
	}
	temp := l.tempName()
	_ = unix.Unlinkat(l.dir, temp, 0)
	mask := unix.Umask(0o177) // chmod after bind would leave a gap in which others could connect
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
	l.inode = st.Ino
	return l, nil
}

// recreateSocket creates the socket again if it was removed or replaced. Existing connections stay
// open.
func (s *shim) recreateSocket() {
	var st unix.Stat_t
	if unix.Lstat(s.spec.Socket, &st) == nil && st.Ino == s.listener.inode {
		return
	}
	l, err := listen(s.spec.Socket)
	if err == nil {
		err = s.poller.add(l.fd, eventListener)
	}
	if err == nil {
		err = l.publish()
	}
	if err != nil { // the client sends SIGUSR1 again
		if l.fd > 0 { // 0 means that no socket was created: descriptor 0 is the terminal
			_ = unix.Close(l.fd)
		}
		closeIfOpen(l.dir)
		return
	}
	_, _ = unix.Close(s.listener.fd), unix.Close(s.listener.dir)
	s.listener = l
}

func (l *listener) tempName() string { return "." + l.name + ".new" }

// publish renames the socket to its final name.
func (l *listener) publish() error {
	return os.NewSyscallError("rename", unix.Renameat(l.dir, l.tempName(), l.dir, l.name))
}

// remove removes the socket under both names, unless the name now belongs to another one. The
// descriptor stays open: a client that has just connected and was not accepted yet must not
// conclude that the shim has exited before the agent's exit is recorded.
func (l *listener) remove() {
	var st unix.Stat_t
	for _, name := range []string{l.tempName(), l.name} {
		if unix.Fstatat(l.dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Ino == l.inode {
			_ = unix.Unlinkat(l.dir, name, 0)
		}
	}
}

// conn is one connection: from a daemon, or from the shim that runs in a joined pane.
type conn struct {
	fd         int // -1 once it is closed
	kind       peerKind
	isReadable bool  // there may be more to receive
	partial    *text // a text whose last message was not received yet

	isRejecting bool // ignore the remaining messages of the text with number rejectedSeq
	rejectedSeq uint32
}

// receiver receives datagrams and the descriptors in them without allocating memory.
type receiver struct {
	data    [shimwire.MaxMessage]byte
	control [64]byte
	vec     unix.Iovec
	header  unix.Msghdr
	sender  int32 // sender of the last datagram if the socket passes credentials, else 0
}

// receive receives one datagram. passed is the descriptor that came with it, or -1; if there are
// several all but the last are closed.
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

// accept accepts all pending connections.
func (s *shim) accept() {
	for {
		fd, e := sysAccept(s.listener.fd)
		if e != 0 {
			return
		}
		kind := s.classifyConnection(fd)
		s.limitOwnConnections(kind)
		slot := slices.IndexFunc(s.conns[:], func(c *conn) bool { return c == nil || c.fd < 0 })
		if kind == foreignPeer || slot < 0 || s.poller.add(fd, eventConn+slot) != nil {
			_ = unix.Close(fd)
			continue
		}
		s.conns[slot] = &conn{fd: fd, kind: kind}
		s.sendCurrentState(s.conns[slot])
	}
}

func (s *shim) hello() shimwire.Message {
	return shimwire.Message{
		Kind: shimwire.Hello, RunID: s.spec.RunID, Sandbox: s.spec.Sandbox, ShimPID: os.Getpid(),
		AgentPID: s.agent.pid, AgentStart: s.agent.startTicks, Started: s.agent.started,
		Idle: s.idle, Since: s.activitySince, Seq: s.activitySeq,
		Pane: s.pane.isOpen(), TakesKeys: true, SendsTyped: true,
	}
}

// send sends m. A client that does not accept it is disconnected: it can connect again, and a new
// Hello then describes the current state.
func (s *shim) send(c *conn, m shimwire.Message) {
	if c == nil || c.fd < 0 {
		return
	}
	if !m.Since.IsZero() {
		m.SinceMonotonic = clock.Monotonic() - time.Since(m.Since)
	}
	if sysSend(c.fd, m.Append(s.outgoing[:0])) != 0 {
		s.disconnect(c)
	}
}

func (s *shim) hasDaemon() bool {
	return slices.ContainsFunc(s.conns[:], func(c *conn) bool {
		return c != nil && c.fd >= 0 && c != s.pane.joined && c.kind.canType() &&
			!isReady(c.fd, unix.POLLHUP|unix.POLLRDHUP)
	})
}

// broadcast sends m to every daemon.
func (s *shim) broadcast(m shimwire.Message) {
	for _, c := range s.conns {
		if c != s.pane.joined {
			s.send(c, m)
		}
	}
}

// disconnect closes a connection and withdraws the input that it has sent.
func (s *shim) disconnect(c *conn) {
	if c == nil || c.fd < 0 {
		return
	}
	_ = unix.Close(c.fd)
	c.fd = -1
	if c.kind.canType() {
		s.scopeEnds = false // a daemon that was killed may not have sent the signal
	}
	if c.partial != nil {
		s.input.discard(c.partial)
		c.partial = nil
	}
	s.input.withdraw(c)
	if c == s.pane.joined { // the shim in the pane has exited, and the pane with it
		s.handleJoinerExit()
	}
}

// receiveBatch is how many datagrams are received from one connection before the other connections
// and the agent are served.
const receiveBatch = 16

// receiveMessages receives a batch of datagrams from each connection. It returns whether there are
// more.
func (s *shim) receiveMessages() (more bool) {
	for _, c := range s.conns {
		for range receiveBatch {
			if c == nil || c.fd < 0 || !c.isReadable {
				break
			}
			c.isReadable = s.receive(c)
		}
		more = more || c != nil && c.fd >= 0 && c.isReadable
	}
	return more
}

// receive receives and handles one datagram. It returns whether there may be another.
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
		s.disconnect(c)
		return false
	}
	s.handleMessage(c, &m, passed)
	return true
}

func (s *shim) handleMessage(c *conn, m *shimwire.Message, passed int) {
	switch {
	case m.Kind == shimwire.Join && passed >= 0 && c.kind.canJoin():
		s.join(c, passed, string(m.Data))
	case m.Kind == shimwire.Resized && c == s.pane.joined:
		s.resize()
	case m.Kind == shimwire.ScopeEnds && c.kind.canType():
		s.scopeEnds = true
	case (m.Kind == shimwire.Input || m.Kind == shimwire.Keys) && !c.kind.canType():
		s.send(c, shimwire.Message{Kind: shimwire.InputDone, Seq: m.Seq, Error: "only corrald may send text"})
	case m.Kind == shimwire.Input || m.Kind == shimwire.Keys:
		// Keys typed before this input precede it, so the pane has to be read first.
		s.pane.readable = s.pane.isOpen()
		add := s.input.add
		if m.Kind == shimwire.Keys {
			add = s.input.addKeys
		}
		if problem := add(c, m); problem != "" {
			s.send(c, shimwire.Message{Kind: shimwire.InputDone, Seq: m.Seq, Error: problem})
		}
	}
	closeIfOpen(passed)
}
