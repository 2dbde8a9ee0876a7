package bus

import (
	"sync"

	"github.com/godbus/dbus/v5"
)

// descriptorReplies stores the last replies that were sent with file descriptors. If the connection
// of a caller cannot receive descriptors, for example over ssh, the bus drops the reply and returns
// an error to its sender only. Without a second reply, the caller would wait until its time-out.
type descriptorReplies struct {
	mu     sync.Mutex
	recent [64]descriptorReply
	next   int
}

// descriptorReply is a reply that was sent with file descriptors.
type descriptorReply struct {
	serial uint32 // of the reply
	caller string // unique name of the connection that called
	call   uint32 // serial of the call
}

// add stores a reply. It must be called before the reply is sent.
func (r *descriptorReplies) add(serial uint32, reply *dbus.Message) {
	caller, _ := reply.Headers[dbus.FieldDestination].Value().(string)
	call, _ := reply.Headers[dbus.FieldReplySerial].Value().(uint32)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.recent[r.next%len(r.recent)] = descriptorReply{serial, caller, call}
	r.next++
}

// find returns the stored reply with this serial number.
func (r *descriptorReplies) find(serial uint32) (descriptorReply, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.recent {
		if one.serial == serial && serial != 0 {
			return one, true
		}
	}
	return descriptorReply{}, false
}

// handleUndelivered sends an error to the caller if msg is the bus's error that a reply with file
// descriptors was not delivered.
func (g *guard) handleUndelivered(msg *dbus.Message) {
	if sender, _ := msg.Headers[dbus.FieldSender].Value().(string); msg.Type != dbus.TypeError || sender != Name {
		return
	}
	serial, _ := msg.Headers[dbus.FieldReplySerial].Value().(uint32)
	if reply, ok := g.replies.find(serial); ok {
		g.sendError(reply.caller, reply.call, "NotSupported",
			"the reply contains a file descriptor, which cannot be passed over this connection")
	}
}
