package bus

import (
	"bufio"
	"context"
	"net"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"
)

// DialReceiving is DialGuarded for a connection that calls others, and is given a descriptor where that is the only argument of an answer. All other descriptors
// are closed, as are those of any message that is no answer.
func DialReceiving(ctx context.Context, address string, options ...dbus.ConnOption) (*Guarded, error) {
	return dialGuarded(ctx, address, &received{fd: -1}, nil, options...)
}

// received is what a connection was sent in descriptors. It belongs to the connection's reader. A nil one takes none.
type received struct {
	socket  *net.UnixConn
	in      *bufio.Reader
	waiting []int // of messages that are still to be read, in their order
	fd      int   // of the answer that is being read, -1 if it has none
}

// reader returns what the messages are read from.
func (r *received) reader(socket *net.UnixConn) *bufio.Reader {
	if r == nil {
		return bufio.NewReader(descriptorless{socket})
	}
	r.socket = socket
	r.in = bufio.NewReader(r)
	return r.in
}

// Read implements io.Reader. A descriptor comes with the first byte of the message that has it.
func (r *received) Read(p []byte) (int, error) {
	var rights [4096]byte // more than the kernel passes at once
	n, size, _, _, err := r.socket.ReadMsgUnix(p, rights[:])
	if messages, bad := unix.ParseSocketControlMessage(rights[:size]); bad == nil {
		for _, m := range messages {
			if fds, bad := unix.ParseUnixRights(&m); bad == nil {
				r.waiting = append(r.waiting, fds...)
			}
		}
	}
	return max(n, 0), err
}

// unreadable is the function of that name, for a message whose descriptors are taken or closed by that.
func (r *received) unreadable(message []byte) (says string) {
	if r == nil {
		return unreadable(message)
	}
	h := parseHeader(message)
	n := min(int(h.descriptors), len(r.waiting))
	if r.in.Buffered() == 0 {
		n = len(r.waiting) // the first byte of the next message has not come
	}
	mine := r.waiting[:n]
	r.waiting = r.waiting[n:]
	if dbus.Type(message[1]) == dbus.TypeMethodReply && h.signature == "h" && len(mine) == 1 {
		r.fd = mine[0]
		return ""
	}
	for _, fd := range mine {
		_ = unix.Close(fd)
	}
	return unreadable(message)
}

// deliver puts its descriptor into an answer, which godbus has read without it.
func (r *received) deliver(msg *dbus.Message) {
	if r == nil || r.fd < 0 {
		return
	}
	msg.Body, r.fd = []any{dbus.UnixFD(r.fd)}, -1
}
