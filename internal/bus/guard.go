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

// Guarded is a bus connection that survives every message. Programs that others can call use it.
//
// godbus panics at an array of file descriptors. It closes the connection at valid messages that it
// cannot decode: a dictionary whose keys are booleans or signatures, or an empty array at the
// maximum depth. It accepts messages of up to 128 MiB from any process that knows the connection's
// unique name. Guarded does not deliver the following messages. It replies to the calls among them
// with an error, and drops the signals:
//   - messages that godbus cannot decode
//   - messages with file descriptors, which it closes, because godbus would leave those open that
//     are not arguments
//   - messages of more than MaxMessage bytes, which it discards while it reads them
//
// Replies to this connection's own calls may have any size, and may contain file descriptors,
// because a bus does not deliver unrequested replies.
type Guarded struct {
	*dbus.Conn
	socket *guard
}

// MaxMessage is the maximum size of a call or signal that is delivered, in bytes. The longest
// reasonable call is a CreateSession whose command and environment have the maximum size that
// execve(2) accepts, 2 MiB.
const MaxMessage = 8 << 20

// DialGuarded opens a guarded connection to a bus at a socket (unix:path= or unix:abstract=).
// Otherwise it works like Dial. The goroutine that reads from the connection calls incoming, if it
// is not nil, with each message and its length in bytes before the message is processed.
func DialGuarded(
	ctx context.Context, address string, incoming func(msg *dbus.Message, length int), options ...dbus.ConnOption,
) (*Guarded, error) {
	socket, err := dialSocket(ctx, address)
	if err != nil {
		return nil, fmt.Errorf("cannot connect to the bus: %w", err)
	}
	g := &guard{UnixConn: socket}
	g.reader = bufio.NewReader(&g.descriptors)
	g.descriptors.socket = socket
	intercept := func(msg *dbus.Message) {
		cloneStrings(msg)
		g.descriptors.deliver(msg)
		g.handleUndelivered(msg)
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

// dialSocket connects to the first socket of the address that accepts the connection.
func dialSocket(ctx context.Context, address string) (*net.UnixConn, error) {
	err := errors.New("its address has no unix:path= and no unix:abstract=")
	for one := range strings.SplitSeq(address, ";") {
		pairs, isUnix := strings.CutPrefix(one, "unix:")
		for pair := range strings.SplitSeq(pairs, ",") {
			key, value, _ := strings.Cut(pair, "=")
			if !isUnix || key != "path" && key != "abstract" {
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

// Marshalled is the body of a message in the wire format, little-endian.
type Marshalled struct {
	Signature dbus.Signature
	Body      []byte
}

// Signal is a signal in the wire format, without its serial number.
type Signal []byte

// NewSignal encodes a signal. It returns an error if godbus considers the message invalid.
func NewSignal(path dbus.ObjectPath, iface, member string, body ...any) (Signal, error) {
	msg := dbus.Message{
		Type: dbus.TypeSignal, Flags: dbus.FlagNoReplyExpected, Body: body,
		Headers: map[dbus.HeaderField]dbus.Variant{
			dbus.FieldPath:      dbus.MakeVariant(path),
			dbus.FieldInterface: dbus.MakeVariant(iface),
			dbus.FieldMember:    dbus.MakeVariant(member),
			dbus.FieldSignature: dbus.MakeVariant(dbus.SignatureOf(body...)),
		},
	}
	var b bytes.Buffer
	err := msg.EncodeTo(&b, binary.LittleEndian)
	return b.Bytes(), err
}

// Emit sends a signal. The caller does not use it afterwards.
func (c *Guarded) Emit(s Signal) error {
	return c.socket.send(s)
}

// WriteMessage sends a message that expects no reply. The caller keeps the ownership of its file
// descriptors. Unlike Send, which encodes a message twice, it encodes the message once; it does not
// encode a Marshalled body.
func (c *Guarded) WriteMessage(msg *dbus.Message) error {
	if len(msg.Body) == 1 {
		if m, ok := msg.Body[0].(Marshalled); ok {
			return c.writeMarshalled(msg, m.Body)
		}
	}
	descriptors := 0
	for _, value := range msg.Body {
		if _, ok := value.(dbus.UnixFD); ok {
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
	serial := c.socket.setSerial(b.Bytes())
	if len(fds) > 0 {
		c.socket.replies.add(serial, msg)
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
	b.Grow(len(body))
	binary.LittleEndian.PutUint32(b.Bytes()[4:], uint32(len(body)))
	b.Write(body)
	return c.socket.send(b.Bytes())
}

// guard is the socket of a Guarded connection. godbus reads from it and writes to it.
type guard struct {
	*net.UnixConn
	reader        *bufio.Reader
	descriptors   descriptorReader
	authenticated atomic.Bool // the authentication is complete, and messages follow
	rest          []byte      // the part of the current message that godbus has not read yet
	length        int         // of the current message
	lastSerial    atomic.Uint32
	replies       descriptorReplies

	mu sync.Mutex // held while writing
}

// Write implements io.Writer. godbus writes each message with one call.
func (g *guard) Write(p []byte) (int, error) {
	if !g.authenticated.Load() && string(p) == "BEGIN\r\n" {
		if err := g.negotiate(); err != nil {
			return 0, err
		}
		g.authenticated.Store(true)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.UnixConn.Write(p)
}

// negotiate requests that file descriptors can be sent, which godbus does only for its own sockets.
// A bus that does not support this replies ERROR, which is ignored.
func (g *guard) negotiate() error {
	if _, err := g.UnixConn.Write([]byte("NEGOTIATE_UNIX_FD\r\n")); err != nil {
		return err
	}
	_, err := g.reader.ReadString('\n')
	return err
}

// send sends a message that godbus does not know.
func (g *guard) send(message []byte) error {
	g.setSerial(message)
	return g.write(message, nil)
}

// setSerial sets the serial number of a message that godbus does not know, and returns it. godbus
// never uses numbers of this range.
func (g *guard) setSerial(message []byte) uint32 {
	serial := g.lastSerial.Add(1) | 1<<31
	binary.LittleEndian.PutUint32(message[8:], serial)
	return serial
}

// write writes a message with its file descriptors.
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

// Read implements io.Reader. It returns only messages that godbus can decode.
func (g *guard) Read(p []byte) (int, error) {
	if !g.authenticated.Load() {
		return g.reader.Read(p)
	}
	for len(g.rest) == 0 {
		message, err := g.next()
		if err != nil {
			g.descriptors.closeAll()
			return 0, err
		}
		g.rest, g.length = message, len(message)
	}
	n := copy(p, g.rest)
	g.rest = g.rest[n:]
	if len(g.rest) == 0 {
		g.rest = nil // free the memory before the next message arrives
	}
	return n, nil
}

const maxReply = 1 << 27 // bytes, the limit of the D-Bus specification for all messages

// next reads a message. It returns nil if it has refused the message.
func (g *guard) next() ([]byte, error) {
	start, err := g.reader.Peek(fixedHeader)
	if err != nil {
		return nil, err
	}
	order, kind := byteOrder(start), dbus.Type(start[1])
	header := fixedHeader + (uint64(order.Uint32(start[12:]))+7)/8*8
	length := header + uint64(order.Uint32(start[4:]))
	isReply := kind == dbus.TypeMethodReply || kind == dbus.TypeError
	switch {
	case length > maxReply:
		return nil, errors.New("a message on the bus is too long")
	case length > MaxMessage && !isReply:
		return nil, g.discard(int(header), int(length))
	}
	message := make([]byte, length)
	if _, err := io.ReadFull(g.reader, message); err != nil {
		return nil, err
	}
	g.descriptors.startMessage(parseHeader(message))
	if reason := unreadable(message, isReply); reason != "" {
		g.descriptors.endMessage()
		g.refuse(message, "InvalidArgs", reason)
		return nil, nil
	}
	return message, nil
}

// discard reads a message that is too long. It keeps only the header, so that it can reply to a
// call. If the header itself is too long, it replies nothing: no caller that waits for a reply
// sends such a header.
func (g *guard) discard(header, length int) error {
	var kept []byte
	if header <= MaxMessage {
		kept = make([]byte, header)
		if _, err := io.ReadFull(g.reader, kept); err != nil {
			return err
		}
	}
	rest := io.LimitReader(g.reader, int64(length-len(kept)))
	if _, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, rest, make([]byte, 64<<10)); err != nil {
		return err
	}
	if kept == nil {
		g.descriptors.closeAll()
		return nil
	}
	g.descriptors.startMessage(parseHeader(kept))
	g.descriptors.endMessage()
	text := fmt.Sprintf("the message has %d bytes, and may have %d at most", length, MaxMessage)
	g.refuse(kept, "LimitsExceeded", text)
	return nil
}

// refuse replies with an error to a call that is not delivered, if its caller expects a reply. All
// other messages that are not delivered are dropped.
func (g *guard) refuse(message []byte, name, text string) {
	kind, flags, h := dbus.Type(message[1]), dbus.Flags(message[2]), parseHeader(message)
	if kind == dbus.TypeMethodCall && flags&dbus.FlagNoReplyExpected == 0 && h.sender != "" {
		g.sendError(h.sender, byteOrder(message).Uint32(message[8:]), name, text)
	}
}

// sendError replies to a call with a standard D-Bus error.
func (g *guard) sendError(caller string, call uint32, name, text string) {
	reply := dbus.Message{
		Type:  dbus.TypeError,
		Flags: dbus.FlagNoReplyExpected,
		Body:  []any{text},
		Headers: map[dbus.HeaderField]dbus.Variant{
			dbus.FieldErrorName:   dbus.MakeVariant(ErrorPrefix + name),
			dbus.FieldDestination: dbus.MakeVariant(caller),
			dbus.FieldReplySerial: dbus.MakeVariant(call),
			dbus.FieldSignature:   dbus.MakeVariant(dbus.ParseSignatureMust("s")),
		},
	}
	var b bytes.Buffer
	if reply.EncodeTo(&b, binary.LittleEndian) == nil {
		_ = g.send(b.Bytes()) // the reading goroutine detects a lost connection
	}
}
