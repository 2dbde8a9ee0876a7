package bus

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"
)

// Guarded is a connection that no message takes down, for programs that others call. godbus panics
// at an array of descriptors, and ends the connection at messages that are valid and that it cannot
// read: a dictionary whose keys are booleans or signatures, or an empty array at the greatest
// depth. Here such a message is answered with an error, and so is every call that brings
// descriptors, which are closed: those that are in no argument would stay open. So is every call of
// more than MaxMessage bytes, which are discarded as they arrive: godbus takes up to 128 MiB from
// whoever knows the connection's unique name. What answers our own calls is of any size, with its
// descriptors: a bus does not pass on an answer that nobody has asked for.
type Guarded struct {
	*dbus.Conn
	socket *guard
}

// MaxMessage is how long a call or a signal may be that is passed on, in bytes. The longest call
// that there can be a use for is a CreateSession whose command and environment are as long as
// execve(2) takes them, 2 MiB.
const MaxMessage = 8 << 20

// DialGuarded is Dial for a connection to a socket (unix:path= or unix:abstract=) that is to be
// guarded. Incoming, if it is not nil, is called by the connection's reader with each message
// before anything else is done with it, and with the message's length in bytes.
func DialGuarded(ctx context.Context, address string, incoming func(msg *dbus.Message, length int), options ...dbus.ConnOption) (*Guarded, error) {
	socket, err := dialSocket(ctx, address)
	if err != nil {
		return nil, fmt.Errorf("cannot connect to the bus: %w", err)
	}
	g := &guard{UnixConn: socket}
	g.in = bufio.NewReader(&g.received)
	g.received.socket = socket
	intercept := func(msg *dbus.Message) {
		ownMessage(msg)
		g.received.into(msg)
		g.returned(msg)
		if incoming != nil {
			incoming(msg, g.length)
		}
	}
	conn, err := dbus.NewConn(g, append([]dbus.ConnOption{
		dbus.WithSignalHandler(dbus.NewSequentialSignalHandler()), dbus.WithIncomingInterceptor(intercept),
	}, options...)...)
	if err != nil {
		_ = socket.Close()
		return nil, fmt.Errorf("cannot connect to the bus: %w", err)
	}
	if err := hello(ctx, conn); err != nil {
		return nil, err
	}
	return &Guarded{conn, g}, nil
}

// dialSocket connects to the first of the address's sockets that can be connected to.
func dialSocket(ctx context.Context, address string) (*net.UnixConn, error) {
	err := errors.New("its address has no unix:path= and no unix:abstract=")
	for one := range strings.SplitSeq(address, ";") {
		rest, _ := strings.CutPrefix(one, "unix:")
		for pair := range strings.SplitSeq(rest, ",") {
			key, value, _ := strings.Cut(pair, "=")
			if rest == one || key != "path" && key != "abstract" {
				continue
			}
			var name string
			if name, err = dbus.UnescapeBusAddressValue(value); err != nil {
				continue
			}
			if key == "abstract" {
				name = "@" + name
			}
			var conn net.Conn
			if conn, err = new(net.Dialer).DialContext(ctx, "unix", name); err == nil {
				return conn.(*net.UnixConn), nil //nolint:forcetypeassert // the network is "unix"
			}
		}
	}
	return nil, err
}

// Marshalled is the body of a message as it is on the wire, little-endian.
type Marshalled struct {
	Signature dbus.Signature
	Body      []byte
}

// WriteMessage sends a message that asks for no answer, with its descriptors, which stay the
// caller's. It encodes it once, where Send does so twice, and not at all a body that is Marshalled.
func (c *Guarded) WriteMessage(msg *dbus.Message) error {
	if len(msg.Body) == 1 {
		if m, is := msg.Body[0].(Marshalled); is {
			return c.writeMarshalled(msg, m.Body)
		}
	}
	descriptors := 0
	for _, value := range msg.Body {
		if _, is := value.(dbus.UnixFD); is {
			descriptors++
		}
	}
	if descriptors > 0 {
		msg.Headers[dbus.FieldUnixFDs] = dbus.MakeVariant(uint32(descriptors))
	}
	var b bytes.Buffer
	fds, err := msg.EncodeToWithFDs(&b, binary.LittleEndian)
	if err != nil {
		return err
	}
	serial := c.socket.number(b.Bytes())
	if len(fds) > 0 {
		c.socket.passed.note(serial, msg)
	}
	return c.socket.write(b.Bytes(), fds)
}

func (c *Guarded) writeMarshalled(msg *dbus.Message, body []byte) error {
	empty := *msg
	empty.Body = nil
	var b bytes.Buffer
	if err := empty.EncodeTo(&b, binary.LittleEndian); err != nil {
		return err
	}
	binary.LittleEndian.PutUint32(b.Bytes()[4:], uint32(len(body)))
	b.Write(body)
	return c.socket.send(b.Bytes())
}

