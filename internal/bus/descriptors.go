package bus

import (
	"net"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"
)

// descriptorReader reads from a socket. It keeps the file descriptors that it receives until their
// message is read.
type descriptorReader struct {
	socket  *net.UnixConn
	pending []int // of messages that were not read yet, in order
	current []int // of the message that is being read; -1 for those that were delivered
}

// Read implements io.Reader. The kernel ends a read at the first data with file descriptors, so
// those of only a few messages are kept.
func (r *descriptorReader) Read(p []byte) (int, error) {
	var rights [4096]byte // more than the kernel passes with one read
	n, size, _, _, err := r.socket.ReadMsgUnix(p, rights[:])
	if size > 0 {
		r.store(rights[:size])
	}
	return max(n, 0), err
}

func (r *descriptorReader) store(rights []byte) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return
	}
	for _, m := range messages {
		if fds, err := unix.ParseUnixRights(&m); err == nil {
			r.pending = append(r.pending, fds...)
		}
	}
}

// startMessage assigns the next file descriptors to the message with this header. The bus ensures
// that their number in the header is correct. If the header could not be read completely, the
// number is not known and all descriptors are closed, so that none is assigned to the wrong
// message.
func (r *descriptorReader) startMessage(h header) {
	r.endMessage()
	if !h.complete {
		r.closeAll()
	}
	count := min(int(h.descriptors), len(r.pending))
	r.current = r.pending[:count:count]
	if r.pending = r.pending[count:]; len(r.pending) == 0 {
		r.pending = nil
	}
}

// deliver replaces the descriptor indices in the body of a reply with the file descriptors. It
// closes those that are not arguments of their own.
func (r *descriptorReader) deliver(msg *dbus.Message) {
	defer r.endMessage()
	for i, value := range msg.Body {
		if index, ok := value.(dbus.UnixFDIndex); ok && int(index) < len(r.current) && r.current[index] >= 0 {
			msg.Body[i] = dbus.UnixFD(r.current[index])
			r.current[index] = -1 // now owned by the receiver of the reply
		}
	}
}

// endMessage closes the file descriptors of the current message that were not delivered.
func (r *descriptorReader) endMessage() {
	for _, fd := range r.current {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
	r.current = nil
}

func (r *descriptorReader) closeAll() {
	r.endMessage()
	r.current, r.pending = r.pending, nil
	r.endMessage()
}
