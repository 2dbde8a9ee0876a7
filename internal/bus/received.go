package bus

import (
	"net"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"
)

// received reads from a socket, and keeps the descriptors that come along until the message is read
// that they are of.
type received struct {
	socket *net.UnixConn
	next   []int // in the order in which they came
	of     []int // those of the message that is being read
}

// Read implements io.Reader. The kernel ends a read with the first data that has descriptors, so
// that those of few messages are kept.
func (r *received) Read(p []byte) (int, error) {
	var rights [4096]byte // more than the kernel passes at once
	n, size, _, _, err := r.socket.ReadMsgUnix(p, rights[:])
	if size > 0 {
		r.keep(rights[:size])
	}
	return max(n, 0), err
}

func (r *received) keep(rights []byte) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return
	}
	for _, m := range messages {
		if fds, err := unix.ParseUnixRights(&m); err == nil {
			r.next = append(r.next, fds...)
		}
	}
}

// begin takes the descriptors of the message with this header, which has as many as it says: the
// bus sees to that. Where the header does not tell, all are closed: a descriptor must not be taken
// for another message's.
func (r *received) begin(h header) {
	r.end()
	if !h.whole {
		r.close()
	}
	count := min(int(h.descriptors), len(r.next))
	r.of = r.next[:count:count]
	if r.next = r.next[count:]; len(r.next) == 0 {
		r.next = nil
	}
}

// into puts the descriptors of an answer into its body. Those that are no argument by themselves
// are closed.
func (r *received) into(msg *dbus.Message) {
	defer r.end()
	for i, value := range msg.Body {
		if index, is := value.(dbus.UnixFDIndex); is && int(index) < len(r.of) && r.of[index] >= 0 {
			msg.Body[i] = dbus.UnixFD(r.of[index])
			r.of[index] = -1 // it is the caller's
		}
	}
}

// end closes the descriptors of the message that was begun.
func (r *received) end() {
	for _, fd := range r.of {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
	r.of = nil
}

// close closes all descriptors.
func (r *received) close() {
	r.end()
	r.of, r.next = r.next, nil
	r.end()
}