// guard is the socket of such a connection, as godbus sees it.
type guard struct {
	*net.UnixConn
	in       *bufio.Reader
	received received
	begun    atomic.Bool // authenticated: from now on there are messages
	message  []byte      // what is left of the one that is being read
	length   int         // of all of it
	last     atomic.Uint32
	passed   passed

	mu sync.Mutex // held while something is written
}

// Write implements io.Writer. godbus writes each message at once.
func (g *guard) Write(p []byte) (int, error) {
	if !g.begun.Load() && string(p) == "BEGIN\r\n" {
		if err := g.negotiate(); err != nil {
			return 0, err
		}
		g.begun.Store(true)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.UnixConn.Write(p)
}

// negotiate asks that descriptors may be sent, which godbus does for its own sockets alone. A bus
// that cannot do it says ERROR.
func (g *guard) negotiate() error {
	if _, err := g.UnixConn.Write([]byte("NEGOTIATE_UNIX_FD\r\n")); err != nil {
		return err
	}
	_, err := g.in.ReadString('\n')
	return err
}

// send numbers and writes a message of our own.
func (g *guard) send(message []byte) error {
	g.number(message)
	return g.write(message, nil)
}

// number gives a message of our own the serial number that it has to have, which is none of
// godbus's.
func (g *guard) number(message []byte) uint32 {
	serial := g.last.Add(1) | 1<<31
	binary.LittleEndian.PutUint32(message[8:], serial)
	return serial
}

// write writes a message of our own.
func (g *guard) write(message []byte, fds []int) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(fds) == 0 {
		_, err := g.UnixConn.Write(message)
		return err
	}
	n, _, err := g.WriteMsgUnix(message, unix.UnixRights(fds...), nil)
	if err == nil && n < len(message) {
		_, err = g.UnixConn.Write(message[n:])
	}
	return err
}

// Read implements io.Reader: messages that godbus can read, one after the other.
func (g *guard) Read(p []byte) (int, error) {
	if !g.begun.Load() {
		return g.in.Read(p)
	}
	for len(g.message) == 0 {
		message, err := g.next()
		if err != nil {
			g.received.close()
			return 0, err
		}
		g.message, g.length = message, len(message)
	}
	n := copy(p, g.message)
	g.message = g.message[n:]
	if len(g.message) == 0 {
		g.message = nil // its memory is not to be kept until there is another one
	}
	return n, nil
}

const maxAnswer = 1 << 27 // bytes, by the specification

// next reads one message, and returns it if it is to be passed on, none if it was refused.
func (g *guard) next() ([]byte, error) {
	start, err := g.in.Peek(fixedHeader)
	if err != nil {
		return nil, err
	}
	order, kind := orderOf(start), dbus.Type(start[1])
	header := fixedHeader + (uint64(order.Uint32(start[12:]))+7)/8*8
	length := header + uint64(order.Uint32(start[4:]))
	isAnswer := kind == dbus.TypeMethodReply || kind == dbus.TypeError
	switch {
	case length > maxAnswer:
		return nil, errors.New("a message on the bus is too long")
	case length > MaxMessage && !isAnswer:
		return nil, g.discard(int(header), int(length))
	}
	message := make([]byte, length)
	if _, err := io.ReadFull(g.in, message); err != nil {
		return nil, err
	}
	g.received.begin(parseHeader(message))
	if says := unreadable(message, isAnswer); says != "" {
		g.received.end()
		g.refuse(message, "InvalidArgs", says)
		return nil, nil
	}
	return message, nil
}

// discard reads a message that is too long, of which it keeps no more than the header, so that a
// call can be answered. A header that is too long by itself is that of no call that anybody waits
// for an answer to.
func (g *guard) discard(header, length int) error {
	var kept []byte
	if header <= MaxMessage {
		kept = make([]byte, header)
		if _, err := io.ReadFull(g.in, kept); err != nil {
			return err
		}
	}
	rest := io.LimitReader(g.in, int64(length-len(kept)))
	if _, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, rest, make([]byte, 64<<10)); err != nil {
		return err
	}
	if kept == nil {
		g.received.close()
		return nil
	}
	g.received.begin(parseHeader(kept))
	g.received.end()
	g.refuse(kept, "LimitsExceeded", fmt.Sprintf("the message has %d bytes, and may have %d at most", length, MaxMessage))
	return nil
}

// refuse answers a call that is not passed on. What is no call is dropped.
func (g *guard) refuse(message []byte, name, says string) {
	h := parseHeader(message)
	if dbus.Type(message[1]) != dbus.TypeMethodCall || dbus.Flags(message[2])&dbus.FlagNoReplyExpected != 0 || h.sender == "" {
		return
	}
	g.answer(h.sender, orderOf(message).Uint32(message[8:]), name, says)
}
