package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/godbus/dbus/v5"
)

// Bounds of what another machine can make this process keep. Its bus may be any program.
const (
	maxMessage        = 32 << 20 // bytes of a message; the properties of 10,000 sessions are less
	maxPendingSignals = 16 << 20 // bytes of the signals that were received and not processed yet
)

// ConnectOver connects through a stream to a session bus, such as the pipes of "ssh HOST
// systemd-stdio-bridge --user". It cannot carry file descriptors, so OpenLog fails. The time-out
// begins with the first byte that is received, because ssh may ask a person for a password first.
// The other end is not trusted: it can neither make this process keep much more than 32 MiB nor
// call it. Errors: *ConnectError.
func ConnectOver(ctx context.Context, stream io.ReadWriteCloser) (*Client, error) {
	remote := &remoteStream{ReadWriteCloser: stream, in: bufio.NewReaderSize(stream, 64<<10)}
	sequential, ok := dbus.NewSequentialSignalHandler().(sequentialSignals)
	if !ok {
		return nil, errors.New("the signal handler of godbus has changed")
	}
	signals := &boundedSignals{sequentialSignals: sequential, stream: remote}
	c, err := connect(ctx, func(deadline *time.Timer, options ...dbus.ConnOption) (*dbus.Conn, error) {
		deadline.Stop()
		remote.onFirstByte = func() { deadline.Reset(connectTimeout) }
		options = append(options, dbus.WithSignalHandler(signals), dbus.WithIncomingInterceptor(dropUnusable))
		return dbus.NewConn(remote, options...)
	})
	if err == nil {
		c.lastRead, c.processedSignals = &remote.lastRead, &signals.processed
	}
	return c, err
}

// remoteStream is the stream to a bus on another machine. It buffers the many small reads that
// godbus makes for each message, and ends the connection at a message that is too long.
type remoteStream struct {
	io.ReadWriteCloser
	in          *bufio.Reader
	onFirstByte func()
	lastRead    atomic.Int64 // UnixNano of the last read that has returned something
	began       atomic.Bool  // the authentication, which is in lines of text, is over
	rest        int64        // bytes of the current message that have not been read yet
	size        int64        // of the current message
}

// Write notices the end of the authentication.
func (s *remoteStream) Write(p []byte) (int, error) {
	if bytes.Equal(p, []byte("BEGIN\r\n")) {
		s.began.Store(true)
	}
	return s.ReadWriteCloser.Write(p)
}

func (s *remoteStream) Read(p []byte) (int, error) {
	if s.began.Load() && s.rest == 0 {
		if err := s.beginMessage(); err != nil {
			return 0, err
		}
	}
	if s.rest > 0 && int64(len(p)) > s.rest {
		p = p[:s.rest]
	}
	n, err := s.in.Read(p)
	s.rest = max(0, s.rest-int64(n))
	s.received()
	return n, err
}

func (s *remoteStream) received() {
	if s.lastRead.Swap(time.Now().UnixNano()) == 0 {
		s.onFirstByte()
	}
}

// beginMessage determines the length of the next message from its fixed header: see "Message
// Format" in the D-Bus specification.
func (s *remoteStream) beginMessage() error {
	header, err := s.in.Peek(16)
	if err != nil {
		return err
	}
	s.received()
	var order binary.ByteOrder = binary.LittleEndian
	if header[0] == 'B' {
		order = binary.BigEndian
	}
	fields := (int64(order.Uint32(header[12:])) + 7) &^ 7 // padded
	if s.size = 16 + fields + int64(order.Uint32(header[4:])); s.size > maxMessage {
		return fmt.Errorf("a message of %d bytes is too long", s.size)
	}
	s.rest = s.size
	return nil
}

// dropUnusable keeps godbus from processing what a bus does not send to this client: calls, and
// reports without content about names, which would make it panic.
func dropUnusable(m *dbus.Message) {
	name, _ := m.Headers[dbus.FieldMember].Value().(string)
	switch {
	case m.Type == dbus.TypeMethodCall:
		m.Type = 0
	case m.Type == dbus.TypeSignal && (name == "NameLost" || name == "NameAcquired"):
		if len(m.Body) == 0 || reflect.TypeOf(m.Body[0]) != reflect.TypeFor[string]() {
			m.Type = 0
		}
	}
}

// boundedSignals delivers the signals of a remoteStream in order. If too many are pending, it ends
// the connection: a client that follows a host then connects again and reads the state.
type boundedSignals struct {
	sequentialSignals
	stream    *remoteStream
	received  int64        // bytes of all signals; of the goroutine that reads the stream
	processed atomic.Int64 // of those, the bytes that Watch has processed
}

// DeliverSignal implements dbus.SignalHandler. It replaces the sequence number, which nothing else
// uses here, by the number of bytes of all signals up to this one.
func (b *boundedSignals) DeliverSignal(iface, member string, signal *dbus.Signal) {
	b.received += b.stream.size
	if b.received-b.processed.Load() > maxPendingSignals {
		_ = b.stream.Close()
		return
	}
	signal.Sequence = dbus.Sequence(b.received)
	b.sequentialSignals.DeliverSignal(iface, member, signal)
}

// sequentialSignals is what godbus's sequential signal handler implements.
type sequentialSignals interface {
	dbus.SignalHandler
	dbus.SignalRegistrar
	dbus.Terminator
}
